"""Entries and what is wanted of them → slices of the log.

The answer to a pull is a list of views of the mapped log, one a message, as they lie on disk; nobody copies or decodes
them here. Tags are chosen by the entries alone. A sieve looks at the properties of each record, where they lie, so how
far it goes at once is bounded by time: a filter that lets nothing through must not hold up everybody else. The statuses
and their next offsets are RocketMQ's.

Where a record should lie and none begins (rot in a file that recovery had no reason to read), and where an entry stands
for nothing because its record was lost, readers pass over it: counted and said, and the consumer goes on. Of a record
only the head is looked at here; its body is checked by recovery, and by who decodes it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from bolide import kernel
from bolide.errors import CorruptRecord
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, MAGIC_V1, MAGIC_V2, PRE_BLANK, RECORD_PLACE
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.extension import QueueExtension
from bolide.store.mishaps import Mishaps
from bolide.store.record import store_ms_of
from bolide.store.segment import Segment

PULL_SIZE_MAX = 128 << 20
_ENTRIES_MIN = 800

_SIEVED_MAX = 65_536  # entries that one search with a sieve may look at
_ONE = (0, 1)
_TASK = "store.read"
_NOTHING = 0x7FFF_FFFF
_new = tuple.__new__  # of a Stretch: a third of the cost of its own


class Sieve(Protocol):
    """Which messages pass, by their properties: a program for the kernel, which asks `passes` where it cannot tell.

    `stalled` has what is known of messages about which it could not decide in the time it had.
    """

    @property
    def program(self) -> bytes: ...

    @property
    def stalled(self) -> dict[int, bytes]: ...

    def passes(self, encoded: bytes) -> bool: ...


class PullStatus(Enum):
    """How a read went; the names are RocketMQ's, for they are sent as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True)
class Slices:
    """What a read gives: whole records as views of the log, and where to go on."""

    status: PullStatus
    views: list[memoryview]
    next_offset: int
    min_offset: int
    max_offset: int


class Stretch(NamedTuple):
    """What a pull is chosen from where it lies: entries, limits, and the segment of the log the first points into."""

    entries: memoryview
    log_min: int
    near_from: int
    near_limits: tuple[int, int]
    far_limits: tuple[int, int]
    log: memoryview
    log_base: int
    first_size: int
    fault_count: int  # when it was looked for: if there are more afterwards, zeros may stand for what could not be read

    def in_bulk(self, count_max: int, near_size_max: int, far_size_max: int) -> "Stretch":
        """The same with other limits, and no further than the segment goes: what lies in the next is for the next."""
        end, entries = self.log_base + len(self.log), self.entries
        low, high = 1, len(entries) // ENTRY_SIZE
        while low < high:  # the first entry that points behind the segment
            middle = (low + high) // 2
            at = middle * ENTRY_SIZE
            if int.from_bytes(entries[at : at + 8], "big") < end:
                low = middle + 1
            else:
                high = middle
        return self._replace(
            entries=entries[: low * ENTRY_SIZE],
            near_limits=(near_size_max, count_max),
            far_limits=(far_size_max, count_max),
        )


