"""The way of a message, put together from what producers and consumers told in the trace topic.

Records come in any order and from many clients: that of a consumption's end may be found and its beginning not, and the
other way round. Each beginning is joined with its end by the number both carry; what has no partner is shown all the
same. `steps` decides, from records to rows; asking is done by the administrator.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bolide.protocol.trace import (
    ConsumeBegun,
    ConsumeEnded,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
)

_OUTCOMES = ("success", "timeout", "exception", "nothing returned", "failed")
_KINDS = ("normal", "half", "commit", "delayed", "ordered")


@dataclass(frozen=True, slots=True)
class Told:
    """A record, and the client that told it."""

    client: str
    record: TraceRecord


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to a message: `what` is sent, consumed, decided or recalled."""

    what: str
    at_ms: int
    group: str
    client: str
    status: str
    cost_ms: int | None = None
    attempt: int | None = None
    where: str | None = None


@dataclass(slots=True)
class MessageTrace:
    """All that was told of one message, in the order it happened."""

    message_id: str
    topic: str | None = None
    tags: str | None = None
    keys: list[str] = field(default_factory=list)
    body_size: int | None = None
    kind: str | None = None
    offset_id: str | None = None
    steps: list[Step] = field(default_factory=list)


def traces(told: Iterable[Told]) -> list[MessageTrace]:
    """What was told, message by message, the one that was told of first first."""
    by_id: dict[str, list[Told]] = {}
    for each in told:
        by_id.setdefault(each.record.message_id, []).append(each)
    found = [_trace(message_id, records) for message_id, records in by_id.items()]
    return sorted(found, key=lambda trace: trace.steps[0].at_ms)


def is_about(record: TraceRecord, wanted: str) -> bool:
    """Whether a record tells of the message with this id, or of one with this key."""
    if record.message_id == wanted:
        return True
    if isinstance(record, Published) and record.offset_id == wanted:
        return True
    return not isinstance(record, Recalled) and wanted in (record.keys or "").split()


def _trace(message_id: str, told: list[Told]) -> MessageTrace:
    found = MessageTrace(message_id)
    for record in (each.record for each in told):
        if isinstance(record, Published | TransactionEnded | Recalled):
            found.topic = found.topic or record.topic
        if not isinstance(record, Recalled) and record.keys and not found.keys:
            found.keys = record.keys.split()
        if isinstance(record, Published):
            found.tags, found.body_size, found.offset_id = record.tags, record.body_size, record.offset_id
            found.kind = _name(_KINDS, record.message_type)
    found.steps = sorted(steps(told), key=lambda step: step.at_ms)
    return found


def steps(told: Iterable[Told]) -> list[Step]:
    """What happened; a record that was told twice counts once."""
    found: list[Step] = []
    begun: dict[str, Told] = {}
    ended: dict[str, Told] = {}
    for each in dict.fromkeys(told):
        record = each.record
        if isinstance(record, ConsumeBegun):
            begun[record.request_id] = each
        elif isinstance(record, ConsumeEnded):
            ended[record.request_id] = each
        else:
            found.append(_step(each.client, record))
    return found + [_consumed(begun.get(number), ended.get(number)) for number in {**begun, **ended}]


def _step(client: str, record: Published | TransactionEnded | Recalled) -> Step:
    group = record.group or ""
    if isinstance(record, Published):
        status = "success" if record.is_success else "stored, not as safe as wanted"
        return Step("sent", record.at, group, client, status, record.cost_ms, where=record.store_host)
    if isinstance(record, TransactionEnded):
        status = record.state + (" (asked back)" if record.is_from_check else "")
        return Step("decided", record.at, group, client, status, where=record.store_host)
    return Step("recalled", record.at, group, client, "success" if record.is_success else "failed")


def _consumed(begun: Told | None, ended: Told | None) -> Step:
    """A consumption from its two records, of which one may be missing."""
    begin, end = begun and begun.record, ended and ended.record
    step = Step("consumed", 0, "", "", "not ended yet")
    if ended is not None and isinstance(end, ConsumeEnded):
        status = "success" if end.is_success else _name(_OUTCOMES, end.outcome or len(_OUTCOMES) - 1)
        began_ms = max(end.at - end.cost_ms, 0)
        step = replace(
            step, at_ms=began_ms, group=end.group or "", client=ended.client, status=status, cost_ms=end.cost_ms
        )
    if begun is not None and isinstance(begin, ConsumeBegun):
        group, attempt = begin.group or step.group, begin.retry_times + 1
        step = replace(step, at_ms=begin.at, group=group, client=begun.client, attempt=attempt)
    return step


def _name(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else str(number)
