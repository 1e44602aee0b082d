"""Messages on their way through a broker that is killed: what each flow promises, and what was seen of it.

A flow sends numbered messages without a pause, through kills and restarts, and keeps what was acknowledged. Its
consumer stays through all of it. A send that was not answered is in doubt: it may come, and nobody sends it again, so
that a second copy is always the broker's doing. A copy or a delivery too many is allowed only when the broker died
between the two.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from bolide import aio
from bolide.clock import SystemClock
from bolide.errors import BolideError
from tests.remoting.loops import POLL_INTERVAL_S

SEND_LIMIT_S = 2.0
PULL = aio.PullRules(pause_s=0.05)
CONNECT = aio.ConnectConfig(backoff_first_ms=20, backoff_max_ms=50)  # a life is shorter than the usual rest
clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Outage:
    """From the kill to the moment the broker answered again, in milliseconds of the epoch."""

    killed_ms: int
    back_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Delivery:
    """One receipt of a message: when its copy was stored, when it came, which copy it was."""

    stored_ms: int
    came_ms: int
    copy: tuple[str, int, int]
    attempt: int


def repeats(deliveries: Iterable[Delivery]) -> list[tuple[Delivery, Delivery]]:
    """Each delivery that came after another of the same attempt, with the one before it."""
    by_attempt: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in sorted(deliveries):
        by_attempt[delivery.attempt].append(delivery)
    return [pair for same in by_attempt.values() for pair in pairwise(same)]


def is_explained(first: Delivery, second: Delivery, outages: Iterable[Outage], lag_ms: int) -> bool:
    """The broker died between the two: their storing if they are two copies, else their coming.

    `lag_ms` is how long a copy lies between its making and its storing under the topic it is delivered from.
    """
    if first.copy == second.copy:
        begin_ms, end_ms = first.came_ms, second.came_ms
    else:
        begin_ms, end_ms = first.stored_ms, second.stored_ms
    return any(outage.killed_ms <= end_ms and begin_ms - lag_ms <= outage.back_ms for outage in outages)


class Flow:
    """Plain messages, each acknowledged when it has come; other flows say how they differ."""

    topic: ClassVar[str] = "Plain"
    lag_ms: ClassVar[int] = 0

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.promised: set[bytes] = set()
        self.withheld: set[bytes] = set()  # must never come
        self.deliveries: dict[bytes, list[Delivery]] = defaultdict(list)
        self._producer = self.open_producer()
        self._is_over = False

    def open_producer(self) -> aio.Producer:
        return aio.Producer(f"from-{self.topic}", self.namesrv, retry_count=0, timeout_s=SEND_LIMIT_S, connect=CONNECT)

    async def send(self, body: bytes, number: int) -> None:
        """Send one; it is promised when this returns."""
        await self._producer.send(self.topic, body)
        self.promised.add(body)

    def settle(self, message: aio.Received) -> None:
        """The verdict on a delivery."""
        message.ack()

    def is_kept(self, body: bytes) -> bool:
        """What was promised of this message has happened."""
        return body in self.deliveries

    # Running

    async def produce(self) -> None:
        async with self._producer:
            number = 0
            while not self._is_over:
                with suppress(BolideError, TimeoutError):
                    await self.send(b"%d" % number, number)
                number += 1
                await asyncio.sleep(POLL_INTERVAL_S)

    async def consume(self) -> None:
        group, start = f"of-{self.topic}", aio.StartFrom.oldest()
        async with aio.Consumer(
            group, self.topic, self.namesrv, start_from=start, pull=PULL, connect=CONNECT
        ) as consumer:
            async for message in consumer:
                queue = message.queue
                copy = queue.topic, queue.queue_id, message.queue_offset
                delivery = Delivery(message.stored_at, clock.now_ms(), copy, message.attempt)
                self.deliveries[message.body].append(delivery)
                self.settle(message)

    def stop(self) -> None:
        self._is_over = True

    # What is asked in the end

    def missing(self) -> list[bytes]:
        return [body for body in self.promised if not self.is_kept(body)]

    def unexplained(self, outages: Sequence[Outage]) -> dict[bytes, tuple[Delivery, Delivery]]:
        """What came twice though the broker did not die in between."""
        return {
            body: pair
            for body, deliveries in self.deliveries.items()
            for pair in repeats(deliveries)
            if not is_explained(*pair, outages, self.lag_ms)
        }

    def counts(self) -> dict[str, int]:
        pairs = [pair for deliveries in self.deliveries.values() for pair in repeats(deliveries)]
        kinds = Counter("handed out again" if one.copy == other.copy else "stored again" for one, other in pairs)
        return {"promised": len(self.promised), "came": len(self.deliveries), **kinds}


FLOWS: tuple[type[Flow], ...] = (Flow,)
