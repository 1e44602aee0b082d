"""From what a user gives to what goes over the wire: validation, ids, compression, the fields of a send.

Plain functions, so that every rule of what may be sent is tested without a broker. What cannot be sent is refused here,
with RocketMQ's code, before a byte leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bolide.errors import ClientError
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.names import topic_problem
from bolide.model.queue import MessageQueue
from bolide.model.topics import AUTO_CREATE_TOPIC, CLOSED_TOPICS
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.compression import Compression, compress, with_compression
from bolide.protocol.properties import join_properties

DEFAULT_QUEUE_COUNT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRules:
    """What a producer does to messages before they leave."""

    group: str
    body_size_max: int = 4 << 20
    compress_over: int = 4096
    compression: Compression = Compression.ZLIB
    queue_count: int = DEFAULT_QUEUE_COUNT


def compression_named(name: str) -> Compression:
    """`zlib`, `lz4` or `zstd`."""
    try:
        return Compression[name.upper()]
    except KeyError:
        known = ", ".join(compression.name.lower() for compression in Compression)
        raise ClientError(f"compression {name!r} is not known; choose one of {known}") from None


def check_message(message: Message, body_size_max: int) -> None:
    """Refuse what no broker would take, with the reason."""
    problem = topic_problem(message.topic)
    if problem is None and message.topic in CLOSED_TOPICS:
        problem = f"topic {message.topic} belongs to the brokers; nobody else sends to it"
    if problem is None and not message.body:
        problem = "the body is empty; RocketMQ keeps no message without one"
    if problem is None and len(message.body) > body_size_max:
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
    body, sys_flag = message.body, 0
    if len(body) >= rules.compress_over:
        body = compress(body, rules.compression)
        sys_flag = with_compression(sys_flag, rules.compression)
    fields = _fields(message.topic, rules, born_ms)
    fields |= {"f": str(sys_flag), "h": str(message.flag), "i": join_properties(message.properties), "m": "false"}
    return Command(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body)


def batch_command(messages: Sequence[Message], rules: SendRules, born_ms: int) -> Command:
    """Many messages in one send. Their ids, joined, are the batch's own, as Java has it."""
    body = encode_batch(messages, rules.body_size_max)
    shared = {names.WAIT: "true" if messages[0].waits_for_store else "false"}
    fields = _fields(messages[0].topic, rules, born_ms)
    fields |= {"f": "0", "h": "0", "i": join_properties(shared), "m": "true"}
    return Command(RequestCode.SEND_BATCH_MESSAGE, fields=fields, body=body)


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
