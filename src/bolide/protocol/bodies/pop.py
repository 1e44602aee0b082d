"""Consumption the broker steers: assignments, request modes, batch acknowledgements.

| here | RocketMQ |
|---|---|
| `AssignmentRequest`, `AssignmentAnswer` | QueryAssignmentRequestBody, QueryAssignmentResponseBody |
| `QueueAssignment`, `RequestMode` | MessageQueueAssignment, MessageRequestMode |
| `GroupRequestMode`, `RequestModeTable` | SetMessageRequestModeRequestBody, MessageRequestModeSerializeWrapper |
| `BatchAck`, `BatchAcks` | BatchAck, BatchAckMessageRequestBody |
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import ClassVar

import msgspec

from bolide.model.names import ClientId, GroupName, Label, Text, TopicName
from bolide.protocol.bodies.body import Body, QueueName, always
from bolide.protocol.bodies.clients import MessageModel


class RequestMode(StrEnum):
    """How a member gets the messages of a queue. In the order of Java's ordinals."""

    PULL = "PULL"
    POP = "POP"


class AssignmentRequest(Body, frozen=True, kw_only=True):
    """A member asks which queues are its own."""

    rocketmq_name = "QueryAssignmentRequestBody"
    is_request = True

    client_id: ClientId = always("")
    consumer_group: GroupName = always("")
    message_model: MessageModel | None = None
    strategy_name: Label | None = None
    topic: TopicName = always("")


class QueueAssignment(Body, frozen=True, kw_only=True):
    """One queue and how to get its messages; with POP the queue id -1 is any queue of that broker."""

    rocketmq_name = "MessageQueueAssignment"

    message_queue: QueueName = always(QueueName())
    mode: RequestMode = always(RequestMode.PULL)


class AssignmentAnswer(Body, frozen=True, kw_only=True):
    """A member's queues. None says nothing this time; an empty list takes all of them away."""

    rocketmq_name = "QueryAssignmentResponseBody"

    message_queue_assignments: list[QueueAssignment] | None = None


class GroupRequestMode(Body, frozen=True, kw_only=True, gc=False):
    """How a group gets the messages of a topic."""

    rocketmq_name = "SetMessageRequestModeRequestBody"
    is_request = True

    consumer_group: GroupName = always("")
    mode: RequestMode = always(RequestMode.PULL)
    pop_share_queue_num: int = always(0)
    topic: TopicName = always("")


class RequestModeTable(Body, frozen=True, kw_only=True):
    """Topic → group → mode, for slaves."""

    rocketmq_name = "MessageRequestModeSerializeWrapper"

    message_request_mode_map: dict[str, dict[str, GroupRequestMode]] = always({})


class BatchAck(Body, frozen=True, kw_only=True, gc=False):
    """Messages of one pop that are settled: bit i of `bits`, lowest byte first, is the offset start_offset + i.

    Group and topic must be there, so that a body with the long names does not pass for one without members.
    """

    rocketmq_name = "BatchAck"
    spellings: ClassVar = {
        "consumerGroup": "c",
        "topic": "t",
        "retry": "r",
        "startOffset": "so",
        "queueId": "q",
        "reviveQueueId": "rq",
        "popTime": "pt",
        "invisibleTime": "it",
        "bitSet": "b",
    }

    bits: bytes = always(b"", name="b")
    consumer_group: GroupName = msgspec.field(name="c")
    invisible_time: int = always(0, name="it")
    pop_time: int = always(0, name="pt")
    queue_id: int = always(0, name="q")
    topic_mark: Text = always("", name="r")
    revive_queue_id: int = always(0, name="rq")
    start_offset: int = always(0, name="so")
    topic: TopicName = msgspec.field(name="t")

    def offsets(self) -> Iterator[int]:
        for i, byte in enumerate(self.bits):
            for bit in range(8):
                if byte >> bit & 1:
                    yield self.start_offset + 8 * i + bit

    @staticmethod
    def bits_of(offsets: Iterable[int], start_offset: int) -> bytes:
        """The `bits` for these offsets, none of which may be less than start_offset."""
        bits = 0
        for offset in offsets:
            bits |= 1 << offset - start_offset
        return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class BatchAcks(Body, frozen=True, kw_only=True):
    """Many acknowledgements in one request."""

    rocketmq_name = "BatchAckMessageRequestBody"
    is_request = True

    acks: list[BatchAck] = always([])
    broker_name: Label | None = None
