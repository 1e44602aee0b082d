"""Messages back into a topic: from a lake, from store files, or dead letters from their brokers, at a rate one chooses.

Body, tags, keys and the user's own properties are as they were; ids, times and offsets are new. The messages of one
queue are sent in their order, by one task; with a sharding key they keep their queue. A task that Spark repeats sends
again, under the same identity, unless the sink is asked for exactly once.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from bolide.clock import Clock, SystemClock
from bolide.errors import ConfigError
from bolide.model import properties as labels
from bolide.spark.jobs.frames import Where, messages
from bolide.spark.jobs.tasks import Tell, tell_nobody, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READ = ("topic", "broker_name", "queue_id", "queue_offset", "store_ts", "tags", "keys", "properties", "body")
_SENT = "topic string, body binary, tags string, keys string, properties map<string,string>, shard string"
_PARALLEL = 4
_STEPS_PER_S = 10


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many messages of which topic went (or would go) where."""

    routes: dict[tuple[str, str], int]

    @property
    def message_count(self) -> int:
        return sum(self.routes.values())


def replay(
    spark: "SparkSession",
    where: Where,
    cluster: Mapping[str, str],
    *,
    to: str | None = None,
    rate: float | None = None,
    is_dry: bool = False,
    tell: Tell = tell_nobody,
) -> Replayed:
    """Send the messages to `to`; without it dead letters and retries go where they came from, others to their topic.

    `cluster` are the options of the sink. `rate` is messages a second over all tasks.
    """
    if rate is not None and rate <= 0:
        raise ConfigError("rate", rate, "must be more than 0 messages a second")
    if where.cluster and to is None and not all(topic.startswith("%") for topic in where.topics or ["-"]):
        raise ConfigError("to", None, "messages of a topic would be sent to itself; say where they are to go")
    found = _addressed(messages(spark, where, _READ), to)
    with watched(spark, tell):
        counts = found.groupBy("origin", "topic").count().collect()
        if not is_dry and counts:
            tasks = _task_count(spark)
            frame = found.repartition(tasks, "broker_name", "queue_id").sortWithinPartitions("store_ts", "queue_offset")
            frame = frame.select("topic", "body", "tags", "keys", "properties", "shard")
            if rate is not None:
                frame = frame.mapInArrow(_Pace(rate / tasks), _SENT)
            frame.write.format("bolide").options(**cluster).mode("append").save()
    return Replayed(dict(sorted(((row["origin"], row["topic"]), row["count"]) for row in counts)))


def _addressed(frame: "DataFrame", to: str | None) -> "DataFrame":
    from pyspark.sql import functions as f

    home = f.coalesce(
        f.col("properties")[labels.DEAD_LETTER_ORIGIN_TOPIC], f.col("properties")[labels.RETRY_TOPIC], f.col("topic")
    )
    return (
        frame.withColumn("origin", f.col("topic"))
        .withColumn("topic", home if to is None else f.lit(to))
        .withColumn("shard", f.col("properties")[labels.SHARDING_KEY])
    )


def _task_count(spark: "SparkSession") -> int:
    if not hasattr(spark, "_jsc"):
        return _PARALLEL  # behind Spark Connect the cores are not told
    return int(spark.sparkContext.defaultParallelism)


class _Pace:
    """Lets rows pass at a rate; runs in tasks."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return paced(batches, self._rate, SystemClock(), time.sleep)


def paced(
    batches: Iterator[pa.RecordBatch], rate: float, clock: Clock, sleep: Callable[[float], None]
) -> Iterator[pa.RecordBatch]:
    """The rows in small batches, none before its time: row n is not due until n / rate seconds have passed."""
    step = max(int(rate / _STEPS_PER_S), 1)
    started_s, count = clock.monotonic_s(), 0
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            due_s = started_s + count / rate
            if (wait_s := due_s - clock.monotonic_s()) > 0:
                sleep(wait_s)
            count += part.num_rows
            yield part
