"""How much does a transaction cost beside a plain send?

One client of ours on a broker of ours in a process of its own: first --count plain sends, then as many transactions,
each a half message, its answer and its commit, both with --inflight tasks on asyncio. A transaction counts when its
message can be read. Facts: the plain rate, and the ratio of the two; issue 7 asks for a half at least. A transaction
makes the broker store twice what a send does, and take two requests for one.

Then the same by one thread of the blocking client, a tenth as many: `blocking` transactions a second, `blocking_plain`
sends, and their ratio. There the way to the broker and back is most of it, and the end of a transaction needs none.

    python -m benchmarks.transactions                 # seconds
"""

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import uvloop

from benchmarks.measure import Answer, Work, measure, read_arguments

if TYPE_CHECKING:
    from bolide import aio

QUESTION = "How many transactions a second does our client commit on our broker?"
TOPIC, QUEUE_COUNT = "Transfers", 4
VISIBLE_LIMIT_S = 60.0


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, count=30_000, inflight=64, body=128)

    def run() -> Work:
        return uvloop.run(_run(options.count, options.inflight, b"x" * options.body))

    return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


async def _run(count: int, inflight: int, body: bytes) -> Work:
    from bolide import aio
    from bolide.testing import cluster

    files = {"mappedFileSizeCommitLog": 256 << 20, "mappedFileSizeConsumeQueue": 6_000_000}
    async with cluster(processes=True, settings=files) as rocket:
        await rocket.create_topic(TOPIC, QUEUE_COUNT)
        async with aio.TransactionProducer("bench", rocket.namesrv, checker=_never) as producer:

            async def send() -> None:
                await producer.send(TOPIC, body)

            async def commit() -> None:
                async with producer.transaction(TOPIC, body):
                    pass

            await send()
            await commit()
            await _visible(producer, 2)
            plain_s = await _timed(producer, send, count, inflight, 2)
            elapsed_s = await _timed(producer, commit, count, inflight, 2 + count)
            few = max(count // 10, 1)
            blocking_plain_s, blocking_s = await _blocking(producer, rocket.namesrv, body, few, 2 + 2 * count)
            stored = await _stored(producer)
    facts = {
        "plain": count / plain_s,
        "ratio": plain_s / elapsed_s,
        "blocking": few / blocking_s,
        "blocking_plain": few / blocking_plain_s,
        "blocking_ratio": blocking_plain_s / blocking_s,
    }
    return Work(count, "transactions", elapsed_s, zlib.crc32(b"%d" % stored), facts)


async def _timed(
    producer: "aio.TransactionProducer", step: Callable[[], Awaitable[None]], count: int, inflight: int, before: int
) -> float:
    async def work(times: int) -> None:
        for _ in range(times):
            await step()

    started_s = time.perf_counter()
    await asyncio.gather(*(work(count // inflight + (i < count % inflight)) for i in range(inflight)))
    await _visible(producer, before + count)
    return time.perf_counter() - started_s


async def _blocking(
    watcher: "aio.TransactionProducer", namesrv: str, body: bytes, count: int, before: int
) -> tuple[float, float]:
    """Seconds for plain sends and for transactions of one thread without a loop, each until all can be read."""
    import bolide

    def send(producer: bolide.TransactionProducer, times: int) -> None:
        for _ in range(times):
            producer.send(TOPIC, body)

    def commit(producer: bolide.TransactionProducer, times: int) -> None:
        for _ in range(times):
            with producer.transaction(TOPIC, body):
                pass

    elapsed_s: list[float] = []
    with bolide.TransactionProducer("bench-blocking", namesrv, checker=_never) as producer:
        for work in (send, commit):
            await asyncio.to_thread(work, producer, 1)
            started_s = time.perf_counter()
            await asyncio.to_thread(work, producer, count)
            before += 1 + count
            await _visible(watcher, before)
            elapsed_s.append(time.perf_counter() - started_s)
    return elapsed_s[0], elapsed_s[1]


async def _visible(producer: "aio.TransactionProducer", count: int) -> None:
    async with asyncio.timeout(VISIBLE_LIMIT_S):
        while await _stored(producer) < count:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.001)


async def _stored(producer: "aio.TransactionProducer") -> int:
    from bolide.client.consuming.start_from import max_offset

    queues = await producer.queues(TOPIC)
    return sum(await asyncio.gather(*(max_offset(producer.instance, queue) for queue in queues)))


def _never(message: "aio.StoredMessage") -> "aio.Outcome":
    raise AssertionError("a transaction that was committed is not asked about")


if __name__ == "__main__":
    main()
