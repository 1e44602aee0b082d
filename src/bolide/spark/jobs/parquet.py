"""Rows into Parquet files by topic and date, inside the task that has them.

Spark's own writer would take the rows to the JVM and back, at twice the cost. The layout is the one Spark and everybody
else reads: `topic=Orders/date=2026-11-16/….parquet`, names percent-encoded, dates in UTC of the store time.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bolide.spark.schema import COLUMNS

# topic and date are in the path, and readers get them from there
FILE_COLUMNS = tuple(name for name in COLUMNS if name != "topic")
READ_COLUMNS = ("topic", *FILE_COLUMNS)
# Few values in many rows are worth a dictionary; trying it on the others costs a fifth of the time.
_REPEATED = ["broker_name", "queue_id", "tags", "flag", "sys_flag", "reconsume_times", "properties.key_value.key"]
_COUNTED = ["queue_id", "queue_offset", "physical_offset", "born_ts", "store_ts", "tags"]
_DAY_US = 86_400_000_000
_GROUP_ROWS = 128 << 10
_GROUP_SIZE = 32 << 20
_HELD_SIZE = 128 << 20
_OPEN_MAX = 100


@dataclass(slots=True)
class Part:
    """One file of a task: rows are held until they are worth a row group."""

    topic: str
    day: int
    path: str
    writer: pq.ParquetWriter | None = None
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_rows: int = 0
    held_size: int = 0
    row_count: int = 0


def date_of(day: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()


def final_name(topic: str, day: int, name: str) -> str:
    """Where a file of a lake belongs."""
    return f"topic={quote(topic, safe='')}/date={date_of(day)}/{name}"


class Files:
    """The files of one task, under a directory of its own."""

    def __init__(self, directory: Path, compression: str, is_wanted: Callable[[str], bool]) -> None:
        self._directory = directory
        self._compression = compression
        self._is_wanted = is_wanted
        self._parts: dict[tuple[str, int], Part] = {}
        self._done: list[Part] = []
        self._held_size = 0
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch that has READ_COLUMNS."""
        for topic, day, rows in by_topic_and_day(batch):
            if self._is_wanted(topic):
                self._hold(topic, day, rows.drop_columns(["topic"]))

    def _hold(self, topic: str, day: int, rows: pa.RecordBatch) -> None:
        part = self._parts.get((topic, day))
        if part is None:
            if len(self._parts) >= _OPEN_MAX:
                self._close(max(self._parts.values(), key=lambda part: part.row_count))
            part = self._parts[topic, day] = Part(topic, day, str(self._directory / f"{self._count}.parquet"))
            self._count += 1
        part.held.append(rows)
        part.held_rows += rows.num_rows
        part.held_size += rows.nbytes
        self._held_size += rows.nbytes
        if part.held_rows >= _GROUP_ROWS or part.held_size >= _GROUP_SIZE:
            self._write(part)
        elif self._held_size >= _HELD_SIZE:
            self._write(max(self._parts.values(), key=lambda part: part.held_size))

    def _write(self, part: Part) -> None:
        if part.writer is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            part.writer = pq.ParquetWriter(
                part.path,
                part.held[0].schema,
                compression=self._compression,
                use_dictionary=_REPEATED,
                write_statistics=_COUNTED,
                coerce_timestamps="us",
            )
        part.writer.write_table(pa.Table.from_batches(part.held), row_group_size=1 << 30)
        part.row_count += part.held_rows
        self._held_size -= part.held_size
        part.held, part.held_rows, part.held_size = [], 0, 0

    def _close(self, part: Part) -> None:
        if part.held:
            self._write(part)
        if part.writer is not None:
            part.writer.close()
            with open(part.path, "rb") as file:
                os.fsync(file.fileno())  # before the manifest says that it is there
            part.writer = None
        self._done.append(self._parts.pop((part.topic, part.day)))

    def close(self) -> list[Part]:
        """Write what is held; the files, each with its topic, day and rows."""
        for part in list(self._parts.values()):
            self._close(part)
        return self._done


def by_topic_and_day(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """The rows of each topic and day; mostly a batch has one of each, and is given as it is."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    days = batch.column("store_ts").cast(pa.int64()).to_numpy() // _DAY_US
    if len(names) == 1 and days[0] == days[-1] and days.min() == days.max():
        yield names[0], int(days[0]), batch
        return
    first = int(days.min())
    keys = topics.indices.to_numpy().astype(np.int64) * (int(days.max()) - first + 1) + (days - first)
    order = np.argsort(keys, kind="stable")
    _, starts = np.unique(keys[order], return_index=True)
    ordered = batch.take(pa.array(order))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        row = int(order[start])
        yield names[topics.indices[row].as_py()], int(days[row]), ordered.slice(int(start), int(end - start))
