"""The attempts of one send, all within one time limit: which broker is next, what counts, and when to wait.

The rule: after a failure another broker is tried at once, while there is one that was not. Once all have failed, the
send waits and begins again, until its time is over: a broker that is being started again is back in a moment, and a
group of replicas has another master. What never left us counts as no attempt, nor what was refused because the broker
does not lead, for neither can be stored twice; what may be stored is tried `retry_count` more times. The last of these
is not made in haste: a broker that takes connections and hangs up on them may be one whose successor is being elected.

A message that is bound to a queue has no other broker. It waits for its own as long as nobody was reached, nobody leads
or the answer was lost; what that broker refuses stays refused, as in Java. No other attempt is made with a
`retry_count` of 0.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from bolide.client.instance import Instance, NoBroker
from bolide.client.routes import MASTER_ID, Route
from bolide.client.sending.failures import is_busy, is_network, is_without_lead, is_worth_another
from bolide.client.sending.shipment import Shipment
from bolide.errors import ClientError, ConnectError, RequestTimeout
from bolide.model.queue import MessageQueue

_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 0.5
_ROUTE_PAUSE_S = 0.1
_ELECTION_PAUSE_S = 0.1
_LOOK_AGAIN_S = 0.25  # while a broker is waited for, how often its route is asked for again: another may lead by now
log = logging.getLogger(__name__)
Choose = Callable[[Route, str | None, str | None], MessageQueue]


class Attempts:
    """Those of one message, or of one batch."""

    def __init__(self, instance: Instance, choose: Choose, retry_count: int, shipment: Shipment) -> None:
        self._instance = instance
        self._choose = choose
        self._deadline_s = instance.clock.monotonic_s() + shipment.timeout_s
        self._shard, self._queue = shipment.shard, shipment.queue
        self._is_bound = shipment.is_bound
        self._is_single = retry_count <= 0
        self._last_broker = last_broker = shipment.last_broker
        self._left_count = retry_count + (last_broker is None)
        self._lost_count = 0 if last_broker is None else 1  # attempts that may be stored
        self._failed = set() if last_broker is None else {last_broker}
        self._round_count = 0

    @property
    def left_s(self) -> float:
        """The time that is left."""
        return self._deadline_s - self._instance.clock.monotonic_s()

    def choose(self, route: Route) -> MessageQueue:
        """The queue of the next attempt."""
        if self._queue is not None:
            return self._queue
        if self._failed and self._shard is None:
            others = tuple(queue for queue in route.publish if queue.broker_name not in self._failed)
            route = msgspec.structs.replace(route, publish=others or route.publish)
        chosen = self._choose(route, self._shard, self._last_broker)
        self._last_broker = chosen.broker_name
        return chosen

    def is_stored_elsewhere(self) -> bool:
        """It was stored, though not safely: whether it is to be stored once more."""
        self._left_count -= 1
        return self._left_count > 0 and not self._is_bound

    async def failed(self, route: Route, chosen: MessageQueue, failure: ClientError) -> Route:
        """The route to go on with, once it is time; raises the failure if that was the last attempt."""
        is_unstored = isinstance(failure, ConnectError) or is_without_lead(failure)
        if not is_worth_another(failure) or (self._is_bound and not is_unstored and not is_network(failure)):
            raise failure
        if not is_unstored:
            self._left_count -= 1
            self._lost_count += 1
        if self._is_single or self._left_count <= 0 or self.left_s <= 0:
            raise failure
        log.debug("send attempt failed queue=%s problem=%s", chosen, failure)
        self._failed.add(chosen.broker_name)
        if is_unstored or is_network(failure):
            await self._look_again(route.topic)
        route = self._newest(route)
        if self._is_bound or self._failed.issuperset(queue.broker_name for queue in route.publish):
            self._failed.clear()
            await self._wait(chosen, failure)
            route = self._newest(route)
        if self.left_s <= 0:
            raise failure
        return route

    async def _look_again(self, topic: str) -> None:
        """A broker that cannot be reached or hung up may have moved, and another may lead: ask for the route again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.left_s):
                await self._instance.doubt(topic)

    def _newest(self, route: Route) -> Route:
        newest = self._instance.known_route(route.topic)
        return newest if newest is not None and newest.publish else route

    async def _wait(self, chosen: MessageQueue, failure: ClientError) -> None:
        """All have failed: until one can be reached, or may have recovered."""
        self._round_count += 1
        pause_s = min(_PAUSE_FIRST_S * 2**self._round_count, _PAUSE_MAX_S)
        address = self._instance.address(chosen.broker_name, MASTER_ID)
        if isinstance(failure, ConnectError) and address is not None:
            await self._instance.wait_for(address, max(min(self.left_s, _LOOK_AGAIN_S), 0))
        elif is_without_lead(failure):
            await asyncio.sleep(max(min(self.left_s, _ELECTION_PAUSE_S), 0))
        elif is_network(failure) and self._left_count == 1 and self._lost_count > 1:
            await self._hold_back(chosen)
        elif is_network(failure) or is_busy(failure):
            await asyncio.sleep(max(min(self.left_s, pause_s), 0))

    async def _hold_back(self, chosen: MessageQueue) -> None:
        """For half of the time that is left, or until another leads, or nobody does."""
        until_s = self._instance.clock.monotonic_s() + self.left_s / 2
        address = self._instance.address(chosen.broker_name, MASTER_ID)
        while (rest_s := until_s - self._instance.clock.monotonic_s()) > 0:
            await asyncio.sleep(min(rest_s, _LOOK_AGAIN_S))
            await self._look_again(chosen.topic)
            if self._instance.address(chosen.broker_name, MASTER_ID) != address:
                return


async def routed_in_time(
    instance: Instance, topic: str, ask: Callable[[str], Awaitable[Route]], timeout_s: float, *, is_patient: bool
) -> Route:
    """What `ask` tells of a topic. Servers that were there before, and a group that elects, are waited for."""
    deadline_s = instance.clock.monotonic_s() + timeout_s
    while True:
        left_s = deadline_s - instance.clock.monotonic_s()
        try:
            async with asyncio.timeout(left_s):
                route = await ask(topic)
            if not is_patient or left_s < _ROUTE_PAUSE_S or not _is_electing(route):
                return route
        except TimeoutError:
            asked = ", ".join(instance.config.namesrv)
            raise RequestTimeout(
                f"{topic}: the name servers {asked} did not tell its route within {timeout_s:g} s"
            ) from None
        except (ConnectError, NoBroker):
            if not is_patient or not instance.has_met_brokers or left_s < _ROUTE_PAUSE_S:
                raise
        await asyncio.sleep(_ROUTE_PAUSE_S)


def _is_electing(route: Route) -> bool:
    """Whether nobody takes messages because a broker has replicas and, at the moment, no master."""
    return not route.publish and any(MASTER_ID not in places for places in route.addresses.values())
