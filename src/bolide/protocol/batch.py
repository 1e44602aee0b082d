"""Many messages in one send: the body of request 320, and of a record that stayed whole (an inner batch).

    total size                  int32   22 + body + properties
    magic, CRC                  int32   both 0; nobody reads them
    flag                        int32
    body length, body           int32   never compressed
    properties length, text     int16

Topic, queue, sysFlag and times come from the request and hold for all.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

from bolide.errors import ProtocolError, Refusal
from bolide.kernel.layout import BATCH_ITEM, Buffer
from bolide.model import properties as names
from bolide.model.message import Message, StoredMessage
from bolide.model.queue import QueueOffset
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol import sysflags
from bolide.protocol.codes import ResponseCode
from bolide.protocol.properties import decode_properties, encode_properties

BATCH_SIZE_MAX = 4 * 1024 * 1024  # RocketMQ's maxMessageSize

_PROPERTIES_SIZE = struct.Struct(">h")
ITEM_OVERHEAD = BATCH_ITEM.size + _PROPERTIES_SIZE.size


class BatchItem(NamedTuple):
    """One message of a batch; its properties stay encoded, for a broker stores them as they came."""

    flag: int
    body: bytes
    encoded_properties: bytes

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.encoded_properties)


def encode_batch(messages: Sequence[Message], size_max: int = BATCH_SIZE_MAX) -> bytes:
    """The body of a batch. Refuses, as Java's producer does, what cannot share one request."""
    _check_alike(messages)
    body = b"".join([_encode_item(message) for message in messages])
    if len(body) > size_max:
        _refuse(f"the batch takes {len(body)} bytes, at most {size_max} may be sent at once; split it")
    return body


def split_batch(buffer: Buffer) -> list[BatchItem]:
    """The messages of a batch, in their order."""
    items: list[BatchItem] = []
    position = 0
    while position < len(buffer):
        size, item = _split_item(buffer, position)
        items.append(item)
        position += size
    return items


def unwrap(message: StoredMessage) -> list[StoredMessage]:
    """What a consumer gets for one record: its messages if it is an inner batch that says so, else itself.

    The messages have consecutive queue offsets from that of the record, and share all that the batch does not say.
    """
    if message.sys_flag & sysflags.UNWRAP_MASK != sysflags.UNWRAP_MASK:
        return [message]
    return [
        replace(
            message,
            body=item.body,
            flag=item.flag,
            properties=item.properties,
            queue_offset=QueueOffset(message.queue_offset + index),
            sys_flag=message.sys_flag & ~sysflags.UNWRAP_MASK,
        )
        for index, item in enumerate(split_batch(message.body))
    ]


def _encode_item(message: Message) -> bytes:
    properties = encode_properties(message.properties)
    size = ITEM_OVERHEAD + len(message.body) + len(properties)
    try:
        head = BATCH_ITEM.pack(size, 0, 0, message.flag, len(message.body))
    except struct.error as problem:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"a number of the message does not fit its field: {problem}"
        ) from None
    return b"".join((head, message.body, _PROPERTIES_SIZE.pack(len(properties)), properties))


def _split_item(buffer: Buffer, position: int) -> tuple[int, BatchItem]:
    available = len(buffer) - position
    if available < ITEM_OVERHEAD:
        _fail(position, "total size", f"only {available} bytes are left")
    size, _, _, flag, body_size = BATCH_ITEM.unpack_from(buffer, position)
    if not ITEM_OVERHEAD <= size <= available:
        _fail(position, "total size", f"{size}, it may be {ITEM_OVERHEAD} to {available}")
    if not 0 <= body_size <= size - ITEM_OVERHEAD:
        _fail(position, "body length", f"{body_size}, the item has {size - ITEM_OVERHEAD} bytes left")
    body_start = position + BATCH_ITEM.size
    body_end = body_start + body_size
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(buffer, body_end)
    properties_start = body_end + _PROPERTIES_SIZE.size
    if properties_start + properties_size != position + size:
        _fail(
            position,
            "properties length",
            f"{properties_size}, the item has {position + size - properties_start} bytes left",
        )
    properties = bytes(buffer[properties_start : position + size])
    return size, BatchItem(flag, bytes(buffer[body_start:body_end]), properties)


def _check_alike(messages: Sequence[Message]) -> None:
    if not messages:
        _refuse("a batch without messages; send at least one")
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        _refuse(f"topic {first.topic!r} takes no batches; send its messages one by one")
    for message in messages:
        if message.topic != first.topic:
            _refuse(f"a batch for topics {first.topic!r} and {message.topic!r}; make one for each")
        if message.delay_level or not message.properties.keys().isdisjoint(names.TIMED_NAMES):
            _refuse("a batch with a delayed message; send that one alone")
        if message.waits_for_store != first.waits_for_store:
            _refuse("some messages of the batch wait for the store and some do not; make two batches")


def _refuse(why: str) -> NoReturn:
    raise Refusal(ResponseCode.MESSAGE_ILLEGAL, why)


def _fail(position: int, field: str, found: str) -> NoReturn:
    raise ProtocolError(f"batch item at byte {position}: {field}: {found}")
