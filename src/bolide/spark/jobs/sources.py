"""Where a job's messages come from: the files of a store, or topics of a cluster.

Both give pieces, a task each, and say how far they reach; both are read inside the task, by the reader of their format.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.errors import ConfigError
from bolide.spark import offsets
from bolide.spark.columns import Columns, Wanted
from bolide.spark.jobs.parquet import READ_COLUMNS
from bolide.spark.logfiles import TAIL, Range, log_directories, log_files, plan, read_range
from bolide.spark.options import source_options
from bolide.spark.reader import BatchReader, Task


class Source(Protocol):
    """Where messages come from: pieces of what is new since a position, and the position after them."""

    name: str

    def pieces(self, position: dict[str, Any]) -> tuple[list[Any], dict[str, Any], int]:
        """The pieces, the next position, and how many messages (or bytes of log) are gone already."""

    def read(self, piece: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with READ_COLUMNS. Runs in a task."""


class StoreFiles:
    """The commit log of a store directory."""

    def __init__(self, paths: Sequence[str], wanted: Wanted, broker_name: str | None = None, mode: str = TAIL) -> None:
        self._paths = [str(Path(path).resolve()) for path in paths]
        self._wanted = wanted
        self._mode = mode
        self._broker_name = broker_name
        self.name = f"store:{','.join(self._paths)}"

    def pieces(self, position: dict[str, Any]) -> tuple[list[list[Range]], dict[str, Any], int]:
        files = log_files(log_directories(self._paths), self._mode)
        if not files:
            return [], position, 0
        begin, end = int(position.get("physical", files[0].base)), files[-1].base + files[-1].size
        if begin > end:
            raise ConfigError("store", self._paths[0], f"ends at {end}, but was exported up to {begin}: another store?")
        missed = max(files[0].base - begin, 0)
        return plan(files, self._wanted, from_physical=begin), {"physical": end}, missed

    def read(self, piece: list[Range]) -> Iterator[pa.RecordBatch]:
        columns = Columns(READ_COLUMNS, self._broker_name)
        for part in piece:
            yield from read_range(part, columns, self._wanted, mode=self._mode)


class Topics:
    """Topics of a cluster, through its brokers."""

    def __init__(self, options: Mapping[str, str], topics: Sequence[str]) -> None:
        self._given = dict(options) | (
            {"subscribe": ",".join(topics)} if topics else {"subscribePattern": "(?!%|rmq_sys_|RMQ_SYS_).+"}
        )
        self.name = f"brokers:{options['bolide.bootstrap.servers']}"

    def pieces(self, position: dict[str, Any]) -> tuple[list[Any], dict[str, Any], int]:
        given = self._given | {"failOnDataLoss": "false", "endingOffsets": "latest"}
        before = offsets.read(position) if position else {}
        if before:
            given["startingOffsets"] = json.dumps(position)
        reader = self._reader(given)
        tasks = [task for task in reader.partitions() if isinstance(task, Task) and task.ranges]
        ranges = [each for task in tasks for each in task.ranges]
        after = before | {each.queue: max(each.end, before.get(each.queue, 0)) for each in ranges}
        first: dict[Any, int] = {}
        for each in ranges:
            first[each.queue] = min(each.first, first.get(each.queue, each.first))
        missed = sum(max(at - before.get(queue, at), 0) for queue, at in first.items())
        return tasks, offsets.write(after), missed

    def read(self, piece: Any) -> Iterator[pa.RecordBatch]:
        return self._reader(self._given).read(piece)

    def _reader(self, given: Mapping[str, str]) -> BatchReader:
        return BatchReader(source_options(given), from_arrow_schema(Columns(READ_COLUMNS).schema))
