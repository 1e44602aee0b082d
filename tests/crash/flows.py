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
from bolide.model.message import StoredMessage
from tests.broker.poppers import Popper
from tests.broker.pullers import TOPIC
from tests.remoting.ends import Peer
from tests.remoting.loops import POLL_INTERVAL_S

SEND_LIMIT_S = 2.0
PULL = aio.PullRules(pause_s=0.2)
CONNECT = aio.ConnectConfig(backoff_first_ms=50, backoff_max_ms=200)  # a life is shorter than the usual rest
POLL_AWAY_S = 0.1  # of a flow whose broker is away: the processor is the broker's, which starts
COMMITTED_OF_FOUR = 2
INVISIBLE_MS = 1_000
POP_LIMIT_S = 5.0
SETTINGS = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "flushDelayOffsetInterval": 200,
    "transactionTimeOut": 500,
    "transactionCheckInterval": 300,
    "transactionCheckMax": 10_000,  # a life is short, and a question in it may not be answered
    "transactionOpBatchInterval": 100,
}
clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Outage:
    """From the kill to the moment all clients could reach the broker again, in milliseconds of the epoch."""

    killed_ms: int
    back_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Delivery:
    """One receipt of a message: when its making began and its copy was stored, when it came, which copy it was."""

    stored_ms: int
    came_ms: int
    copy: tuple[str, int, int]
    retry_times: int
    made_ms: int


def repeats(deliveries: Iterable[Delivery]) -> list[tuple[Delivery, Delivery]]:
    """Each delivery that came after another of the same retry, with the one before it."""
    by_retry: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in sorted(deliveries):
        by_retry[delivery.retry_times].append(delivery)
    return [pair for same in by_retry.values() for pair in pairwise(same)]


def is_explained(first: Delivery, second: Delivery, outages: Iterable[Outage]) -> bool:
    """The broker died between the two: their making if they are two copies, else their coming."""
    if first.copy == second.copy:
        begin_ms, end_ms = first.came_ms, second.came_ms
    else:
        begin_ms, end_ms = first.made_ms, second.stored_ms
    return any(outage.killed_ms <= end_ms and begin_ms <= outage.back_ms for outage in outages)


class Flow:
    """Plain messages, each acknowledged when it has come; other flows say how they differ."""

    topic: ClassVar[str] = "Plain"
    # A copy is made when it is stored; where that is the last of several steps, any of them may have been repeated.
    has_steps: ClassVar[bool] = False

    def __init__(self, namesrv: str, broker_port: int) -> None:
        self.namesrv = namesrv
        self.broker_port = broker_port
        self.promised: set[bytes] = set()
        self.withheld: set[bytes] = set()  # must never come
        self.excused: set[bytes] = set()  # a disk destroyed their own records
        self.deliveries: dict[bytes, list[Delivery]] = defaultdict(list)
        self._producer = self.open_producer()
        self._has_stopped = asyncio.Event()
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
        """Until cancelled: when nothing more is sent, the producer stays to be asked about what it sent."""
        async with self._producer:
            number = 0
            while not self._is_over:
                try:
                    await self.send(b"%d" % number, number)
                    await asyncio.sleep(POLL_INTERVAL_S)
                except (BolideError, TimeoutError):
                    await asyncio.sleep(POLL_AWAY_S)
                number += 1
            self._has_stopped.set()
            await asyncio.Event().wait()

    async def consume(self) -> None:
        group, start = f"of-{self.topic}", aio.StartFrom.oldest()
        async with aio.Consumer(
            group, self.topic, self.namesrv, start_from=start, pull=PULL, connect=CONNECT
        ) as consumer:
            async for message in consumer:
                self.note(message.queue.topic, message.stored)
                self.settle(message)

    def note(self, topic: str, message: StoredMessage) -> None:
        """A message came from a queue of that topic, which is another than its own when it is retried."""
        copy = topic, message.queue_id, message.queue_offset
        made_ms = message.born_at if self.has_steps else message.stored_at
        delivery = Delivery(message.stored_at, clock.now_ms(), copy, message.reconsume_times, made_ms)
        self.deliveries[message.body].append(delivery)

    async def stop(self) -> None:
        """Send no more; returns when the last one is answered."""
        self._is_over = True
        await self._has_stopped.wait()

    # What is asked in the end

    def missing(self) -> list[bytes]:
        return [body for body in self.promised - self.excused if not self.is_kept(body)]

    def is_of(self, topics: Iterable[str]) -> bool:
        """Whether a record with these topics is a message of this flow, in its topic or on its way there."""
        return any(topic == self.topic or topic.endswith((f"of-{self.topic}", f"_{self.topic}")) for topic in topics)

    def unexplained(self, outages: Sequence[Outage]) -> dict[bytes, tuple[Delivery, Delivery]]:
        """What came twice though the broker did not die in between."""
        return {
            body: pair
            for body, deliveries in self.deliveries.items()
            for pair in repeats(deliveries)
            if not is_explained(*pair, outages)
        }

    def counts(self) -> dict[str, int]:
        pairs = [pair for deliveries in self.deliveries.values() for pair in repeats(deliveries)]
        kinds = Counter("handed out again" if one.copy == other.copy else "stored again" for one, other in pairs)
        return {"promised": len(self.promised), "came": len(self.deliveries), **kinds}


