"""Topics into a lake of Parquet files: once everything, then what came since.

The messages come from brokers or from the files of a store, in one pass whatever the number of topics. The manifest of
the lake says how far each source was read (`manifest.py`), so a run begins where the last one ended.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from bolide.errors import ConfigError
from bolide.spark.jobs.manifest import Lake
from bolide.spark.jobs.parquet import Files, by_topic_and_day, date_of, final_name
from bolide.spark.jobs.sources import Source, is_users
from bolide.spark.jobs.tasks import Tell, rows_of, spread_over, tell_nobody, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

COMPRESSIONS = ("zstd", "snappy", "none")
_RESULT = pa.schema(
    [
        pa.field("staged", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("day", pa.int64()),
        pa.field("messages", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
_RESULT_DDL = "staged string, topic string, day bigint, messages bigint, bytes bigint"


@dataclass(frozen=True, slots=True)
class Exported:
    """What a run added: messages by topic and date, files, and how many messages were gone before it came."""

    topics: dict[tuple[str, str], int] = field(default_factory=dict)
    file_count: int = 0
    size: int = 0
    missed: int = 0

    @property
    def message_count(self) -> int:
        return sum(self.topics.values())


def export(
    spark: "SparkSession",
    source: Source,
    root: Path,
    *,
    topics: Sequence[str] = (),
    compression: str = "zstd",
    is_dry: bool = False,
    tell: Tell = tell_nobody,
) -> Exported:
    """Add to the lake what is new. Without topics it is all of the user's own; a dry run only counts."""
    if compression not in COMPRESSIONS:
        raise ConfigError("compression", compression, f"may be {', '.join(COMPRESSIONS)}")
    is_wanted = frozenset(topics).__contains__ if topics else is_users
    lake = Lake(root.resolve())
    if is_dry:
        pieces, _, missed = source.pieces(lake.manifest()["sources"].get(source.name, {}), topics)
        return _summary(_run(spark, pieces, partial(_count, source, is_wanted), tell), missed)
    with lake.held():
        manifest = lake.manifest()
        position = manifest["sources"].get(source.name, {})
        pieces, after, missed = source.pieces(position, topics)
        work = partial(_write, source, is_wanted, lake.staging, compression)
        found = _run(spark, pieces, work, tell)
        run = manifest["runs"] + 1
        names = {
            row["staged"]: final_name(row["topic"], row["day"], f"part-{run:05d}-{number:05d}.parquet")
            for number, row in enumerate(found)
        }
        if after != position or names:
            lake.commit(names, source.name, after)
        return _summary(found, missed)


def _run(
    spark: "SparkSession", pieces: list[Any], work: Callable[[Any], Iterator[pa.RecordBatch]], tell: Tell
) -> list[dict[str, Any]]:
    if not pieces:
        return []
    with watched(spark, tell):
        rows = spread_over(spark, pieces, work, _RESULT_DDL).collect()
    return [row.asDict() for row in rows]


def _write(
    source: Source, is_wanted: Callable[[str], bool], staging: Path, compression: str, piece: Any
) -> Iterator[pa.RecordBatch]:
    """Runs in a task. The directory is of this attempt alone: only what is told of it counts."""
    name = uuid4().hex
    files = Files(staging / name, compression, is_wanted)
    for batch in source.read(piece):
        files.add(batch)
    rows = [
        {
            "staged": f"{name}/{Path(part.path).name}",
            "topic": part.topic,
            "day": part.day,
            "messages": part.row_count,
            "bytes": Path(part.path).stat().st_size,
        }
        for part in files.close()
    ]
    if rows:
        yield rows_of(_RESULT, rows)


def _count(source: Source, is_wanted: Callable[[str], bool], piece: Any) -> Iterator[pa.RecordBatch]:
    counts: Counter[tuple[str, int]] = Counter()
    for batch in source.read(piece):
        for topic, day, rows in by_topic_and_day(batch):
            if is_wanted(topic):
                counts[topic, day] += rows.num_rows
    rows = [{"staged": "", "topic": topic, "day": day, "messages": n, "bytes": 0} for (topic, day), n in counts.items()]
    if rows:
        yield rows_of(_RESULT, rows)


def _summary(found: list[dict[str, Any]], missed: int) -> Exported:
    counts: Counter[tuple[str, str]] = Counter()
    for row in found:
        counts[row["topic"], date_of(row["day"])] += row["messages"]
    file_count = sum(1 for row in found if row["staged"])
    if missed:
        log.warning("the source had dropped what was next before this run came missed=%d", missed)
    return Exported(dict(sorted(counts.items())), file_count, sum(row["bytes"] for row in found), missed)
