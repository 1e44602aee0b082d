"""Pulls as the general path reads and answers them: what the compiled functions are held to, by tests and by fuzz."""

from typing import Any

from bolide.broker.pulling.access import read_pull
from bolide.errors import Refusal
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, PRE_BLANK, PULL_REQUESTS, UNCHECKED, Buffer, Header, PullRequest
from bolide.kernel.plain import read_headers
from bolide.kernel.plain_records import read_record, select_entries
from bolide.model.queue import QueueOffset
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers import PullMessageAnswer, PullMessageRequest
from bolide.store.read import PullStatus


def disagreement(stream: Buffer, bounds: list[int], found: list[PullRequest | None]) -> str | None:
    """What is wrong with the pulls that were read; a name that is none is refused where it is looked up."""
    for pull, header in zip(found, read_headers(stream, bounds), strict=True):
        if pull is None:
            continue
        if header is None:
            return f"{pull} was read where there is no header"
        try:
            meant = _pull(header)
        except Refusal:
            continue
        if pull != meant:
            return f"{pull} was read where {meant} was meant"
    return None


def _pull(header: Header) -> PullRequest | None:
    codec, code, _, _, opaque, flag, _, fields, _ = header
    if code not in PULL_REQUESTS or flag & 3 or "requestSource" in fields or "bolideBulkMax" in fields:
        return None
    return codec, code, opaque, read_pull(PullMessageRequest.decode(fields))


def answer(
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
    *choice: Any,
) -> tuple[bytes, int, int, int] | None:
    """The frame that `Pulls._answer` makes of the records that are chosen; None where one of them is doubtful."""
    *limits, log, log_base = choice
    _, scanned = select_entries(entries, tag_hashes, *limits)
    records = []
    for number in range(scanned):
        entry = bytes(entries[number * ENTRY_SIZE : (number + 1) * ENTRY_SIZE])
        if select_entries(entry, tag_hashes, *limits)[0]:
            place, size, _ = ENTRY.unpack(entry)
            if not _is_of(topic, queue_id, offset + number, log, place - log_base, size, log_base):
                return None
            records.append(bytes(log[place - log_base : place - log_base + size]))
        elif entry != PRE_BLANK and not select_entries(entry, None, *limits)[0]:
            return None
    if not records:
        return None
    place = PullMessageAnswer(
        suggested_broker_id=suggested_id,
        next_offset=QueueOffset(offset + scanned),
        min_offset=QueueOffset(min_offset),
        max_offset=QueueOffset(max_offset),
    )
    body = b"".join(records)
    told = Command(11, opaque=opaque, codec=codec).answer(
        ResponseCode.SUCCESS, remark=PullStatus.FOUND.value, fields=place.encode(), body=body
    )
    return told.encode(), len(records), len(body), scanned


def _is_of(topic: bytes, queue_id: int, offset: int, log: Buffer, at: int, size: int, log_base: int) -> bool:
    """Whether a record of that size begins there, at its own place, and is the queue's at its offset."""
    if at < 0 or at + size > len(log):
        return False
    row = read_record(log, at, at + size, log_base, UNCHECKED)
    if not isinstance(row, tuple) or (row[1], row[2], row[4]) != (size, queue_id, offset):
        return False
    return bytes(log[row[14] : row[14] + row[15]]) == topic
