"""Consume queues and index of a stopped store, made again from its log, for logs that are too big for one core.

The log is the truth, and both are derived from it. Entries are gathered by queue file, a task each, so that no task
holds more than one file; the shuffle is Spark's. The index is a sequence in the order of the log: keys are counted
first, then each index file is filled by one task from its own stretch of the log, and nothing is shuffled.

What a broker would have written is written to the byte, where nothing of the log has expired. Entries of expired
messages cannot be made again, and neither can the extension files of RocketMQ's bit maps.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bolide.errors import StoreError
from bolide.kernel.layout import ENTRY_SIZE, PRE_BLANK
from bolide.spark.jobs.tasks import Tell, rows_of, spread_over, tell_nobody, watched
from bolide.spark.jobs.walk import Damage, walk_range
from bolide.spark.store.log_files import LogFile, Range, log_files, plan
from bolide.store.checkpoint import StoreLock
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.disk import Disk
from bolide.store.index import IndexFile, name_at
from bolide.store.queue_files import known_topics
from bolide.store.segment import segment_name
from bolide.store.walk import Walked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES, INDEX = "consumequeue", "index"
_RUN = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("file", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("physical", pa.int64()),
        pa.field("entries", pa.binary()),
    ]
)
_RUN_DDL = "topic string, queue_id int, file bigint, first bigint, physical bigint, entries binary"
_FILE = pa.schema([*(_RUN.field(name) for name in ("topic", "queue_id", "file")), pa.field("entries", pa.int64())])
_FILE_DDL = "topic string, queue_id int, file bigint, entries bigint"
_STRETCH = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("base", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("keys", pa.int64()),
        pa.field("first_ms", pa.int64()),
    ]
)
_STRETCH_DDL = "path string, base bigint, size bigint, start bigint, end bigint, keys bigint, first_ms bigint"
_DONE_DDL = "name string, keys bigint"
_BATCH_SIZE = 8 << 20


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was made: entries of each queue, and keys of each index file."""

    queues: dict[tuple[str, int], int]
    index: dict[str, int]

    @property
    def entry_count(self) -> int:
        return sum(self.queues.values())


@dataclass(frozen=True, slots=True)
class Fill:
    """One index file: its name, the stretches of the log whose keys it holds, and which of those keys are its own."""

    name: str
    stretches: list[Range]
    skip: int
    count: int


def rebuild(
    spark: "SparkSession",
    config: StoreConfig,
    *,
    to: Path | None = None,
    is_dry: bool = False,
    range_size: int | None = None,
    tell: Tell = tell_nobody,
) -> Rebuilt:
    """Make queues and index again: in `to`, or in the store itself, where the old ones stay as `….before`.

    A dry run walks the log and says what would be written.
    """
    files = log_files([path for path in config.log_directories if path.is_dir()])
    parts = plan(files, range_size=range_size)
    target = to or config.root
    if is_dry:
        with watched(spark, tell), _runs(spark, config, parts) as runs:
            return Rebuilt(_counted(runs), _named(_fills(spark, config, parts)))
    lock = StoreLock(config.root / "lock")
    if to is None:
        lock.take()
    try:
        fresh = {name: target / f"{name}.rebuilt" for name in (QUEUES, INDEX)}
        for directory in fresh.values():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        with watched(spark, tell):
            queues = _write_queues(spark, config, parts, fresh[QUEUES])
            index = _write_index(spark, config, parts, fresh[INDEX]) if config.index_enabled else {}
        for name, directory in fresh.items():
            _put_in_place(directory, target / name)
        return Rebuilt(queues, index)
    finally:
        lock.release()


def _put_in_place(fresh: Path, place: Path) -> None:
    """The old directory steps aside. In between there is none, and a broker that starts then makes it from the log."""
    before = place.with_name(f"{place.name}.before")
    if place.exists():
        shutil.rmtree(before, ignore_errors=True)
        place.rename(before)
    fresh.rename(place)
    Disk().sync_directory(place.parent)


