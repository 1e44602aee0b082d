"""The waiting part of the plain kernel: messages that are due, laid out again where they belong, a batch at a time.

A message that waits lies in the log as a record of a topic of the broker's own. Its properties say where it belongs
(REAL_TOPIC, REAL_QID). When it is due it becomes a second record there: the same body, flags, birth and count of
retries, a new place. Its properties stay as they lie, those two and DELAY among them, for that is what RocketMQ's
consumers see. What is read is checked first, the body's checksum too: a damaged record that was stored again would cut
the log off at the next recovery.
"""

from array import array
from collections.abc import Mapping
from mmap import mmap

from bolide.kernel.layout import (
    BODY_CHECKED,
    CHANGE,
    ENTRY,
    ENTRY_SIZE,
    HALF_TOPIC,
    INNER_BATCH,
    KIND_MARK,
    KIND_MAX,
    KIND_PLAIN,
    KIND_ROLL,
    NEVER_FILED,
    NOTHING_SIZE,
    PROPERTIES_SIZE_MAX,
    RETRY_TOPIC_SIZE_MAX,
    SLOT,
    SLOT_SIZE,
    TOPIC_SIZE_MAX,
    UNIT,
    UNIT_SIZE,
    Buffer,
    Draft,
    Filed,
    Redelivered,
)
from bolide.kernel.plain import java_hash
from bolide.kernel.plain_records import encode_records, leads_elsewhere, properties_of, scan_records

