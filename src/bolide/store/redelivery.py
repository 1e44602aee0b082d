"""Messages that are due: read where they wait, stored again where they belong, a batch at a time.

The kernel lays the new records out straight from the mapped log, so that a message costs about what a plain append
does. A batch ends at the end of its log segment, and before it would be too large for one; anyone who asks goes on
behind what was looked at. Nothing is told of a batch before it is in the log: progress that is kept afterwards can be
behind, never ahead.
"""

import struct
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from bolide import kernel
from bolide.errors import CorruptRecord, Refusal
from bolide.kernel.layout import ENTRY_SIZE, Tally
from bolide.kernel.layout import Redelivered as RedeliveredRecords
from bolide.protocol.codes import ResponseCode
from bolide.store.record import Draft
from bolide.store.segment import Segment
from bolide.store.store import Store

BATCH_COUNT_MAX = 256
BATCH_SIZE_MAX = 1 << 20
_PLACE = struct.Struct(">qi8x")
_NOTHING = 0x7FFF_FFFF
NOBODY: frozenset[bytes] = frozenset()


class Redelivered(NamedTuple):
    """How many entries are done with, what was stored of each topic, and up to where the log must be durable for it."""

    seen: int
    tallies: list[Tally]
    end: int


def redeliver(
    store: Store,
    entries: bytes | memoryview,
    stamp_ms: int = -1,
    rolls: bool = False,
    recalled: frozenset[bytes] = NOBODY,
) -> Redelivered:
    """Store again what the first of the entries point at; raises Refusal, and nothing is stored then.

    What the parameters mean stands at `kernel.redeliver_records`. Entries that point below the log are done with. A
    batch that cannot be laid out is halved until the one is found that is to blame, which is passed over.
    """
    try:
        return _redeliver(store, entries, stamp_ms, rolls, recalled)
    except Refusal as refusal:
        if refusal.code != ResponseCode.MESSAGE_ILLEGAL:
            raise
        problem: Exception = refusal
    except (ValueError, LookupError, ArithmeticError, struct.error) as odd:
        problem = odd
    count = len(entries) // ENTRY_SIZE
    if count > 1:
        return redeliver(store, entries[: count // 2 * ENTRY_SIZE], stamp_ms, rolls, recalled)
    _pass_over(store, int.from_bytes(entries[:8], "big", signed=True), problem)
    return Redelivered(1, [], store.commitlog.end)


def due_draft(
    store: Store, entry: bytes, stamp_ms: int = -1, recalled: frozenset[bytes] = NOBODY
) -> tuple[Draft | None, Tally | None]:
    """The message that one entry points at, as it would be stored again, for anyone who sends it elsewhere.

    None where the log has it no more, it cannot be read, or it was recalled; what is counted of it besides.
    """
    place = int.from_bytes(entry[:8], "big", signed=True)
    if not _in_log(store, entry)[0]:
        return None, None
    try:
        segment = store.commitlog.segments.find(place)
        if segment is None:
            raise CorruptRecord("its segment of the log is missing")
        how = (segment.view, segment.base, entry, stamp_ms, False, recalled, BATCH_SIZE_MAX)
        drafts, _, counts, unreadable = kernel.due_drafts(*how)
        if unreadable:
            raise CorruptRecord("there is no whole record")
    except (CorruptRecord, ValueError, LookupError, ArithmeticError, struct.error) as problem:
        _pass_over(store, place, problem)
        return None, None
    tally = next(((topic, *count) for topic, count in counts.items()), None)
    return Draft(*drafts[0]) if drafts else None, tally


def _redeliver(
    store: Store, entries: bytes | memoryview, stamp_ms: int, rolls: bool, recalled: frozenset[bytes]
) -> Redelivered:
    entries, gone_count = _in_log(store, entries)
    if not entries:
        return Redelivered(gone_count, [], store.commitlog.end)
    segment = store.commitlog.segments.find(int.from_bytes(entries[:8], "big"))
    if segment is None:
        _pass_over(store, int.from_bytes(entries[:8], "big"), CorruptRecord("its segment of the log is missing"))
        return Redelivered(gone_count + 1, [], store.commitlog.end)
    entries = entries[: BATCH_COUNT_MAX * ENTRY_SIZE]
    size_max = min(BATCH_SIZE_MAX, store.config.segment_size // 4)
    if store.config.sealed:
        seen, tallies, unreadable = _redeliver_sealed(store, segment, entries, stamp_ms, rolls, recalled, size_max)
    else:
        how = (segment.view, segment.base, entries, store.store_host, stamp_ms, rolls, recalled, size_max)
        (seen, tallies, unreadable), _ = store.append_encoded(partial(_encode, store, how))
    for place in unreadable:
        _pass_over(store, place, CorruptRecord("there is no whole record"))
    return Redelivered(gone_count + seen, tallies, store.commitlog.end)


def _encode(
    store: Store,
    how: tuple[memoryview, int, bytes | memoryview, bytes, int, bool, frozenset[bytes], int],
    at: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> RedeliveredRecords:
    encoded = kernel.redeliver_records(*how, at, store_ms, next_offsets)
    if encoded[3][2] and store.commitlog.is_worth_another_look(how[2], encoded[3][2]):
        encoded = kernel.redeliver_records(*how, at, store_ms, next_offsets)
    return encoded


def _pass_over(store: Store, place: int, problem: Exception) -> None:
    store.mishaps.note("store.redelivery", f"a message that was due physical_offset={place}", problem)


def _in_log(store: Store, entries: bytes | memoryview) -> tuple[bytes | memoryview, int]:
    """The entries from the first on that the log still has, and how many came before it."""
    start, gone_count = store.commitlog.start, 0
    for place, size in _PLACE.iter_unpack(entries):
        if place >= start and 0 < size != _NOTHING:
            break
        gone_count += 1
    return entries[gone_count * ENTRY_SIZE :], gone_count


def _redeliver_sealed(
    store: Store,
    segment: Segment,
    entries: bytes | memoryview,
    stamp_ms: int,
    rolls: bool,
    recalled: frozenset[bytes],
    size_max: int,
) -> tuple[int, list[Tally], list[int]]:
    """The same where each record ends in a checksum of all of it, which only `append` gives."""
    how = (segment.view, segment.base, entries, stamp_ms, rolls, recalled, size_max)
    drafts, seen, counts, unreadable = kernel.due_drafts(*how)
    if store.commitlog.is_worth_another_look(entries, unreadable):
        drafts, seen, counts, unreadable = kernel.due_drafts(*how)
    if drafts:
        store.append([Draft(*draft) for draft in drafts])
    return seen, [(topic, *count) for topic, count in counts.items()], unreadable
