"""The way of a message, put together from what producers and consumers told in the trace topic.

Records come in any order and from many clients: that of a consumption's end may be found and its beginning not, and the
other way round. Each beginning is joined with its end by the number both carry; what has no partner is shown all the
same. `steps` decides, from records to rows; asking is done by the administrator.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

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
    begin = begun.record if begun is not None else None
    end = ended.record if ended is not None else None
    client = (begun or ended or Told("", Recalled(0, None, None, None, "", is_success=False))).client
    status, cost_ms = "not ended yet", None
    at_ms, group, attempt = 0, "", None
    if isinstance(end, ConsumeEnded):
        status = "success" if end.is_success else _name(_OUTCOMES, end.outcome or len(_OUTCOMES) - 1)
        cost_ms, group = end.cost_ms, end.group or ""
        at_ms = max(end.at - end.cost_ms, 0)
    if isinstance(begin, ConsumeBegun):
        at_ms, group, attempt = begin.at, begin.group or group, begin.retry_times + 1
    return Step("consumed", at_ms, group, client, status, cost_ms, attempt)


def _name(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else str(number)
