"""From what a user gives to what goes over the wire: validation, ids, compression, the fields of a send.

Plain functions, so that every rule of what may be sent is tested without a broker. What cannot be sent is refused here,
with RocketMQ's code, before a byte leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring
from typing import Any

import msgspec

from bolide.errors import ClientError
from bolide.kernel.layout import Item
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.names import topic_problem
from bolide.model.queue import MessageQueue
from bolide.model.topics import AUTO_CREATE_TOPIC, CLOSED_TOPICS
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import VERSION, Command
from bolide.protocol.compression import Compression, compress, with_compression
from bolide.protocol.properties import PROPERTIES_SIZE_MAX, decode_properties, join_properties
from bolide.protocol.sysflags import PREPARED

DEFAULT_QUEUE_COUNT = 4
SHORT_SIZE_MAX = 16 * 1024
SEND_TAIL = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION  # see `kernel.write_sends`
EXTRA_SIZE_MAX = PROPERTIES_SIZE_MAX - 128  # the id and its name come too


class SendRules(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer sends."""

    group: str
    body_size_max: int = 4 << 20
    compress_over: int = 4096
    compression: Compression = Compression.ZLIB
    queue_count: int = DEFAULT_QUEUE_COUNT
    timeout_s: float = 3.0  # of all attempts together
    retry_count: int = 2
    retries_unsafe: bool = False  # send again what was stored, but not as safely as it should be
    linger_s: float = 0.0  # how long messages of a topic wait for each other
    is_prepared: bool = False  # what is sent is the first half of a transaction

    @property
    def sys_flag(self) -> int:
        return PREPARED if self.is_prepared else 0

    @property
    def short_size(self) -> int:
        """A body below it may take the fast path: it is not compressed, and thousands of them fit into memory."""
        return min(self.compress_over, self.body_size_max + 1, SHORT_SIZE_MAX)


def compression_named(name: str) -> Compression:
    """`zlib`, `lz4` or `zstd`."""
    try:
        return Compression[name.upper()]
    except KeyError:
        known = ", ".join(compression.name.lower() for compression in Compression)
        raise ClientError(f"compression {name!r} is not known; choose one of {known}") from None


def check_topic(topic: str) -> None:
    """Refuse a topic that nobody may send to."""
    problem = topic_problem(topic)
    if problem is None and topic in CLOSED_TOPICS:
        problem = f"topic {topic} belongs to the brokers; nobody else sends to it"
    if problem is not None:
        raise ClientError(problem, ResponseCode.MESSAGE_ILLEGAL)


def check_message(message: Message, body_size_max: int) -> None:
    """Refuse what no broker would take, with the reason."""
    check_topic(message.topic)
    problem = None
    body: object = message.body  # of a caller who is not checked for types
    if isinstance(body, str):
        problem = "the body is text, and messages carry bytes: give body.encode()"
    elif not isinstance(body, bytes | bytearray | memoryview):
        problem = f"the body is a {type(body).__name__}, and messages carry bytes: give json=body, or bytes of your own"
    elif not message.body:
        problem = "the body is empty; RocketMQ keeps no message without one"
    elif len(message.body) > body_size_max:
        problem = f"the body has {len(message.body)} bytes, at most {body_size_max} are taken"
    if problem is not None:
        raise ClientError(problem, ResponseCode.MESSAGE_ILLEGAL)


def check_user_properties(properties: Mapping[Any, Any]) -> None:
    """A property of the user's own needs a name that is not RocketMQ's, and a value."""
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ClientError(f"property {name!r}: both name and value must be text", ResponseCode.MESSAGE_ILLEGAL)
        if name in names.RESERVED_NAMES:
            raise ClientError(
                f"property {name!r} is RocketMQ's own: choose another name, or use the argument that sets it",
                ResponseCode.MESSAGE_ILLEGAL,
            )
        if not name.strip() or not value.strip():
            raise ClientError(
                f"property {name!r} is blank; both name and value need text", ResponseCode.MESSAGE_ILLEGAL
            )


def with_id(message: Message, unique_id: str) -> Message:
    """The message with its id; one that has an id keeps it, so a message sent again is the same."""
    if names.UNIQUE_KEY in message.properties:
        return message
    return replace_properties(message, {**message.properties, names.UNIQUE_KEY: unique_id})


def replace_properties(message: Message, properties: Mapping[str, str]) -> Message:
    return Message(message.topic, message.body, properties=properties, flag=message.flag)


def send_command(message: Message, rules: SendRules, born_ms: int) -> Command:
    """A send of one message; the queue is filled in for each attempt (`to_queue`)."""
    body, sys_flag = message.body, rules.sys_flag
    if len(body) >= rules.compress_over:
        packed = compress(body, rules.compression)
        if len(packed) < len(body):  # what was packed before only grows
            body, sys_flag = packed, with_compression(sys_flag, rules.compression)
    fields = _fields(message.topic, rules, born_ms)
    fields |= {"f": str(sys_flag), "h": str(message.flag), "i": join_properties(message.properties), "m": "false"}
    return Command(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body)


def batch_command(messages: Sequence[Message], rules: SendRules, born_ms: int) -> Command:
    """Many messages in one send. Their ids, joined, are the batch's own, as Java has it."""
    body = encode_batch(messages, rules.body_size_max)
    fields = _fields(messages[0].topic, rules, born_ms) | _shared(waits_for_store=messages[0].waits_for_store)
    return Command(RequestCode.SEND_BATCH_MESSAGE, fields=fields, body=body)


def batch_fields(topic: str, rules: SendRules, born_ms: int, queue: MessageQueue) -> dict[str, str]:
    """The fields of a batch whose body the kernel encoded."""
    fields = _fields(topic, rules, born_ms) | _shared(waits_for_store=True)
    return fields | {"e": str(queue.queue_id), "n": queue.broker_name}


def _shared(*, waits_for_store: bool) -> dict[str, str]:
    text = join_properties({names.WAIT: "true" if waits_for_store else "false"})
    return {"f": "0", "h": "0", "i": text, "m": "true"}


def _fields(topic: str, rules: SendRules, born_ms: int) -> dict[str, str]:
    return {
        "a": rules.group,
        "b": topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(rules.queue_count),
        "e": "0",
        "g": str(born_ms),
        "j": "0",
        "k": "false",
    }


def to_queue(command: Command, queue: MessageQueue) -> Command:
    """The same send for one queue; an attempt of its own, since each needs its own number."""
    fields = {**command.fields, "e": str(queue.queue_id), "n": queue.broker_name}
    return replace(command, fields=fields)


# The fast path (`kernel.write_sends`): a message as an item, its request as a head that does not change


def send_head(topic: str, rules: SendRules, broker_name: str) -> bytes:
    """A send of this topic to this broker, up to the number of the queue."""
    fields = _fields(topic, rules, 0) | {"f": str(rules.sys_flag), "m": "false", "n": broker_name}
    del fields["e"], fields["g"]
    pairs = ",".join(f"{encode_basestring(name)}:{encode_basestring(text)}" for name, text in fields.items())
    return f'{{"code":{int(RequestCode.SEND_MESSAGE_V2)},"extFields":{{{pairs},"e":"'.encode()


def message_of(topic: str, item: Item, unique_id: str) -> Message:
    """An item as a message again, with its id."""
    body, extra, flag = item
    return Message(topic, body, properties={**decode_properties(extra), names.UNIQUE_KEY: unique_id}, flag=flag)
