"""One Spark task for each piece of work, and how many of them are done.

Work is done inside the task, where the bytes are: what comes back to Spark is what was found or written, a few rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from bolide.spark.problems import plain_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
# done, all
Tell = Callable[[int, int], None]
_LOOK_INTERVAL_S = 0.2


def tell_nobody(done: int, total: int) -> None:
    return None


def spread_over(
    spark: "SparkSession", pieces: Sequence[T], work: Callable[[T], Iterator[pa.RecordBatch]], schema: str
) -> "DataFrame":
    """What `work` makes of each piece, as rows of the schema (in Spark's words)."""
    given = list(pieces)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(given[number])

    # One id for each partition: Spark cuts a range evenly.
    return spark.range(0, len(given), 1, max(len(given), 1)).mapInArrow(run, schema)


def rows_of(schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


@contextmanager
def watched(spark: "SparkSession", tell: Tell) -> Iterator[None]:
    """Tell how many tasks of the jobs that run meanwhile are done; an error of ours in one is raised as it was."""
    with plain_tasks(), _telling(spark, tell):
        yield


@contextmanager
def _telling(spark: "SparkSession", tell: Tell) -> Iterator[None]:
    if not hasattr(spark, "_jsc"):  # at a Spark Connect address the server tells
        with _told_by_server(spark, tell):
            yield
        return
    ended = Event()
    watcher = Thread(target=_watch, args=(spark, tell, ended), name="lake-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(spark: "SparkSession", tell: Tell, ended: Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    while not ended.wait(_LOOK_INTERVAL_S):
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                stages[number] = (stage.numCompletedTasks, stage.numTasks)
        if stages:
            tell(sum(done for done, _ in stages.values()), sum(total for _, total in stages.values()))


@contextmanager
def _told_by_server(spark: "SparkSession", tell: Tell) -> Iterator[None]:
    def on_progress(stages: Any, **_: Any) -> None:
        tell(sum(stage.num_completed_tasks for stage in stages), sum(stage.num_tasks for stage in stages))

    connected: Any = spark
    connected.registerProgressHandler(on_progress)
    try:
        yield
    finally:
        connected.removeProgressHandler(on_progress)
