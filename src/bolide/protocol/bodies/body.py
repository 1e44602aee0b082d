"""How a JSON body is written and read; the other files of this package only say what is in each.

Written: compact strict JSON, members in alphabetical order as Java has them, None left out, everything else said even
at its default. Integer keys stand in quotes, which Java takes. A queue as a key is a bare object, which is no JSON, but
the only form that every Java reads: 4.9 also takes a text that holds the object, 5.5 does not.

Read: by the strict compiled reader first. What that refuses, and what holds a reference, is read mildly
(`fastjson.py`), fitted to the type (nulls and unknown enum names dropped, ordinals and bare scalars respelled), written
again and read once more. So the second way costs a hundred times the first and cannot differ from it in meaning.

The choice: msgspec leaves out members that are at a default it can compare, and None is one; a default made by a
factory it does not compare. `always` makes such defaults, and a test holds every member to one of the two.
"""

import re
from abc import ABC
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import msgspec
from msgspec import inspect

from bolide.errors import Refusal
from bolide.model.names import Label, TopicName, UnfitName
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.checking import check_of
from bolide.protocol.codes import ResponseCode

T = TypeVar("T")
B = TypeVar("B", bound="Body")

if TYPE_CHECKING:
    QueueText = MessageQueue
else:

    class QueueText(ABC):  # noqa: B024
        """A `MessageQueue` that is the key of a map: a bare object on the wire, a text for strict readers."""

    QueueText.register(MessageQueue)


def always(value: T, name: str | None = None) -> T:
    """A default that is written too, as Java does; `name` where the wire's spelling is not our own in camel case."""
    factory: Callable[[], Any] = value.copy if isinstance(value, dict | list) else lambda: value
    return cast(T, msgspec.field(default_factory=factory, name=name))


# Of a stranger's body the mild reader reads so much, which takes a tenth of a second and ten times as much memory. The
# client of a thousand groups sends less.
MILD_SIZE_MAX = 256 * 1024


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A JSON body, or an object inside one. Its members are RocketMQ's in snake case."""

    rocketmq_name: ClassVar[str]
    # Other spellings RocketMQ takes: theirs → the one it writes.
    spellings: ClassVar[dict[str, str]] = {}
    # Whether strangers send it: its names and numbers are looked at one by one then (`checking.py`).
    is_request: ClassVar[bool] = False

    def encode(self) -> bytes:
        text = write(self)
        return _QUEUE_KEY.sub(_bare_key, text) if _QUEUE_KEY_START in text else text

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one from the wire; raises Refusal with the reason if it is none, or names what nothing can be called."""
        return decode_breathing(cls, data, None)


def decode_breathing(kind: type[B], data: bytes, breathe: Callable[[], None] | None) -> B:
    """`decode` for large bodies; the mild reader calls `breathe` (see `fastjson.loads`), and reads only so much."""
    try:
        found = cast(B, _read(kind, data, breathe))
        if kind.is_request and (check := check_of(kind)) is not None:
            check(found)
    except ValueError as problem:
        raise refusal(kind, problem) from None
    return found


def encode_list(bodies: list[B]) -> bytes:
    """Some answers are a bare array of bodies: users and policies of access control."""
    return write(bodies)


def decode_list(kind: type[B], data: bytes) -> list[B]:
    """Read what `encode_list` wrote; raises Refusal if it is no array of that kind."""
    try:
        return cast(list[B], _read(list[kind], data))  # type: ignore[valid-type]
    except ValueError as problem:
        raise refusal(kind, problem) from None


def refusal(kind: type[Body], problem: object) -> Refusal:
    code = ResponseCode.INVALID_PARAMETER if isinstance(problem, UnfitName) else ResponseCode.SYSTEM_ERROR
    return Refusal(code, f"the {kind.rocketmq_name} in the body cannot be read: {problem}")


def write(value: object) -> bytes:
    return _ENCODER.encode(value)


def read(kind: type[T], data: bytes) -> T:
    """Read a value of any type that bodies are made of; raises ValueError."""
    return cast(T, _read(kind, data))


def _read(kind: Any, data: bytes, breathe: Callable[[], None] | None = None) -> Any:
    # A reference is sound JSON, but the strict reader would take it for an object with nothing known in it.
    if b'"$ref"' not in data:
        try:
            return _decoder(kind, strict=True).decode(_with_quoted_keys(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    if breathe is not None and len(data) > MILD_SIZE_MAX:
        raise ValueError(f"it has {len(data)} bytes and is not strict JSON, the limit is {MILD_SIZE_MAX}")
    from bolide.protocol import fastjson  # few write what only it can read

    document = fit(fastjson.loads(data, as_tree=True, breathe=breathe), _type_of(kind), breathe)
    try:
        return _decoder(kind, strict=False).decode(write(document))
    except (msgspec.DecodeError, OverflowError) as problem:
        raise ValueError(str(problem)) from None


@cache
def _decoder(kind: Any, strict: bool) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=strict, dec_hook=_read_key)


@cache
def _type_of(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def fit(value: object, kind: inspect.Type, breathe: Callable[[], None] | None = None) -> object:
    """Respell what Java would take for `kind`; None where it would keep the default."""
    if breathe is not None:
        breathe()
    match kind:
        case inspect.UnionType():
            return fit(
                value, next(choice for choice in kind.types if not isinstance(choice, inspect.NoneType)), breathe
            )
        case inspect.StructType() if isinstance(value, dict):
            spellings = kind.cls.spellings if issubclass(kind.cls, Body) else {}
            value = {spellings.get(name, name): member for name, member in value.items()}
            wanted = ((field.encode_name, field.type) for field in kind.fields)
            members = ((name, fit(value.get(name), type_, breathe)) for name, type_ in wanted)
            return {name: member for name, member in members if member is not None}
        case inspect.DictType() if isinstance(value, dict):
            entries = ((key, fit(entry, kind.value_type, breathe)) for key, entry in value.items())
            return {key: entry for key, entry in entries if entry is not None}
        case inspect.ListType() if isinstance(value, list):
            items = (fit(item, kind.item_type, breathe) for item in value)
            return [item for item in items if item is not None]
        case inspect.EnumType():
            return _member_name(value, kind.cls)
        case inspect.StrType() if isinstance(value, bool):
            return "true" if value else "false"
        case inspect.StrType() if isinstance(value, int | float):
            return str(value)
    return value


def _member_name(value: object, kind: type[Enum]) -> str | None:
    """The name of an enum's member that is given by name or by its ordinal, as C++ does; None for any other."""
    names = [member.value for member in kind]
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 4:
        value = int(value)
    if type(value) is int:
        return names[value] if 0 <= value < len(names) else None
    return value if isinstance(value, str) and value in names else None


