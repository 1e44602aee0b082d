"""The transactions' part of the plain kernel: their ends out of reads, and what they commit out of the log, a batch at
a time.

An end (request 37) is taken when it is one-way, so that nobody waits for an answer, and its numbers are plain; others
are left, by their bounds. It is carried out when nothing about its half message needs thought: it lies where the end
says, the half queue has it there, nothing became of it yet, it is whole, is of the group that ends it, and asks for
neither delay nor time. Otherwise it is left, and the broker's plain path knows the reason.
"""

import re
from collections.abc import Mapping

from bolide.kernel.layout import (
    BODY_CHECKED,
    COMMITTED,
    END_TRANSACTION,
    ENTRY_SIZE,
    HALF_TOPIC,
    INNER_BATCH,
    ONEWAY_FLAG,
    ROLLED_BACK,
    TOPIC_SIZE_MAX,
    TRANSACTION,
    UNDECIDED,
    WAITING,
    Buffer,
    Draft,
    End,
    LaidEnds,
)
from bolide.kernel.plain import read_headers
from bolide.kernel.plain_records import lay_records, leads_elsewhere, properties_of, scan_records

# A half message with one of these has a way of its own.
_APART = frozenset([b"DELAY", b"CHECK_IMMUNITY_TIME_IN_SECONDS"])
_SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
_PLACE = (b"REAL_TOPIC\x01", b"REAL_QID\x01")
_BODY_SIZE_MAX = 1 << 31  # what was taken in stays, whatever the limit is by now
_is_plain_number = re.compile("[0-9]{1,18}").fullmatch


def read_ends(stream: Buffer, bounds: list[int]) -> tuple[list[End], list[int]]:
    """The one-way ends among the frames of one read, and the bounds of all others."""
    ends: list[End] = []
    left: list[int] = []
    for i, header in enumerate(read_headers(stream, bounds)):
        end = None
        if header is not None and header[1] == END_TRANSACTION and header[5] & 3 == ONEWAY_FLAG:
            end = _end(header[7])
        if end is None:
            left += bounds[2 * i : 2 * i + 2]
        else:
            ends.append(end)
    return ends, left


def _end(fields: dict[str, str]) -> End | None:
    texts = [fields.get(name) for name in ("commitLogOffset", "tranStateTableOffset", "commitOrRollback")]
    group, was_asked = fields.get("producerGroup"), fields.get("fromTransactionCheck", "false")
    if not group or not group.isascii() or "msgId" not in fields or was_asked not in ("true", "false"):
        return None
    numbers = [int(text) for text in texts if text is not None and _is_plain_number(text)]
    if len(numbers) != len(texts) or numbers[2] not in (COMMITTED, ROLLED_BACK):
        return None
    if not all(text.isascii() for text in fields.values()):
        return None
    return numbers[0], numbers[1], numbers[2], was_asked == "true", group.encode()


def lay_ends(
    ends: list[End],
    log: Buffer,
    log_base: int,
    log_end: int,
    entries: Buffer,
    first_entry: int,
    marks: Buffer,
    first_mark: int,
    size_max: int,
    store_host: bytes,
    physical_offset: int,
    store_ms: int,
    next_offsets: Mapping[tuple[str, int], int],
) -> LaidEnds:
    """Carry out ends: the messages that are committed, laid out from physical_offset on, and what is decided thereby.

    log is one segment, which begins at log_base; nothing from log_end on is believed. entries are those of the half
    queue from first_entry on, marks what became of its messages from first_mark on; what lies behind them is undecided.
    The first commit that would make more than size_max bytes of what is read ends the batch, unless it is the first.
    """
    drafts: list[Draft] = []
    decided: dict[int, int] = {}
    left: list[End] = []
    seen = total = 0
    for end in ends:
        offset, decision = end[1], end[2]
        draft, size = None, 0
        if offset not in decided and _is_open(end, entries, first_entry, marks, first_mark):
            draft, size = _draft(log, log_base, min(log_end - log_base, len(log)), end)
        if draft is None:
            left.append(end)
        elif decision == COMMITTED:
            if total and total + size > size_max:
                break
            total += size
            drafts.append(draft)
            decided[offset] = decision
        else:
            decided[offset] = decision
        seen += 1
    records, places, _, runs, keys = lay_records(
        drafts, physical_offset, store_ms, store_host, next_offsets, (), _BODY_SIZE_MAX
    )
    tallies: dict[str, tuple[int, int]] = {}
    for draft, start, limit in zip(drafts, places, [*places, physical_offset + len(records)][1:], strict=True):
        count, size = tallies.get(draft[0], (0, 0))
        tallies[draft[0]] = count + 1, size + limit - start
    return records, runs, keys, (seen, decided, [(topic, *tally) for topic, tally in tallies.items()], left)


def _is_open(end: End, entries: Buffer, first_entry: int, marks: Buffer, first_mark: int) -> bool:
    """Whether the half queue has this one there, and nothing became of it yet."""
    physical_offset, offset = end[:2]
    at, mark = (offset - first_entry) * ENTRY_SIZE, offset - first_mark
    if not 0 <= at <= len(entries) - ENTRY_SIZE or mark < 0:
        return False
    if int.from_bytes(entries[at : at + 8], "big", signed=True) != physical_offset:
        return False
    return mark >= len(marks) or marks[mark] in (UNDECIDED, WAITING)


def _draft(log: Buffer, log_base: int, limit: int, end: End) -> tuple[Draft | None, int]:
    """The message of a half message as a commit stores it, and the size of the half's record; None needs thought."""
    physical_offset, queue_offset, _, _, group = end
    position = physical_offset - log_base
    if not 0 <= position <= limit - 4:
        return None, 0
    size = int.from_bytes(log[position : position + 4], "big", signed=True)
    if not 0 < size <= limit - position:
        return None, 0
    columns, _, _ = scan_records(log, position, position + size, log_base, BODY_CHECKED)
    if len(columns[0]) != 1:
        return None, 0
    row = [column[0] for column in columns]
    properties = bytes(log[row[16] : row[16] + row[17]])
    is_half = bytes(log[row[14] : row[14] + row[15]]) == HALF_TOPIC and row[4] == queue_offset
    home = _home(properties, group)
    if not is_half or home is None or row[5] & INNER_BATCH:
        return None, 0
    draft = (
        *home,
        bytes(log[row[12] : row[12] + row[13]]),
        without_place(properties),
        row[3],
        row[5] & ~TRANSACTION | COMMITTED,
        row[6],
        bytes(log[row[10] : row[11] - 8]),
        row[8],
        physical_offset,
    )
    return draft, size


def without_place(properties: bytes) -> bytes:
    """The properties of a message that has come where it belongs: RocketMQ 5.5 stores no more where that is."""
    return b"\x02".join(pair for pair in properties.split(b"\x02") if not pair.startswith(_PLACE))


def _home(properties: bytes, group: bytes) -> tuple[str, int] | None:
    """Topic and queue of a message that needs no thought."""
    found = properties_of(properties)
    topic, queue_id = found.get(b"REAL_TOPIC", b""), found.get(b"REAL_QID", b"")
    is_plain = (
        0 not in properties
        and found.get(b"PGROUP") == group
        and found.keys().isdisjoint(_APART)
        and not any(name.startswith(b"TIMER_") for name in found)
        and 0 < len(topic) <= TOPIC_SIZE_MAX
        and topic.isascii()
        and topic != _SCHEDULE_TOPIC
        and not leads_elsewhere(topic)
        and queue_id.isdigit()
        and len(queue_id) <= 9
    )
    return (topic.decode(), int(queue_id)) if is_plain else None
