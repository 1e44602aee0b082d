"""How many rows a second does Spark get from the files of a store, without a broker?

A commit log with messages of --body bytes and four properties each, in the page cache, read on two cores: counted,
aggregated (count and sum of body sizes by tag), all rows with the columns that Kafka's rows have and with all of ours
to nowhere, and exported to Parquet. The JVM and its workers are warm: each row is the best of --runs after one to warm
up. Beside it stands `benchmarks.spark_kafka`, the same questions to Kafka with Spark's own connector; run the two after
each other. What it does not show: a cold disk, a cluster, and messages of many topics.

    python -m benchmarks.spark_store --count 2000000 --body 100
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.columns import records
from benchmarks.measure import commit, machine, publish

QUESTION = "How many rows a second does Spark get from store files?"
KAFKA_COLUMNS = "topic,queue_id,queue_offset,store_ts,keys,body"
_CHUNK = 200_000


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--count", type=int, default=2_000_000)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    root = Path(tempfile.mkdtemp(prefix="bolide-store-"))
    try:
        size = write_log(root / "store", options.count, options.body)
        answer = measure(root, options, size)
    finally:
        shutil.rmtree(root)
    publish(json.dumps(answer), is_kept=options.keep)
    return answer


def write_log(root: Path, count: int, body_size: int) -> int:
    """One long segment; returns its size."""
    (root / "commitlog").mkdir(parents=True)
    size = 0
    with open(root / "commitlog" / f"{0:020d}", "wb") as file:
        for start in range(0, count, _CHUNK):
            size += file.write(records(min(_CHUNK, count - start), body_size, size, start))
    return size


def measure(root: Path, options: argparse.Namespace, size: int) -> dict[str, Any]:
    from bolide.spark.session import begun

    rows: dict[str, Any] = {}
    with begun("benchmarks", options.master) as spark:
        for name, job in jobs(spark, root, options.count).items():
            job()
            times = []
            for _ in range(options.runs):
                started_s = time.perf_counter()
                job()
                times.append(time.perf_counter() - started_s)
            rates = [options.count / elapsed_s for elapsed_s in times]
            rows[name] = {"best": round(max(rates)), "median": round(statistics.median(rates))}
            print(f"{name:24} {max(rates):12,.0f} rows/s best, {statistics.median(rates):12,.0f} median")
    parameters = {name: value for name, value in vars(options).items() if name != "keep"}
    facts = {"machine": machine(), "commit": commit(), "parameters": parameters, "log_size": size}
    return {"question": QUESTION, "rows": rows, **facts}


def jobs(spark: Any, root: Path, count: int) -> dict[str, Callable[[], None]]:
    """Each looks at what came out, so that nobody makes it faster by doing less."""

    def frame(columns: str | None = None) -> Any:
        reader = spark.read.format("bolide-store")
        return (reader if columns is None else reader.option("columns", columns)).load(str(root / "store"))

    def counted(columns: str | None) -> None:
        assert frame(columns).count() == count

    def aggregated() -> None:
        by_tag = frame("tags,body_size").groupBy("tags").agg({"*": "count", "body_size": "sum"}).collect()
        assert sum(row["count(1)"] for row in by_tag) == count

    def to_nowhere(columns: str | None) -> None:
        frame(columns).write.format("noop").mode("overwrite").save()

    def exported() -> None:
        from bolide.spark.columns import EVERYTHING
        from bolide.spark.jobs.export import export
        from bolide.spark.jobs.sources import StoreFiles

        shutil.rmtree(root / "lake", ignore_errors=True)
        assert export(spark, StoreFiles([str(root / "store")], EVERYTHING), root / "lake").message_count == count

    return {
        "count": lambda: counted("queue_id"),
        "count, all columns": lambda: counted(None),
        "aggregate by tag": aggregated,
        "rows, Kafka's columns": lambda: to_nowhere(KAFKA_COLUMNS),
        "rows, all columns": lambda: to_nowhere(None),
        "export to Parquet": exported,
    }


if __name__ == "__main__":
    main()
