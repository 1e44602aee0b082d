"""Every record, every queue entry and every key of a store against the log, on as many cores as there are.

The findings and their words are those of `store/verify.py`, which does it on one core and with all keys in memory.
Here a task walks a range of the log and looks at the queue files beside it; the keys of the log and of the index meet
in a join. Damage does not end the walk, so what lies behind it is judged too.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bolide.errors import StoreError
from bolide.kernel.layout import ENTRY_SIZE
from bolide.spark.jobs.index_check import IndexFiles, index_findings, index_keys
from bolide.spark.jobs.tasks import Tell, rows_of, spread_over, tell_nobody, watched
from bolide.spark.jobs.walk import Damage, walk_range
from bolide.spark.store.log_files import PERMISSIVE, LogFile, Range, has_bytes, log_files, mapped, plan
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.queue_files import Finding, QueueFiles
from bolide.store.verify import BROKEN, passed_over
from bolide.store.walk import Walked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FINDINGS_MAX = 1000  # of one task: more of them say nothing more
_BLANK = b"\xcb\xd4\x31\x94"

# One row is a finding, a doubt (a finding unless the topic was removed and made again later), or what a task saw of a
# queue: its first and last offset, where they lie, and where the offsets began at 0 again.
_SEEN = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("what", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("first", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("physical", pa.int64()),
        pa.field("restart", pa.int64()),
        pa.field("records", pa.int64()),
    ]
)
_SEEN_DDL = (
    "kind string, file string, position bigint, what string, topic string, queue_id int, first bigint, end bigint, "
    "physical bigint, restart bigint, records bigint"
)
_KEYS_DDL = "hash int, physical bigint"
_KEY = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("ms", ">i8")])


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked at, and what did not fit."""

    record_count: int
    queue_count: int
    index_file_count: int
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Scope:
    """What an audit would look at."""

    log_files: list[LogFile]
    parts: list[list[Range]]
    queues: list[tuple[str, int]]
    index_files: list[str]


def scope_of(config: StoreConfig, range_size: int | None = None) -> Scope:
    files = log_files([path for path in config.log_directories if path.is_dir()], PERMISSIVE)
    index = config.root / "index"
    names = sorted(path for path in index.iterdir() if path.name.isdecimal()) if index.is_dir() else []
    return Scope(files, plan(files, range_size=range_size), QueueFiles(config).keys(), [str(path) for path in names])


def audit(
    spark: "SparkSession", config: StoreConfig, *, range_size: int | None = None, tell: Tell = tell_nobody
) -> Audit:
    """Everything that does not fit; no findings for a healthy store. The store should be stopped."""
    try:
        scope = scope_of(config, range_size)
    except StoreError as problem:
        return Audit(0, 0, 0, [Finding(str(config.root), 0, str(problem))])
    found = _log_findings(config, scope)
    with watched(spark, tell):
        seen = _collected(spark, scope.parts, partial(_walk, config))
        found += [_finding(row) for row in seen if row["kind"] == "finding"]
        queues = [row for row in seen if row["kind"] == "queue"]
        found += _gaps(queues)
        restarts = _restarts(queues)
        found += [
            _finding(row)
            for row in seen
            if row["kind"] == "doubt" and row["physical"] >= restarts.get((row["topic"], row["queue_id"]), 0)
        ]
        found += _queue_findings(spark, config, scope, queues)
        if config.index_enabled:
            found += _index_findings(spark, config, scope)
    records = sum(row["records"] for row in seen)
    ordered = sorted(set(found), key=lambda each: (each.file, each.position, each.what))
    return Audit(records, len(scope.queues), len(scope.index_files), ordered)


def _collected(spark: "SparkSession", pieces: list[Any], work: Any) -> list[dict[str, Any]]:
    if not pieces:
        return []
    return [row.asDict() for row in spread_over(spark, pieces, work, _SEEN_DDL).collect()]