@contextmanager
def _runs(spark: "SparkSession", config: StoreConfig, parts: list[list[Range]]) -> "Iterator[DataFrame]":
    """The entries of the log, cut at the ends of queue files, without those of topics that were removed.

    Where the offsets of a queue begin at 0 again, its topic was removed and made again, and only the latter counts.
    """
    from pyspark.sql import functions as f

    all_runs = spread_over(spark, parts, partial(_entries, config), _RUN_DDL).persist()
    known, runs = known_topics(config.root), all_runs
    if known is not None:
        runs = runs.where(f.col("topic").isin(sorted(known | _with_queues(config.root))))
    again = runs.where("first = 0").groupBy("topic", "queue_id").agg(f.max("physical").alias("restart"))
    try:
        yield runs.join(f.broadcast(again), ["topic", "queue_id"], "left").where("physical >= coalesce(restart, 0)")
    finally:
        all_runs.unpersist()


def _with_queues(root: Path) -> set[str]:
    return {path.name for path in (root / QUEUES).iterdir()} if (root / QUEUES).is_dir() else set()


def _walked(config: StoreConfig, parts: list[Range]) -> Iterator[tuple[Range, Walked]]:
    for part in parts:
        for step in walk_range(part, delays_ms_of(config.delay_levels)):
            if isinstance(step, Damage):
                raise StoreError(
                    f"{part.file.path}: no whole record at byte {step.position}; start a broker on the store, which "
                    "recovers it, or see what bolide lake audit finds"
                )
            if isinstance(step, Walked):
                yield part, step


