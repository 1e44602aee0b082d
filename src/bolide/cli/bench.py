"""`bolide bench produce`, `consume` and `latency`: what this cluster and this machine give, in one minute.

Made for a first look and for comparing two settings, not for records: client and progress bar share the processor with
whatever else runs here. Every message is acknowledged by the broker before it counts.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from itertools import count as counter
from typing import TYPE_CHECKING, Annotated

from bolide.cli.commands import Commands, Option
from bolide.cli.connection import name_servers
from bolide.cli.exits import fail, plain_errors
from bolide.cli.output import Format, Namesrv, Output, say, show
from bolide.cli.progress import Bar
from bolide.clock import SystemClock
from bolide.errors import BolideError

if TYPE_CHECKING:
    import asyncio

    from bolide import Producer, Receipt

app = Commands("Measure this cluster: sending, reading, and the time between.")
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_IDLE_LIMIT_S = 10.0
_STEP_COUNT = 256
_clock = SystemClock()

Topic = Annotated[
    str, Option("-t", "--topic", help="the topic to use; it is made where brokers make topics by themselves")
]
Count = Annotated[int, Option(min=1, help="how many messages")]
Seconds = Annotated[float | None, Option(min=0.1, help="stop after this many seconds, whatever --count says")]
Size = Annotated[int, Option(min=1, max=4 << 20, help="bytes of a body")]
DEFAULT_TOPIC = "BenchmarkTest"


class Tally:
    """What was done so far: messages, and how long each took."""

    def __init__(self, count: int, seconds: float | None, tell: Callable[[int], None]) -> None:
        self.done_count = 0
        self.delays_s: list[float] = []
        self._count = count
        self._given = counter()
        self._tell = tell
        self._shown_count = 0
        self.started_s = _clock.monotonic_s()
        self.ended_s = self.started_s
        self._until_s = None if seconds is None else self.started_s + seconds

    def wants_more(self) -> bool:
        """Whether another message is to be sent; threads may ask."""
        if self._until_s is not None and _clock.monotonic_s() >= self._until_s:
            return False
        return next(self._given) < self._count

    @property
    def is_over(self) -> bool:
        """All that was asked for is done, or the time is up."""
        is_late = self._until_s is not None and _clock.monotonic_s() >= self._until_s
        return is_late or self.done_count >= self._count

    def note(self, delay_s: float | None = None) -> None:
        """One message more has its answer."""
        self.done_count += 1
        if delay_s is not None:
            self.delays_s.append(delay_s)
        if self.done_count - self._shown_count >= _STEP_COUNT:
            self.show()

    def show(self) -> None:
        self._shown_count = self.done_count
        self._tell(self._shown_count)

    def end(self) -> None:
        self.ended_s = _clock.monotonic_s()
        self.show()

    def row(self, size: int) -> dict[str, object]:
        """What is told: rates, and the table of delays in milliseconds."""
        elapsed_s = max(self.ended_s - self.started_s, 1e-9)
        rate = self.done_count / elapsed_s
        row: dict[str, object] = {
            "messages": self.done_count,
            "seconds": round(elapsed_s, 6),
            "messages/s": round(rate, 1),
            "MB/s": round(rate * size / 1e6, 2),
        }
        return row | {f"p{p:g} ms": round(1000 * delay_s, 3) for p, delay_s in percentiles(self.delays_s).items()}


def percentiles(delays_s: list[float]) -> dict[float, float]:
    """The delay that this many percent of all did not exceed; nothing of nothing."""
    ordered = sorted(delays_s)
    return {p: ordered[min(int(len(ordered) * p / 100), len(ordered) - 1)] for p in PERCENTILES} if ordered else {}


@contextmanager
def _measuring(what: str, count: int, seconds: float | None, output: Output) -> Iterator[Tally]:
    """A tally with a bar on the terminal; into a pipe, or as JSON, there is none."""
    with Bar(what, count, is_shown=output is Output.TABLE) as bar:
        tally = Tally(count, seconds, bar.tell)
        yield tally
        if tally.ended_s == tally.started_s:
            tally.end()


def _tell(tally: Tally, size: int, output: Output) -> None:
    if not tally.done_count:
        fail("no message was measured within the time given")
    if output is Output.TABLE:
        show([tally.row(size)], output, empty="")
    else:
        say(tally.row(size), output)


@app.add()
def produce(
    topic: Topic = DEFAULT_TOPIC,
    count: Count = 100_000,
    seconds: Seconds = None,
    size: Size = 128,
    threads: Annotated[int, Option(min=0, max=256, help="send from this many threads, one at a time each")] = 0,
    in_flight: Annotated[int, Option(min=1, max=8192, help="messages under way at a time, without threads")] = 64,
    batch: Annotated[bool, Option("--batch", help="let the client join messages to batches")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Send messages as fast as they are acknowledged.

    They stay in the topic; `bolide topic delete BenchmarkTest` takes them away.
    """
    body, address = b"x" * size, name_servers(namesrv)
    if threads and batch:
        fail("--batch joins messages of one loop; leave out --threads")
    with plain_errors():
        if threads:
            from bolide import Producer

            with Producer("bolide-bench", address) as producer:
                producer.send(topic, body)  # finds the route, and makes the topic
                with _measuring("sending", count, seconds, output) as tally:
                    _send_from_threads(producer, topic, body, threads, tally)
        else:
            import uvloop

            tally = uvloop.run(_send_in_flight(address, topic, body, count, seconds, in_flight, batch, output))
    _tell(tally, size, output)