class Delayed(Flow):
    """Each message waits at a level, and is moved to its topic when it is due."""

    topic = "Delayed"

    async def send(self, body: bytes, number: int) -> None:
        await self._producer.send(self.topic, body, delay_level=1 + number % 3)
        self.promised.add(body)


class Timed(Flow):
    """Each message waits for its own moment, on the timer."""

    topic = "Timed"

    async def send(self, body: bytes, number: int) -> None:
        await self._producer.send(self.topic, body, delay=0.2 * (number % 8))
        self.promised.add(body)


class Retried(Flow):
    """Each message is refused when it first comes; it is promised to come again."""

    topic = "Retried"
    has_steps = True

    def settle(self, message: aio.Received) -> None:
        if not message.retry_times:
            message.nack()
        else:
            message.ack()

    def is_kept(self, body: bytes) -> bool:
        return any(delivery.retry_times for delivery in self.deliveries.get(body, ()))


class Transacted(Flow):
    """Half messages, decided at once or when the broker asks; a half that is in doubt is taken back.

    However often its half was copied, a message is committed once in a life: only a kill between the two commits
    explains a second one, for it may have taken the note that the first was made.
    """

    topic = "Transacted"

    _producer: aio.TransactionProducer

    def open_producer(self) -> aio.TransactionProducer:
        self._beginning: set[bytes] = set()
        self._committed: set[bytes] = set()
        return aio.TransactionProducer(
            f"from-{self.topic}",
            self.namesrv,
            checker=self._outcome,
            topics=[self.topic],
            retry_count=0,
            timeout_s=SEND_LIMIT_S,
            connect=CONNECT,
        )

    async def stop(self) -> None:
        await super().stop()
        await self._producer.instance.heartbeat()  # a new broker can ask us at once, and not in half a minute

    async def _outcome(self, message: StoredMessage) -> aio.Outcome:
        if message.body in self._beginning:  # on a slow machine the question comes before the answer to the half
            return aio.Outcome.UNKNOWN
        return aio.Outcome.COMMIT if message.body in self._committed else aio.Outcome.ROLLBACK

    async def send(self, body: bytes, number: int) -> None:
        self.withheld.add(body)
        transaction = self._producer.transaction(self.topic, body)
        self._beginning.add(body)
        try:
            await transaction.start()
        finally:
            self._beginning.remove(body)
        if is_committed := number % 4 < COMMITTED_OF_FOUR:
            self._committed.add(body)
            self.withheld.remove(body)
            self.promised.add(body)
        if number % 2:
            await transaction.unknown()
        elif is_committed:
            await transaction.commit()
        else:
            await transaction.rollback()


class Popped(Flow):
    """Each message is popped and not acknowledged, so that the broker revives it; then it is."""

    topic = TOPIC
    has_steps = True

    def is_kept(self, body: bytes) -> bool:
        return any(delivery.retry_times for delivery in self.deliveries.get(body, ()))

    async def consume(self) -> None:
        while True:
            with suppress(OSError, AssertionError):  # the connection is gone with the broker
                async with asyncio.timeout(POP_LIMIT_S):
                    await self._pop(Popper(await Peer.connect(self.broker_port), clock))
            await asyncio.sleep(POLL_AWAY_S)

    async def _pop(self, popper: Popper) -> None:
        while True:
            for popped in await popper.pop(invisible_ms=INVISIBLE_MS, poll_ms=INVISIBLE_MS):
                self.note(popped.topic, popped.message)
                if popped.message.reconsume_times:
                    await popper.ack(popped)


FLOWS: tuple[type[Flow], ...] = (Popped, Flow, Delayed, Timed, Retried, Transacted)
