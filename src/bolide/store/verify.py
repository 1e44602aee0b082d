"""Checks every record, every queue entry and every key of a store against the log, and names what does not fit.

The roster of queues and the timer's files are read too.

Reads files only; nothing is changed. The store should be stopped, or the newest messages may look out of step.

Records of a topic that was removed stay in the log, and their entries are rightly missing: that is so for a topic that
the broker's table (config/topics.json) does not know and that has no queues, and for what lies before the place where
the offsets of a queue begin at 0 again.
"""

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bolide.errors import StoreError
from bolide.kernel.layout import AT_BLANK, AT_END, BODY_CHECKED, ENTRY_SIZE
from bolide.store.checkpoint import Checkpoint
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.disk import LookingDisk
from bolide.store.index import Index
from bolide.store.named import NamedPlaces
from bolide.store.queue_files import Finding, QueueFiles
from bolide.store.resync import Resync
from bolide.store.roster import FILE_NAME, Roster
from bolide.store.segment import segment_name
from bolide.store.segments import SegmentPool, Segments
from bolide.store.timeragreement import timer_disagreements
from bolide.store.walk import walk

_DOUBTS_MAX = 100  # of one queue: more of them say nothing more
_NAMED_MAX = 20  # entries named with one stretch
BROKEN = "neither a whole record nor the end of the log"


@dataclass(frozen=True, slots=True)
class Step:
    """How far a verification has come: bytes of log read, of all there are, and records seen."""

    done: int
    total: int
    record_count: int


