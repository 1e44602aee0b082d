"""The transactions' part of the plain kernel: their ends out of reads, half messages out of the log, a batch at a time.

An end (request 37) is taken when it is one-way, so that nobody waits for an answer, and its numbers are plain; others
are left, by their bounds. A half message becomes a draft of the message it stands for when nothing about it needs
thought: it lies where the end says, is whole, is of the group that ends it, and asks for neither delay nor time.
Otherwise there is None in its place, and the broker's plain path knows the reason.
"""

import re

from bolide.kernel.plain import Buffer, read_headers
from bolide.kernel.plain_records import (
    BODY_CHECKED,
    INNER_BATCH,
    TOPIC_SIZE_MAX,
    Draft,
    leads_elsewhere,
    properties_of,
    scan_records,
)

END_TRANSACTION = 37
HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
COMMITTED = 0x8
_ROLLED_BACK = 0xC
_TRANSACTION = 0xC
_RESPONSE_FLAG, _ONEWAY_FLAG = 1, 2
# A half message with one of these has a way of its own.
_APART = frozenset([b"DELAY", b"CHECK_IMMUNITY_TIME_IN_SECONDS"])
_is_plain_number = re.compile("[0-9]{1,18}").fullmatch

# physical offset and queue offset of the half message, what becomes of it, whether its producer was asked, its group
End = tuple[int, int, int, bool, bytes]


def read_ends(stream: Buffer, bounds: list[int]) -> tuple[list[End], list[int]]:
    """The one-way ends among the frames of one read, and the bounds of all others."""
    ends: list[End] = []
    left: list[int] = []
    for i, header in enumerate(read_headers(stream, bounds)):
        end = None
        if header is not None and header[1] == END_TRANSACTION and header[5] & 3 == _ONEWAY_FLAG:
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
    if len(numbers) != len(texts) or numbers[2] not in (COMMITTED, _ROLLED_BACK):
        return None
    if not all(text.isascii() for text in fields.values()):
        return None
    return numbers[0], numbers[1], numbers[2], was_asked == "true", group.encode()


def commit_drafts(log: Buffer, log_base: int, log_end: int, ends: list[End]) -> list[Draft | None]:
    """The message of each half message, as a commit stores it; log is a segment that begins at log_base."""
    return [_draft(log, log_base, min(log_end - log_base, len(log)), end) for end in ends]


def _draft(log: Buffer, log_base: int, limit: int, end: End) -> Draft | None:
    physical_offset, queue_offset, _, _, group = end
    position = physical_offset - log_base
    if not 0 <= position <= limit - 4:
        return None
    size = int.from_bytes(log[position : position + 4], "big", signed=True)
    if not 0 < size <= limit - position:
        return None
    columns, _, _ = scan_records(log, position, position + size, log_base, BODY_CHECKED)
    if len(columns[0]) != 1:
        return None
    row = [column[0] for column in columns]
    found = properties_of(bytes(log[row[16] : row[16] + row[17]]))
    topic, queue_id = found.get(b"REAL_TOPIC", b""), found.get(b"REAL_QID", b"")
    is_plain = (
        bytes(log[row[14] : row[14] + row[15]]) == HALF_TOPIC
        and row[4] == queue_offset
        and not row[5] & INNER_BATCH
        and found.get(b"PGROUP") == group
        and found.keys().isdisjoint(_APART)
        and not any(name.startswith(b"TIMER_") for name in found)
        and 0 < len(topic) <= TOPIC_SIZE_MAX
        and topic.isascii()
        and not leads_elsewhere(topic)
        and queue_id.isdigit()
        and len(queue_id) <= 9
    )
    if not is_plain:
        return None
    return (
        topic.decode(),
        int(queue_id),
        bytes(log[row[12] : row[12] + row[13]]),
        bytes(log[row[16] : row[16] + row[17]]),
        row[3],
        row[5] & ~_TRANSACTION | COMMITTED,
        row[6],
        bytes(log[row[10] : row[11] - 8]),
        row[8],
        physical_offset,
    )