def _finding(row: dict[str, Any]) -> Finding:
    return Finding(row["file"], row["position"], row["what"])


def _log_findings(config: StoreConfig, scope: Scope) -> list[Finding]:
    """What the run of files itself says: gaps, files of the wrong size, and bytes behind the end."""
    found = []
    for before, after in pairwise(scope.log_files):
        if before.base + before.size != after.base:
            found.append(Finding(after.path, 0, f"does not begin where {Path(before.path).name} ends"))
    for file in scope.log_files:
        size = Path(file.path).stat().st_size
        if size != config.segment_size:
            found.append(Finding(file.path, 0, f"has {size} bytes, the configured size is {config.segment_size}"))
    if scope.log_files:
        last = scope.log_files[-1]
        with mapped(last.path) as view:
            is_full = last.size < len(view) and bytes(view[last.size + 4 : last.size + 8]) == _BLANK
            if not is_full and has_bytes(view, last.size):
                found.append(Finding(last.path, last.size, BROKEN))
    return found


def _row(kind: str, **values: Any) -> dict[str, Any]:
    return dict.fromkeys(_SEEN.names) | {"kind": kind, "records": 0} | values


def _walk(config: StoreConfig, parts: list[Range]) -> Iterator[pa.RecordBatch]:
    """Runs in a task: the records of some ranges, against the queue files."""
    queues = QueueWalk(config)
    rows: list[dict[str, Any]] = []
    count = 0
    for part in parts:
        for step in walk_range(part, delays_ms_of(config.delay_levels)):
            if isinstance(step, Walked):
                count += step.record_count
                for run in step.runs:
                    queues.check(*run)
            elif isinstance(step, Damage):
                base = part.file.base
                what = BROKEN if step.behind < 0 else passed_over(base + step.position, base + step.behind)
                rows.append(_row("finding", file=part.file.path, position=step.position, what=what))
            elif step.size != (left := config.segment_size - step.position):
                what = f"a blank of {step.size} bytes where {left} are left"
                rows.append(_row("finding", file=part.file.path, position=step.position, what=what))
    rows += queues.rows()
    rows.append(_row("count", records=count))
    yield rows_of(_SEEN, rows)


class QueueWalk:
    """What a task finds in the queue files beside its part of the log."""

    def __init__(self, config: StoreConfig) -> None:
        self._files = QueueFiles(config)
        self._queues: dict[tuple[str, int], dict[str, Any]] = {}
        self._findings: list[dict[str, Any]] = []

    def check(self, topic: str, queue_id: int, first: int, entries: bytes) -> None:
        """Compare a run of entries, as the log gives it, with what is there."""
        if self._files.is_removed(topic):
            return
        physical, end = int.from_bytes(entries[:8], "big"), first + len(entries) // ENTRY_SIZE
        seen = self._queues.get((topic, queue_id))
        if seen is None:
            seen = {"topic": topic, "queue_id": queue_id, "first": first, "physical": physical, "restart": -1}
            self._queues[topic, queue_id] = seen
        elif first != seen["end"] and first != 0:
            what = f"queue {topic}/{queue_id} goes on with entry {first} after {seen['end'] - 1}"
            file = str(self._files.directory(topic, queue_id))
            self._findings.append(_row("finding", file=file, position=first * ENTRY_SIZE, what=what))
        if first == 0:
            seen["restart"] = physical
        seen["end"] = end
        room = max(_FINDINGS_MAX - len(self._findings), 0)
        self._findings += [
            _row("doubt", **asdict(found), topic=topic, queue_id=queue_id, physical=place)
            for place, found in islice(self._files.differences(topic, queue_id, first, entries), room)
        ]

    def rows(self) -> list[dict[str, Any]]:
        return self._findings + [_row("queue", **seen) for seen in self._queues.values()]


def _by_queue(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """What tasks saw of each queue, in the order of the log."""
    queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["physical"]):
        queues.setdefault((row["topic"], row["queue_id"]), []).append(row)
    return queues