_BODY_SIZE_MAX = 0x7FFF_FFFF  # what was taken in stays, whatever the limit is by now
_STAMPS = (b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS")
_ROLL_TIMES = b"TIMER_ROLL_TIMES"


def redeliver_records(
    log: Buffer,
    log_base: int,
    entries: Buffer,
    store_host: bytes,
    stamp_ms: int,
    rolls: bool,
    recalled: frozenset[bytes],
    size_max: int,
    physical_offset: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> Redelivered:
    """Lay the records that entries point at out again, from physical_offset on, where they belong.

    log is one segment, which begins at log_base; the first entry that points elsewhere ends the batch, and so does one
    whose record would make more than size_max bytes of what is read, unless it is the first. With a stamp_ms
    of 0 or more, messages come from the timer: an entry's third number is when it was filed there, and both times go
    into the properties. Of those, marks of recalls are left out, and so are messages whose unique key, alone or after
    their topic and a plus sign, is in recalled. With rolls, messages go to the topic they come from, to wait on.
    """
    drafts, seen, counts, unreadable = due_drafts(log, log_base, entries, stamp_ms, rolls, recalled, size_max)
    records, places, _, runs, keys = encode_records(
        drafts, physical_offset, store_ms, store_host, next_offsets, (), _BODY_SIZE_MAX
    )
    for draft, start, end in zip(drafts, places, [*places, physical_offset + len(records)][1:], strict=True):
        count, size, recalled_count = counts[draft[0]]
        counts[draft[0]] = count, size + end - start, recalled_count
    return records, runs, keys, (seen, [(topic, *count) for topic, count in counts.items()], unreadable)


def due_drafts(
    log: Buffer, log_base: int, entries: Buffer, stamp_ms: int, rolls: bool, recalled: frozenset[bytes], size_max: int
) -> tuple[list[Draft], int, dict[str, tuple[int, int, int]], list[int]]:
    """The first half of `redeliver_records`, for anyone who lays records out itself; sizes are not counted here."""
    drafts: list[Draft] = []
    counts: dict[str, tuple[int, int, int]] = {}
    unreadable: list[int] = []
    seen = total = 0
    for place, size, filed_ms in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        position = place - log_base
        if not 0 <= position < len(log) or (total and total + size > size_max):
            break
        seen += 1
        if size <= 0 or size == NOTHING_SIZE:
            continue
        total += size
        columns, end, _ = scan_records(log, position, min(position + size, len(log)), log_base, BODY_CHECKED)
        if len(columns[0]) != 1 or end != position + size:
            unreadable.append(place)
            continue
        properties = _text(log, columns, 16)
        found = properties_of(properties)
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


def _home(log: Buffer, columns: list["array[int]"], found: dict[bytes, bytes], rolls: bool) -> tuple[str | None, int]:
    """Where a message belongs; no topic where that cannot be told, or may not be."""
    name, queue = found.get(b"REAL_TOPIC", b""), found.get(b"REAL_QID", b"")
    if rolls:
        name, queue = _text(log, columns, 14), str(columns[2][0]).encode()
    limit = RETRY_TOPIC_SIZE_MAX if name.startswith(b"%RETRY%") else TOPIC_SIZE_MAX
    is_name = 0 < len(name) <= limit and name.isascii() and 0 not in name and name != HALF_TOPIC
    if not is_name or leads_elsewhere(name) or not queue.isdigit() or len(queue) > 9:
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


_TIME_DIGITS_MAX = 18


def encode_units(
    log: Buffer,
    log_base: int,
    entries: Buffer,
    wheel: Buffer | mmap,
    step_ms: int,
    write_ms: int,
    roll_steps: int,
    position: int,
    room: int,
) -> Filed:
    """File the messages that entries point at: units for the timer's log from position on, and what changes in slots.

    The wheel is only read, for it may change once the units are written. A message due before write_ms is not filed.
    One that is roll_steps away or more is filed as one that rolls: half as far if it is not much farther than that,
    else so far. The first entry that points outside the log, or finds no room for its unit, ends the batch.
    """
    units: list[bytes] = []
    slots: dict[int, tuple[int, int, int, int]] = {}
    due: list[bytes] = []
    counts: dict[str, int] = {}
    unreadable: list[int] = []
    seen = 0
    if len(wheel) < SLOT_SIZE or step_ms <= 0 or write_ms < 0:
        raise ValueError(f"a wheel of {len(wheel)} bytes that turns every {step_ms} ms has no slot for {write_ms}")
    for place, size, _ in ENTRY.iter_unpack(entries[: len(entries) // ENTRY_SIZE * ENTRY_SIZE]):
        at = place - log_base
        if not 0 <= at < len(log) or (len(units) + 1) * UNIT_SIZE > room:
            break
        seen += 1
        if size <= 0 or size == NOTHING_SIZE:
            continue
        columns, end, _ = scan_records(log, at, min(at + size, len(log)), log_base, BODY_CHECKED)
        found = properties_of(_text(log, columns, 16)) if len(columns[0]) == 1 and end == at + size else {}
        out_ms = found.get(b"TIMER_OUT_MS", b"")
        if not out_ms.isdigit() or len(out_ms) > _TIME_DIGITS_MAX:
            unreadable.append(place)
            continue
        kind, due_ms = _kind_and_slot(int(out_ms), step_ms, write_ms, roll_steps, b"TIMER_DEL_UNIQKEY" in found)
        if due_ms < write_ms:
            due.append(ENTRY.pack(place, size, NEVER_FILED))
            continue
        number, step = due_ms // step_ms % (len(wheel) // SLOT_SIZE), due_ms // step_ms
        slot = slots.get(number) or SLOT.unpack_from(wheel, number * SLOT_SIZE)[:4]
        _, first, last, count = slot if slot[0] == step else (step, -1, -1, 0)
        topic = found.get(b"REAL_TOPIC", b"").decode("utf-8", "replace")
        here = position + len(units) * UNIT_SIZE
        units.append(UNIT.pack(UNIT_SIZE, last, kind, write_ms, due_ms - write_ms, place, size, java_hash(topic), 0))
        change = -1 if kind & KIND_MARK else 1
        count = (count + change + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000  # what a damaged slot says may be any number
        slots[number] = step, here if first == -1 else first, here, count
        counts[topic] = counts.get(topic, 0) + (0 if _ROLL_TIMES in found else change)
    changes = [CHANGE.pack(number, *slot, 0) for number, slot in slots.items()]
    return b"".join(units), b"".join(changes), b"".join(due), seen, list(counts.items()), unreadable


def _kind_and_slot(out_ms: int, step_ms: int, write_ms: int, roll_steps: int, is_mark: bool) -> tuple[int, int]:
    kind = KIND_PLAIN | (KIND_MARK if is_mark else 0)
    beyond_ms = out_ms - write_ms - roll_steps * step_ms
    if beyond_ms < 0:
        return kind, out_ms
    steps = roll_steps // 2 if beyond_ms < roll_steps // 3 * step_ms else roll_steps
    return kind | KIND_ROLL, write_ms + steps * step_ms


def walk_units(
    units: Buffer, base: int, position: int, step_ms: int, slot_ms: int, count_max: int
) -> tuple[bytes, bytes, int]:
    """Follow a slot's units back from position on: entries and kinds, the oldest first, and where it goes on.

    An entry has the place and size of a message and when it was filed. units is one file of the timer's log, which
    begins at base. -1 means that the chain ended; -2 - p that it broke at p, where no unit of this slot is.
    """
    entries: list[bytes] = []
    kinds = bytearray()
    while base <= position <= base + len(units) - UNIT_SIZE and len(entries) < count_max:
        size, before, kind, filed_ms, delay_ms, place, place_size, _, _ = UNIT.unpack_from(units, position - base)
        is_ours = size == UNIT_SIZE and 0 < kind <= KIND_MAX and (filed_ms + delay_ms) // step_ms == slot_ms // step_ms
        if not is_ours or not -1 <= before < position:
            return b"".join(reversed(entries)), bytes(reversed(kinds)), -2 - position
        entries.append(ENTRY.pack(place, place_size, filed_ms))
        kinds.append(kind)
        position = before
    return b"".join(reversed(entries)), bytes(reversed(kinds)), position
