"""How fast is a crashed store recovered, beside checking the same checksums in C?

A store is written and left as a killed process leaves it, with a checkpoint that covers nothing, so that all of its log
is read and all of its queues are made again. The page cache is warm. `of_c` compares with a C loop that walks the same
segments and checks the same checksums, and derives nothing; `of_c_cpu` compares processor time, and the store walks
the log with two threads.

    python -m benchmarks.store_recover --body 1024
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Answer, Work, measure, read_arguments
from benchmarks.store_limits import limit

QUESTION = "How many bytes of log a second are recovered after a crash?"


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, body=100, count=1_000_000, queues=8, keys=0)
    from bolide.clock import SystemClock
    from bolide.model.host import Host
    from bolide.store.config import StoreConfig
    from bolide.store.record import Draft
    from bolide.store.store import Store

    host = Host("127.0.0.1", 10911).packed()
    properties = b"TAGS\x01TagA\x02" + (b"UNIQ_KEY\x017F000001000018B4AAC20000000000\x02" if options.keys else b"")
    drafts = [
        Draft("TopicTest", i % options.queues, b"x" * options.body, properties, 0, 0, 1_700_000_000_000, host)
        for i in range(64)
    ]
    root = Path(tempfile.mkdtemp())
    config = StoreConfig(root=root / "store", disk_percent_max=100, disk_percent_forcibly=100, disk_percent_full=100)
    try:
        store = Store.open(config, SystemClock(), host)
        for _ in range(options.count // 64):
            store.append(drafts)
        end = store.progress.appended
        store.flush()
        store.abandon()

        def run() -> Work:
            (config.root / "checkpoint").unlink(missing_ok=True)
            started_s, cpu_started_s = time.perf_counter(), time.process_time()
            store = Store.open(config, SystemClock(), host)
            elapsed_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
            assert store.recovered.record_count == options.count // 64 * 64
            assert store.progress.appended == end
            bases = store.commitlog.segments.bases
            store.abandon()
            checks = [limit("check", config.log_directory / f"{base:020d}") for base in bases]
            facts = {
                "of_c": sum(check.seconds for check in checks) / elapsed_s,
                "of_c_cpu": sum(check.cpu_s for check in checks) / cpu_s,
            }
            return Work(end, "bytes", elapsed_s, end, facts)

        return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