def _gaps(rows: list[dict[str, Any]]) -> list[Finding]:
    """Offsets that jump from one task's range to the next one's."""
    return [
        Finding(f"{topic}/{queue_id}", after["first"] * ENTRY_SIZE, what)
        for (topic, queue_id), seen in _by_queue(rows).items()
        for before, after in pairwise(seen)
        if after["first"] not in (before["end"], 0)
        and (what := f"queue {topic}/{queue_id} goes on with entry {after['first']} after {before['end'] - 1}")
    ]


def _restarts(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """Where the offsets of a queue began at 0 for the last time: what lies before is of a topic that was removed."""
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        key = (row["topic"], row["queue_id"])
        found[key] = max(found.get(key, 0), row["restart"])
    return found


def _queue_findings(
    spark: "SparkSession", config: StoreConfig, scope: Scope, rows: list[dict[str, Any]]
) -> list[Finding]:
    """Entries that the log knows nothing of."""
    ends = {key: seen[-1]["end"] for key, seen in _by_queue(rows).items()}
    start = scope.log_files[0].base if scope.log_files else 0
    pieces = [[(topic, queue_id, ends.get((topic, queue_id), 0)) for topic, queue_id in scope.queues]]
    if len(scope.queues) > 1000:
        cut = -(-len(scope.queues) // (4 * (os.cpu_count() or 1)))
        pieces = [pieces[0][i : i + cut] for i in range(0, len(pieces[0]), cut)]
    return [_finding(row) for row in _collected(spark, pieces, partial(_check_ends, config, start))]


def _check_ends(config: StoreConfig, log_start: int, queues: list[tuple[str, int, int]]) -> Iterator[pa.RecordBatch]:
    """Runs in a task: what follows the last entries that the log knows of."""
    files = QueueFiles(config)
    found = [stray for queue in queues if (stray := files.stray(*queue, log_start)) is not None]
    if found:
        yield rows_of(_SEEN, [_row("finding", **asdict(stray)) for stray in found])


def _index_findings(spark: "SparkSession", config: StoreConfig, scope: Scope) -> list[Finding]:
    files = IndexFiles(config.index_slots, config.index_entries_max, tuple(scope.log_files))
    found = [_finding(row) for row in _collected(spark, scope.index_files, partial(_check_index, files))]
    # Of a file that cannot be read no key is known, and all of them would be missed.
    if scope.parts and all(Path(path).stat().st_size == files.size for path in scope.index_files):
        kept = spread_over(spark, scope.parts, partial(_log_keys, config), _KEYS_DDL)
        filed = spread_over(spark, scope.index_files, partial(index_keys, files), _KEYS_DDL)
        missing = kept.join(filed, ["hash", "physical"], "left_anti") if scope.index_files else kept
        for row in missing.orderBy("physical", "hash").limit(_FINDINGS_MAX).collect():
            what = f"key {row['hash']} of the record at {row['physical']} is missing"
            found.append(Finding(str(config.root / "index"), 0, what))
    return found


def _check_index(files: IndexFiles, path: str) -> Iterator[pa.RecordBatch]:
    rows = [
        _row("finding", file=path, position=position, what=what)
        for position, what in index_findings(files, path, _FINDINGS_MAX)
    ]
    if rows:
        yield rows_of(_SEEN, rows)


def _log_keys(config: StoreConfig, parts: list[Range]) -> Iterator[pa.RecordBatch]:
    """Runs in a task: the keys that the index should have."""
    for part in parts:
        for step in walk_range(part, delays_ms_of(config.delay_levels)):
            if isinstance(step, Walked) and step.keys:
                keys = np.frombuffer(step.keys, _KEY)
                columns = [keys["hash"].astype(np.int32), keys["physical"].astype(np.int64)]
                yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], names=["hash", "physical"])