class Verification:
    """One pass over a store directory."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._disk = LookingDisk()
        self._pool = SegmentPool(self._disk, 256)
        first, *more = config.log_directories
        self._log = Segments(self._pool, first, config.segment_size, more_directories=more)
        self._queues = QueueFiles(config)
        self._ends: dict[tuple[str, int], int] = {}
        self._doubts: dict[tuple[str, int], list[Finding]] = {}
        self._keys: set[bytes] = set()
        self._delays_ms = delays_ms_of(config.delay_levels)
        self._record_count = 0
        self.log_end = 0
        self.passed_over_size = 0  # bytes of log that are no whole record

    def run(self) -> Iterator[Finding | Step]:
        """Findings as they turn up, and steps in between for a progress bar."""
        try:
            self._log.load()
            yield from self._check_log()
            for doubts in self._doubts.values():
                yield from doubts
            for key in self._queues.keys():  # noqa: SIM118
                stray = self._queues.stray(*key, self._ends.get(key, 0), self._log.start)
                if stray is not None:
                    yield stray
            if self._config.index_enabled:
                yield from self._check_index()
            yield from self._check_roster(Roster(self._disk, self._config.root))
            for path, position, what in timer_disagreements(self._config, self._has_record):
                yield Finding(str(path), position, what)
        except StoreError as error:
            yield Finding(str(self._config.root), 0, str(error))
        finally:
            self._pool.close()

    def _check_log(self) -> Iterator[Finding | Step]:
        checkpoint = Checkpoint(self._disk, self._config.root / "checkpoint")
        checkpoint.load()
        self._named = NamedPlaces(self._config.root / "consumequeue", self._config.queue_file_bytes)
        resync = Resync(self._log, BODY_CHECKED, checkpoint.durable, self._named, lambda *_: False)
        size, at, newest_ms = self._config.segment_size, self._log.start, -1
        total = len(self._log.bases) * size
        while True:
            base = self._log.base_of(at)
            if base is not None:
                at, reason, newest_ms = yield from self._check_segment(base, at, total, newest_ms)
                if reason == AT_END or (reason == AT_BLANK and resync.is_blank(base, at)):
                    at = base + size
                    continue
            following = resync.behind(at, newest_ms)
            if following is None:
                break
            yield self._passed_over(at, following)
            at = following
        self.log_end = at
        if base is not None and resync.written_end(base, at) > at:
            yield Finding(self._file(at), at - base, BROKEN)
        yield Step(total, total, self._record_count)

    def _check_segment(
        self, base: int, start: int, total: int, newest_ms: int
    ) -> Generator[Finding | Step, None, tuple[int, int, int]]:
        """Walk whole records; returns where they end, why, and when the last one was stored."""
        view = self._log.open(base).view
        before = self._log.bases.index(base) * self._config.segment_size
        steps = walk(view, start - base, len(view), base, self._delays_ms)
        while True:
            try:
                walked = next(steps)
            except StopIteration as ended:
                at, reason = ended.value
                return base + at, reason, newest_ms
            for run in walked.runs:
                self._check_run(*run)
            if self._config.index_enabled:
                self._keys.update(walked.keys[i : i + 12] for i in range(0, len(walked.keys), ENTRY_SIZE))
            self._record_count += walked.record_count
            newest_ms = walked.store_ms
            yield Step(before + walked.end, total, self._record_count)

    def _file(self, at: int) -> str:
        base = self._log.base_of(at)
        base = max((each for each in self._log.bases if each <= at), default=0) if base is None else base
        return str(self._log.home(base) / segment_name(base))

    def _passed_over(self, start: int, end: int) -> Finding:
        base = self._log.base_of(start)
        named = [f"{each.topic}/{each.queue_id}:{each.queue_offset}" for each in self._named.between(start, end)]
        self.passed_over_size += end - start
        what = passed_over(start, end) + (f"; entries {', '.join(named[:_NAMED_MAX])}" if named else "")
        return Finding(self._file(start), start - (base or 0), what)

    def _check_run(self, topic: str, queue_id: int, first: int, entries: bytes) -> None:
        if self._queues.is_removed(topic):
            return
        doubts = self._doubts.setdefault((topic, queue_id), [])
        if first == 0:
            doubts.clear()  # the topic was removed and made again
        elif 0 < (end := self._ends.get((topic, queue_id), 0)) < first:
            what = f"entries {end} to {first - 1} of {topic}/{queue_id}: their messages are lost, the log has none"
            doubts.append(self._queues.finding(topic, queue_id, end, what))
        self._ends[topic, queue_id] = first + len(entries) // ENTRY_SIZE
        room = max(_DOUBTS_MAX - len(doubts), 0)
        doubts += [found for _, found in islice(self._queues.differences(topic, queue_id, first, entries), room)]

    def _check_roster(self, roster: Roster) -> Iterator[Finding]:
        """What was written down of the queues must be there: a start after a clean stop believes it."""
        roster.load()
        path = self._config.root / FILE_NAME
        if path.exists() and roster.whole_size < path.stat().st_size:
            what = "a line is not whole: what it says, and all behind it, is not believed"
            yield Finding(str(path), roster.whole_size, what)
        for (topic, queue_id), extent in sorted(roster.queues.items()):
            directory = self._config.root / "consumequeue" / topic / str(queue_id)
            if extent.next_offset and not directory.is_dir():
                yield Finding(str(directory), 0, f"it is missing, and was noted up to offset {extent.next_offset}")
            elif self._log.start <= extent.physical_end > self.log_end:
                what = (
                    f"{topic}/{queue_id} is noted up to {extent.physical_end} of the log, which ends at {self.log_end}"
                )
                yield Finding(str(path), 0, what)

    def _has_record(self, physical_offset: int) -> bool:
        """Whether a record begins there; what is gone from the log is not missed."""
        if physical_offset < self._log.start:
            return True
        segment = self._log.find(physical_offset)
        at = physical_offset - (segment.base if segment is not None else 0)
        return segment is not None and segment.view[at + 28 : at + 36] == physical_offset.to_bytes(8, "big")

    def _check_index(self) -> Iterator[Finding]:
        config = self._config
        index = Index(self._disk, config.root / "index", config.index_slots, config.index_entries_max)
        index.load()
        missing = set(self._keys)
        try:
            for file in index.files:
                for number, (hashed, physical_offset, _, previous) in enumerate(file.entries(), 1):
                    key = struct.pack(">iq", hashed, physical_offset)
                    missing.discard(key)
                    position = 40 + config.index_slots * 4 + number * ENTRY_SIZE
                    if previous >= number:
                        yield Finding(str(file.path), position, f"entry {number} follows {previous} in its chain")
                    # RocketMQ 5.5 files tags too, under keys of their own: a record there is enough.
                    if key not in self._keys and not self._has_record(physical_offset):
                        yield Finding(str(file.path), position, f"entry {number}: no record at {physical_offset}")
                    elif physical_offset not in file.walk(hashed, 0, 1 << 62):
                        yield Finding(str(file.path), position, f"entry {number} cannot be reached from its slot")
        finally:
            index.close()
        for key in sorted(missing, key=lambda key: key[4:]):
            hashed, physical_offset = struct.unpack(">iq", key)
            yield Finding(str(config.root / "index"), 0, f"key {hashed} of the record at {physical_offset} is missing")


def passed_over(start: int, end: int) -> str:
    """What is said of a stretch of the log, by physical offsets."""
    return f"{end - start} bytes from {start} on are no whole record and are passed over: the log goes on at {end}"


def findings(config: StoreConfig) -> list[Finding]:
    """Everything that does not fit; empty for a healthy store."""
    return [found for found in Verification(config).run() if isinstance(found, Finding)]


def health(root: Path) -> str:
    return "crashed or open" if (root / "abort").exists() else "stopped cleanly"
