"""Queues held for ordered consumption: the broker gives each to one member of a group for a minute.

A member renews its locks every 20 s and trusts one for 30, half of what the broker does, so that two members are never
both sure of a queue. A queue that is not ours any more is neither pulled nor handed out until it is locked again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from bolide.client.consuming.inflight import InFlight
from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID
from bolide.errors import BolideError
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.body import QueueName
from bolide.protocol.bodies.queues import LockAnswer, LockRequest
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command

RENEWAL_INTERVAL_S = 20.0
RETRY_INTERVAL_S = 1.0
LOCK_LIFE_S = 30.0
log = logging.getLogger(__name__)


class QueueLocks:
    """The locks of one member."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self.is_answered = True  # by all brokers, when they were last asked to renew

    async def ask(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Which of the queues are ours now, and which are another's; one request for each broker."""
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for broker_name, wanted in _by_broker(queues).items():
            address = self._instance.address(broker_name, MASTER_ID)
            if address is None:
                continue
            command = Command(RequestCode.LOCK_BATCH_MQ, body=self._body(wanted))
            try:
                answer = await self._instance.ask(address, command)
                given = set(LockAnswer.decode(answer.body).queues)
                granted |= given
                refused |= set(wanted) - given
            except BolideError as problem:
                log.warning("queues not locked broker=%s problem=%s", broker_name, problem)
        return granted, refused

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give queues back, so that others need not wait for the locks to grow old."""
        for broker_name, held in _by_broker(queues).items():
            address = self._instance.address(broker_name, MASTER_ID)
            if address is None:
                continue
            try:
                await self._instance.ask(address, Command(RequestCode.UNLOCK_BATCH_MQ, body=self._body(held)))
            except BolideError as problem:
                log.warning("queues not unlocked broker=%s problem=%s", broker_name, problem)

    def age_s(self, inflight: InFlight) -> float:
        """How long ago a queue was locked last."""
        return self._instance.clock.monotonic_s() - inflight.locked_s

    async def renew(self, owned: Collection[InFlight]) -> list[InFlight]:
        """Lock again what is ours; what was refused, or has not been renewed for too long, pauses.

        Returns the queues that are ours again after a pause; another member may have gone on with them meanwhile.
        """
        asked_s = self._instance.clock.monotonic_s()
        granted, refused = await self.ask([inflight.queue for inflight in owned])
        self.is_answered = all(inflight.queue in granted or inflight.queue in refused for inflight in owned)
        regained = []
        for inflight in owned:
            if inflight.queue in granted:
                inflight.locked_s = asked_s
                if not inflight.is_locked:
                    regained.append(inflight)
            elif inflight.queue in refused or asked_s - inflight.locked_s >= LOCK_LIFE_S:
                if inflight.is_locked:
                    log.warning("lock lost queue=%s, waiting for it", inflight.queue)
                inflight.is_locked = False
        return regained

    def _body(self, queues: Iterable[MessageQueue]) -> bytes:
        names = [QueueName.of(queue) for queue in queues]
        return LockRequest(client_id=self._instance.client_id, consumer_group=self._group, mq_set=names).encode()


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


async def renew_forever(
    locks: QueueLocks, owned: dict[MessageQueue, InFlight], go_on: Callable[[InFlight], Awaitable[None]]
) -> None:
    """Keep what we own locked; `go_on` is called with each queue that is ours again.

    A broker that does not answer is asked again soon: it may be back any moment, and a lock that could not be renewed
    is to be given up when its time is over, and not a round later.
    """
    while True:
        await asyncio.sleep(RENEWAL_INTERVAL_S if locks.is_answered else RETRY_INTERVAL_S)
        for inflight in await locks.renew(list(owned.values())):
            await go_on(inflight)
