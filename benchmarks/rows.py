"""How many rows a second does one core lay as messages, before any broker?

Arrow batches as large as Spark gives them to a sink, with tags, keys and a body of --body bytes; --columns copy
adds properties, as when a topic is copied. What it does not show: the way from the JVM to Python, and the broker.

    python -m benchmarks.rows --body 1024 --columns copy
"""

import time
import zlib
from collections.abc import Sequence

from benchmarks.measure import Answer, Work, measure, read_arguments

QUESTION = "How many rows a second become messages?"
CHOICES = ("plain", "copy")
BATCH = 10_000


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, body=100, count=500_000, columns=CHOICES)
    import pyarrow as pa

    from bolide.client.routes import Route
    from bolide.clock import SystemClock
    from bolide.model.queue import MessageQueue
    from bolide.spark.sink.rows import Bundles, runs_of
    from bolide.spark.sink.sending import unique_ids

    labels = [f"t{number % 10}" for number in range(BATCH)]
    columns = {"tags": pa.array(labels), "keys": pa.array(labels), "body": pa.array([b"x" * options.body] * BATCH)}
    if options.columns == "copy":
        pairs = [[("UNIQ_KEY", "AC1400021F9018B4AAC2"), ("order", label)] for label in labels]
        columns["properties"] = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_pydict(columns)
    route = Route("Orders", tuple(MessageQueue("Orders", "broker-a", queue_id) for queue_id in range(4)), (), {})
    ids = unique_ids(SystemClock())

    def run() -> Work:
        bundles, rows, checksum = Bundles(lambda topic: route, 0), 0, 0
        started_s = time.perf_counter()
        for first in range(0, options.count, BATCH):
            given = batch.slice(0, min(BATCH, options.count - first))
            for run in runs_of(given, "Orders", "query/0/0", first, ids):
                for bundle in bundles.add(run):
                    rows += bundle.row_count
                    checksum = zlib.crc32(b"%d" % bundle.row_count, checksum)
        rows += sum(bundle.row_count for bundle in bundles.rest())
        return Work(rows, "rows", time.perf_counter() - started_s, checksum)

    return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


if __name__ == "__main__":
    main()