def memory_size() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Reader:
    """Reads queues of one store."""

    def __init__(self, config: StoreConfig, commitlog: CommitLog, mishaps: Mishaps | None = None) -> None:
        self._config = config
        self._log = commitlog
        self._mishaps = mishaps or Mishaps()
        self._near_size = memory_size() * config.near_percent_of_memory // 100
        self._near_limits = (config.near_size_max, config.near_count_max)
        self._far_limits = (config.far_size_max, config.far_count_max)
        self._recent: Segment | None = None  # of the log, where the last reader was
        self._entries_min = max(config.scan_size_max // ENTRY_SIZE, _ENTRIES_MIN)
        self._extension_directory = config.root / "consumequeue_ext"
        self._has_extensions = self._extension_directory.is_dir()  # we never make one

    def read(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        count_max: int,
        tag_hashes: frozenset[int] | None = None,
        size_max: int = PULL_SIZE_MAX,
        sieve: Sieve | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> Slices:
        """Up to count_max records from a queue offset on that have one of the tags, or pass the sieve.

        With a sieve the search ends when `is_over` says so, but never before its first step; that may be in the middle
        of a message, with which the next search goes on.
        """
        refused = _out_of_range(queue, offset)
        if refused is not None:
            return refused
        assert queue is not None
        scan_max = max(self._entries_min, count_max)
        entries = queue.read(offset, scan_max if is_over is None else _SIEVED_MAX)
        if entries is None:
            return _answer(queue, PullStatus.OFFSET_FOUND_NULL, [], self._next_file(queue, offset))
        if sieve is not None:
            return self._read_sieved(queue, offset, entries, count_max, size_max, sieve, is_over)
        if tag_hashes is not None and self._has_extensions:
            directory = self._extension_directory / queue.topic / str(queue.queue_id)
            entries = QueueExtension(directory, self._config.extension_file_size).resolve(entries)
        chosen, scanned = self._select(entries, tag_hashes, count_max, size_max)
        views = self._views(chosen)
        if views is None:
            # A segment is missing in the middle of the log: go round it, entry by entry.
            return self._read_one_by_one(queue, offset, entries, count_max, tag_hashes, size_max)
        if tag_hashes is None and 2 * scanned > len(chosen):
            self.note_passed(queue, offset, entries[: scanned * ENTRY_SIZE])
        status = PullStatus.FOUND if views else self._nothing(entries[: scanned * ENTRY_SIZE])
        return _answer(queue, status, views, offset + scanned)

    def note_passed(self, queue: ConsumeQueue, offset: int, entries: memoryview) -> None:
        """Count the entries from an offset on that stand for a lost message."""
        for _ in range(bytes(entries).count(PRE_BLANK)):
            what = f"a lost message at or behind offset {offset} of {queue.topic}/{queue.queue_id}"
            self._mishaps.note(_TASK, what, CorruptRecord("its record was damaged; see `bolide store verify`"))

    def stretch(self, queue: ConsumeQueue, offset: int, count_max: int, is_filtered: bool) -> Stretch | None:
        """What a read at an offset of the queue would look at; None where `read` has to think about it.

        Who chooses by tags reads entries alone, so those must have been compared with their records. Who takes them all
        compares each as he copies it.
        """
        if is_filtered and self._has_extensions:
            return None
        fault_count = kernel.fault_count()
        if count_max < self._entries_min:
            count_max = self._entries_min
        is_watched = is_filtered or fault_count
        entries = queue.read(offset, count_max) if is_watched else queue.raw(offset, count_max)
        if entries is None:
            return None
        log, segment = self._log, self._recent
        at, first_size, _ = ENTRY.unpack_from(entries)
        if segment is None or not segment.is_open or not 0 <= at - segment.base < segment.size:
            segment = self._recent = log.segments.find(at)
            if segment is None:
                return None
        if fault_count and segment.is_patched:
            return None
        near_from, near, far = log.end - self._near_size, self._near_limits, self._far_limits
        start = log.segments.start
        return _new(
            Stretch, (entries, start, near_from, near, far, segment.view, segment.base, first_size, fault_count)
        )

    def is_far(self, physical_offset: int) -> bool:
        """Whether a record lies so far behind the end of the log that it will have to be read from the disk."""
        return physical_offset < self._log.end - self._near_size

    def _select(
        self, entries: memoryview, tag_hashes: frozenset[int] | None, count_max: int, size_max: int
    ) -> tuple[list[int], int]:
        near_from = self._log.end - self._near_size
        limits = (self._near_limits, self._far_limits)
        return kernel.select_entries(entries, tag_hashes, self._log.start, near_from, count_max, size_max, *limits)

    def _views(self, chosen: list[int]) -> list[memoryview] | None:
        segment = self._log.segments.find(chosen[0]) if chosen else None
        if segment is not None and kernel.heading_records(segment.view, segment.base, chosen) == len(chosen) // 2:
            view, base = segment.view, segment.base
            return [view[(at := chosen[i] - base) : at + chosen[i + 1]] for i in range(0, len(chosen), 2)]
        return self._views_one_by_one(chosen)

    def _views_one_by_one(self, chosen: list[int]) -> list[memoryview] | None:
        """The same where they lie in two files, or one of them is damaged."""
        views: list[memoryview] = []
        view, base, end = memoryview(b""), 0, 0
        for i in range(0, len(chosen), 2):
            at = chosen[i]
            if not base <= at < end:
                segment = self._log.segments.find(at)
                if segment is None:
                    return None
                view, base, end = segment.view, segment.base, segment.base + segment.size
            at -= base
            size = chosen[i + 1]
            found = view[at : at + size]
            if kernel.touch(found) and not self._is_readable(chosen[i], size):
                problem = "a page of the log cannot be read; look at the disk"
                self._mishaps.note(_TASK, f"no record can be read at {chosen[i]}", CorruptRecord(problem))
            elif not _begins_with(found, chosen[i], size):
                self._mishaps.note(_TASK, f"no record begins at {chosen[i]}", CorruptRecord("the log is damaged there"))
            else:
                views.append(found)
        return views

    def _is_readable(self, place: int, size: int) -> bool:
        segment = self._log.segments.find(place)
        return segment is None or segment.is_readable(place - segment.base, size)

    def _nothing(self, entries: memoryview) -> PullStatus:
        """Why nothing was found: filtered, or gone from the log."""
        last = int.from_bytes(entries[-ENTRY_SIZE : -ENTRY_SIZE + 8], "big")
        return PullStatus.MESSAGE_WAS_REMOVING if last < self._log.start else PullStatus.NO_MATCHED_MESSAGE

    def _read_one_by_one(
        self,
        queue: ConsumeQueue,
        offset: int,
        entries: memoryview,
        count_max: int,
        tag_hashes: frozenset[int] | None,
        size_max: int,
    ) -> Slices:
        """The same choice with a look at each record; what the limits allow is asked of the kernel, entry by entry."""
        taken: list[memoryview] = []
        passed = b""
        scanned, count = 0, len(entries) // ENTRY_SIZE
        status = PullStatus.NO_MATCHED_MESSAGE
        while scanned < count:
            entry = bytes(entries[scanned * ENTRY_SIZE : (scanned + 1) * ENTRY_SIZE])
            fits, _ = self._select(memoryview(passed + entry), None, count_max, size_max)
            if taken and len(fits) // 2 <= len(taken):
                break
            scanned += 1
            found = self._select(memoryview(entry), tag_hashes, 1, size_max)[0]
            if not found:
                continue
            views = self._views(found)
            if views is None:
                status = PullStatus.MESSAGE_WAS_REMOVING
            else:
                taken += views
                passed += entry
        return _answer(queue, PullStatus.FOUND if taken else status, taken, offset + scanned)

    def _read_sieved(
        self,
        queue: ConsumeQueue,
        offset: int,
        entries: memoryview,
        count_max: int,
        size_max: int,
        sieve: Sieve,
        is_over: Callable[[], bool] | None,
    ) -> Slices:
        """What passes, a segment of the log at a time."""
        views: list[memoryview] = []
        size, scanned, count = 0, 0, len(entries) // ENTRY_SIZE
        near_from = self._log.end - self._near_size
        limits = (near_from, count_max, size_max, self._near_limits, self._far_limits)
        is_gone = is_done = False
        while scanned < count and not is_done and not (scanned and is_over is not None and is_over()):
            left = entries[scanned * ENTRY_SIZE :]
            view, base = self._log_at(left)
            fault_count = kernel.fault_count()
            chosen, seen, is_done = kernel.match_entries(
                left,
                sieve.program,
                sieve.passes,
                is_over,
                sieve.stalled,
                self._log.start,
                *limits,
                view,
                base,
                len(views),
                size,
            )
            if kernel.fault_count() != fault_count and self._is_readable(base, len(view)):
                continue  # by calls it could be read, so what it says was not seen yet
            views += self._views(chosen) or ()
            size += sum(chosen[1::2])
            is_gone = not seen and not is_done
            scanned += seen + is_gone
        status = PullStatus.NO_MATCHED_MESSAGE
        if scanned:
            status = PullStatus.MESSAGE_WAS_REMOVING if is_gone else self._nothing(entries[: scanned * ENTRY_SIZE])
        return _answer(queue, PullStatus.FOUND if views else status, views, offset + scanned)

    def _log_at(self, entries: memoryview) -> tuple[memoryview, int]:
        """The segment the first entry points into, and its base; nothing if it is not there."""
        segment = self._log.segments.find(int.from_bytes(entries[:8], "big"))
        return (memoryview(b""), 0) if segment is None else (segment.view, segment.base)

    def any_passes(self, entries: bytes, sieve: Sieve) -> bool:
        """Whether one of these entries, just written, leads to a message that passes.

        Anyone who wrote it waits for this: what cannot be told soon is for the pull that waits to find out, in its
        time.
        """
        left = memoryview(entries)
        limits = (0, 1, PULL_SIZE_MAX, _ONE, _ONE)
        while left:
            view, base = self._log_at(left)
            chosen, seen, is_over = kernel.match_entries(
                left, sieve.program, sieve.passes, _at_once, sieve.stalled, 0, *limits, view, base, 0, 0
            )
            if chosen or is_over:
                return True
            left = left[max(seen, 1) * ENTRY_SIZE :]
        return False

    def _next_file(self, queue: ConsumeQueue, offset: int) -> int:
        following = [base // ENTRY_SIZE for base in queue.segments.bases if base > offset * ENTRY_SIZE]
        return following[0] if following else queue.next_offset

    def offset_at(self, queue: ConsumeQueue, time_ms: int, is_upper: bool = False) -> int:
        """The first queue offset stored at time_ms or later; upper: the last one stored at time_ms or before."""
        low, high = queue.min_offset, queue.next_offset
        while low < high:
            middle = told = (low + high) // 2
            while told < high and self._is_lost(queue, told):
                told += 1  # a lost message has no time: the next one speaks for it
            stored_ms = self.store_ms(queue, told) if told < high else time_ms + 1
            if stored_ms < time_ms or (is_upper and stored_ms == time_ms):
                low = told + 1
            else:
                high = middle
        return max(low - 1, queue.min_offset) if is_upper else low

    def store_ms(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """When a message was stored, -1 if it is gone or lost."""
        physical_offset, size, _ = queue.entry(queue_offset)
        record = self._log.view(physical_offset, size) if RECORD_PLACE.size < size != _NOTHING else None
        if record is None or not _begins_with(record, physical_offset, size):
            return -1
        return store_ms_of(record)

    def _is_lost(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a message has no record, though its place in the log, if it had one, has not expired."""
        physical_offset, size, _ = queue.entry(queue_offset)
        return size == _NOTHING or (physical_offset >= self._log.start and self.store_ms(queue, queue_offset) < 0)


def _begins_with(found: memoryview, place: int, size: int) -> bool:
    """Whether these bytes are as many as a record of that place of the log has, and begin as it does."""
    if not RECORD_PLACE.size <= size == len(found):
        return False
    return RECORD_PLACE.unpack_from(found) in ((size, MAGIC_V1, place), (size, MAGIC_V2, place))


def _at_once() -> bool:
    return True


def _out_of_range(queue: ConsumeQueue | None, offset: int) -> Slices | None:
    if queue is None:
        return Slices(PullStatus.NO_MATCHED_LOGIC_QUEUE, [], 0, 0, 0)
    if queue.next_offset == 0:
        return _answer(queue, PullStatus.NO_MESSAGE_IN_QUEUE, [], 0)
    if offset < queue.min_offset:
        return _answer(queue, PullStatus.OFFSET_TOO_SMALL, [], queue.min_offset)
    if offset == queue.next_offset:
        return _answer(queue, PullStatus.OFFSET_OVERFLOW_ONE, [], offset)
    if offset > queue.next_offset:
        return _answer(queue, PullStatus.OFFSET_OVERFLOW_BADLY, [], queue.next_offset)
    return None


def _answer(queue: ConsumeQueue, status: PullStatus, views: list[memoryview], next_offset: int) -> Slices:
    return Slices(status, views, next_offset, queue.min_offset, queue.next_offset)
