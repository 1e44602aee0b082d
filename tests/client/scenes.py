"""What the tests of the client share: a cluster to play on, a consumer that gathers, a topic that is filled."""

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from bolide import aio
from bolide.testing import AsyncCluster, VirtualClock, cluster
from bolide.testing.loop import VirtualLoop
from tests.remoting.loops import REAL_LIMIT_S, Test, run_on

OLDEST = aio.StartFrom.oldest()


@asynccontextmanager
async def stage(topic: str = "T", queue_count: int = 8, **options: Any) -> AsyncIterator[AsyncCluster]:
    """A cluster with a topic; in virtual time it lives in it."""
    if isinstance(asyncio.get_running_loop(), VirtualLoop):
        options["clock"] = VirtualClock()
    async with cluster(**options) as rocket:
        await rocket.create_topic(topic, queue_count)
        yield rocket


def on_uvloop(test: Test) -> Callable[..., None]:
    """For what takes seconds: one loop is enough."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(2 * REAL_LIMIT_S):
                await test(**given)

        run_on(uvloop.new_event_loop, in_time)

    return run


def client_clock() -> Any:
    """The clock a client in the same loop must use."""
    return VirtualClock() if isinstance(asyncio.get_running_loop(), VirtualLoop) else None


async def send_all(producer: aio.Producer, topic: str, bodies: Iterable[bytes], **options: Any) -> list[aio.Receipt]:
    return [await producer.send(topic, body, **options) for body in bodies]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


class Collector:
    """A consumer that iterates in a task and keeps what it gets, in the order it came."""

    def __init__(self, consumer: aio.Consumer, act: Callable[[aio.Received], object] | None = None) -> None:
        self.consumer = consumer
        self.taken: list[aio.Received] = []
        self._act = act

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.taken]

    @property
    def counts(self) -> Counter[bytes]:
        return Counter(self.bodies)

    async def run(self) -> None:
        async for message in self.consumer:
            self.taken.append(message)
            if self._act is not None:
                self._act(message)


@asynccontextmanager
async def collecting(
    group: str,
    topics: Any,
    namesrv: str,
    *,
    act: Callable[[aio.Received], object] | None = None,
    **options: Any,
) -> AsyncIterator[Collector]:
    """A member of a group that gathers while the block lasts."""
    options.setdefault("start_from", OLDEST)
    options.setdefault("clock", client_clock())
    async with asyncio.TaskGroup() as tasks, aio.Consumer(group, topics, namesrv, **options) as consumer:
        found = Collector(consumer, act)
        tasks.create_task(found.run(), name=f"gather.{group}")
        yield found
