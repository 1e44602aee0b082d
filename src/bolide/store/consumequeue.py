"""The entries of one queue: 20 bytes a message, at 20 times its queue offset.

Entries are derived from the log and written in its order. Three things may happen and are settled in `put`: what is
already there is left out, a gap (records the log lost) is filled with entries that stand for nothing, and a queue whose
first message has an offset above 0 starts with such entries from the beginning of its file, as RocketMQ's does.

Loading says what is odd about the files, in words, and mends nothing: `derived.py` makes a queue again from the log.
"""

import os
from collections.abc import Callable
from pathlib import Path

from bolide import kernel
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, PRE_BLANK
from bolide.store.named import first_from
from bolide.store.roster import Extent
from bolide.store.segment import MAPPED_SIZE_MAX, Segment, segment_name
from bolide.store.segments import SegmentPool, Segments

_NOTHING = 0x7FFF_FFFF  # the size in an entry that stands for nothing
_UNMAPPED_PUTS_MAX = 64
_CHUNK = bytes(ENTRY_SIZE << 12)
_LOOKED_AT = 2048  # bytes behind the last entry, where nothing may be
_BLOCK = 256  # entries, about a page of them, are looked at together
_BLOCKS_AT_ONCE = 4
_BLANK_COUNT = 1 << 12
_BLANKS = PRE_BLANK * _BLANK_COUNT