def _entries(config: StoreConfig, parts: list[Range]) -> Iterator[pa.RecordBatch]:
    """Runs in a task."""
    file_size = config.queue_file_bytes
    rows: list[dict[str, Any]] = []
    size = 0
    for _, step in _walked(config, parts):
        for topic, queue_id, first, entries in step.runs:
            at, rest = first * ENTRY_SIZE, entries
            while rest:
                part = rest[: file_size - at % file_size]
                physical = int.from_bytes(part[:8], "big")
                place = {"topic": topic, "queue_id": queue_id, "file": at // file_size}
                rows.append(place | {"first": at // ENTRY_SIZE, "physical": physical, "entries": part})
                at, rest, size = at + len(part), rest[len(part) :], size + len(part)
        if size >= _BATCH_SIZE:
            yield rows_of(_RUN, rows)
            rows, size = [], 0
    if rows:
        yield rows_of(_RUN, rows)


def _counted(runs: "DataFrame") -> dict[tuple[str, int], int]:
    from pyspark.sql import functions as f

    counts = runs.groupBy("topic", "queue_id").agg((f.sum(f.length("entries")) / ENTRY_SIZE).cast("bigint").alias("n"))
    found = {(row["topic"], row["queue_id"]): row["n"] for row in counts.collect()}
    return dict(sorted(found.items()))


def _write_queues(
    spark: "SparkSession", config: StoreConfig, parts: list[list[Range]], directory: Path
) -> dict[tuple[str, int], int]:
    if not parts:
        return {}
    with _runs(spark, config, parts) as runs:
        place, file_size = str(directory.resolve()), config.queue_file_bytes

        def write(table: pa.Table) -> pa.Table:  # Spark reads the types
            return _write_queue_file(place, file_size, table)

        rows = runs.drop("restart").groupBy("topic", "queue_id", "file").applyInArrow(write, _FILE_DDL).collect()
    found: dict[tuple[str, int], dict[int, int]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["queue_id"]), {})[row["file"]] = row["entries"]
    for (topic, queue_id), files in found.items():
        for number in range(min(files), max(files)):
            if number not in files:  # a gap in the offsets as long as a file
                _put_file(directory / topic / str(queue_id), number, config.queue_file_bytes, b"")
    return {key: sum(files.values()) for key, files in sorted(found.items())}


def _write_queue_file(directory: str, file_size: int, table: pa.Table) -> pa.Table:
    """Runs in a task: one file from all runs of entries that belong into it, as a queue takes them one by one."""
    rows = sorted(table.to_pylist(), key=lambda row: row["physical"])
    topic, queue_id, number = rows[0]["topic"], rows[0]["queue_id"], rows[0]["file"]
    start = number * file_size // ENTRY_SIZE
    content, count = bytearray(), 0
    for row in rows:
        entries, missing = row["entries"], (row["first"] - start) * ENTRY_SIZE - len(content)
        if missing > 0:
            content += PRE_BLANK * (missing // ENTRY_SIZE)
        fresh = entries[max(-missing, 0) :]
        content += fresh
        count += len(fresh) // ENTRY_SIZE
    _put_file(Path(directory) / topic / str(queue_id), number, file_size, bytes(content))
    done = {"topic": topic, "queue_id": queue_id, "file": number, "entries": count}
    return pa.Table.from_pylist([done], schema=_FILE)


def _put_file(directory: Path, number: int, file_size: int, content: bytes) -> None:
    """A whole file; without content one that is blank to its end."""
    directory.mkdir(parents=True, exist_ok=True)
    base = number * file_size
    with open(directory / segment_name(base), "wb") as file:
        file.write(content or PRE_BLANK * (file_size // ENTRY_SIZE))
        file.truncate(file_size)
        file.flush()
        os.fsync(file.fileno())


def _fills(spark: "SparkSession", config: StoreConfig, parts: list[list[Range]]) -> list[Fill]:
    """Which keys go into which index file; a file holds one less than its name says, for entry 0 is none."""
    if not parts:
        return []
    rows = spread_over(spark, parts, partial(_stretches, config), _STRETCH_DDL).collect()
    capacity = config.index_entries_max - 1
    fills: list[Fill] = []
    room, last_ms = 0, 0
    for row in sorted(rows, key=lambda row: row["base"] + row["start"]):
        stretch = Range(LogFile(row["path"], row["base"], row["size"]), row["start"], row["end"])
        taken = 0
        while taken < row["keys"]:
            if not room:
                last_ms = max(row["first_ms"], last_ms + 1)
                fills.append(Fill(name_at(last_ms), [], taken, 0))
                room = capacity
            count = min(row["keys"] - taken, room)
            last = fills[-1]
            fills[-1] = Fill(last.name, [*last.stretches, stretch], last.skip, last.count + count)
            taken, room = taken + count, room - count
    return fills


def _stretches(config: StoreConfig, parts: list[Range]) -> Iterator[pa.RecordBatch]:
    """Runs in a task: how many keys each stretch of the log has."""
    rows = [
        {
            "path": part.file.path,
            "base": part.file.base,
            "size": part.file.size,
            "start": step.start,
            "end": step.end,
            "keys": len(step.keys) // ENTRY_SIZE,
            "first_ms": int.from_bytes(step.keys[12:20], "big"),
        }
        for part, step in _walked(config, parts)
        if step.keys
    ]
    if rows:
        yield rows_of(_STRETCH, rows)


def _named(fills: list[Fill]) -> dict[str, int]:
    return {fill.name: fill.count for fill in fills}


def _write_index(
    spark: "SparkSession", config: StoreConfig, parts: list[list[Range]], directory: Path
) -> dict[str, int]:
    fills = _fills(spark, config, parts)
    if not fills:
        return {}
    write = partial(_write_index_file, config, directory.resolve())
    done = spread_over(spark, fills, write, _DONE_DDL).collect()
    return {row["name"]: row["keys"] for row in sorted(done, key=lambda row: row["name"])}


def _write_index_file(config: StoreConfig, directory: Path, fill: Fill) -> Iterator[pa.RecordBatch]:
    """Runs in a task. An attempt before this one may have left a file."""
    path = directory / fill.name
    path.unlink(missing_ok=True)
    file = IndexFile(Disk(), path, config.index_slots, config.index_entries_max, is_new=True)
    skip, left = fill.skip * ENTRY_SIZE, fill.count * ENTRY_SIZE
    for _, step in _walked(config, fill.stretches):
        keys = step.keys[skip : skip + left]
        skip, left = max(skip - len(step.keys), 0), left - len(keys)
        file.put(keys)
    file.sync()
    file.close()
    yield pa.RecordBatch.from_pylist([{"name": fill.name, "keys": fill.count}])
