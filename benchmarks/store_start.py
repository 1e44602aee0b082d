"""How many queues a second does a start open, and do appends cost the same beside them?

A prepared store has --queues queues whose last entries stand at --depth; it is opened after a clean stop, then appended
to in batches of 64 spread over all its queues. `start_s` is the start, `cost` the appends' time over that of the same
appends into an empty store (whose queues number as many, each made by its first message, before the clock starts).

Of each prepared queue only the last file is there, as after a retention, and it holds few entries; the default depth is
a little more than a whole number of files, so a run needs 40 MB of disk and not 20 TB. A million appends take half a
minute in /dev/shm with the warm-up. On a busy ext4 disk, making, faulting and deleting 10,000 files takes minutes of
system time, and what others write shows in `cost`:

    TMPDIR=/dev/shm python -m benchmarks.store_start --queues 10000 --count 1000000 --runs 1
"""

import shutil
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Answer, Work, measure, read_arguments

QUESTION = "How many queues a second does a start open?"
_FILE_SIZE = 6_000_000


def prepare(root: Path, queues: int, depth: int) -> None:
    """Queue files as a store leaves them whose log has expired: sparse, the last entries at `depth`."""
    for queue_id in range(queues):
        directory = root / "consumequeue" / "TopicTest" / str(queue_id)
        directory.mkdir(parents=True)
        at = depth * 20
        base = at - at % _FILE_SIZE
        entries = struct.pack(">qiq", 0, 0x7FFF_FFFF, 0) * ((at - base) // 20)
        with open(directory / f"{base:020d}", "wb") as file:
            file.write(entries)
            file.truncate(_FILE_SIZE)


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, queues=10_000, depth=99_900_010, count=200_000)
    from bolide.clock import SystemClock
    from bolide.model.host import Host
    from bolide.store.config import StoreConfig
    from bolide.store.record import Draft
    from bolide.store.store import Store

    host = Host("127.0.0.1", 10911).packed()
    drafts = [
        Draft("TopicTest", queue_id, b"x" * 100, b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_000, host)
        for queue_id in range(options.queues)
    ]

    def opened(root: Path) -> tuple[Store, float]:
        ratios = {"disk_percent_max": 100, "disk_percent_forcibly": 100, "disk_percent_full": 100}
        started_s = time.perf_counter()
        store = Store.open(StoreConfig(root=root, **ratios), SystemClock(), host)  # type: ignore[arg-type]
        return store, time.perf_counter() - started_s

    def append(store: Store) -> float:
        for at in range(0, options.queues, 64):
            store.append(drafts[at : at + 64])
        started_s = time.perf_counter()
        for i in range(options.count // 64):
            at = i * 64 % max(options.queues - 63, 1)
            store.append(drafts[at : at + 64])
        return time.perf_counter() - started_s

    def append_to_empty(root: Path) -> float:
        """A store of its own, gone before the other is opened, so that they do not share the memory."""
        store, _ = opened(root)
        elapsed_s = append(store)
        store.abandon()
        shutil.rmtree(root)
        return elapsed_s

    def run() -> Work:
        root = Path(tempfile.mkdtemp())
        try:
            empty_s = append_to_empty(root / "empty")
            prepared = root / "prepared"
            first, _ = opened(prepared)
            first.append(drafts[:1])
            first.close()
            shutil.rmtree(prepared / "consumequeue")
            prepare(prepared, options.queues, options.depth)
            store, start_s = opened(prepared)
            deep_s = append(store)
            offset = store.dispatch.queues["TopicTest", options.queues - 1].next_offset
            store.abandon()
            facts = {"start_s": start_s, "cost": deep_s / empty_s, "us_a_message": deep_s / options.count * 1e6}
            return Work(options.queues, "queues", start_s, offset, facts)
        finally:
            shutil.rmtree(root)

    return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


if __name__ == "__main__":
    main()
