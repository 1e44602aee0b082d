"""How many messages a second does the store append, beside a C loop that writes the same bytes by the same means?

The C loop lays out records of the same size, checksums them with the same code and writes a batch with one pwrite into
a freshly reserved file; it keeps no queue, no table and no index, and makes no object. `of_c` is our rate over its, and
`of_c_cpu` the same by processor time, which a busy machine disturbs less.
Asynchronous flush; messages with a tag, for one queue, without keys unless --keys 1. Each round has a fresh store.

What it does not show: many queues at a time, an event loop around it, a disk that cannot keep up with the page cache.

    python -m benchmarks.store_append --body 100 --batch 64
"""

import shutil
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Answer, Work, measure, read_arguments
from benchmarks.store_limits import limit

QUESTION = "How many messages a second does the store append?"


def run(body_size: int, batch: int, count: int, has_keys: bool, directory: str) -> Work:
    from bolide.clock import SystemClock
    from bolide.model.host import Host
    from bolide.store.config import StoreConfig
    from bolide.store.record import Draft
    from bolide.store.store import Store

    host = Host("127.0.0.1", 10911).packed()
    properties = b"TAGS\x01TagA\x02" + (b"UNIQ_KEY\x017F000001000018B4AAC20000000000\x02" if has_keys else b"")
    draft = Draft("TopicTest", 0, b"x" * body_size, properties, 0, 0, 1_700_000_000_000, host)
    drafts = [draft] * batch
    root = Path(tempfile.mkdtemp(dir=directory or None))
    try:
        config = StoreConfig(
            root=root / "store", disk_percent_max=100, disk_percent_forcibly=100, disk_percent_full=100
        )
        with Store.open(config, SystemClock(), host) as store:
            size = store.append([draft]).end
            store.commitlog.await_next()  # its making is not counted in C either
            started_s, cpu_started_s = time.perf_counter(), time.process_time()
            for _ in range(count // batch):
                appended = store.append(drafts)
            elapsed_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
            assert appended.queue_offsets[-1] == count // batch * batch
        shutil.rmtree(root / "store")
        in_c = limit("append", root / "limit", size, body_size, batch, count // batch * batch)
        facts = {
            "of_c": in_c.seconds / elapsed_s,
            "of_c_cpu": in_c.cpu_s / cpu_s,
            "c_million": count / in_c.seconds / 1e6,
            "us_a_batch": elapsed_s / (count / batch) * 1e6,
        }
        return Work(count // batch * batch, "messages", elapsed_s, zlib.crc32(b"%d %d" % (size, count)), facts)
    finally:
        shutil.rmtree(root)


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, body=100, batch=64, count=1_000_000, keys=0, directory="")
    return measure(
        QUESTION,
        lambda: run(options.body, options.batch, options.count, bool(options.keys), options.directory),
        runs=options.runs,
        parameters=vars(options),
        keep=options.keep,
    )


if __name__ == "__main__":
    main()