class QueueName(Body, frozen=True, kw_only=True, gc=False):
    """A `MessageQueue` that is a value, not a key."""

    rocketmq_name = "MessageQueue"

    broker_name: Label = always("")
    queue_id: int = always(0)
    topic: TopicName = always("")

    @classmethod
    def of(cls, queue: MessageQueue) -> "QueueName":
        return cls(broker_name=queue.broker_name, queue_id=queue.queue_id, topic=queue.topic)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def _read_key(kind: type, text: object) -> MessageQueue:
    if kind is not QueueText or not isinstance(text, str):
        raise NotImplementedError(f"no body has a member of {kind}")
    return read(QueueName, text.encode()).queue


def _write_key(key: object) -> str:
    if not isinstance(key, MessageQueue):
        raise NotImplementedError(f"no body has a key of {type(key)}")
    return _ENCODER.encode(QueueName.of(key)).decode()


_ENCODER = msgspec.json.Encoder(enc_hook=_write_key)
# A queue as a key, as the encoder leaves it: text with its quotes escaped. A quote inside any other text has a
# backslash before it, and a text that is a value is not followed by a colon, so nothing else looks like it.
_QUEUE_KEY_START = b'"{\\"brokerName\\":'
_QUEUE_KEY = re.compile(rb'(?<=[{,])"(\{\\"brokerName\\":(?:[^"\\]|\\.)*\})":')


# As fastjson writes a queue that is a key. Inside a string a quote has a backslash before it: no text looks like one.
_BARE_KEY_START = b'{"brokerName":'
_BARE_KEY = re.compile(rb'(?<=[{,])\{"brokerName":"[^"\\]*","queueId":-?\d+,"topic":"[^"\\]*"\}(?=:)')


def _with_quoted_keys(data: bytes) -> bytes:
    """The same as strict JSON where queues are keys: the mild reader takes many times as long for a large table."""
    return _BARE_KEY.sub(_quoted_key, data) if _BARE_KEY_START in data else data


def _quoted_key(found: "re.Match[bytes]") -> bytes:
    return b'"' + found[0].replace(b'"', b'\\"') + b'"'


def _bare_key(found: "re.Match[bytes]") -> bytes:
    return msgspec.json.decode(b'"' + found[1] + b'"', type=str).encode() + b":"
