"""`format("bolide-store")`: the commit log of a store directory, without a broker.

The store may be live, stopped or a copy, ours or Apache's. Topics, tags and times that a query asks for are looked for
while the records are read, so that other rows never reach the JVM; whole segments are left out by their times.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from bolide.errors import ConfigError
from bolide.spark.columns import EVERYTHING, Columns, Wanted
from bolide.spark.options import GivenOptions
from bolide.spark.schema import STORE_COLUMNS, checked, checked_names, ddl
from bolide.spark.source.filters import pruning_of
from bolide.spark.store.log_files import (
    MODES,
    TAIL,
    LogFile,
    Range,
    log_directories,
    log_files,
    plan,
    read_range,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_OPTIONS: dict[str, tuple[str, ...]] = dict.fromkeys(
    (
        "path",
        "paths",
        "subscribe",
        "columns",
        "mode",
        "checkCrc",
        "rangeSize",
        "brokerName",
        "startingTimestamp",
        "endingTimestamp",
    ),
    (),
)
# That worker runs only where filters may be pushed; a reader that overrides pushFilters elsewhere fails the query.
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What is read, and how."""

    paths: tuple[str, ...]
    columns: tuple[str, ...] = STORE_COLUMNS
    wanted: Wanted = EVERYTHING
    mode: str = TAIL
    is_checked: bool = True
    range_size: int | None = None
    broker_name: str | None = None


def store_options(options: Mapping[str, str]) -> StoreOptions:
    """The options of a query, checked."""
    given = GivenOptions(options, _OPTIONS)
    mode = (given.text("mode") or TAIL).lower()
    if mode not in MODES:
        raise ConfigError("mode", mode, f"may be {', '.join(MODES)}")
    topics, columns = given.words("subscribe"), given.words("columns")
    from_ms, until_ms = given.number("startingTimestamp", 0), given.number("endingTimestamp", 0)
    return StoreOptions(
        paths=tuple(map(str, given.parsed("paths", json.loads) or given.words("path"))),
        columns=checked_names(columns, STORE_COLUMNS) if columns else STORE_COLUMNS,
        wanted=Wanted(
            topics=frozenset(topic.encode() for topic in topics) if topics else None,
            from_ms=EVERYTHING.from_ms if from_ms is None else from_ms,
            until_ms=EVERYTHING.until_ms if until_ms is None else until_ms,
        ),
        mode=mode,
        is_checked=given.switch("checkCrc", True),
        range_size=given.number("rangeSize", 1),
        broker_name=given.text("brokerName"),
    )


class StoreSource(DataSource):
    """The files of a store."""

    @classmethod
    def name(cls) -> str:
        return "bolide-store"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    def schema(self) -> str:
        return ddl(store_options(self._given).columns)

    def reader(self, schema: "StructType") -> DataSourceReader:
        options = replace(store_options(self._given), columns=tuple(checked(schema, STORE_COLUMNS).names))
        return PruningStoreReader(options) if _PUSHING in sys.modules else StoreReader(options)


class StorePartition(InputPartition):
    """Ranges of the log for one task."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = list(ranges)


class StoreReader(DataSourceReader):
    """Plans where the query is planned, reads where tasks run."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._files: list[LogFile] | None = None

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if self._files is None:
            self._files = log_files(log_directories(options.paths), options.mode)
        parts = plan(self._files, options.wanted, options.range_size)
        return [StorePartition(ranges) for ranges in parts] or [StorePartition([])]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, StorePartition)
        options = self._options
        columns = Columns(options.columns, options.broker_name)
        for part in partition.ranges:
            yield from read_range(part, columns, options.wanted, mode=options.mode, is_checked=options.is_checked)


class PruningStoreReader(StoreReader):
    """The same, told what the query filters by."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 (Spark's name)
        found = pruning_of(filters)
        wanted = self._options.wanted
        changes: dict[str, object] = {}
        if found.topics is not None:
            topics = frozenset(topic.encode() for topic in found.topics)
            changes["topics"] = topics if wanted.topics is None else topics & wanted.topics
        if found.tags is not None:
            changes["tags"] = frozenset(tag.encode() for tag in found.tags)
        if found.from_ms is not None:
            changes["from_ms"] = max(found.from_ms, wanted.from_ms)
        if found.until_ms is not None:
            changes["until_ms"] = min(found.until_ms, wanted.until_ms)
        self._options = replace(self._options, wanted=replace(wanted, **changes))  # type: ignore[arg-type]
        # All of them are Spark's to check as well: ours only spare it rows.
        yield from filters
