"""How fast does an empty slave catch up, beside `cp` of the same log, and how far behind is one that has?

Two processes on loopback, plain stream, asynchronous flush. The slave does all it does in service: it writes the log,
its queues and its index. `of_cp` is our rate over that of `cp`, which only writes the log. Then the master appends
batches at a steady rate, and `lag_ms` tells how long it took until the slave had acknowledged one: the median, and the
99th percentile.

What it does not show: a line that is slower than memory, and a log that must be read from a disk first.

    python -m benchmarks.log_copy --mebibytes 1024
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.measure import Answer, Work, measure, read_arguments

if TYPE_CHECKING:
    from bolide.ha.replication import Replication
    from bolide.store.config import StoreConfig
    from bolide.store.record import Draft
    from bolide.store.store import Store

QUESTION = "How fast does a slave catch up?"
_BATCH_COUNT = 64
_LIMIT_S = 120


def config_of(root: Path, segment_size: int) -> "StoreConfig":
    """All of the log is in one file, for a plain slave begins with the last one."""
    from bolide.store.config import StoreConfig

    return StoreConfig(
        root=root,
        segment_size=segment_size,
        disk_percent_max=100,
        disk_percent_forcibly=100,
        disk_percent_full=100,
    )


async def follow(address: str, end: int, segment_size: int, root: Path) -> None:
    """The slave: copies up to an end, says how long that took, and goes on until it is killed."""
    from bolide.clock import SystemClock
    from bolide.ha.config import HaConfig
    from bolide.ha.replication import Replication
    from bolide.store.open import open_store

    async with open_store(config_of(root, segment_size), SystemClock()) as store:
        store.follow()
        async with Replication(store, HaConfig(host="127.0.0.1"), SystemClock()) as replication:
            reached = asyncio.Event()
            store.listen_written(lambda: reached.set() if store.log_end >= end else None)
            started_s = time.perf_counter()
            replication.follow(address)
            await reached.wait()
            elapsed_s = time.perf_counter() - started_s
            print(elapsed_s, time.process_time(), flush=True)
            await asyncio.get_running_loop().create_future()


def note(found: list[float], started_s: float, _: object) -> None:
    found.append(time.perf_counter() - started_s)


async def lags(store: "Store", replication: "Replication", body_size: int, batches: int, per_s: int) -> list[float]:
    """Seconds from an append to its acknowledgement, for batches at a steady rate."""
    from bolide.ha.acks import Count

    replication.acks.policy = Count(1)
    found: list[float] = []
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(batches):
        await asyncio.sleep(max(began_s + number / per_s - loop.time(), 0))
        started_s = time.perf_counter()
        waiter = replication.acks.wait(store.append([draft(body_size)] * _BATCH_COUNT).end)
        waiter.add_done_callback(partial(note, found, started_s))
    await asyncio.wait_for(waiter, 10)
    return found


def draft(body_size: int) -> "Draft":
    from bolide.model.host import Host
    from bolide.store.record import Draft

    host = Host("127.0.0.1", 10911).packed()
    return Draft("TopicTest", 0, b"x" * body_size, b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_000, host)


async def lead(root: Path, mebibytes: int, body_size: int, batches: int) -> Work:
    from bolide.clock import SystemClock
    from bolide.ha.config import HaConfig
    from bolide.ha.replication import Replication
    from bolide.store.open import open_store

    segment_size = (mebibytes << 20) + batches * _BATCH_COUNT * (body_size + 256) // 4096 * 4096 + (1 << 20)
    async with open_store(config_of(root / "m", segment_size), SystemClock()) as store:
        while store.log_end < mebibytes << 20:
            store.append([draft(body_size)] * _BATCH_COUNT)
        end = store.log_end
        async with Replication(store, HaConfig(host="127.0.0.1"), SystemClock()) as replication:
            await replication.listen()
            command = [sys.executable, "-m", "benchmarks.log_copy", "--slave"]
            told = f"127.0.0.1:{replication.port}", str(end), str(segment_size), str(root / "s")
            slave = await asyncio.create_subprocess_exec(*command, *told, stdout=subprocess.PIPE)
            assert slave.stdout is not None
            try:
                cpu_started_s = time.process_time()
                line = await asyncio.wait_for(slave.stdout.readline(), _LIMIT_S)
                cpu_s = time.process_time() - cpu_started_s
                elapsed_s, slave_cpu_s = map(float, line.split())
                found = await lags(store, replication, body_size, batches, 200)
            finally:
                slave.kill()
                await slave.wait()
    cp_s = copied(root)
    facts = {
        "of_cp": cp_s / elapsed_s,
        "master_cpu_s_a_GB": cpu_s / end * 1e9,
        "slave_cpu_s_a_GB": slave_cpu_s / end * 1e9,
        "lag_ms": statistics.median(found) * 1e3,
        "lag_ms_99": sorted(found)[int(len(found) * 0.99)] * 1e3,
    }
    return Work(end >> 20, "MiB", elapsed_s, zlib.crc32(b"%d" % end), facts)


def copied(root: Path) -> float:
    """Seconds that `cp` takes for the log."""
    source = root / "m" / "commitlog" / "0".zfill(20)
    started_s = time.perf_counter()
    subprocess.run(["cp", "--sparse=auto", "--reflink=never", source, root / "copy"], check=True)
    return time.perf_counter() - started_s


def run(mebibytes: int, body_size: int, batches: int, directory: str) -> Work:
    root = Path(tempfile.mkdtemp(dir=directory or None))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(lead(root, mebibytes, body_size, batches))
    finally:
        shutil.rmtree(root)


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, mebibytes=256, body=1024, batches=400, directory="")
    return measure(
        f"{QUESTION} (body {options.body}, {options.mebibytes} MiB)",
        lambda: run(options.mebibytes, options.body, options.batches, options.directory),
        runs=options.runs,
        parameters=vars(options),
        keep=options.keep,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--slave"]:
        address, end, segment_size, root = sys.argv[2:]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(follow(address, int(end), int(segment_size), Path(root)))
    else:
        main()
