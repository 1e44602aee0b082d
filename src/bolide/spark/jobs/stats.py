"""What went through a broker: traffic by topic, tag and minute, sizes, delays, lag, retries and dead letters.

Two passes over few columns, whatever is asked: one for the sums, with all groupings at once, one for the delays. What
failed is looked at apart, for that needs the properties: only the topics of retries and dead letters are read for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bolide.broker.tables.offsets import FILE_NAME, OffsetTable, parse
from bolide.errors import BolideError
from bolide.model import properties as labels
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, TRACE_TOPIC
from bolide.protocol.trace import ConsumeBegun, Published, parse_trace
from bolide.spark.jobs.frames import Where, messages
from bolide.spark.jobs.tasks import Tell, rows_of, tell_nobody, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
READ = ("topic", "tags", "queue_id", "queue_offset", "born_ts", "store_ts", "body_size")
# The user's topics, and those in which failures lie; at a broker the system's own are none of these figures.
_PATTERN = "%(?:RETRY|DLQ)%.+|RMQ_SYS_TRACE_TOPIC|(?!(?i:rmq_sys_)|SCHEDULE_TOPIC|TBW102|SELF_TEST).+"
_ROWS_MAX = 100_000
_SECOND = "yyyy-MM-dd HH:mm:ss"
_TOLD = pa.schema(
    [
        pa.field("message_id", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("consumer_group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("at_ms", pa.int64()),
    ]
)
_TOLD_DDL = "message_id string, kind string, consumer_group string, topic string, at_ms bigint"


@dataclass(slots=True)
class Statistics:
    """Tables of plain rows; their names are those of the JSON document."""

    topics: Rows = field(default_factory=list)
    tags: Rows = field(default_factory=list)
    minutes: Rows = field(default_factory=list)
    sizes: Rows = field(default_factory=list)
    delays: Rows = field(default_factory=list)
    end_to_end: Rows = field(default_factory=list)
    lag: Rows = field(default_factory=list)
    retries: Rows = field(default_factory=list)
    dead_letters: Rows = field(default_factory=list)


def statistics(spark: "SparkSession", where: Where, *, lag: Rows | None = None, tell: Tell = tell_nobody) -> Statistics:
    """All figures. `lag` is what brokers say of their groups; of a store directory it is read from its files."""
    if where.cluster and not where.topics:
        where = replace(where, cluster={**where.cluster, "subscribePattern": _PATTERN})
    with watched(spark, tell):
        frame = messages(spark, where, READ)
        found = Statistics()
        _sum(frame, found)
        found.delays = _delays(frame)
        topics = {row["topic"] for row in found.topics}
        failed = sorted(topic for topic in topics if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)))
        if failed:
            _failures(messages(spark, replace(where, topics=failed), ("topic", "reconsume_times", "properties")), found)
        if TRACE_TOPIC in topics:
            found.end_to_end = _end_to_end(messages(spark, replace(where, topics=[TRACE_TOPIC]), ("body",)))
    found.lag = lag if lag is not None else _lag_of_stores(where.stores, frame)
    return found


def size_bound(size: int) -> int:
    """The bucket of a size: the power of two that is not below it."""
    return 1 if size <= 1 else 1 << (size - 1).bit_length()


def _sum(frame: "DataFrame", found: Statistics) -> None:
    """Counts and bytes by every grouping, in one pass."""
    from pyspark.sql import functions as f

    # The same as size_bound: a binary text has as many digits as the number has bits.
    bound = f.when(f.col("body_size") <= 1, f.lit(1)).otherwise(
        f.expr("cast(shiftleft(1L, length(bin(body_size - 1))) as bigint)")
    )
    seen = frame.withColumn("minute", f.date_trunc("minute", "store_ts")).withColumn("size", bound)
    sets = ["topic"], ["topic", "tags"], ["topic", "minute"], ["topic", "size"]
    columns = [f.col(name) for name in ("topic", "tags", "minute", "size")]
    grouped = seen.groupingSets([[f.col(name) for name in each] for each in sets], *columns).agg(
        f.grouping_id().alias("grouping"),
        f.count(f.lit(1)).alias("messages"),
        f.sum("body_size").alias("bytes"),
        f.date_format(f.min("store_ts"), _SECOND).alias("first"),
        f.date_format(f.max("store_ts"), _SECOND).alias("last"),
    )
    grouped = grouped.withColumn("minute", f.date_format("minute", "yyyy-MM-dd HH:mm"))
    tables = {0b0111: "topics", 0b0011: "tags", 0b0101: "minutes", 0b0110: "sizes"}
    for row in grouped.limit(_ROWS_MAX).collect():
        name = tables[row["grouping"]]
        getattr(found, name).append(_figures(name, row))
    found.topics.sort(key=lambda row: (-row["messages"], row["topic"]))
    found.tags.sort(key=lambda row: (row["topic"], -row["messages"], row["tag"] or ""))
    found.minutes.sort(key=lambda row: (row["minute"], row["topic"]))
    found.sizes.sort(key=lambda row: (row["topic"], row["up_to"]))


def _figures(name: str, row: Any) -> dict[str, Any]:
    figures = {"messages": row["messages"], "bytes": row["bytes"]}
    if name == "topics":
        return {"topic": row["topic"], **figures, "first": row["first"], "last": row["last"]}
    if name == "tags":
        return {"topic": row["topic"], "tag": row["tags"], **figures}
    if name == "minutes":
        return {"topic": row["topic"], "minute": row["minute"], **figures}
    return {"topic": row["topic"], "up_to": row["size"], **figures}


def _delays(frame: "DataFrame") -> Rows:
    """From the producer's clock to the broker's: clocks that differ show as well."""
    from pyspark.sql import functions as f

    delay = (f.unix_millis("store_ts") - f.unix_millis("born_ts")).alias("delay")
    found = frame.select("topic", delay).groupBy("topic").agg(*_quantiles("delay")).orderBy("topic").collect()
    return [{"topic": row["topic"], **_delay_of(row)} for row in found]


def _quantiles(name: str) -> list[Any]:
    from pyspark.sql import functions as f

    quantiles = f.percentile_approx(name, [0.5, 0.99], 10_000).alias("quantiles")
    return [f.avg(name).alias("mean"), quantiles, f.max(name).alias("most"), f.count(name).alias("messages")]


def _delay_of(row: Any) -> dict[str, Any]:
    p50, p99 = row["quantiles"]
    figures = {"mean_ms": round(row["mean"], 1), "p50_ms": p50, "p99_ms": p99, "max_ms": row["most"]}
    return {"messages": row["messages"], **figures}


def _failures(frame: "DataFrame", found: Statistics) -> None:
    from pyspark.sql import functions as f

    known = frame.select(
        "topic",
        f.col("reconsume_times").alias("times"),
        f.coalesce(f.col("properties")[labels.DEAD_LETTER_ORIGIN_TOPIC], f.col("properties")[labels.RETRY_TOPIC]).alias(
            "origin"
        ),
        f.col("properties")[labels.DEAD_LETTER_REASON].alias("reason"),
    )
    for row in known.groupBy("topic", "origin", "times", "reason").count().limit(_ROWS_MAX).collect():
        if row["topic"].startswith(RETRY_PREFIX):
            group = row["topic"].removeprefix(RETRY_PREFIX)
            place = {"group": group, "topic": row["origin"], "attempt": row["times"]}
            found.retries.append({**place, "messages": row["count"]})
        else:
            group = row["topic"].removeprefix(DEAD_LETTER_PREFIX)
            # Without a word from the consumer it was the number of attempts.
            cause = row["reason"] or f"failed {row['times']} times"
            found.dead_letters.append(
                {"group": group, "topic": row["origin"], "cause": cause, "messages": row["count"]}
            )
    found.retries = _added(found.retries)
    found.dead_letters = _added(found.dead_letters)


def _added(rows: Rows) -> Rows:
    """Rows that say the same, as one."""
    counts: dict[tuple[tuple[str, Any], ...], int] = {}
    for row in rows:
        key = tuple((name, value) for name, value in row.items() if name != "messages")
        counts[key] = counts.get(key, 0) + row["messages"]
    ordered = sorted(counts.items(), key=lambda each: (str(each[0][0]), -each[1], str(each[0])))
    return [{**dict(key), "messages": count} for key, count in ordered]


def _end_to_end(frame: "DataFrame") -> Rows:
    """From the send to the begin of its consumption, as clients told it in the trace topic."""
    from pyspark.sql import functions as f

    told = frame.mapInArrow(_told, _TOLD_DDL)
    sent = told.where("kind = 'sent'").select("message_id", "topic", f.col("at_ms").alias("sent_ms"))
    taken = told.where("kind = 'taken'").groupBy("message_id", "consumer_group").agg(f.min("at_ms").alias("taken_ms"))
    both = sent.join(taken, "message_id").withColumn("delay", f.col("taken_ms") - f.col("sent_ms"))
    rows = both.groupBy("topic", "consumer_group").agg(*_quantiles("delay")).orderBy("topic", "consumer_group")
    return [{"topic": row["topic"], "group": row["consumer_group"], **_delay_of(row)} for row in rows.collect()]


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a task: what trace messages say of sends and of consumption."""
    for batch in batches:
        rows: list[tuple[object, ...]] = []
        for body in batch.column(0).to_pylist():
            try:
                records = parse_trace(body)
            except BolideError:
                continue  # a client of another kind; its messages are without a figure, not the others
            for each in records:
                if isinstance(each, Published):
                    rows.append((each.message_id, "sent", None, each.topic, each.at))
                elif isinstance(each, ConsumeBegun):
                    rows.append((each.message_id, "taken", each.group, None, each.at))
        yield rows_of(_TOLD, [dict(zip(_TOLD.names, row, strict=True)) for row in rows])


def _lag_of_stores(stores: Sequence[str], frame: "DataFrame") -> Rows:
    """How far each group is behind, from the table that the broker keeps beside its store."""
    tables = [table for path in stores if (table := _offset_table(Path(path)))]
    if not tables:
        return []
    last = frame.groupBy("topic", "queue_id").agg({"queue_offset": "max"}).toDF("topic", "queue_id", "last")
    ends = {(row["topic"], row["queue_id"]): row["last"] + 1 for row in last.collect()}
    behind: dict[tuple[str, str], int] = {}
    for table in tables:
        for name, offsets in table.items():
            topic, _, group = name.partition("@")
            for queue_id, offset in offsets.items():
                left = max(ends.get((topic, queue_id), 0) - offset, 0)
                behind[group, topic] = behind.get((group, topic), 0) + left
    return [{"group": group, "topic": topic, "behind": left} for (group, topic), left in sorted(behind.items())]


def _offset_table(root: Path) -> OffsetTable:
    try:
        return parse((root / "config" / FILE_NAME).read_text("utf-8")).offset_table
    except (OSError, ValueError):
        return {}
