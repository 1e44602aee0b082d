"""Queues: who holds them, how far they reach, how far a group has come.

Maps by queue have `MessageQueue` as their key (`QueueText` is how it is written).

| here | RocketMQ |
|---|---|
| `LockRequest`, `UnlockRequest`, `LockAnswer` | LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody |
| `TopicStats`, `QueueSpan` | TopicStatsTable, TopicOffset |
| `ConsumeStats`, `QueueProgress`, `ConsumeStatsList` | ConsumeStats, OffsetWrapper, ConsumeStatsList |
| `ResetOffsets`, `ResetOffsetsForC`, `QueueOffsetForC` | ResetOffsetBody, ResetOffsetBodyForC, MessageQueueForC |
| `ConsumerStatus` | GetConsumerStatusBody |
| `TimeSpans`, `QueueTimeSpan` | QueryConsumeTimeSpanBody, QueueTimeSpan |
| `CorrectionOffsets` | QueryCorrectionOffsetBody |
| `ConsumerOffsets`, `DelayOffsets` | ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper |
| `QueueEntries`, `QueueEntry` | QueryConsumeQueueResponseBody, ConsumeQueueData |
"""

import math
from typing import cast

import msgspec

from bolide.model.names import ClientId, GroupName
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.body import Body, QueueName, QueueText, always
from bolide.protocol.bodies.clients import Subscription
from bolide.protocol.bodies.routes import DataVersion


class Rates(Body, frozen=True, kw_only=True):
    """A body with numbers that are not whole. One that is not finite becomes 0.0: fastjson cannot read it."""

    rocketmq_name = "RemotingSerializable"

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                msgspec.structs.force_setattr(self, name, 0.0)


class LockRequest(Body, frozen=True, kw_only=True):
    """Queues a member of an ordered group wants for itself. 4.9 has no only_this_broker."""

    rocketmq_name = "LockBatchRequestBody"
    is_request = True

    client_id: ClientId = always("")
    consumer_group: GroupName = always("")
    mq_set: list[QueueName] = always([])
    only_this_broker: bool = always(False)

    @property
    def queues(self) -> list[MessageQueue]:
        return [name.queue for name in self.mq_set]


class UnlockRequest(LockRequest, frozen=True, kw_only=True):
    """Queues it gives back."""

    rocketmq_name = "UnlockBatchRequestBody"


class LockAnswer(Body, frozen=True, kw_only=True):
    """The queues the asker holds now."""

    rocketmq_name = "LockBatchResponseBody"

    lock_ok_mq_set: list[QueueName] = always(cast(list[QueueName], []), name="lockOKMQSet")

    @property
    def queues(self) -> list[MessageQueue]:
        return [name.queue for name in self.lock_ok_mq_set]


class QueueSpan(Body, frozen=True, kw_only=True, gc=False):
    """The offsets a queue holds: from min up to, not with, max."""

    rocketmq_name = "TopicOffset"

    last_update_timestamp: int = always(0)
    max_offset: int = always(0)
    min_offset: int = always(0)


class TopicStats(Rates, frozen=True, kw_only=True):
    """How far each queue of a topic reaches. 4.9 has no topic_put_tps."""

    rocketmq_name = "TopicStatsTable"

    offset_table: dict[QueueText, QueueSpan] = always({})
    topic_put_tps: float = always(0.0)


class QueueProgress(Body, frozen=True, kw_only=True, gc=False):
    """How far a group has come in a queue, and when the last message it has settled was stored."""

    rocketmq_name = "OffsetWrapper"

    broker_offset: int = always(0)
    consumer_offset: int = always(0)
    last_timestamp: int = always(0)
    pull_offset: int = always(0)


class ConsumeStats(Rates, frozen=True, kw_only=True):
    """How far a group has come in each queue."""

    rocketmq_name = "ConsumeStats"

    consume_tps: float = always(0.0)
    offset_table: dict[QueueText, QueueProgress] = always({})


class ConsumeStatsList(Body, frozen=True, kw_only=True):
    """The progress of all groups of a broker."""

    rocketmq_name = "ConsumeStatsList"

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = always([])
    total_diff: int = always(0)
    total_inflight_diff: int = always(0)


class ResetOffsets(Body, frozen=True, kw_only=True):
    """Where a group is to continue in each queue."""

    rocketmq_name = "ResetOffsetBody"

    offset_table: dict[QueueText, int] = always({})


class QueueOffsetForC(Body, frozen=True, kw_only=True, gc=False):
    """One queue of `ResetOffsetsForC`."""

    rocketmq_name = "MessageQueueForC"

    broker_name: str = always("")
    offset: int = always(0)
    queue_id: int = always(0)
    topic: str = always("")


class ResetOffsetsForC(Body, frozen=True, kw_only=True):
    """`ResetOffsets` as a list: the C++ client reads no maps by queue."""

    rocketmq_name = "ResetOffsetBodyForC"

    offset_table: list[QueueOffsetForC] = always([])

    @classmethod
    def of(cls, offsets: ResetOffsets) -> "ResetOffsetsForC":
        entries = [
            QueueOffsetForC(broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic)
            for queue, offset in offsets.offset_table.items()
        ]
        return cls(offset_table=entries)


class ConsumerStatus(Body, frozen=True, kw_only=True):
    """A client fills the second table with its queues, a broker the first with those of all its clients."""

    rocketmq_name = "GetConsumerStatusBody"

    consumer_table: dict[str, dict[QueueText, int]] = always({})
    message_queue_table: dict[QueueText, int] = always({})


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """Store times of a queue: its oldest and newest message, and the one a group is at."""

    rocketmq_name = "QueueTimeSpan"

    consume_time_stamp: int = always(0)
    delay_time: int = always(0)
    max_time_stamp: int = always(0)
    message_queue: QueueName = always(QueueName())
    min_time_stamp: int = always(0)


class TimeSpans(Body, frozen=True, kw_only=True):
    """How far a group lies behind in time."""

    rocketmq_name = "QueryConsumeTimeSpanBody"

    consume_time_span_set: list[QueueTimeSpan] = always([])


class CorrectionOffsets(Body, frozen=True, kw_only=True):
    """Queue id → offset."""

    rocketmq_name = "QueryCorrectionOffsetBody"

    correction_offsets: dict[int, int] = always({})


class ConsumerOffsets(Body, frozen=True, kw_only=True):
    """`topic@group` → queue id → offset, for slaves. 4.9 has no data_version."""

    rocketmq_name = "ConsumerOffsetSerializeWrapper"

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[int, int]] = always({})


class DelayOffsets(Body, frozen=True, kw_only=True):
    """Delay level → offset, for slaves. 4.9 has no data_version."""

    rocketmq_name = "DelayOffsetSerializeWrapper"

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = always({})


class QueueEntry(Body, frozen=True, kw_only=True, gc=False):
    """One entry of a consume queue, with what a filter says about it."""

    rocketmq_name = "ConsumeQueueData"

    bit_map: str | None = None
    eval: bool = always(False)
    extend_data_json: str | None = None
    message: str | None = msgspec.field(default=None, name="msg")
    physic_offset: int = always(0)
    physic_size: int = always(0)
    tags_code: int = always(0)


class QueueEntries(Body, frozen=True, kw_only=True):
    """A stretch of a consume queue."""

    rocketmq_name = "QueryConsumeQueueResponseBody"

    filter_data: str | None = None
    max_queue_index: int = always(0)
    min_queue_index: int = always(0)
    queue_data: list[QueueEntry] = always([])
    subscription_data: Subscription | None = None