def _send_from_threads(producer: "Producer", topic: str, body: bytes, threads: int, tally: Tally) -> None:
    problems: list[BolideError] = []

    def work() -> None:
        try:
            while not problems and tally.wants_more():
                begun_s = _clock.monotonic_s()
                producer.send(topic, body)
                tally.note(_clock.monotonic_s() - begun_s)
        except BolideError as problem:
            problems.append(problem)

    workers = [threading.Thread(target=work, name=f"bench.{number}") for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if problems:
        raise problems[0]


async def _send_in_flight(
    address: str,
    topic: str,
    body: bytes,
    count: int,
    seconds: float | None,
    in_flight: int,
    is_batched: bool,
    output: Output,
) -> Tally:
    import asyncio

    from bolide.client.sending.producer import Producer

    async with Producer("bolide-bench", address, linger_ms=5 if is_batched else 0) as producer:
        await producer.send(topic, body)

        async def work() -> None:
            while tally.wants_more():
                begun_s = _clock.monotonic_s()
                await producer.send(topic, body)
                tally.note(_clock.monotonic_s() - begun_s)

        async def hand_over() -> None:
            while tally.wants_more():
                (await producer.submit(topic, body)).add_done_callback(done)
            await producer.flush()

        def done(future: "asyncio.Future[Receipt]") -> None:
            if not future.cancelled() and future.exception() is None:
                tally.note()

        with _measuring("sending", count, seconds, output) as tally:
            async with asyncio.TaskGroup() as tasks:
                for number in range(1 if is_batched else in_flight):
                    tasks.create_task(hand_over() if is_batched else work(), name=f"bench.{number}")
        return tally


@app.add()
def consume(
    topic: Topic = DEFAULT_TOPIC,
    count: Count = 100_000,
    seconds: Seconds = None,
    group: Annotated[str, Option(help="the consumer group; a new one begins at the oldest message")] = "",
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Read what lies in a topic; ends when nothing more comes."""
    import uvloop

    with plain_errors():
        tally, size = uvloop.run(_consume(name_servers(namesrv), topic, group, count, seconds, output))
    _tell(tally, size, output)


async def _consume(
    address: str, topic: str, group: str, count: int, seconds: float | None, output: Output
) -> tuple[Tally, int]:
    from bolide.client.consuming.consumer import Consumer
    from bolide.client.consuming.start_from import StartFrom

    size = 0
    async with nullcontext(group) if group else _passing_group(address) as name:
        consumer = Consumer(name, topic, address, start_from=StartFrom.oldest())
        # Joining counts: what is pulled meanwhile would else have taken no time.
        with _measuring("reading", count, seconds, output) as tally:
            async with consumer:
                while True:
                    messages = await consumer.receive(_STEP_COUNT, min(seconds or _IDLE_LIMIT_S, _IDLE_LIMIT_S))
                    if not messages and not tally.done_count:
                        fail(f"topic {topic} gave nothing in {_IDLE_LIMIT_S:g} s: fill it with `bolide bench produce`")
                    for message in messages:
                        if tally.wants_more():
                            size += len(message.body)
                            message.ack()
                            tally.note()
                    if not messages or tally.is_over:
                        break
                tally.end()  # leaving does not
    return tally, size // max(tally.done_count, 1)


@asynccontextmanager
async def _passing_group(address: str) -> AsyncIterator[str]:
    """A group that is gone afterwards; where we may not delete it, it stays."""
    from bolide.admin.admin import Admin

    name = f"bolide-bench-{_clock.now_ms()}"
    try:
        yield name
    finally:
        with suppress(BolideError):
            async with Admin(address) as admin:
                await admin.delete_group(name)


@app.add()
def latency(
    topic: Topic = DEFAULT_TOPIC,
    count: Count = 10_000,
    seconds: Seconds = None,
    size: Size = 128,
    rate: Annotated[float, Option(min=1, help="messages a second")] = 1000.0,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """From the send to the handler, at a steady rate."""
    import uvloop

    with plain_errors():
        tally = uvloop.run(_latency(name_servers(namesrv), topic, size, rate, count, seconds, output))
    _tell(tally, size, output)


async def _latency(
    address: str, topic: str, size: int, rate: float, count: int, seconds: float | None, output: Output
) -> Tally:
    import asyncio

    from bolide.client.consuming.consumer import Consumer
    from bolide.client.sending.producer import Producer

    async with _passing_group(address) as name, Producer("bolide-bench", address) as producer:
        await producer.send(topic, b"x" * size)
        sent_s: dict[str, float] = {}
        all_taken = asyncio.Event()
        async with Consumer(name, topic, address) as consumer:

            async def take() -> None:
                async for message in consumer:
                    begun_s = sent_s.pop(message.keys[0] if message.keys else "", None)
                    if begun_s is not None:
                        tally.note(_clock.monotonic_s() - begun_s)
                        if not sent_s:
                            all_taken.set()

            async def pace() -> None:
                number = 0
                while tally.wants_more():
                    await asyncio.sleep(tally.started_s + number / rate - _clock.monotonic_s())
                    number += 1
                    key = f"{name}-{number}"
                    sent_s[key] = _clock.monotonic_s()
                    all_taken.clear()
                    await producer.submit(topic, b"x" * size, keys=key)
                await producer.flush()
                if sent_s:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_IDLE_LIMIT_S):
                            await all_taken.wait()

            with _measuring("measuring", count, seconds, output) as tally:
                async with asyncio.TaskGroup() as tasks:
                    taker = tasks.create_task(take(), name="bench.take")
                    await pace()
                    taker.cancel()
            return tally
