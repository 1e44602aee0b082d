"""How many messages a second are made durable for 64 senders, each waiting for its own (group commit)?

Senders are tasks of one loop that append one message and wait until it is durable. Beside it: the rate of fdatasync
after a 4 KiB write in C, times the number of senders (`of_limit`), and the same senders under asynchronous flush, who
give way to each other after each message (`of_async`). `of_wanted` is our rate over the lower of 60 % of the first and
half of the second.

    python -m benchmarks.store_sync --senders 64
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Answer, Work, measure, read_arguments
from benchmarks.store_limits import limit

QUESTION = "How many messages a second are made durable, each waited for?"


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, senders=64, count=20_000, body=128)
    import uvloop

    from bolide.clock import SystemClock
    from bolide.model.host import Host
    from bolide.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
    from bolide.store.open import open_store
    from bolide.store.record import Draft

    host = Host("127.0.0.1", 10911).packed()
    draft = Draft("TopicTest", 0, b"x" * options.body, b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_000, host)
    each = options.count // options.senders

    async def send(root: Path, flush_mode: str) -> float:
        ratios = {"disk_percent_max": 100, "disk_percent_forcibly": 100, "disk_percent_full": 100}
        config = StoreConfig(root=root / flush_mode, flush_mode=flush_mode, **ratios)  # type: ignore[arg-type]
        async with open_store(config, SystemClock(), host) as store:

            async def sender() -> None:
                for _ in range(each):
                    end = store.append([draft]).end
                    if config.is_sync:
                        assert await store.durable(end)
                    else:
                        await asyncio.sleep(0)

            await sender()
            store.commitlog.await_next()  # the making of the next segment is not counted
            started_s = time.perf_counter()
            async with asyncio.TaskGroup() as senders:
                for number in range(options.senders):
                    senders.create_task(sender(), name=f"sender {number}")
            return time.perf_counter() - started_s

    def run() -> Work:
        root = Path(tempfile.mkdtemp())
        try:
            elapsed_s = uvloop.new_event_loop().run_until_complete(send(root, SYNC_FLUSH))
            async_s = uvloop.new_event_loop().run_until_complete(send(root, ASYNC_FLUSH))
            syncs = max(options.count // options.senders, 1)
            c_s = limit("sync", root / "limit", syncs).seconds
            highest = options.senders * syncs / c_s
            count = each * options.senders
            rate, async_rate = count / elapsed_s, count / async_s
            facts = {
                "of_limit": rate / highest,
                "of_async": rate / async_rate,
                "of_wanted": rate / min(0.6 * highest, 0.5 * async_rate),
                "fdatasync_rate": syncs / c_s,
            }
            return Work(count, "messages", elapsed_s, count, facts)
        finally:
            shutil.rmtree(root)

    return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


if __name__ == "__main__":
    main()