class ConsumeQueue:
    """One queue's files. `next_offset` is what the next entry gets, `min_offset` the first still worth reading."""

    __slots__ = (
        "_check",
        "_checked",
        "_first",
        "_last_entry",
        "_recent",
        "_tail",
        "_unmapped_puts",
        "checked_below",
        "dirty_from",
        "min_offset",
        "name",
        "next_offset",
        "queue_id",
        "segments",
        "topic",
    )

    def __init__(self, pool: SegmentPool, directory: Path, file_size: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.name = topic.encode("utf-8", "replace")  # as records have it
        self.queue_id = queue_id
        self.segments = Segments(pool, directory / topic / str(queue_id), file_size)
        self.next_offset = 0
        self.min_offset = 0
        self._last_entry = PRE_BLANK
        self.dirty_from: int | None = None  # first byte that is not durable
        self._tail: Segment | None = None
        self._recent: Segment | None = None  # where the last reader was that was not there
        self._unmapped_puts = 0
        self.checked_below = 0  # entries before this offset are looked at before they are read, block by block
        self._checked: set[int] = set()
        self._first = -1, b""  # an offset and its entry, which a start has just read
        self._check: Callable[[ConsumeQueue, int, int], None] = _believe

    def load(self, known: Extent | None = None) -> str:
        """Find the end of data after a clean stop: where it was then, or else by halves, as entries are a gapless run.

        Returns what is odd, nothing if all is well.
        """
        self.segments.load()
        if known is not None and known.next_offset and known.first:
            odd = self._differs(known)
            if not odd:
                self.next_offset, self._last_entry = known.next_offset, known.last
                self.min_offset = known.min_offset
                return ""
        else:
            odd = self._gap()
        while self.segments.bases:
            base = self.segments.bases[-1]
            count = self._count_by_halves(base)
            if count:
                self._end_at((base // ENTRY_SIZE) + count)
                return odd
            self.segments.remove_from(base)  # an empty file would become a phantom entry in Java
        return odd

    def _gap(self) -> str:
        bases, size = self.segments.bases, self.segments.segment_size
        if bases and bases[-1] - bases[0] != (len(bases) - 1) * size:
            return "a file is missing between others"
        return "the name of a file is no place where one begins" if any(base % size for base in bases) else ""

    def _differs(self, known: Extent) -> str:
        """What is not as it was: the number of files, the first entry or the last, or something behind that."""
        last_base = (known.next_offset - 1) * ENTRY_SIZE // self.segments.segment_size * self.segments.segment_size
        first_base = known.min_offset * ENTRY_SIZE // self.segments.segment_size * self.segments.segment_size
        bases = self.segments.bases
        if not bases or bases[-1] != last_base or bases[0] > min(first_base, last_base) or self._gap():
            return f"its files are not those from offset {known.min_offset} to {known.next_offset}"
        at = known.next_offset * ENTRY_SIZE - last_base
        with open(self._path(last_base), "rb", buffering=0) as file:
            end = os.pread(
                file.fileno(), min(ENTRY_SIZE + _LOOKED_AT, self.segments.segment_size - at + ENTRY_SIZE), at - 20
            )
            if first_base == last_base:
                first = os.pread(file.fileno(), ENTRY_SIZE, known.min_offset * ENTRY_SIZE - first_base)
        if end[:ENTRY_SIZE] != known.last or end.count(0, ENTRY_SIZE) != len(end) - ENTRY_SIZE:
            return f"it does not end as it did at {known.next_offset}"
        if known.min_offset < known.next_offset:
            if first_base != last_base:
                first = self._entry_on_disk(known.min_offset)
            if first != known.first:
                return f"it does not begin as it did at {known.min_offset}"
            self._first = known.min_offset, first
        return ""

    def extent(self, has_first: bool = True) -> Extent:
        """Where it begins and ends, to be compared at the next start."""
        first = PRE_BLANK
        if has_first and self.min_offset < self.next_offset:
            first = self._entry_on_disk(self.min_offset)
        return Extent(self.min_offset, self.next_offset, first if has_first else b"", self._last_entry)

    def has_all_of(self, known: Extent) -> bool:
        """Whether nothing is missing, at the begin or the end, that was durable when this was noted."""
        offset = known.next_offset - 1
        if offset < 0:
            return True
        if offset >= self.next_offset or self.segments.base_of(min(known.min_offset, offset) * ENTRY_SIZE) is None:
            return False
        # Its tag may be the address of one by now, if a Java broker wrote it again.
        return self._entry_on_disk(offset)[:12] == known.last[:12]

    def _count_by_halves(self, base: int) -> int:
        # Without the map: a start looks at every queue once, and a fault in a hole fills pages around it with zeros.
        with open(self._path(base), "rb", buffering=0) as file:
            low, high = 0, min(os.lseek(file.fileno(), 0, os.SEEK_HOLE), self.segments.segment_size) // ENTRY_SIZE + 1
            high = min(high, self.segments.segment_size // ENTRY_SIZE)
            while low < high:
                middle = (low + high) // 2
                physical_offset, size, _ = ENTRY.unpack(os.pread(file.fileno(), ENTRY_SIZE, middle * ENTRY_SIZE))
                if size > 0 and physical_offset >= 0:
                    low = middle + 1
                else:
                    high = middle
        return low

    def load_below(self, physical_limit: int) -> str:
        """Keep the entries that point below physical_limit and forget the rest; nothing above it is believed.

        Returns what is odd about those that should have been kept.
        """
        self.segments.load(is_whole=False)
        odd = self._gap()
        if self.segments.bases:
            view = self.segments.open(self.segments.bases[-1]).view
            odd = odd or _damage(view, kernel.count_entries(view, physical_limit), physical_limit)
        self.cut(physical_limit)
        return odd

    def forget(self) -> None:
        """Be empty, without a file."""
        self.segments.close()
        self.segments.bases.clear()
        self.segments.load(is_whole=False)
        self.segments.remove_from(0)
        self._end_at(0)

    def cut(self, physical_limit: int) -> None:
        """Forget the entries from the first on that is not whole, not in order or not below physical_limit."""
        while self.segments.bases:
            base = self.segments.bases[-1]
            view = self.segments.open(base).view
            count = kernel.count_entries(view, physical_limit)
            if self._is_beyond(base, count, physical_limit):
                # What stands for nothing says nothing of where it belongs: it goes with what follows it.
                while count and view[(count - 1) * ENTRY_SIZE : count * ENTRY_SIZE] == PRE_BLANK:
                    count -= 1
            if count:
                self.segments.truncate(base + count * ENTRY_SIZE)
                self._end_at((base // ENTRY_SIZE) + count)
                return
            self.segments.remove_from(base)
        self._end_at(0)

    def _is_beyond(self, base: int, count: int, physical_limit: int) -> bool:
        """Whether a message that points to the limit or further lies behind the first entries of a file, or before."""
        view = self.segments.open(base).view
        if any(view[count * ENTRY_SIZE : (count + 1) * ENTRY_SIZE]):
            return True
        before = self.segments.base_of(base - 1)
        if before is None or view[: count * ENTRY_SIZE] != PRE_BLANK * count:
            return False
        last = self.segments.open(before).view[-ENTRY_SIZE:]
        return last != PRE_BLANK and ENTRY.unpack(last)[0] >= physical_limit

    def _end_at(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.checked_below = min(self.checked_below, next_offset)
        self.min_offset = self.segments.start // ENTRY_SIZE
        self._last_entry = PRE_BLANK if next_offset <= self.min_offset else self._entry_on_disk(next_offset - 1)
        self._tail = None

    def _path(self, base: int) -> str:
        return f"{self.segments.directory}/{segment_name(base)}"  # a start makes thousands: a Path costs ten times that

    def _entry_on_disk(self, queue_offset: int) -> bytes:
        """The same as `entry` without opening a map."""
        at = queue_offset * ENTRY_SIZE
        base = self.segments.base_of(at)
        assert base is not None
        with open(self._path(base), "rb", buffering=0) as file:
            return os.pread(file.fileno(), ENTRY_SIZE, at - base)

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Physical offset, size and tag hash of one entry."""
        found = self.read(queue_offset, 1)
        assert found is not None, f"{self.topic}/{self.queue_id} has no entry {queue_offset}"
        return ENTRY.unpack(found)

    def _entry_at(self, queue_offset: int) -> tuple[int, int, int]:
        found = self.raw(queue_offset, 1)
        assert found is not None, f"{self.topic}/{self.queue_id} has no entry {queue_offset}"
        return ENTRY.unpack(found)

    def check_with(self, check: Callable[["ConsumeQueue", int, int], None]) -> None:
        """From here on have entries that are there already looked at before they are first read."""
        self._check, self._checked, self.checked_below = check, set(), self.next_offset

    def _checked_count(self, queue_offset: int, count: int) -> int:
        """How many entries from an offset on may be read; a few blocks are looked at if nobody has."""
        end, left = min(queue_offset + count, self.checked_below), _BLOCKS_AT_ONCE
        at = queue_offset
        while at < end:
            block = at // _BLOCK
            if block not in self._checked:
                if not left:
                    return at - queue_offset
                left -= 1
                self._check_block(block)
            at = (block + 1) * _BLOCK
        return count

    def _check_block(self, block: int) -> None:
        first, end = max(block * _BLOCK, self.min_offset), min((block + 1) * _BLOCK, self.checked_below)
        per_file = self.segments.segment_size // ENTRY_SIZE
        self._checked.add(block)
        while first < end:
            until = min(end, first - first % per_file + per_file)
            self._check(self, first, until)
            first = until

    def rewrite(self, first_offset: int, entries: bytes) -> None:
        """Put entries in the place of others, in one file."""
        at = first_offset * ENTRY_SIZE
        segment = self.segments.find(at)
        assert segment is not None
        segment.write(entries, at - segment.base)
        self.dirty_from = at if self.dirty_from is None else min(at, self.dirty_from)
        if first_offset * ENTRY_SIZE + len(entries) == self.next_offset * ENTRY_SIZE:
            self._last_entry = entries[-ENTRY_SIZE:]

    def blank_between(self, start: int, end: int) -> list[int]:
        """Have the entries that point there stand for nothing, durably: their records are lost. Returns the offsets."""
        blanked: list[int] = []
        for base in reversed(self.segments.bases):
            segment, first = self.segments.open(base), base // ENTRY_SIZE
            entries = segment.view[: min(self.next_offset * ENTRY_SIZE - base, segment.size)]
            low = first_from(entries, start)
            lost = [
                number
                for number, (_, size, _) in enumerate(
                    ENTRY.iter_unpack(entries[low * ENTRY_SIZE : first_from(entries, end) * ENTRY_SIZE]), low
                )
                if size != _NOTHING
            ]
            for number in lost:
                segment.write(PRE_BLANK, number * ENTRY_SIZE)
            if lost:
                segment.sync()
            blanked += [first + number for number in lost]
            if low:
                break  # what comes before points further down
        if blanked and max(blanked) == self.next_offset - 1:
            self._last_entry = PRE_BLANK
        return blanked

    def displace(self, queue_offset: int, entry: bytes) -> bool:
        """Write an entry over one that another record took wrongly; false where it is there already."""
        if self._entry_on_disk(queue_offset) == entry:
            return False
        self.rewrite(queue_offset, entry)
        return True

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
        physical_offset, size, _ = ENTRY.unpack(self._last_entry)
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
        if queue_offset < self.checked_below:
            count_max = self._checked_count(queue_offset, count_max)
        found = self.raw(queue_offset, count_max)
        if found is not None and kernel.touch(found) and self.segments.restore(queue_offset * ENTRY_SIZE):
            self.check_with(self._check)  # zeros stand where a page could not be read
            return self.read(queue_offset, count_max)
        return found

    def raw(self, queue_offset: int, count_max: int) -> memoryview | None:
        """The same, whatever is written there."""
        at = queue_offset * ENTRY_SIZE
        segment = self._tail  # where most readers are
        if segment is None or not segment.is_open or not 0 <= at - segment.base < segment.size:
            segment = self._recent
            if segment is None or not segment.is_open or not 0 <= at - segment.base < segment.size:
                segment = self._recent = self.segments.find(at)
                if segment is None:
                    return None
        position = at - segment.base
        return segment.view[position : position + min(count_max, self.next_offset - queue_offset) * ENTRY_SIZE]

    def near(self, queue_offset: int) -> tuple[memoryview, int]:
        """All entries of the file that has this one, and the queue offset of the first; none where that is not here."""
        first = queue_offset - queue_offset % (self.segments.segment_size // ENTRY_SIZE)
        first = max(first, self.min_offset)
        if not self.min_offset <= queue_offset < self.next_offset:
            return memoryview(b""), 0
        if queue_offset < self.checked_below:
            self._checked_count(queue_offset, 1)
        found = self.raw(first, self.next_offset - first)
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
            entry = self._first[1] if self._first[0] == low else self._entry_on_disk(low)
            self._first = -1, b""
            physical_offset, size, _ = ENTRY.unpack(entry)
            if size == _NOTHING:
                low = self._message_from(low, high)
            elif physical_offset >= log_start:
                self.min_offset = low
                return  # the usual case, and no map is opened for it
        while low < high:
            middle = self._message_from((low + high) // 2, high)
            if middle == high:
                high = (low + high) // 2
            elif self._entry_at(middle)[0] < log_start:
                low = middle + 1
            else:
                high = (low + high) // 2
        self.min_offset = self._message_from(low, self.next_offset)

    def _message_from(self, low: int, high: int) -> int:
        """The first offset from low on whose entry stands for a message; high without one."""
        while low < high:
            entries = self.raw(low, min(high - low, _BLANK_COUNT))
            if entries is None:
                return high
            if entries != _BLANKS[: len(entries)]:
                for number, (_, size, _) in enumerate(ENTRY.iter_unpack(entries)):
                    if size != _NOTHING:
                        return low + number
            low += len(entries) // ENTRY_SIZE
        return high

    def expired_bases(self, log_start: int) -> list[int]:
        """The files whose last entry points below log_start, oldest first, never the last: queue offsets must go on."""
        expired = []
        for base in self.segments.bases[:-1]:
            low, last = base // ENTRY_SIZE, (base + self.segments.segment_size) // ENTRY_SIZE - 1
            while (
                last > low and self._entry_at(last)[1] == _NOTHING
            ):  # a message that was lost, or a queue that began later
                last -= 1
            physical_offset, size, _ = self._entry_at(last)
            if physical_offset >= log_start and size != _NOTHING:
                break
            expired.append(base)
        return expired


def _damage(view: memoryview, count: int, physical_limit: int) -> str:
    """What is odd at the entry behind the first `count`, which end before physical_limit; nothing if the data ends."""
    at = count * ENTRY_SIZE
    if at + ENTRY_SIZE > len(view):
        return ""
    physical_offset, size, _ = ENTRY.unpack_from(view, at)
    if size > 0 and physical_offset >= physical_limit:
        return ""
    if view[at : at + ENTRY_SIZE] != bytes(ENTRY_SIZE):
        return f"entry {count} of its last file is none"
    for start in range(at, len(view) - ENTRY_SIZE + 1, len(_CHUNK)):
        chunk = bytes(view[start : start + len(_CHUNK)])
        if chunk == _CHUNK[: len(chunk)]:
            continue
        whole = chunk[: len(chunk) // ENTRY_SIZE * ENTRY_SIZE]
        if any(size > 0 and 0 <= place < physical_limit for place, size, _ in ENTRY.iter_unpack(whole)):
            return f"entry {count} of its last file is blank, and others follow"
    return ""


def _believe(queue: ConsumeQueue, first: int, end: int) -> None:
    """Nobody has said against what to check."""
