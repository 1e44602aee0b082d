"""How many records a second does one core spread into columns, before any Spark?

A mapped stretch of a commit log with messages of --body bytes and four properties each, in the page cache; batches of
the size that Spark gets. `narrow` is what an aggregate by tag needs, `kafka` the columns that Kafka's rows have, `all`
the whole schema. What it does not show: a cold disk, and the way from Python to the JVM, which costs more than this.

    python -m benchmarks.columns --columns all --check 1
"""

import time
import zlib
from collections.abc import Sequence

from benchmarks.measure import Answer, Work, measure, read_arguments

QUESTION = "How many records a second become columns?"
CHOICES = {
    "narrow": ("tags", "body_size"),
    "kafka": ("topic", "queue_id", "queue_offset", "store_ts", "keys", "body"),
    "all": (),
}


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, body=100, count=500_000, columns=tuple(CHOICES), check=1)
    from bolide.spark.columns import Columns
    from bolide.spark.schema import COLUMNS

    log = records(options.count, options.body)
    columns = Columns(CHOICES[options.columns] or COLUMNS, "broker-a")

    def run() -> Work:
        position, rows, checksum = 0, 0, 0
        started_s = time.perf_counter()
        while position < len(log):
            spread = columns.spread(log, position, len(log), 0, check=options.check)
            position, rows = spread.position, rows + spread.batch.num_rows
            checksum = zlib.crc32(repr(spread.batch.slice(0, 1).to_pylist()).encode(), checksum)
        elapsed_s = time.perf_counter() - started_s
        return Work(rows, "records", elapsed_s, checksum, {"MB/s": len(log) / elapsed_s / 1e6})

    return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


def records(count: int, body_size: int, offset: int = 0, first: int = 0) -> bytes:
    """A log of one topic with eight queues and five tags, from a physical offset and a number on."""
    from bolide import kernel
    from bolide.model.host import Host

    host = Host("127.0.0.1", 10911).packed()
    parts, next_offsets = [], {("TopicOrders", queue_id): (first + 7 - queue_id) // 8 for queue_id in range(8)}
    for start in range(first, first + count, 1000):
        drafts = [
            (
                "TopicOrders",
                number & 7,
                (b"%016x" % (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) * (body_size // 16 + 1))[:body_size],
                b"KEYS\x01order-%d\x02UNIQ_KEY\x01AC1400021F9018B4AAC2%012X\x02TAGS\x01Tag%c\x02WAIT\x01true\x02"
                % (number, number, 65 + number % 5),
                0,
                0,
                1_750_000_000_000 + number,
                host,
                0,
                0,
            )
            for number in range(start, min(start + 1000, first + count))
        ]
        part = kernel.encode_records(drafts, offset, 1_750_000_000_001 + start, host, next_offsets, [], 1 << 24)[0]
        next_offsets = {key: value + sum(draft[1] == key[1] for draft in drafts) for key, value in next_offsets.items()}
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main()
