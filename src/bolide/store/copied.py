"""A log that comes from elsewhere in pieces, cut anywhere: what queues and index say of the records that are whole.

What is taken for a record is what recovery takes for one, but for the checksum of the body: the log's owner has given
the message out without asking, and queues here must be those there. A record that is not all here yet is waited for.
The blank record that ends a file counts with the bytes behind it, which are copied too and may be anything.

What can be no record is a bad stretch of that other log, and is gone round (`resync.py`) as soon as the log is seen to
go on behind it, or its file is full. How much was searched is remembered, so that a long one is read once.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.layout import (
    AT_BLANK,
    AT_END,
    AT_INNER_BATCH,
    BLANK_SIZE,
    BODY_CHECKED,
    IPV6_BORN,
    IPV6_STORE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    UNCHECKED,
    Run,
)
from bolide.store.commitlog import CommitLog
from bolide.store.named import NamedPlaces
from bolide.store.resync import SIZE_MIN, Resync
from bolide.store.segment import Segment

_HEAD_SIZE = 36  # up to where a record says at which place it lies
_TEXTS_SIZE_MAX = 2 + 0x7FFF + 2 + 0x7FFF  # topic and properties, with their lengths

Ends = Callable[[tuple[str, int]], int | None]


class Stretch(NamedTuple):
    """What follows from whole records up to `end`; of a stretch that was gone round there is nothing but its end."""

    end: int
    store_ms: int
    runs: list[Run]
    keys: bytes


class CopiedLog:
    """Walks the log as it grows."""

    def __init__(self, commitlog: CommitLog, delays_ms: tuple[int, ...], ends: Ends) -> None:
        self._log = commitlog
        self._delays_ms = delays_ms
        self._ends = ends
        self._searched = -1, 0  # a bad place, and up to where nothing behind it looks like a record

    def walk(self, at: int, end: int) -> Iterator[Stretch]:
        """Whole records from a record's start on, up to where the next one is not all here."""
        while at < end:
            segment = self._log.segments.find(at)
            if segment is None:
                return
            limit = min(end, segment.base + segment.size)
            runs, keys, count, store_ms, position, reason = kernel.walk_records(
                segment.view, at - segment.base, limit - segment.base, segment.base, UNCHECKED, self._delays_ms
            )
            at = segment.base + position
            if count:
                yield Stretch(at, store_ms, runs, keys)
            if reason == AT_END:
                continue
            following = self._behind(segment, at, limit, reason)
            if following is None:
                return
            at = following
            yield Stretch(at, -1, [], b"")

    def _behind(self, segment: Segment, at: int, limit: int, reason: int) -> int | None:
        """Where the log goes on behind a place without a whole record, None if that is not known yet."""
        file_end, position = segment.base + segment.size, at - segment.base
        if reason == AT_INNER_BATCH:
            _refuse_inner_batch(segment, at)
        if reason == AT_BLANK and _is_blank(segment, position):
            return file_end if limit == file_end else None
        if limit < file_end and is_incomplete(segment.view, position, limit - segment.base, segment.base):
            return None
        search_from = self._searched[1] if self._searched[0] == at else at + 1
        resync = Resync(self._log.segments, BODY_CHECKED, 0, NamedPlaces.nowhere(), self._fits)
        following = resync.next_in(segment.base, at, -1, search_from)
        if following is not None:
            return following
        if limit == file_end:
            return file_end
        doubted = kernel.find_record(segment.view, search_from - segment.base, limit - segment.base, segment.base)
        self._searched = at, segment.base + doubted if doubted >= 0 else max(limit - _HEAD_SIZE, search_from)
        return None

    def is_start(self, place: int) -> bool:
        """Whether a record begins at a place, or the blank one that ends a file."""
        segment = self._log.segments.find(place)
        if segment is None:
            return False
        resync = Resync(self._log.segments, BODY_CHECKED, 0, NamedPlaces.nowhere(), self._fits)
        return _is_blank(segment, place - segment.base) or resync.record(place) is not None

    def _fits(self, topic: str, queue_id: int, queue_offset: int, passed_size: int) -> bool:
        end = self._ends((topic, queue_id))
        return end is not None and 0 <= queue_offset - end <= passed_size // SIZE_MIN


def is_incomplete(view: memoryview, at: int, limit: int, base: int) -> bool:
    """Whether what begins at a position may be a record whose end has not come yet: all that is here fits one."""
    here = limit - at
    if here < BLANK_SIZE:
        return True
    size, magic = int.from_bytes(view[at : at + 4], "big", signed=True), int.from_bytes(view[at + 4 : at + 8], "big")
    if magic not in (MAGIC_V1, MAGIC_V2) or not max(SIZE_MIN, here + 1) <= size <= len(view) - at:
        return False
    if here >= _HEAD_SIZE and int.from_bytes(view[at + 28 : at + 36], "big", signed=True) != base + at:
        return False
    sys_flag = view[at + 39] if here > 39 else 0
    head_size = 84 + 4 + (12 if sys_flag & IPV6_BORN else 0) + (12 if sys_flag & IPV6_STORE else 0)
    if here < head_size:
        return True
    body_size = int.from_bytes(view[at + head_size - 4 : at + head_size], "big", signed=True)
    return body_size >= 0 and head_size + body_size + 3 <= size <= head_size + body_size + _TEXTS_SIZE_MAX


def _is_blank(segment: Segment, position: int) -> bool:
    left = segment.size - position
    return segment.view[position : position + 8] == left.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")


def _refuse_inner_batch(segment: Segment, at: int) -> None:
    """Not kept here; but one without a count is a plain message with a flipped bit."""
    position = at - segment.base
    size = int.from_bytes(segment.view[position : position + 4], "big")
    if b"INNER_NUM\x01" in bytes(segment.view[position : position + size]):
        raise StoreError(f"the record at {at} is an inner batch (queue.type=BatchCQ), which is not kept here")
