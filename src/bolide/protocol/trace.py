"""What clients tell about a message's way: the bodies in the trace topic.

A record is a line of fields with U+0001 between them and U+0002 at the end; the first field names its kind. Older
clients leave out fields at the end, newer ones may add some. Java writes "null" for text that is not there; so do we,
for an empty last field makes its reader fail.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from bolide.errors import ProtocolError

FIELD_END = "\x01"
RECORD_END = "\x02"
NOTHING = "null"


@dataclass(frozen=True, slots=True)
class Published:
    """A send, by the producer. `message_type`: 0 normal, 1 half, 2 committed, 3 delayed, 4 ordered."""

    at: int
    region: str | None
    group: str | None
    topic: str | None
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_size: int
    cost_ms: int
    message_type: int
    offset_id: str | None = None
    is_success: bool = True


@dataclass(frozen=True, slots=True)
class ConsumeBegun:
    """Before the consumer's listener ran; `request_id` leads to what came of it."""

    at: int
    region: str | None
    group: str | None
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumeEnded:
    """After it ran. `outcome`: 0 success, 1 timeout, 2 exception, 3 nothing returned, 4 failed."""

    request_id: str
    message_id: str
    cost_ms: int
    is_success: bool
    keys: str | None = None
    outcome: int = 0
    at: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The decision on a half message; `state` is Java's name, like COMMIT_MESSAGE."""

    at: int
    region: str | None
    group: str | None
    topic: str | None
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    message_type: int
    transaction_id: str | None
    state: str
    is_from_check: bool


@dataclass(frozen=True, slots=True)
class Recalled:
    """A delayed message called back before its time."""

    at: int
    region: str | None
    group: str | None
    topic: str | None
    message_id: str
    is_success: bool


TraceRecord = Published | ConsumeBegun | ConsumeEnded | TransactionEnded | Recalled

_KINDS: Mapping[str, type[TraceRecord]] = {
    "Pub": Published,
    "SubBefore": ConsumeBegun,
    "SubAfter": ConsumeEnded,
    "EndTransaction": TransactionEnded,
    "Recall": Recalled,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_OFFSET_ID_INDEX = 12
_NO_NUMBER = 1 << 63
_DIGITS_MAX = 20


def encode_trace(records: Iterable[TraceRecord]) -> bytes:
    return "".join([_encode_record(record) for record in records]).encode()


def trace_keys(records: Iterable[TraceRecord]) -> list[str]:
    """The index keys of a trace message: ids and keys of all it tells about, each once."""
    found: dict[str, None] = {}
    for record in records:
        found[record.message_id] = None
        if not isinstance(record, Recalled) and record.keys:
            found.update(dict.fromkeys(record.keys.split()))
    return list(found)


def parse_trace(body: bytes, *, is_strict: bool = True) -> list[TraceRecord]:
    """The records of a trace message. Kinds we do not know are left out; one that we know must be whole.

    Where it is not strict, those that are not whole are left out too: anybody may send to the trace topic.
    """
    found = []
    for text in body.decode("utf-8", "replace").split(RECORD_END):
        row = text.split(FIELD_END)
        if row[0] not in _KINDS:
            continue
        try:
            found.append(_parse_record(_KINDS[row[0]], row))
        except ProtocolError:
            if is_strict:
                raise
    return found


def _encode_record(record: TraceRecord) -> str:
    values = [_NAMES[type(record)], *(_text(getattr(record, field.name)) for field in fields(record))]
    return FIELD_END.join(values) + RECORD_END


def _text(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # A separator would shift every field behind it. Names and properties have none, so nothing is lost that was legal.
    return str(value).replace(FIELD_END, " ").replace(RECORD_END, " ") if value not in (None, "") else NOTHING


def _parse_record(kind: type[TraceRecord], row: list[str]) -> TraceRecord:
    if kind is Published and len(row) == _OFFSET_ID_INDEX + 1:
        # Before there were offset ids the field behind the message type was the success.
        row = [*row[:_OFFSET_ID_INDEX], NOTHING, row[_OFFSET_ID_INDEX]]
    values: dict[str, Any] = {}
    for index, field in enumerate(fields(kind), start=1):
        if index < len(row) and (row[index] or field.default is MISSING):
            values[field.name] = _value(field, row[index], row[0])
        elif field.default is MISSING:
            raise ProtocolError(f"a trace record {row[0]} with {len(row)} fields; {field.name} is missing")
    return kind(**values)


def _value(field: "Field[Any]", text: str, kind: str) -> str | int | bool | None:
    if field.type is int:
        try:
            number = int(text[:_DIGITS_MAX])
        except ValueError:
            number = _NO_NUMBER
        if len(text) > _DIGITS_MAX or not -_NO_NUMBER <= number < _NO_NUMBER:
            raise ProtocolError(f"a trace record {kind}: {field.name} {text[:40]!r} is not a number")
        return number
    if field.type is bool:
        return text.lower() == "true"
    if field.type is str:
        return text
    return None if text == NOTHING else text
