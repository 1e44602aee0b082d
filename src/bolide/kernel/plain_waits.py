"""The waiting part of the plain kernel: messages that are due, laid out anew where they belong, a batch at a time.

A message that waits lies in the log as a record of a topic of the broker's own. Its properties say where it belongs
(REAL_TOPIC, REAL_QID). When it is due it becomes a second record there: the same body, flags, birth and count of
retries, a new place. Its properties stay as they lie, those two and DELAY among them, for that is what RocketMQ's
consumers see. What is read is checked first, the body's checksum too: a damaged record that was stored again would cut
the log off at the next recovery.
"""

import struct
from array import array
from collections.abc import Mapping

from bolide.kernel.plain import Buffer
from bolide.kernel.plain_records import (
    BODY_CHECKED,
    ENTRY_SIZE,
    INNER_BATCH,
    PROPERTIES_SIZE_MAX,
    RETRY_TOPIC_SIZE_MAX,
    TOPIC_SIZE_MAX,
    Draft,
    Run,
    lay_records,
    scan_records,
)

_ENTRY = struct.Struct(">qiq")
_NOTHING = 0x7FFF_FFFF  # the size in an entry that stands for nothing
_BODY_SIZE_MAX = 0x7FFF_FFFF  # what was taken in stays, whatever the limit is by now
_HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
_STAMPS = (b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS")
_ROLL_TIMES = b"TIMER_ROLL_TIMES"

# Of one topic: how many messages were laid out, their bytes, and how many were recalled instead.
Tally = tuple[str, int, int, int]
# Records, entries, keys; then how many entries were looked at, the tallies, and the places that hold nothing readable.
Relaid = tuple[bytes, list[Run], bytes, tuple[int, list[Tally], list[int]]]


def relay_records(
    log: Buffer,
    log_base: int,
    entries: Buffer,
    store_host: bytes,
    stamp_ms: int,
    rolls: bool,
    recalled: frozenset[bytes],
    physical_offset: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> Relaid:
    """Lay the records that entries point at out anew, from physical_offset on, where they belong.

    log is one segment, which begins at log_base; the first entry that points elsewhere ends the batch. With a stamp_ms
    of 0 or more, messages come from the timer: an entry's third number is when it was filed there, and both times go
    into the properties. Of those, marks of recalls are left out, and so are messages whose unique key, alone or after
    their topic and a plus sign, is in recalled. With rolls, messages go to the topic they come from, to wait on.
    """
    drafts, seen, counts, unreadable = due_drafts(log, log_base, entries, stamp_ms, rolls, recalled)
    records, places, _, runs, keys = lay_records(
        drafts, physical_offset, store_ms, store_host, next_offsets, (), _BODY_SIZE_MAX
    )
    for draft, start, end in zip(drafts, places, [*places, physical_offset + len(records)][1:], strict=True):
        count, size, recalled_count = counts[draft[0]]
        counts[draft[0]] = count, size + end - start, recalled_count
    return records, runs, keys, (seen, [(topic, *count) for topic, count in counts.items()], unreadable)


def due_drafts(
    log: Buffer, log_base: int, entries: Buffer, stamp_ms: int, rolls: bool, recalled: frozenset[bytes]
) -> tuple[list[Draft], int, dict[str, tuple[int, int, int]], list[int]]:
    """The first half of `relay_records`, for whoever lays records out himself; sizes are not counted here."""
    drafts: list[Draft] = []
    counts: dict[str, tuple[int, int, int]] = {}
    unreadable: list[int] = []
    seen = 0
    for place, size, filed_ms in _ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        position = place - log_base
        if not 0 <= position < len(log):
            break
        seen += 1
        if size <= 0 or size == _NOTHING:
            continue
        columns, end, _ = scan_records(log, position, min(position + size, len(log)), log_base, BODY_CHECKED)
        if len(columns[0]) != 1 or end != position + size:
            unreadable.append(place)
            continue
        properties = _text(log, columns, 16)
        found = _properties(properties)
        topic, queue_id = _home(log, columns, found, rolls)
        if topic is None or columns[5][0] & INNER_BATCH or 0 in properties:
            unreadable.append(place)
            continue
        count, size, recalled_count = counts.setdefault(topic, (0, 0, 0))
        if not rolls and _is_left_out(topic, found, recalled):
            counts[topic] = count, size, recalled_count + (b"TIMER_DEL_UNIQKEY" not in found)
            continue
        if stamp_ms >= 0:
            properties = _stamped(properties, found, filed_ms, stamp_ms, rolls)
        drafts.append(_draft(log, columns, topic, queue_id, properties))
        counts[topic] = count + 1, size, recalled_count
    return drafts, seen, counts, unreadable


def _text(log: Buffer, columns: list["array[int]"], number: int) -> bytes:
    at = columns[number][0]
    return bytes(log[at : at + columns[number + 1][0]])


def _properties(properties: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for pair in properties.split(b"\x02"):
        name, separator, value = pair.partition(b"\x01")
        if separator and name and value:
            found[name] = value
    return found


def _home(log: Buffer, columns: list["array[int]"], found: dict[bytes, bytes], rolls: bool) -> tuple[str | None, int]:
    """Where a message belongs; no topic where that cannot be told, or may not be."""
    name, queue = found.get(b"REAL_TOPIC", b""), found.get(b"REAL_QID", b"")
    if rolls:
        name, queue = _text(log, columns, 14), str(columns[2][0]).encode()
    limit = RETRY_TOPIC_SIZE_MAX if name.startswith(b"%RETRY%") else TOPIC_SIZE_MAX
    is_name = 0 < len(name) <= limit and name.isascii() and 0 not in name and name != _HALF_TOPIC
    if not is_name or not queue.isdigit() or len(queue) > 9:
        return None, 0
    return name.decode(), int(queue)


def _is_left_out(topic: str, found: dict[bytes, bytes], recalled: frozenset[bytes]) -> bool:
    key = found.get(b"UNIQ_KEY", b"")
    is_recalled = bool(recalled and key) and (key in recalled or topic.encode() + b"+" + key in recalled)
    return is_recalled or b"TIMER_DEL_UNIQKEY" in found


def _stamped(properties: bytes, found: dict[bytes, bytes], filed_ms: int, stamp_ms: int, rolls: bool) -> bytes:
    """Properties with the timer's own behind them; as they are where that would be too long."""
    old = (*_STAMPS, _ROLL_TIMES) if rolls else _STAMPS
    kept = [pair for pair in properties.split(b"\x02") if pair and pair.partition(b"\x01")[0] not in old]
    kept.append(b"TIMER_ENQUEUE_MS\x01%d" % filed_ms)
    if rolls:
        times = found.get(_ROLL_TIMES, b"0")
        kept.append(b"%s\x01%d" % (_ROLL_TIMES, int(times) + 1 if times.isdigit() and len(times) <= 9 else 1))
    kept.append(b"TIMER_DEQUEUE_MS\x01%d" % stamp_ms)
    stamped = b"\x02".join(kept) + b"\x02"
    return stamped if len(stamped) <= PROPERTIES_SIZE_MAX else properties


def _draft(log: Buffer, columns: list["array[int]"], topic: str, queue_id: int, properties: bytes) -> Draft:
    flag, sys_flag, born_ms, reconsume_times = (columns[number][0] for number in (3, 5, 6, 8))
    born_host = columns[10][0]
    host = bytes(log[born_host : columns[11][0] - 8])
    return topic, queue_id, _text(log, columns, 12), properties, flag, sys_flag, born_ms, host, reconsume_times, 0
