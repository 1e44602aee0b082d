"""The timer's log: a unit of 52 bytes for each timed message that waits, in the order in which they were filed.

Units of one slot of the wheel are chained backwards, so a slot needs only the place of its last one. A unit says where
its message lies in the commit log: filing a message costs these bytes on the disk and nothing in memory. A file that
has no room for another unit and an end mark is closed with one, as RocketMQ does, and the next begins.

A page that cannot be read has no unit in it: the chain is broken there, and who follows it has all filed again.
"""

import struct
from pathlib import Path

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.layout import KIND_MARK, UNIT_SIZE
from bolide.store.disk import Disk
from bolide.store.segment import Segment
from bolide.store.segments import SegmentPool, Segments
from bolide.store.timerwheel import Slot

_END_SIZE = 16
_END = struct.Struct(">iqI")
_END_MAGIC = 0xCBD43194
_HEAD = struct.Struct(">i8xi")
_TIMES = struct.Struct(">16xqi")
_PLACE = struct.Struct(">28xqi")
_KIND_MAX = 15
_OPEN_FILES_MAX = 64
_UNITS_AT_ONCE = 4096


class TimerLog:
    """Written by one thread at `end`."""

    def __init__(self, disk: Disk, directory: Path, file_size: int) -> None:
        self._disk = disk
        self._pool = SegmentPool(disk, _OPEN_FILES_MAX)
        self.segments = Segments(self._pool, directory, file_size)
        self.end = 0
        self.odd = ""
        self._dirty: set[int] = set()  # bases of files that are not durable yet
        self._is_new_file = False

    def load(self) -> None:
        """See which files there are; `recover` finds the end.

        Files of a wrong length are given up with all others, and `odd` says so; unless there are several of one length,
        which says that another was meant.
        """
        try:
            self.segments.load()
        except StoreError as error:
            sizes = [path.stat().st_size for path in self.segments.directory.iterdir()]
            if len(sizes) > 1 and len(set(sizes)) == 1:
                raise
            self.odd = str(error)
            self.segments.bases.clear()
            for path in self.segments.directory.iterdir():
                self._disk.remove(path)
        bases = self.segments.bases
        self.end = bases[-1] + self.segments.segment_size if bases else 0

    def recover(self, position: int) -> list[tuple[int, int]]:
        """Check the units from about position on and cut the log behind the last good one.

        Returns the place of each and the time of its slot, for anyone who points slots at them.
        """
        units: list[tuple[int, int]] = []
        start = max(position, self.segments.start)
        bases = [base for base in self.segments.bases if base + self.segments.segment_size > start]
        if not bases:  # files are missing at the end: begin with the last one there is
            bases = self.segments.bases[-1:]
            start = self.segments.start
        for base in bases:
            view = self.segments.open(base).view
            first = max(start - base, 0) // UNIT_SIZE * UNIT_SIZE
            if not self._take_units(view, base, first, units):
                break
        self.segments.truncate(self.end)
        return units

    def cut(self, end: int) -> None:
        """Forget the units from a place on."""
        self.end = end
        self.segments.truncate(end)

    def _take_units(self, view: memoryview, base: int, at: int, units: list[tuple[int, int]]) -> bool:
        """Collect the units of a file; true if it is closed, and the next one goes on."""
        self.end = base + at
        while at + UNIT_SIZE <= len(view):
            size, kind = _HEAD.unpack_from(view, at)
            if kind & 0xFFFF_FFFF == _END_MAGIC:
                self.end = base + len(view)
                return True
            # A power cut may have torn the last one: its message's size comes behind all that is followed.
            _, message_size = _PLACE.unpack_from(view, at)
            if size != UNIT_SIZE or not 0 < kind <= _KIND_MAX or message_size <= 0:
                return False
            filed_ms, delay_ms = _TIMES.unpack_from(view, at)
            units.append((base + at, filed_ms + delay_ms))
            at += UNIT_SIZE
            self.end = base + at
        return False

    def message_at(self, position: int) -> tuple[int, int] | None:
        """Where the message of a unit lies, and its size."""
        segment = self.segments.find(position) if position >= 0 else None
        if segment is None:
            return None
        at = position - segment.base
        kernel.touch(segment.view[at : at + UNIT_SIZE])
        if not segment.is_readable(at, UNIT_SIZE):
            return None
        place, size = _PLACE.unpack_from(segment.view, at)
        return place, size

    def walk(self, position: int, step_ms: int, slot_ms: int, count_max: int) -> tuple[bytes, bytes, int]:
        """Follow a slot's units back through one file, as `kernel.walk_units` says; a file that is gone breaks it."""
        segment = self.segments.find(position) if position < self.end else None
        if segment is None:
            return b"", b"", -2 - position
        how = (segment.view, segment.base, position, step_ms, slot_ms, count_max)
        found, broken = kernel.walk_units(*how), -1
        while found[2] < -1 and found[2] != broken and segment.is_patched:
            broken = found[2]
            if segment.is_readable(-2 - broken - segment.base, UNIT_SIZE):  # the disk gives it by now
                found = kernel.walk_units(*how)
        return found

    def load_of(self, slot: Slot, step_ms: int) -> int | None:
        """How many messages wait in a slot, by its units, of which a recall takes one off; None for a broken chain."""
        position, load = slot.last, 0
        while position >= 0:
            _, kinds, position = self.walk(position, step_ms, slot.time_ms, _UNITS_AT_ONCE)
            load += sum(-1 if kind & KIND_MARK else 1 for kind in kinds)
        return load if position == -1 else None

    @property
    def room(self) -> int:
        """Bytes for units in the last file; a new one is begun where there is none for a single unit."""
        base = self.segments.base_of(self.end)
        if base is None:
            self._begin(self.end)
            base = self.end
        left = base + self.segments.segment_size - self.end - _END_SIZE
        if left < UNIT_SIZE:
            self._close(self.segments.open(base))
            return self.room
        return left

    def _close(self, segment: Segment) -> None:
        left = segment.base + segment.size - self.end
        if left >= _END_SIZE:
            self._write(segment, _END.pack(left, 0, _END_MAGIC))
        self.end = segment.base + segment.size

    def _begin(self, base: int) -> None:
        assert base % self.segments.segment_size == 0, "a file begins where the one before it ends"
        self.segments.create(base)
        self._is_new_file = True

    def reserve(self, size: int) -> None:
        """Take what units of this many bytes need from the disk; `room` has said that they fit."""
        segment = self.segments.find(self.end)
        assert segment is not None
        end = self.end - segment.base + size
        if end > segment.reserved:
            segment.reserve(self.end - segment.base, end)

    def append(self, units: bytes) -> None:
        """Write units at the end; `room` has said that they fit. A failure leaves the log as it was."""
        segment = self.segments.find(self.end)
        assert segment is not None
        self._write(segment, units)
        self.end += len(units)

    def _write(self, segment: Segment, content: bytes) -> None:
        segment.write(content, self.end - segment.base)
        self._dirty.add(segment.base)

    def take_dirty(self) -> list[Segment]:
        """The files to be synced; from here on they count as being so."""
        dirty = [self.segments.open(base) for base in sorted(self._dirty) if base in self.segments.bases]
        self._dirty = set()
        return dirty

    def mark_dirty(self, segments: list[Segment]) -> None:
        """They were not synced after all."""
        self._dirty |= {segment.base for segment in segments}

    def sync(self, dirty: list[Segment]) -> None:
        """Make files durable; may run in another thread."""
        for segment in dirty:
            segment.sync()
        if self._is_new_file:
            self._is_new_file = False
            self._disk.sync_directory(self.segments.directory)
            self._disk.sync_directory(self.segments.directory.parent)

    def remove_below(self, log_start: int) -> int:
        """Delete files whose last message is gone from the commit log, never the last; returns how many went."""
        last_unit = (self.segments.segment_size - _END_SIZE) // UNIT_SIZE * UNIT_SIZE - UNIT_SIZE
        count = 0
        while len(self.segments.bases) > 1:
            found = self.message_at(self.segments.bases[0] + last_unit)
            if found is None or found[0] >= log_start:
                break
            self.segments.remove_first()
            count += 1
        return count

    def clear(self) -> None:
        """Forget everything."""
        self.segments.remove_from(0)
        self.end = 0

    def close(self) -> None:
        self._pool.close()
