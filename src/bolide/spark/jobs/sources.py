"""Where a job's messages come from: the files of a store, or topics of a cluster.

Both give pieces, a task each, and say how far they reach; both are read inside the task, by the reader of their format.
How far is kept for each topic, whatever topics a run chose: one that is added later is read from its beginning, and the
others go on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bolide.errors import ConfigError
from bolide.model.queue import MessageQueue
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS, is_system_topic
from bolide.spark.cluster import Cluster
from bolide.spark.columns import Columns, Wanted
from bolide.spark.jobs.parquet import READ_COLUMNS
from bolide.spark.options import SourceOptions, source_options
from bolide.spark.source import offsets
from bolide.spark.source.reader import BatchReader, Task
from bolide.spark.store.log_files import TAIL, Range, log_directories, log_files, plan, read_range

# Stands in a position for all topics of the user's own.
ALL_OWN = "*"
_OTHERS = "|".join([f"({'|'.join(map(re.escape, sorted(SYSTEM_TOPICS)))})$", "%", SYSTEM_PREFIX, SYSTEM_PREFIX.upper()])


def is_users(topic: str) -> bool:
    """Whether a topic is exported without being named."""
    return not is_system_topic(topic) and not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


class Source(Protocol):
    """Where messages come from: pieces of what is new since a position, and the position after them."""

    name: str

    def pieces(self, position: dict[str, Any], topics: Sequence[str]) -> tuple[list[Any], dict[str, Any], int]:
        """The pieces, the next position, and how many messages (or bytes of log) are gone already.

        Without topics it is all of the user's own.
        """

    def read(self, piece: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with READ_COLUMNS. Runs in a task."""


class Stretch(NamedTuple):
    """A part of the log, whose rows of it are wanted, and up to where those of some topics were read before."""

    ranges: list[Range]
    wanted: Wanted
    read_before: dict[str, int]


class StoreFiles:
    """The commit log of a store directory."""

    def __init__(self, paths: Sequence[str], wanted: Wanted, broker_name: str | None = None, mode: str = TAIL) -> None:
        self._paths = [str(Path(path).resolve()) for path in paths]
        self._wanted = wanted
        self._mode = mode
        self._broker_name = broker_name
        self.name = f"store:{','.join(self._paths)}"

    def pieces(self, position: dict[str, Any], topics: Sequence[str]) -> tuple[list[Stretch], dict[str, Any], int]:
        files = log_files(log_directories(self._paths), self._mode)
        if not files:
            return [], position, 0
        before: dict[str, int] = position.get("physical", {})
        first, end = files[0].base, files[-1].base + files[-1].size
        if before and (furthest := max(before.values())) > end:
            reason = f"ends at {end}, but was exported up to {furthest}: another store?"
            raise ConfigError("store", self._paths[0], reason)
        begins = {topic: _read_up_to(before, topic) for topic in topics or [ALL_OWN]}
        begin = min(first if at is None else at for at in begins.values())
        missed = max((first - at for at in begins.values() if at is not None and at < first), default=0)
        chosen = topics or [topic for topic in before if is_users(topic)]
        read_before = {topic: at for topic in chosen if (at := _read_up_to(before, topic) or 0) > begin}
        # What was read of one of the user's own is said by what was read of all of them.
        kept = before if topics else {topic: at for topic, at in before.items() if not is_users(topic)}
        after = {"physical": kept | dict.fromkeys(topics or [ALL_OWN], end)}
        parts = plan(files, self._wanted, from_physical=begin)
        # Others are passed over as they lie, which is cheaper than to drop their rows.
        wanted = replace(self._wanted, topics=frozenset(map(str.encode, topics))) if topics else self._wanted
        return [Stretch(part, wanted, read_before) for part in parts], after, missed

    def read(self, piece: Stretch) -> Iterator[pa.RecordBatch]:
        columns = Columns(READ_COLUMNS, self._broker_name)
        for part in piece.ranges:
            for batch in read_range(part, columns, piece.wanted, mode=self._mode):
                yield _without(batch, piece.read_before)


def _read_up_to(before: Mapping[str, int], topic: str) -> int | None:
    """Where a topic goes on; None where it was never read."""
    found = [before[name] for name in (topic, ALL_OWN) if name in before and (name == topic or is_users(topic))]
    return max(found, default=None)


def _without(batch: pa.RecordBatch, read_before: Mapping[str, int]) -> pa.RecordBatch:
    """The rows that no earlier run has read."""
    for topic, at in read_before.items():
        is_old = pc.and_(pc.equal(batch.column("topic"), topic), pc.less(batch.column("physical_offset"), at))
        batch = batch.filter(pc.invert(is_old))
    return batch


_SCHEMA = from_arrow_schema(Columns(READ_COLUMNS).schema)


class Topics:
    """Topics of a cluster, through its brokers."""

    def __init__(self, options: Mapping[str, str], topics: Sequence[str]) -> None:
        self._given = dict(options) | (
            {"subscribe": ",".join(topics)} if topics else {"subscribePattern": f"(?!{_OTHERS}).+"}
        )
        self.name = f"brokers:{options['bolide.bootstrap.servers']}"

    def pieces(self, position: dict[str, Any], topics: Sequence[str]) -> tuple[list[Any], dict[str, Any], int]:
        """The topics are those that it was made for."""
        given = self._given | {"failOnDataLoss": "false", "endingOffsets": "latest"}
        before = offsets.read(position) if position else {}
        reader = SinceReader(source_options(given), _SCHEMA, before)
        tasks = [task for task in reader.partitions() if isinstance(task, Task) and task.ranges]
        ranges = [each for task in tasks for each in task.ranges]
        after = before | {each.queue: max(each.end, before.get(each.queue, 0)) for each in ranges}
        first: dict[Any, int] = {}
        for each in ranges:
            first[each.queue] = min(each.first, first.get(each.queue, each.first))
        missed = sum(max(at - before.get(queue, at), 0) for queue, at in first.items())
        return tasks, offsets.write(after), missed

    def read(self, piece: Any) -> Iterator[pa.RecordBatch]:
        return BatchReader(source_options(self._given), _SCHEMA).read(piece)


class SinceReader(BatchReader):
    """Begins in each queue where an earlier run ended; queues that are away, or not chosen now, are left alone."""

    def __init__(self, options: SourceOptions, schema: StructType, before: Mapping[MessageQueue, int]) -> None:
        super().__init__(options, schema)
        self._before = before

    def _ranges(self, cluster: Cluster, queues: list[MessageQueue]) -> list[offsets.Range]:
        if known := {queue: self._before[queue] for queue in queues if queue in self._before}:
            self._options = replace(self._options, starting=offsets.Position(offsets=known))
        return super()._ranges(cluster, queues)
