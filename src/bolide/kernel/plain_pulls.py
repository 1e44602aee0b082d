"""Pulls in plain Python: their requests read, and their answers laid out in one piece.

A pull is small and its answer is many records, so the two ends of it are done here at once: `read_pulls` takes the
requests of one read apart without making a header of each, and `answer_pull` chooses the entries, writes the frame's
head and copies the records behind it. What is rare is left to others, by None.
"""

import re

from bolide.kernel.layout import (
    ENTRY,
    ENTRY_SIZE,
    PRE_BLANK,
    PULL_REQUESTS,
    PYTHON,
    RESPONSE_FLAG,
    UNCHECKED,
    Buffer,
    Header,
    PullRequest,
)
from bolide.kernel.plain import read_headers, read_odd_header, write_frames
from bolide.kernel.plain_records import read_record, select_entries

_FOUND = "FOUND"


_is_decimal = re.compile("[-+]?[0-9]{1,64}").fullmatch
_NUMBERS = (
    ("queueId", 32),
    ("queueOffset", 64),
    ("maxMsgNums", 32),
    ("maxMsgBytes", 32),
    ("sysFlag", 32),
    ("commitOffset", 64),
    ("suspendTimeoutMillis", 64),
    ("subVersion", 64),
)


def read_pulls(stream: Buffer, bounds: list[int]) -> list[PullRequest | None]:
    """The pulls among the frames of one read; None stands for any other frame, and for a pull that needs a thought."""
    return [None if header is None else _read_pull(header) for header in read_headers(stream, bounds)]


def read_odd_pull(stream: Buffer, start: int, end: int) -> PullRequest | None:
    """The same for one frame that the compiled twin could not read."""
    header = read_odd_header(stream, start, end)
    return None if header is None else _read_pull(header)


def _read_pull(header: Header) -> PullRequest | None:
    codec, code, _, _, opaque, flag, _, fields, _ = header
    if code not in PULL_REQUESTS or flag & 3 or "requestSource" in fields or "bolideBulkMax" in fields:
        return None
    group, topic = fields.get("consumerGroup"), fields.get("topic")
    if group is None or topic is None:
        return None
    numbers: list[int] = []
    for key, bits in _NUMBERS:
        text = fields.get(key, "0" if key == "maxMsgBytes" else "")
        if not _is_decimal(text) or not -1 << bits - 1 <= (number := int(text)) < 1 << bits - 1:
            return None
        numbers.append(number)
    try:
        "".join(fields.values()).encode()
    except UnicodeEncodeError:
        return None  # half a character, which JSON can spell
    queue_id, offset, count_max, size_max, sys_flag, commit_offset, suspend_ms, version = numbers
    expression, expression_type = fields.get("subscription"), fields.get("expressionType")
    pull = (group, topic, queue_id, offset, count_max, size_max, sys_flag, commit_offset, suspend_ms, version)
    return codec, code, opaque, (*pull, expression, expression_type)


def answer_pull(
    codec: int,
    opaque: int,
    version: int,
    suggested_id: int,
    topic: bytes,
    queue_id: int,
    offset: int,
    min_offset: int,
    max_offset: int,
    entries: Buffer,
    tag_hashes: frozenset[int] | None,
    log_min: int,
    near_from: int,
    count_max: int,
    size_max: int,
    near_limits: tuple[int, int],
    far_limits: tuple[int, int],
    log: Buffer,
    log_base: int,
) -> tuple[bytes, int, int, int] | None:
    """The frame that answers a pull with what `select_entries` chooses from the entries at `offset`.

    Returns it with how many records and bytes of them it has, and how many entries were seen. None when nothing was
    chosen, or something that is not in `log`, whose first byte has the physical offset log_base, or is no record of
    this queue at its offset there; and where an entry that points nowhere does not say that it stands for nothing.
    """
    limits = (log_min, near_from, count_max, size_max, near_limits, far_limits)
    chosen, scanned = select_entries(entries, tag_hashes, *limits)
    if not chosen:
        return None
    records: list[Buffer] = []
    for number in range(scanned):
        entry = bytes(entries[number * ENTRY_SIZE : (number + 1) * ENTRY_SIZE])
        if select_entries(entry, tag_hashes, *limits)[0]:
            place, size, _ = ENTRY.unpack(entry)
            if not _is_of(topic, queue_id, offset + number, log, place - log_base, size, log_base):
                return None
            records.append(log[place - log_base : place - log_base + size])
        elif entry != PRE_BLANK and not select_entries(entry, None, *limits)[0]:
            return None
    fields = {
        "suggestWhichBrokerId": str(suggested_id),
        "nextBeginOffset": str(offset + scanned),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
    }
    body = b"".join(records)
    frame = write_frames([(codec, 0, PYTHON, version, opaque, RESPONSE_FLAG, _FOUND, fields, body)])
    return frame, len(records), len(body), scanned


def _is_of(topic: bytes, queue_id: int, offset: int, log: Buffer, at: int, size: int, log_base: int) -> bool:
    """Whether a record of that size begins there, at its own place, and is the queue's at its offset."""
    if at < 0 or at + size > len(log):
        return False
    row = read_record(log, at, at + size, log_base, UNCHECKED)
    if not isinstance(row, tuple) or (row[1], row[2], row[4]) != (size, queue_id, offset):
        return False
    return bytes(log[row[14] : row[14] + row[15]]) == topic
