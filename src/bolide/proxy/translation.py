"""A message on both sides: protobuf as clients have it, properties as RocketMQ stores them.

What a remoting producer compressed goes out unpacked, and what a gRPC client compressed is stored unpacked: each of the
clients knows other ways to compress, and plain bytes are right for all of them.
"""

import gzip
import io
import zlib
from collections.abc import Mapping
from contextlib import suppress
from hashlib import md5
from typing import Any

from bolide.errors import ProtocolError
from bolide.model import properties as names
from bolide.model.message import KEY_SEPARATOR, StoredMessage
from bolide.protocol.compression import compression_of
from bolide.protocol.records import inflate
from bolide.proxy import messages as m
from bolide.proxy.checks import RESERVED_NAMES, millis
from bolide.proxy.statuses import Denied

PRIORITY = "_SYS_MSG_PRIORITY_"
PRIORITY_KIND = "PRIORITY"
_TRANSACTION, _MD5, _IDENTITY, _GZIP = (
    *(m.MessageType.TRANSACTION, m.DigestType.MD5),
    *(m.Encoding.IDENTITY, m.Encoding.GZIP),
)
_KINDS = dict(m.MessageType.items())
_IN_USER_PROPERTIES = {names.SHARDING_KEY}


def kind_of(properties: Mapping[str, str]) -> str:
    """The type that a topic is compared with; it follows from the properties, not from what the client calls it."""
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if any(name in properties for name in (*names.TIMED_NAMES, names.DELAY)):
        return "DELAY"
    if names.SHARDING_KEY in properties:
        return "FIFO"
    return PRIORITY_KIND if PRIORITY in properties else "NORMAL"


def stored_properties(message: m.Message, topic: str) -> dict[str, str]:
    """The properties a message is stored with."""
    system, properties = message.system_properties, dict(message.user_properties)
    if system.tag:
        properties[names.TAGS] = system.tag
    if system.keys:
        properties[names.KEYS] = KEY_SEPARATOR.join(system.keys)
    properties[names.UNIQUE_KEY] = system.message_id
    properties[names.PRODUCER_GROUP] = topic
    if system.message_type == _TRANSACTION:
        properties[names.TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            properties[names.CHECK_IMMUNITY_S] = str(system.orphaned_transaction_recovery_duration.seconds)
    if system.HasField("delivery_timestamp"):
        properties[names.TIMER_DELIVER_AT] = str(millis(system.delivery_timestamp))
    if system.HasField("message_group"):
        properties[names.SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        properties[PRIORITY] = str(system.priority)
    if system.trace_context:
        properties[names.TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        properties[names.BORN_HOST] = system.born_host
    if system.HasField("born_timestamp"):
        properties[names.BORN_AT] = str(millis(system.born_timestamp))
    return properties


def stored_body(message: m.Message, size_max: int) -> bytes:
    """The body as it is stored; raises Denied for one that cannot be unpacked."""
    if message.system_properties.body_encoding != _GZIP:
        return bytes(message.body)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(message.body)) as unpacking:
            body = unpacking.read(size_max + 1)
    except (OSError, EOFError, zlib.error) as problem:
        raise Denied(m.Code.MESSAGE_CORRUPTED, f"the body is said to be GZIP and is not: {problem}") from None
    if len(body) > size_max:
        raise Denied(m.Code.MESSAGE_BODY_TOO_LARGE, f"a body of more than {size_max} bytes once it is unpacked")
    return body


def delivered(stored: StoredMessage, topic: str, now_ms: int) -> m.Message:
    """A stored message as a client of `topic` gets it."""
    message = m.Message()
    deliver(stored, topic, now_ms, message)
    return message


def deliver(stored: StoredMessage, topic: str, now_ms: int, message: m.Message) -> None:
    """Write into `message` what is stored; its handle, its attempt and the like are the receiver's."""
    if compression_of(stored.sys_flag) is not None:
        with suppress(ProtocolError):  # it goes out as it lies: its consumer may know how to read it
            stored = inflate(stored)
    properties = stored.properties
    message.topic.name, message.body = topic, stored.body
    message.user_properties.update(
        {name: value for name, value in properties.items() if name not in RESERVED_NAMES or name in _IN_USER_PROPERTIES}
    )
    system: Any = message.system_properties
    if tags := properties.get(names.TAGS):
        system.tag = tags
    system.keys.extend(stored.keys)
    system.message_id = stored.unique_id or stored.offset_id
    system.body_digest.type = _MD5
    system.body_digest.checksum = md5(stored.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = _IDENTITY
    system.message_type = _KINDS[kind_of(properties)]
    set_millis(system.born_timestamp, stored.born_at)
    system.born_host = properties.get(names.BORN_HOST) or str(stored.born_host)
    set_millis(system.store_timestamp, stored.stored_at)
    system.store_host = str(stored.store_host)
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    if (group := properties.get(names.SHARDING_KEY)) is not None:
        system.message_group = group
    if (context := properties.get(names.TRACE_CONTEXT)) is not None:
        system.trace_context = context
    if deliver_ms := _delivery_ms(properties, now_ms):
        set_millis(system.delivery_timestamp, deliver_ms)
    origin = properties.get(names.DEAD_LETTER_ORIGIN_TOPIC), properties.get(names.DEAD_LETTER_ORIGIN_MESSAGE_ID)
    if origin[0] and origin[1]:
        system.dead_letter_queue.topic, system.dead_letter_queue.message_id = origin


def _delivery_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    span_s, at_ms = properties.get(names.TIMER_DELAY_S, ""), properties.get(names.TIMER_DELIVER_AT, "")
    if span_s.isdecimal():
        return now_ms + int(span_s[:12]) * 1000
    return int(at_ms[:18]) if at_ms.isdecimal() else None


def set_millis(time: Any, at_ms: int) -> None:
    """Write milliseconds into a Timestamp or a Duration."""
    time.seconds, rest_ms = divmod(at_ms, 1000)
    time.nanos = rest_ms * 1_000_000
