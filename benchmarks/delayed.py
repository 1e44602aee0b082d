"""What do messages that wait cost, and how fast do they leave when they fall due together?

One store, one clock that is set. First the plain rate: messages appended in batches, as the broker appends what
producers send. Then so many timed messages, spread over an hour, are filed: the growth of the process's own memory
(RssAnon) is what they cost. At last messages that are due in one second leave, from the timer and from a delay level,
and their rate is set beside the plain one. The loop has its turns after every batch, as in a broker.

What it does not show: sockets, other load on the broker, a log that is not in the page cache any more.

    python -m benchmarks.delayed --count 5000000
"""

import asyncio
import shutil
import tempfile
import time
import zlib
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Answer, Work, measure, read_arguments

if TYPE_CHECKING:
    from bolide.broker.later.timers import Timers
    from bolide.store.store import Store

QUESTION = "How many messages a second leave when they fall due together?"
BATCH, SPREAD_S = 256, 3600
MEMORY_MAX_MB, SHARE_MIN = 50, 0.5
_PLAIN = b"UNIQ_KEY\x017F000001000018B4AAC20000000000\x02TAGS\x01TagA\x02"
_HOME = b"REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02"


class HeldClock:
    """The machine's time, and what was added to it."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def monotonic_s(self) -> float:
        return time.monotonic()


def own_memory_mb() -> float:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the system does not tell RssAnon")


async def run(count: int, together: int, body_size: int, directory: str) -> Work:
    from bolide.broker.config import read_config
    from bolide.broker.intake import Intake
    from bolide.broker.later.delay import Delays
    from bolide.broker.later.outlet import Outlet
    from bolide.broker.later.routing import DelayRouter
    from bolide.broker.later.timer_files import TimerFiles
    from bolide.broker.later.timers import Timers
    from bolide.broker.state import BrokerState
    from bolide.broker.tables.table_files import TableWriter
    from bolide.model.queue import QueueKey
    from bolide.store.open import open_store

    root = Path(tempfile.mkdtemp(dir=directory or None))
    full = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
    config = read_config({"storePathRootDir": str(root), **dict.fromkeys(full, "100")})
    clock = HeldClock()
    try:
        with ThreadPoolExecutor(1) as file_thread:
            async with open_store(config.store, clock) as store:
                table_writer = TableWriter(file_thread)
                state = BrokerState.open(config, store, table_writer, clock)
                intake = Intake(state, DelayRouter(config.store.delay_levels))
                timers = Timers(state, Outlet(state, intake), TimerFiles(config.store, store, table_writer, clock))
                delays = Delays(state, Outlet(state, intake), table_writer)
                started_cpu_s = time.process_time()
                plain_s = await _append(store, "Plain", 0, [_PLAIN] * together, body_size)
                plain_cpu_s = time.process_time() - started_cpu_s
                before_mb = own_memory_mb()
                filed_s = await _file(store, timers, count, body_size, clock)
                grown_mb = own_memory_mb() - before_mb
                far_ms = (clock.now_ms() // 1000 + 2 * SPREAD_S) * 1000
                due = _PLAIN + b"TIMER_OUT_MS\x01%d\x02" % far_ms + _HOME
                await _append(store, "rmq_sys_wheel_timer", 0, [due] * together, body_size)
                await timers.file_all()
                clock.ahead_ms += far_ms - clock.now_ms() - 1000
                timers.read_ms = far_ms  # what was spread over the hour is another question
                timers.write_ms = far_ms + 1000
                store.commitlog.await_next()
                timed_s, timed_cpu_s = await _timed(timers.deliver_due())
                await _append(
                    store, "SCHEDULE_TOPIC_XXXX", 0, [_PLAIN + b"DELAY\x011\x02" + _HOME] * together, body_size
                )
                clock.ahead_ms += 10_000
                store.commitlog.await_next()
                level_s, level_cpu_s = await _timed(delays.deliver_due())
                assert store.max_offset(QueueKey("Orders", 0)) == 2 * together, "not all have left"
                await timers.stop()
                timers.close()
        slowest_s = max(timed_s, level_s)
        facts = {
            "plain_per_s": together / plain_s,
            "timer_of_plain": plain_s / timed_s,
            "level_of_plain": plain_s / level_s,
            "timer_of_plain_cpu": plain_cpu_s / timed_cpu_s,
            "level_of_plain_cpu": plain_cpu_s / level_cpu_s,
            "filed_per_s": count / filed_s,
            "waiting_million": count / 1e6,
            "own_memory_mb": grown_mb,
            "meets_targets": float(grown_mb < MEMORY_MAX_MB and slowest_s * SHARE_MIN <= plain_s),
        }
        return Work(together, "messages", slowest_s, zlib.crc32(b"%d %d" % (count, together)), facts)
    finally:
        shutil.rmtree(root)


async def _timed(work: Awaitable[object]) -> tuple[float, float]:
    """How long something takes, by the clock and by the processor, which a busy machine disturbs less."""
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - started_s, time.process_time() - started_cpu_s


async def _append(store: "Store", topic: str, queue_id: int, texts: list[bytes], body_size: int) -> float:
    """Append messages a batch a turn of the loop; returns in how many seconds."""
    from bolide.store.record import Draft

    body, host = b"x" * body_size, bytes([127, 0, 0, 1, 0, 0, 42, 159])
    drafts = [Draft(topic, queue_id, body, text, 0, 0, 1_700_000_000_000, host) for text in texts[:BATCH]]
    started_s = time.perf_counter()
    for at in range(0, len(texts), BATCH):
        batch: list[Draft] = drafts
        if texts[at] is not texts[0] or len(texts) - at < BATCH:
            batch = [
                Draft(topic, queue_id, body, text, 0, 0, 1_700_000_000_000, host) for text in texts[at : at + BATCH]
            ]
        store.append(batch)
        await asyncio.sleep(0)
    return time.perf_counter() - started_s


async def _file(store: "Store", timers: "Timers", count: int, body_size: int, clock: HeldClock) -> float:
    """Store and file messages whose times are spread over an hour; returns how long the filing took."""
    start_s, filed_s = clock.now_ms() // 1000 + 60, 0.0
    for at in range(0, count, 64 * BATCH):
        numbers = range(at, min(at + 64 * BATCH, count))
        # Neighbours are due far from each other, as in life: every batch is spread over the whole hour.
        times = [(start_s + number * 7919 % SPREAD_S) * 1000 for number in numbers]
        texts = [_PLAIN + b"TIMER_OUT_MS\x01%d\x02" % time_ms + _HOME for time_ms in times]
        await _append(store, "rmq_sys_wheel_timer", 0, texts, body_size)
        started_s = time.perf_counter()
        await timers.file_all()
        filed_s += time.perf_counter() - started_s
    return filed_s


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, count=200_000, together=200_000, body=100, directory="")
    return measure(
        QUESTION,
        lambda: asyncio.run(run(options.count, options.together, options.body, options.directory)),
        runs=options.runs,
        parameters=vars(options),
        keep=options.keep,
    )


if __name__ == "__main__":
    main()
