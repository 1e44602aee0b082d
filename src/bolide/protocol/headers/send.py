"""Producer to broker: send, batch, reply, end of a transaction, recall.

One class serves the long form (10, 324) and the short one (310, 320, 325), in which every field is a letter.
"""

from bolide.model.names import GroupName, Key, Label, Text, TopicName
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.headers.header import Header, Int32, Int64, RequestHeader, header, wire


@header
class SendMessageRequest(RequestHeader):
    """A message, or with `is_batch` many. A negative `queue_id` leaves the choice of the queue to the broker."""

    producer_group: GroupName = wire("producerGroup", short="a")
    topic: TopicName = wire("topic", short="b")
    default_topic: TopicName = wire("defaultTopic", short="c")
    default_topic_queue_count: Int32 = wire("defaultTopicQueueNums", short="d")
    queue_id: Int32 = wire("queueId", short="e")
    sys_flag: Int32 = wire("sysFlag", short="f")
    born_ms: Int64 = wire("bornTimestamp", short="g")
    flag: Int32 = wire("flag", short="h")
    properties: Text | None = wire("properties", short="i", default=None)
    reconsume_times: Int32 | None = wire("reconsumeTimes", short="j", default=None)
    is_unit_mode: bool = wire("unitMode", short="k", default=False)
    is_batch: bool = wire("batch", short="m", default=False)
    reconsume_times_max: Int32 | None = wire("maxReconsumeTimes", short="l", default=None)


@header
class RefusedSendAnswer(Header):
    """What every answer to a send carries, refusals too: Java looks into the map without asking if there is one."""

    region: Label | None = wire("MSG_REGION", default=None)
    is_traced: bool | None = wire("TRACE_ON", default=None)


@header
class SendMessageAnswer(RefusedSendAnswer):
    """Where the message landed; for a batch, the ids joined by commas and the offset of the first."""

    message_id: Key = wire("msgId")
    queue_id: Int32 = wire("queueId")
    queue_offset: QueueOffset = wire("queueOffset")
    transaction_id: Key | None = wire("transactionId", default=None)
    batch_unique_id: Key | None = wire("batchUniqId", default=None)
    recall_handle: Text | None = wire("recallHandle", default=None)


@header
class EndTransactionRequest(RequestHeader):
    """Commit (8), roll back (12) or do not know (0), for the half message at `physical_offset`."""

    topic: TopicName | None = wire("topic", default=None)
    producer_group: GroupName = wire("producerGroup")
    half_queue_offset: QueueOffset = wire("tranStateTableOffset")
    physical_offset: PhysicalOffset = wire("commitLogOffset")
    commit_or_rollback: Int32 = wire("commitOrRollback")
    is_from_check: bool = wire("fromTransactionCheck", default=False)
    message_id: Key = wire("msgId")
    transaction_id: Key | None = wire("transactionId", default=None)


@header
class RecallMessageRequest(RequestHeader):
    """Take back a timed message that was not delivered yet."""

    producer_group: GroupName | None = wire("producerGroup", default=None)
    topic: TopicName = wire("topic")
    recall_handle: Text = wire("recallHandle")


@header
class RecallMessageAnswer(Header):
    """The id of the message that will not come."""

    message_id: Key = wire("msgId")
    region: Label | None = wire("MSG_REGION", default=None)
