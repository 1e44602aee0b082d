"""Pops the topics of a group, and keeps what is out hidden for as long as its holder lives.

    popper = Popper("workers", give)
    await popper.start()
    popper.subscribe("Tasks")        # give(popped) is called for each message
    ...
    await popper.ack(popped)         # or release: others get it soon; or bury: it is a dead letter

A consumer that pulls has its share of queues and settles them in order. Here members share messages: any number of them
takes from any queue, and each message is settled by itself. The price is that nothing comes in order.

The rule of its limit: never more messages are out than `limit` says, those included that are being asked for. So it
waits at the broker for word that there is something (which takes nothing), and then takes what it has room for, again
and again while it gets all it asks for. A member that dies is noticed by silence: what it held comes back when its
invisible time is over. While it lives, that time is renewed at half.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from bolide.client.config import Credentials, client_config
from bolide.client.instance import open_instance
from bolide.client.life import Opened
from bolide.client.popping.popped import COUNT_MAX, POP_WAIT_S, Popped, PopRequests
from bolide.client.routes import MASTER_ID
from bolide.clock import Clock, SystemClock
from bolide.errors import BolideError, ClientError, NoAnswer
from bolide.model.names import group_problem
from bolide.remoting.config import ConnectConfig

_OUT_MAX = 10_000
_WAIT_S = 10.0
_PAUSE_S = 0.5
_SETTLE_PAUSE_S = 0.1
_ROUTE_INTERVAL_S = 10.0
_RELEASED_S = 0.1
_GOODBYE_LIMIT_S = 5.0
_LATE_ACK_S = 30.0
_SHARES_OF_INVISIBLE = 4
log = logging.getLogger(__name__)


class _Lane:
    """A topic on one broker. It may be cancelled only while it waits: a pop under way may bring messages."""

    __slots__ = ("is_over", "is_waiting", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.is_waiting = False
        self.is_over = False

    def end(self) -> None:
        self.is_over = True
        if self.is_waiting and self.task is not None:
            self.task.cancel()


class _Notice:
    """A broker's word that a topic has something, asked for and not there yet.

    The broker gives each word to one who waits, and cannot be told that nobody does any more. So who leaves a topic and
    comes back waits for the word that was asked for before: a second one would come 10 s late.
    """

    __slots__ = ("told", "waiting")

    def __init__(self) -> None:
        self.told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting: asyncio.Task[None] | None = None

    async def ask(self, requests: PopRequests, topic: str, broker_name: str) -> None:
        try:
            self.told.set_result(await requests.wait(topic, broker_name, _WAIT_S))
        except BolideError as problem:
            self.told.set_exception(problem)
            self.told.exception()  # there may be nobody left whom it concerns
        finally:
            self.told.cancel()


class Popper(Opened):
    """A member of a group that pops. Its methods are for the loop it was started in."""

    def __init__(
        self,
        group: str,
        give: Callable[[Popped], None],
        namesrv: str | None = None,
        *,
        limit: int = 0,
        invisible_s: float = 60.0,
        instance_name: str = "",
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`limit` is how many messages may be out, 0 for as many as one process should hold at most."""
        if problem := group_problem(group):
            raise ClientError(problem)
        if invisible_s < 1:
            raise ClientError(f"invisible_s is {invisible_s}; a message is hidden for at least a second")
        self.group = group
        self._give = give
        self._limit = limit or _OUT_MAX
        self._invisible_s = invisible_s
        self._config = client_config(namesrv, instance_name=instance_name, credentials=credentials, connect=connect)
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._requests: PopRequests | None = None
        self._topics: dict[str, asyncio.Task[None]] = {}
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._notices: dict[tuple[str, str], _Notice] = {}
        self._out: dict[Popped, None] = {}
        self._asked_count = 0
        self._has_room = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Popper {self.group} {sorted(self._topics)} {len(self._out)} out>"

    async def start(self) -> None:
        """Be ready for topics; `async with` does it."""
        instance = await self._stack.enter_async_context(open_instance(self._config, self._clock))
        try:
            await instance.check_access()
        except BaseException:
            await self._stack.aclose()
            raise
        self._requests = PopRequests(instance, self.group, self._invisible_s)
        self._renewing = instance.errands.start(self._renew_forever(), name=f"popper.renew.{self.group}")

    async def close(self) -> None:
        """Stop taking, give back what is out, tell what was settled; a broker that is silent is not waited for."""
        requests, self._requests = self._requests, None
        if requests is None:
            return
        try:
            async with asyncio.timeout(_GOODBYE_LIMIT_S):
                self._requests = requests
                for topic in list(self._topics):
                    await self.unsubscribe(topic)
                for popped in list(self._out):
                    self.settle_later(popped, self.release)
                while self._settling:
                    await asyncio.wait(self._settling)
        except TimeoutError:
            log.warning("not everything was told in time group=%s messages=%d", self.group, len(self._settling))
        finally:
            self._requests = None
            notices, self._notices = self._notices, {}
            waiting = (*(lane.task for lane in self._lanes.values()), *(notice.waiting for notice in notices.values()))
            for task in (self._renewing, *self._settling, *waiting):
                if task is not None:
                    task.cancel()
            await self._stack.aclose()

    # Topics

    def subscribe(self, topic: str) -> None:
        """Take messages of a topic from now on; one that has no broker yet is looked for again and again."""
        if topic not in self._topics:
            watching = self._opened().instance.errands.start(self._watch(topic), name=f"popper.watch.{topic}")
            self._topics[topic] = watching

    async def unsubscribe(self, topic: str) -> None:
        """Take no more of it, and give back nothing: what is out stays out."""
        watching = self._topics.pop(topic, None)
        if watching is not None:
            watching.cancel()
        ending = [lane for key, lane in self._lanes.items() if key[0] == topic]
        for lane in ending:
            lane.end()
        tasks = [lane.task for lane in ending if lane.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, count: int) -> None:
        self._limit = count or _OUT_MAX
        self._has_room.set()

    async def _watch(self, topic: str) -> None:
        """Have a lane for each broker of a topic, also for those that come later."""
        requests = self._opened()
        instance = requests.instance
        while True:
            try:
                await instance.refresh(topic)
                route = await instance.route(topic)
            except BolideError as problem:
                instance.outages.failed(("pop", topic), f"looking for topic {topic}", problem)
                await asyncio.sleep(_PAUSE_S)
                continue
            instance.outages.worked(("pop", topic))
            for name in {queue.broker_name for queue in route.subscribe}:
                if MASTER_ID in route.addresses.get(name, {}) and (topic, name) not in self._lanes:
                    lane = self._lanes[topic, name] = _Lane()
                    lane.task = instance.errands.start(self._pop_forever(lane, topic, name), name=f"popper.{topic}")
            await asyncio.sleep(_ROUTE_INTERVAL_S)

    async def _pop_forever(self, lane: _Lane, topic: str, broker_name: str) -> None:
        requests = self._opened()
        outages, key = requests.instance.outages, ("pop", topic, broker_name)
        has_more = False
        try:
            while not lane.is_over:
                try:
                    lane.is_waiting = True
                    has_any = has_more or await self._wait(requests, topic, broker_name)
                    lane.is_waiting = False
                    outages.worked(key)
                    if has_any and not lane.is_over:
                        has_more = await self._pop(lane, requests, topic, broker_name, 0 if has_more else POP_WAIT_S)
                except BolideError as problem:
                    has_more = False
                    outages.failed(key, f"taking messages of {topic} from {broker_name}", problem)
                    lane.is_waiting = True
                    await requests.instance.doubt(topic)
                    await asyncio.sleep(_PAUSE_S)
                    lane.is_waiting = False
        finally:
            outages.forget(key)
            self._lanes.pop((topic, broker_name), None)

    async def _pop(self, lane: _Lane, requests: PopRequests, topic: str, broker_name: str, wait_s: float) -> bool:
        """Take what there is room for; whether it was all we asked for, so that there may be more."""
        lane.is_waiting = True
        while (room := self._limit - len(self._out) - self._asked_count) <= 0:
            self._has_room.clear()
            await self._has_room.wait()
        lane.is_waiting = False
        count = min(room, COUNT_MAX)
        self._asked_count += count
        try:
            found = await requests.pop(topic, broker_name, count, wait_s)
        finally:
            self._asked_count -= count
            self._has_room.set()
        for popped in found:
            self._out[popped] = None
            if lane.is_over:
                self.settle_later(popped, self.release)
            else:
                self._give(popped)
        return len(found) == count

    async def _wait(self, requests: PopRequests, topic: str, broker_name: str) -> bool:
        """Whether a pop will bring something, or tells why nothing does."""
        begun_s = self._clock.monotonic_s()
        has_any = await self._word(requests, topic, broker_name)
        waited_s = self._clock.monotonic_s() - begun_s
        if has_any or waited_s > _WAIT_S / 2:
            return has_any
        # It did not wait: too many do, or our clocks differ, which a pop finds out.
        await asyncio.sleep(_PAUSE_S)
        return True

    async def _word(self, requests: PopRequests, topic: str, broker_name: str) -> bool:
        notice = self._notices.get((topic, broker_name))
        if notice is None or notice.told.done():
            notice = self._notices[topic, broker_name] = _Notice()
            asking = notice.ask(requests, topic, broker_name)
            notice.waiting = requests.instance.errands.start(asking, name=f"popper.notice.{topic}")
        return await asyncio.shield(notice.told)

    async def take(self, topic: str) -> Popped | None:
        """One message that is there now, beyond the limit if need be; None if there is none."""
        requests = self._opened()
        route = await requests.instance.route(topic)
        for name in sorted({queue.broker_name for queue in route.subscribe}):
            if await requests.wait(topic, name, 0):
                for popped in await requests.pop(topic, name, 1):
                    self._out[popped] = None
                    return popped
        return None

    # Verdicts

    async def ack(self, popped: Popped) -> None:
        """The message is done."""
        await self._settle(popped, "acknowledged", self._opened().ack)

    async def bury(self, popped: Popped) -> None:
        """The message becomes a dead letter of the group."""
        await self._settle(popped, "made a dead letter", self._opened().bury)

    async def release(self, popped: Popped, delay_s: float = _RELEASED_S) -> None:
        """Others get it, after a while."""
        requests = self._opened()
        await self._settle(popped, "given back", lambda popped: requests.hide(popped, delay_s))

    def settle_later(self, popped: Popped, verdict: Callable[[Popped], Coroutine[Any, Any, None]]) -> None:
        """Tell a verdict, and wait for nothing; `close` does."""
        errands = self._opened().instance.errands
        task = errands.start(verdict(popped), name="popper.settle")
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, popped: Popped, what: str, tell: Callable[[Popped], Coroutine[Any, Any, None]]) -> None:
        """Once: a second verdict on a message is none. A broker that is away is told when it is back."""
        if popped.is_settled:
            return
        popped.is_settled = True
        self._out.pop(popped, None)
        self._has_room.set()
        async with popped.lock:
            while True:
                try:
                    await tell(popped)
                    return
                except NoAnswer as problem:
                    if self._clock.monotonic_s() > popped.hidden_until_s + _LATE_ACK_S:
                        log.warning("not %s in time, it comes again message=%r: %s", what, popped, problem)
                        return
                    await self._opened().instance.doubt(popped.topic)
                    await asyncio.sleep(_SETTLE_PAUSE_S)
                except BolideError as problem:
                    log.warning("could not be %s, it comes again message=%r: %s", what, popped, problem)
                    return

    async def _renew_forever(self) -> None:
        """Keep hidden what is out: at half of its time each gets another."""
        while True:
            await asyncio.sleep(self._invisible_s / _SHARES_OF_INVISIBLE)
            soon_s = self._clock.monotonic_s() + self._invisible_s / 2
            due = [popped for popped in self._out if popped.hidden_until_s < soon_s]
            for first in range(0, len(due), COUNT_MAX):
                await asyncio.gather(*(self._renew(popped) for popped in due[first : first + COUNT_MAX]))

    async def _renew(self, popped: Popped) -> None:
        async with popped.lock:
            requests = self._requests
            if popped.is_settled or requests is None:
                return
            try:
                await requests.hide(popped, self._invisible_s)
            except NoAnswer as problem:
                requests.instance.outages.failed("renewals", "keeping messages hidden", problem)
            except BolideError as problem:
                # It was given to somebody else by now, and there is nothing more to keep: our holder's verdict is late.
                log.warning("a message is not ours any more message=%r: %s", popped, problem)
                popped.is_settled = True
                self._out.pop(popped, None)
                self._has_room.set()
            else:
                requests.instance.outages.worked("renewals")

    def _opened(self) -> PopRequests:
        if self._requests is None:
            raise ClientError(f"popper {self.group} is not open: use it inside its `with` block, or call start()")
        return self._requests
