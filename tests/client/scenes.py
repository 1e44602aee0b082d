"""What the tests of the client share: a cluster to play on, a consumer that gathers, a topic that is filled."""

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from bolide import aio
from bolide.admin.admin import Admin
from bolide.client import routes
from bolide.model.queue import MessageQueue
from bolide.testing import AsyncCluster, VirtualClock, cluster
from bolide.testing.loop import VirtualLoop
from tests.remoting.loops import REAL_LIMIT_S, Test, eventually, run_on

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


async def committed(namesrv: str, group: str) -> int:
    async with Admin(namesrv, clock=client_clock()) as admin:
        return sum(row.consumer_offset for row in await admin.group_progress(group) if row.queue.topic == "T")


def owners(*members: Collector, topic: str = "T") -> Counter[MessageQueue]:
    return Counter(queue for member in members for queue in member.consumer.queues if queue.topic == topic)


def is_shared(count: int, *members: Collector) -> bool:
    """Every queue has exactly one owner, and nobody has two more than another."""
    found = owners(*members)
    shares = [len([queue for queue in member.consumer.queues if queue.topic == "T"]) for member in members]
    return len(found) == count and set(found.values()) == {1} and max(shares) - min(shares) <= 1


def reach_through(monkeypatch: pytest.MonkeyPatch, address: str, link_address: str) -> None:
    """Have every client of this process take the link instead of the broker's own address."""

    def route_of(topic: str, answer: object) -> object:
        route = routes.route_of(topic, answer)  # type: ignore[arg-type]
        moved = {
            name: {number: link_address if at == address else at for number, at in places.items()}
            for name, places in route.addresses.items()
        }
        return type(route)(route.topic, route.publish, route.subscribe, moved)

    monkeypatch.setattr("bolide.client.instance.route_of", route_of)


async def stored(rocket: AsyncCluster, topic: str, count: int) -> dict[int, list[aio.Received]]:
    """All messages of a topic, by queue, in order."""
    async with collecting("reader", topic, rocket.namesrv) as member:
        await eventually(lambda: len(member.taken) >= count)
    queues: dict[int, list[aio.Received]] = {}
    for message in member.taken:
        queues.setdefault(message.queue.queue_id, []).append(message)
    return queues
