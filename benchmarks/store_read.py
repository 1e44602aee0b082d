"""How many messages a second does a consumer's way of reading slice out of the log?

One queue with messages of --body bytes, read from the first to the last offset in pulls of 32; each message is a view
of the mapped log. Everything is in the page cache. What it does not show: a cold disk, filters that decode properties.

    python -m benchmarks.store_read
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Answer, Work, measure, read_arguments

QUESTION = "How many messages a second are read from a queue in order?"


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, body=100, count=1_000_000, pull=32)
    from bolide.clock import SystemClock
    from bolide.model.host import Host
    from bolide.model.queue import QueueKey
    from bolide.store.config import StoreConfig
    from bolide.store.record import Draft
    from bolide.store.store import Store

    host = Host("127.0.0.1", 10911).packed()
    draft = Draft("TopicTest", 0, b"x" * options.body, b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_000, host)
    root = Path(tempfile.mkdtemp())
    count = options.count // 64 * 64
    try:
        config = StoreConfig(root=root, disk_percent_max=100, disk_percent_forcibly=100, disk_percent_full=100)
        with Store.open(config, SystemClock(), host) as store:
            for _ in range(count // 64):
                store.append([draft] * 64)

            def run() -> Work:
                key, offset, size = QueueKey("TopicTest", 0), 0, 0
                started_s = time.perf_counter()
                while offset < count:
                    slices = store.read(key, offset, options.pull)
                    for view in slices.views:
                        size += view.nbytes
                    offset = slices.next_offset
                return Work(count, "messages", time.perf_counter() - started_s, size)

            return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
