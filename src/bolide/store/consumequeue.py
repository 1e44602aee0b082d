"""The entries of one queue: 20 bytes a message, at 20 times its queue offset.

Entries are derived from the log and written in its order. Three things may happen and are settled in `put`: what is
already there is left out, a gap (records the log lost) is filled with entries that stand for nothing, and a queue whose
first message has an offset above 0 starts with such entries from the beginning of its file, as RocketMQ's does.
"""

import os
import struct
from pathlib import Path

from bolide import kernel
from bolide.kernel.plain_records import ENTRY_SIZE, PRE_BLANK
from bolide.store.segment import MAPPED_SIZE_MAX, Segment, segment_name
from bolide.store.segments import SegmentPool, Segments

_ENTRY = struct.Struct(">qiq")
_NOTHING = 0x7FFF_FFFF  # the size in an entry that stands for nothing
_UNMAPPED_PUTS_MAX = 64


class ConsumeQueue:
    """One queue's files. `next_offset` is what the next entry gets, `min_offset` the first still worth reading."""

    __slots__ = (
        "_last_entry",
        "_tail",
        "_unmapped_puts",
        "dirty_from",
        "min_offset",
        "next_offset",
        "queue_id",
        "segments",
        "topic",
    )

    def __init__(self, pool: SegmentPool, directory: Path, file_size: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = Segments(pool, directory / topic / str(queue_id), file_size)
        self.next_offset = 0
        self.min_offset = 0
        self._last_entry = PRE_BLANK
        self.dirty_from: int | None = None  # first byte that is not durable
        self._tail: Segment | None = None
        self._unmapped_puts = 0

    def load(self) -> None:
        """Find the end of data after a clean stop: entries are a gapless run, so their end is searched by halves."""
        self.segments.load()
        while self.segments.bases:
            base = self.segments.bases[-1]
            count = self._count_by_halves(base)
            if count:
                self._end_at((base // ENTRY_SIZE) + count)
                return
            self.segments.remove_from(base)  # an empty file would become a phantom entry in Java

    def _count_by_halves(self, base: int) -> int:
        # Without the map: a start looks at every queue once, and a fault in a hole fills pages around it with zeros.
        with open(self.segments.directory / segment_name(base), "rb", buffering=0) as file:
            low, high = 0, min(os.lseek(file.fileno(), 0, os.SEEK_HOLE), self.segments.segment_size) // ENTRY_SIZE + 1
            high = min(high, self.segments.segment_size // ENTRY_SIZE)
            while low < high:
                middle = (low + high) // 2
                physical_offset, size, _ = _ENTRY.unpack(os.pread(file.fileno(), ENTRY_SIZE, middle * ENTRY_SIZE))
                if size > 0 and physical_offset >= 0:
                    low = middle + 1
                else:
                    high = middle
        return low

    def load_below(self, physical_limit: int) -> None:
        """Keep the entries that point below physical_limit and forget the rest; nothing above it is believed."""
        self.segments.load(is_whole=False)
        self.cut(physical_limit)

    def cut(self, physical_limit: int) -> None:
        """Forget the entries from the first on that is not whole, not in order or not below physical_limit."""
        while self.segments.bases:
            base = self.segments.bases[-1]
            count = kernel.count_entries(self.segments.open(base).view, physical_limit)
            if count:
                self.segments.truncate(base + count * ENTRY_SIZE)
                self._end_at((base // ENTRY_SIZE) + count)
                return
            self.segments.remove_from(base)
        self._end_at(0)

    def _end_at(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.min_offset = self.segments.start // ENTRY_SIZE
        self._last_entry = PRE_BLANK if next_offset <= self.min_offset else self._entry_on_disk(next_offset - 1)
        self._tail = None

    def _entry_on_disk(self, queue_offset: int) -> bytes:
        """The same as `entry` without opening a map."""
        at = queue_offset * ENTRY_SIZE
        base = self.segments.base_of(at)
        assert base is not None
        with open(self.segments.directory / segment_name(base), "rb", buffering=0) as file:
            return os.pread(file.fileno(), ENTRY_SIZE, at - base)

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Physical offset, size and tag hash of one entry."""
        segment = self.segments.find(queue_offset * ENTRY_SIZE)
        assert segment is not None, f"{self.topic}/{self.queue_id} has no entry {queue_offset}"
        physical_offset, size, tag = _ENTRY.unpack_from(segment.view, queue_offset * ENTRY_SIZE - segment.base)
        return physical_offset, size, tag

    def put(self, first_offset: int, entries: bytes) -> None:
        """Write entries for the queue offsets from first_offset on."""
        if first_offset != self.next_offset:
            if first_offset < self.next_offset and self._begins_anew(first_offset, entries):
                self.segments.remove_from(0)
                self._end_at(0)
            elif first_offset < self.next_offset:
                entries = entries[(self.next_offset - first_offset) * ENTRY_SIZE :]
                if not entries:
                    return
            else:
                self._fill(first_offset)
        tail, size = self._tail, len(entries)
        at = self.next_offset * ENTRY_SIZE
        position = at - (tail.base if tail is not None else 0)
        if tail is None or position + size > tail.size:
            self._put_across(entries)
        elif tail.is_open and position + size <= tail.reserved and size < MAPPED_SIZE_MAX:
            tail.map[position : position + size] = entries  # the usual case, without a call
            if self.dirty_from is None:
                self.dirty_from = at
            self.next_offset += size // ENTRY_SIZE
        elif self._put_in(tail, entries, position):
            self._moved(self.next_offset + size // ENTRY_SIZE)
        else:
            self._put_across(entries)
        self._last_entry = entries[-ENTRY_SIZE:]

    @property
    def physical_end(self) -> int:
        """The log is in this queue up to here; 0 without a message."""
        physical_offset, size, _ = _ENTRY.unpack(self._last_entry)
        return 0 if size == _NOTHING else int(physical_offset + size)

    def _begins_anew(self, first_offset: int, entries: bytes) -> bool:
        """Whether the log counts from 0 again: the topic was removed and made again, and only the latter counts."""
        return first_offset == 0 and int.from_bytes(entries[:8], "big") >= self.physical_end > 0

    def _put_in(self, tail: Segment, entries: bytes, position: int) -> bool:
        """Write to the tail; false when its map was let go and it is time to open it again.

        With more queues than maps each map would be opened for one entry. So a tail without a map is written by its
        name, at a tenth of the cost, and mapped again only when that happens often.
        """
        if tail.is_open:
            tail.put(entries, position)
            return True
        self._unmapped_puts += 1
        if self._unmapped_puts % _UNMAPPED_PUTS_MAX == 0:
            return False
        tail.write(entries, position)
        return True

    def _moved(self, next_offset: int) -> None:
        if self.dirty_from is None:
            self.dirty_from = self.next_offset * ENTRY_SIZE
        self.next_offset = next_offset

    def _put_across(self, entries: bytes | memoryview) -> None:
        """The slow way: open or make the tail, and cut entries at the end of a file."""
        rest = memoryview(entries)
        while rest:
            at = self.next_offset * ENTRY_SIZE
            segment = self.segments.find(at)
            if segment is None:
                segment = self.segments.create(at - at % self.segments.segment_size)
            self._tail = segment
            part = rest[: segment.base + segment.size - at]
            segment.put(part, at - segment.base)
            self._moved(self.next_offset + len(part) // ENTRY_SIZE)
            rest = rest[len(part) :]

    def _fill(self, first_offset: int) -> None:
        if not self.segments.bases:
            start = first_offset * ENTRY_SIZE
            self.next_offset = start - start % self.segments.segment_size
            self.next_offset //= ENTRY_SIZE
            self.min_offset = first_offset
        while self.next_offset < first_offset:
            self._put_across(PRE_BLANK * min(first_offset - self.next_offset, 1 << 14))

    def read(self, queue_offset: int, count_max: int) -> memoryview | None:
        """Entries from queue_offset on, to the end of their file at most; None where that file is not here."""
        at = queue_offset * ENTRY_SIZE
        segment = self._tail  # where most readers are
        if segment is None or not segment.is_open or not 0 <= at - segment.base < segment.size:
            segment = self.segments.find(at)
            if segment is None:
                return None
        position = at - segment.base
        count = min(count_max, self.next_offset - queue_offset)
        return segment.view[position : min(position + count * ENTRY_SIZE, segment.size)]

    def near(self, queue_offset: int) -> tuple[memoryview, int]:
        """All entries of the file that has this one, and the queue offset of the first; none where that is not here."""
        first = queue_offset - queue_offset % (self.segments.segment_size // ENTRY_SIZE)
        first = max(first, self.min_offset)
        found = (
            self.read(first, self.next_offset - first) if self.min_offset <= queue_offset < self.next_offset else None
        )
        return (memoryview(b""), 0) if found is None else (found, first)

    def dirty_pages(self) -> int:
        if self.dirty_from is None:
            return 0
        return self.next_offset * ENTRY_SIZE // 4096 - self.dirty_from // 4096 + 1

    def unsynced(self) -> list[int]:
        """The bases of segments that are not durable yet; from here on they count as being made so."""
        if self.dirty_from is None:
            return []
        start, self.dirty_from = self.dirty_from, None
        first = start - start % self.segments.segment_size
        return [base for base in self.segments.bases if base >= first]

    def raise_min(self, log_start: int) -> None:
        """The log begins at log_start now: entries that point below are not worth reading."""
        low, high = max(self.min_offset, self.segments.start // ENTRY_SIZE), self.next_offset
        if low < high:
            physical_offset, size, _ = _ENTRY.unpack(self._entry_on_disk(low))
            if physical_offset >= log_start and size != _NOTHING:
                return  # the usual case, and no map is opened for it
        while low < high:
            middle = (low + high) // 2
            physical_offset, size, _ = self.entry(middle)
            if physical_offset < log_start or size == _NOTHING:
                low = middle + 1
            else:
                high = middle
        self.min_offset = low

    def expired_bases(self, log_start: int) -> list[int]:
        """The files whose last entry points below log_start, oldest first, never the last: queue offsets must go on."""
        expired = []
        for base in self.segments.bases[:-1]:
            physical_offset, size, _ = self.entry((base + self.segments.segment_size) // ENTRY_SIZE - 1)
            if physical_offset >= log_start and size != _NOTHING:
                break
            expired.append(base)
        return expired
