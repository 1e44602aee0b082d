"""Where the log goes on behind a place at which no whole record lies.

A record that fails in the middle of the log is not a torn tail: what was confirmed lies behind it. So it is gone round,
and everything from here to the next record that is believed is a bad stretch. What is believed, in this order:

1. The bad record's own word. Its end is told twice, by its total size and by the lengths of its parts, and one flipped
   bit cannot spoil both. It counts if a whole record, or the blank that ends a file, begins there.
2. The queues' word: a place that a queue entry names, with the size it names. It says where a lost record ended, too.
3. Bytes that look like a record: magic, their own place, sizes that fit, the checksum of the body. A sender can put
   such bytes into a body, so these come last, and they are not believed inside of a record that a queue entry names,
   nor behind what is known to be durable if they are older than what lies before them (left over from before a
   truncation that a Java broker made), nor unless the chain goes on: another whole record, the end of the file or of
   the log behind them, or at least the very offset that their queue waits for.

If nothing is found up to the end of the last file, the log ends at the bad place.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bolide import kernel
from bolide.kernel.layout import BLANK_SIZE, BODY_CHECKED, IPV6_BORN, IPV6_STORE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from bolide.store.named import Named, NamedPlaces
from bolide.store.segments import Segments

SIZE_MIN = 91


class Found(NamedTuple):
    """A whole record, as far as it takes part in decisions."""

    place: int
    size: int
    queue_id: int
    queue_offset: int
    store_ms: int
    topic: str

    @property
    def end(self) -> int:
        return self.place + self.size


# topic, queue id, queue offset, bytes that were passed over → whether this is what the queue may go on with
Fits = Callable[[str, int, int, int], bool]


class Resync:
    """Finds the next record to believe."""

    def __init__(self, segments: Segments, check: int, durable: int, named: NamedPlaces, fits: Fits) -> None:
        self._segments = segments
        self._check = max(check, BODY_CHECKED)
        self._durable = durable
        self._named = named
        self._fits = fits
        self._written_ends: dict[tuple[int, int], int] = {}

    def written_end(self, base: int, at: int) -> int:
        """The end of what is not zero in a segment from a place on; asked once, for nobody writes meanwhile."""
        if (base, at) not in self._written_ends:
            self._written_ends[base, at] = base + self._segments.open(base).written_end(at - base)
        return self._written_ends[base, at]

    def behind(self, at: int, newest_ms: int) -> int | None:
        """Where the log goes on behind the bad place `at`, None if it does not."""
        for base in self._segments.bases:
            if at < base + self._segments.segment_size:
                found = self.next_in(base, at, newest_ms)
                if found is not None:
                    return found
        return None

    def next_in(self, base: int, at: int, newest_ms: int, search_from: int = 0) -> int | None:
        """The same in one file; what was searched before is left out."""
        segment = self._segments.open(base)
        begin = max(at, base)
        end = self.written_end(base, begin)
        if end == begin:
            return None
        if at > base or self.record(begin) is None:
            told = [place for place in self._told_ends(base, begin) if self._is_believed_end(base, begin, place)]
            if told:
                return max(told)
        # The beginning of a file is a place for a record, whatever the file before it came to.
        position = max(begin + (at == begin), search_from) - base
        while (position := kernel.find_record(segment.view, position, end - base, base)) >= 0:
            if self._is_believed(base, at, base + position, newest_ms):
                return base + position
            position += 1
        return None

    def record(self, place: int) -> Found | None:
        """The whole record at a place of the log."""
        segment = self._segments.find(place)
        if segment is None:
            return None
        view, at = segment.view, place - segment.base
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        if not SIZE_MIN <= size <= len(view) - at:
            return None
        return found_in(view, at, at + size, segment.base, self._check)

    def is_blank(self, base: int, place: int) -> bool:
        """Whether the blank that ends a file begins here, and says how much is left."""
        at = place - base
        head = bytes(self._segments.open(base).view[at : at + BLANK_SIZE])
        left = self._segments.segment_size - at
        return len(head) == BLANK_SIZE and head == left.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")

    def _told_ends(self, base: int, at: int) -> Iterator[int]:
        """Where the bad record ends by its own word."""
        segment = self._segments.open(base)
        view, position, limit = segment.view, at - base, segment.size
        yield at + int.from_bytes(view[position : position + 4], "big", signed=True)
        for topic_width in (1, 2):
            end = _end_by_parts(view, position, limit, topic_width)
            if end is not None:
                yield base + end

    def _is_believed_end(self, base: int, at: int, place: int) -> bool:
        if not at < place < base + self._segments.segment_size:
            return False
        if not self.is_blank(base, place) and self.record(place) is None:
            return False
        return not _is_inside(self._named.between(at, place), place)

    def _is_believed(self, base: int, at: int, place: int, newest_ms: int) -> bool:
        found = self.record(place)
        if found is None:
            return False
        named = self._named.between(at, place + 1)
        if any(each.place == place and each.size == found.size for each in named):
            return True
        if _is_inside(named, place):
            return False
        if place > self._durable and found.store_ms < newest_ms:
            return False
        return self._goes_on(base, found) or self._fits(found.topic, found.queue_id, found.queue_offset, place - at)

    def _goes_on(self, base: int, found: Found) -> bool:
        end = base + self._segments.segment_size
        if found.end in (end, self._durable) or self.is_blank(base, found.end) or self.record(found.end) is not None:
            return True
        return self.written_end(base, found.end) == found.end


def _is_inside(named: list[Named], place: int) -> bool:
    return any(each.place < place < each.end for each in named)


def found_in(view: memoryview, at: int, end: int, base: int, check: int) -> Found | None:
    """The record that fills view[at:end]."""
    columns, reached, _ = kernel.scan_records(view, at, end, base, check)
    if len(columns[0]) != 1 or reached != end:
        return None
    topic = bytes(view[columns[14][0] : columns[14][0] + columns[15][0]]).decode("utf-8", "replace")
    return Found(base + at, end - at, columns[2][0], columns[4][0], columns[7][0], topic)


def _end_by_parts(view: memoryview, at: int, limit: int, topic_width: int) -> int | None:
    """Where a record ends by the lengths of its parts, whatever its magic and its total size say."""
    magic = int.from_bytes(view[at + 4 : at + 8], "big")
    if magic == (MAGIC_V1 if topic_width == 2 else MAGIC_V2):
        return None
    sys_flag = int.from_bytes(view[at + 36 : at + 40], "big")
    tail = at + 56 + (20 if sys_flag & IPV6_BORN else 8) + (20 if sys_flag & IPV6_STORE else 8) + 12
    end = tail
    for width, size_max in ((4, limit), (topic_width, 255), (2, 0x7FFF)):
        if end + width > limit:
            return None
        size = int.from_bytes(view[end : end + width], "big", signed=True)
        if not 0 <= size <= size_max:
            return None
        end += width + size
    return end if end <= limit else None
