"""Bodies as values: what a producer writes and a consumer reads, where bytes are not what one wants to hold.

    producer.send("Orders", json=Order(7))            # dataclasses, msgspec types, dates and UUIDs as well
    order = message.json(Order)                       # checked against the type while it is read

JSON needs no choice. Any other form is a `Serializer`, given to producer and consumer: `send(topic, value=...)` writes
with it, `message.value(Type)` reads with it. Nothing is marked on the message, so that clients in other languages see a
body as they always do; the two sides agree on the form as they agree on the topic.
"""

from typing import Any, Protocol, TypeVar, overload

import msgspec

from bolide.errors import ClientError
from bolide.protocol.codes import ResponseCode

T = TypeVar("T")


class Serializer(Protocol):
    """How values become bodies and bodies become values; anything with these two methods will do."""

    def encode(self, value: object) -> bytes:
        """The body that says this value."""
        ...

    def decode(self, body: bytes, kind: Any) -> Any:
        """The value that a body says, of this type; raises ValueError where it is none."""
        ...


class Json:
    """JSON, read and written by msgspec."""

    def encode(self, value: object) -> bytes:
        """The body that says this value."""
        return msgspec.json.encode(value)

    def decode(self, body: bytes, kind: Any) -> Any:
        """The value that a body says, of this type."""
        return msgspec.json.decode(body, type=kind)


class MessagePack:
    """MessagePack: the same types as JSON, shorter."""

    def encode(self, value: object) -> bytes:
        """The body that says this value."""
        return msgspec.msgpack.encode(value)

    def decode(self, body: bytes, kind: Any) -> Any:
        """The value that a body says, of this type."""
        return msgspec.msgpack.decode(body, type=kind)


JSON = Json()
NOTHING: Any = object()  # what was not given: None is a value


def body_of(body: bytes, json: object, value: object, serializer: Serializer) -> bytes:
    """The body of a message that is given as bytes, as JSON or as a value of the serializer's; one of them."""
    if body or (json is not NOTHING and value is not NOTHING):
        raise ClientError("give one of body, json and value: each is the body", ResponseCode.MESSAGE_ILLEGAL)
    chosen, given = (serializer, value) if json is NOTHING else (JSON, json)
    try:
        return chosen.encode(given)
    except (TypeError, ValueError) as problem:
        name = "value" if json is NOTHING else "json"
        raise ClientError(
            f"{name} is a {type(given).__name__} that cannot be written: {problem}", ResponseCode.MESSAGE_ILLEGAL
        ) from problem


@overload
def value_of(body: bytes, kind: type[T], serializer: Serializer, what: str) -> T: ...


@overload
def value_of(body: bytes, kind: Any, serializer: Serializer, what: str) -> Any: ...


def value_of(body: bytes, kind: Any, serializer: Serializer, what: str) -> Any:
    """The value of a body; raises ClientError with the place where it is none."""
    try:
        return serializer.decode(body, kind)
    except ValueError as problem:
        raise ClientError(f"the body of {what} is not what was asked for: {problem}") from problem
