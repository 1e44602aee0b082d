"""Checks every record, every queue entry and every key of a store against the log, and names what does not fit.

The roster of queues and the timer's files are read too.

Reads files only; nothing is changed. The store should be stopped, or the newest messages may look out of step.

Records of a topic that was removed stay in the log, and their entries are rightly missing: that is so for a topic that
the broker's table (config/topics.json) does not know and that has no queues, and for what lies before the place where
the offsets of a queue begin at 0 again.
"""

import json
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.layout import AT_BLANK, AT_END, BODY_CHECKED, ENTRY, ENTRY_SIZE, PRE_BLANK
from bolide.store.checkpoint import Checkpoint
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.disk import Disk
from bolide.store.extension import QueueExtension
from bolide.store.index import Index
from bolide.store.named import NamedPlaces
from bolide.store.resync import Resync
from bolide.store.roster import FILE_NAME, Roster
from bolide.store.segment import segment_name
from bolide.store.segments import SegmentPool, Segments
from bolide.store.timeragreement import timer_disagreements

_NO_ENTRY = (0, 0, 0)
_PRE_BLANK = ENTRY.unpack(PRE_BLANK)
_STRETCH = 16 << 20
_DOUBTS_MAX = 100  # of one queue: more of them say nothing more
_NAMED_MAX = 20  # entries named with one stretch
BROKEN = "neither a whole record nor the end of the log"
_CHUNK = bytes(ENTRY_SIZE << 16)  # most of a young store is reserved and empty: that is passed over in one step


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit: in which file, at which byte, and what."""

    file: str
    position: int
    what: str


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
        self._pool = SegmentPool(Disk(), 256)
        first, *more = config.log_directories
        self._log = Segments(self._pool, first, config.segment_size, more_directories=more)
        self._queues: dict[tuple[str, int], Segments] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._doubts: dict[tuple[str, int], list[Finding]] = {}
        self._odd: list[Finding] = []  # files that cannot be read as a queue
        self._known_topics = known_topics(config.root)
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
            for key in self._queue_keys():
                yield from self._check_end(key)
            yield from self._odd
            if self._config.index_enabled:
                yield from self._check_index()
            yield from self._check_roster(Roster(Disk(), self._config.root))
            for path, position, what in timer_disagreements(self._config, self._has_record):
                yield Finding(str(path), position, what)
        except StoreError as error:
            yield Finding(str(self._config.root), 0, str(error))
        finally:
            self._pool.close()

    def _queue_keys(self) -> list[tuple[str, int]]:
        root = self._config.root / "consumequeue"
        return sorted((path.parent.name, int(path.name)) for path in root.glob("*/*") if path.name.isdecimal())

    def _queue(self, key: tuple[str, int]) -> Segments:
        segments = self._queues.get(key)
        if segments is None:
            directory = self._config.root / "consumequeue" / key[0] / str(key[1])
            segments = self._queues[key] = Segments(self._pool, directory, self._config.queue_file_bytes)
            try:
                segments.load()
            except StoreError as error:
                self._odd.append(Finding(str(directory), 0, str(error)))
        return segments

    def _check_log(self) -> Iterator[Finding | Step]:
        checkpoint = Checkpoint(Disk(), self._config.root / "checkpoint")
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
        view, at = self._log.open(base).view, start - base
        stretch, reason = _STRETCH, AT_END
        while at < len(view):
            until = min(at + stretch, len(view))
            runs, keys, count, store_ms, at, reason = kernel.walk_records(view, at, until, base, True, self._delays_ms)
            for run in runs:
                self._check_run(*run)
            if self._config.index_enabled:
                self._keys.update(keys[i : i + 12] for i in range(0, len(keys), ENTRY_SIZE))
            self._record_count += count
            newest_ms = store_ms if count else newest_ms
            is_cut = until < len(view) and reason not in (AT_END, AT_BLANK)
            if not is_cut and reason != AT_END:
                break
            stretch = 2 * stretch if is_cut and count == 0 else _STRETCH
            yield Step(self._log.bases.index(base) * self._config.segment_size + at, total, self._record_count)
        return base + at, reason, newest_ms

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
        if self._is_removed(topic):
            return
        queue = self._queue((topic, queue_id))
        doubts = self._doubts.setdefault((topic, queue_id), [])
        if first == 0:
            doubts.clear()  # the topic was removed and made again
        elif 0 < (end := self._ends.get((topic, queue_id), 0)) < first:
            base = end * ENTRY_SIZE // queue.segment_size * queue.segment_size
            what = f"entries {end} to {first - 1} of {topic}/{queue_id}: their messages are lost, the log has none"
            doubts.append(Finding(str(queue.directory / segment_name(base)), end * ENTRY_SIZE - base, what))
        self._ends[topic, queue_id] = first + len(entries) // ENTRY_SIZE
        for i in range(0, len(entries), ENTRY_SIZE):
            at = first * ENTRY_SIZE + i
            segment = queue.find(at)
            here = b"" if segment is None else segment.view[at - segment.base : at - segment.base + ENTRY_SIZE]
            wanted = entries[i : i + ENTRY_SIZE]
            if here != wanted and len(doubts) < _DOUBTS_MAX and self._resolved(queue, here) != wanted:
                base = at - at % queue.segment_size
                physical_offset = int.from_bytes(entries[i : i + 8], "big")
                what = f"entry {at // ENTRY_SIZE} is not that of the record at {physical_offset}"
                doubts.append(Finding(str(queue.directory / segment_name(base)), at - base, what))

    def _is_removed(self, topic: str) -> bool:
        if self._known_topics is None or topic in self._known_topics:
            return False
        return not (self._config.root / "consumequeue" / topic).is_dir()

    def _resolved(self, queue: Segments, entry: memoryview | bytes) -> memoryview:
        """The entry with its tag hash, if it holds the address of one."""
        directory = self._config.root / "consumequeue_ext" / queue.directory.parent.name / queue.directory.name
        return QueueExtension(directory, self._config.extension_file_size).resolve(memoryview(entry))

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

    def _check_end(self, key: tuple[str, int]) -> Iterator[Finding]:
        """After the last entry that the log knows of, there must be zeros, or blanks of messages that are gone."""
        queue = self._queue(key)
        end = self._ends.get(key, 0) * ENTRY_SIZE
        for base in queue.bases:
            for start, chunk in _written_chunks(queue.open(base).view, max(end - base, 0)):
                found = self._stray_entry(chunk)
                if found is not None:
                    at, physical_offset = start + found[0], found[1]
                    what = f"entry {(base + at) // ENTRY_SIZE}: the log has nothing for it at {physical_offset}"
                    yield Finding(str(queue.directory / segment_name(base)), at, what)
                    return

    def _stray_entry(self, entries: bytes) -> tuple[int, int] | None:
        """The first entry that should not be there: its position, and where it points."""
        for number, (physical_offset, size, tag_hash) in enumerate(ENTRY.iter_unpack(entries)):
            is_gone = size > 0 and physical_offset < self._log.start
            is_blank = (physical_offset, size, tag_hash) in (_NO_ENTRY, _PRE_BLANK)
            if not is_blank and not is_gone:
                return number * ENTRY_SIZE, physical_offset
        return None

    def _has_record(self, physical_offset: int) -> bool:
        """Whether a record begins there; what is gone from the log is not missed."""
        if physical_offset < self._log.start:
            return True
        segment = self._log.find(physical_offset)
        at = physical_offset - (segment.base if segment is not None else 0)
        return segment is not None and segment.view[at + 28 : at + 36] == physical_offset.to_bytes(8, "big")

    def _check_index(self) -> Iterator[Finding]:
        config = self._config
        index = Index(Disk(), config.root / "index", config.index_slots, config.index_entries_max)
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


def _written_chunks(view: memoryview, at: int) -> Iterator[tuple[int, bytes]]:
    """The parts of a file from a place on that are not all zeros, each with its position."""
    for start in range(at, len(view), len(_CHUNK)):
        chunk = bytes(view[start : start + len(_CHUNK)])
        if chunk != _CHUNK[: len(chunk)]:
            yield start, chunk


def known_topics(root: Path) -> set[str] | None:
    """The topics of the broker that keeps this store, None if it left no table."""
    try:
        table = json.loads((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        return set(table)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def findings(config: StoreConfig) -> list[Finding]:
    """Everything that does not fit; empty for a healthy store."""
    return [found for found in Verification(config).run() if isinstance(found, Finding)]


def health(root: Path) -> str:
    return "crashed or open" if (root / "abort").exists() else "stopped cleanly"
