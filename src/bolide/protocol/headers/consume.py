"""Consumer to broker: pulls, offsets, membership, sending back, and looking a message up."""

from bolide.model.names import ClientId, GroupName, Key, Label, Text, TopicName
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.headers.header import BoundaryType, Header, Int32, Int64, RequestHeader, header, wire

# Our own, beside the header of a pull, which other brokers overlook: up to this many bytes of messages at once.
BULK_FIELD = "bolideBulkMax"


@header
class PullMessageRequest(RequestHeader):
    """Messages of one queue from an offset on. `sys_flag` says which of the other fields count."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    lite_topic: Label | None = wire("liteTopic", default=None)
    queue_id: Int32 = wire("queueId")
    queue_offset: QueueOffset = wire("queueOffset")
    message_count_max: Int32 = wire("maxMsgNums")
    sys_flag: Int32 = wire("sysFlag")
    commit_offset: QueueOffset = wire("commitOffset")
    suspend_timeout_ms: Int64 = wire("suspendTimeoutMillis")
    subscription: Text | None = wire("subscription", default=None)
    subscription_version: Int64 = wire("subVersion")
    expression_type: Label | None = wire("expressionType", default=None)
    answer_size_max: Int32 | None = wire("maxMsgBytes", default=None)
    request_source: Int32 | None = wire("requestSource", default=None)
    proxied_client_id: ClientId | None = wire("proxyFrowardClientId", default=None)  # sic


@header
class PullMessageAnswer(Header):
    """Where to go on, and what the queue holds. All four of the first are needed with 0, 19, 20 and 21."""

    suggested_broker_id: Int64 = wire("suggestWhichBrokerId")
    next_offset: QueueOffset = wire("nextBeginOffset")
    min_offset: QueueOffset = wire("minOffset")
    max_offset: QueueOffset = wire("maxOffset")
    offset_delta: Int64 | None = wire("offsetDelta", default=None)
    topic_sys_flag: Int32 | None = wire("topicSysFlag", default=None)
    group_sys_flag: Int32 | None = wire("groupSysFlag", default=None)
    forbidden_type: Int32 | None = wire("forbiddenType", default=None)


@header
class QueryConsumerOffsetRequest(RequestHeader):
    """How far a group is in a queue."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    is_zero_if_absent: bool | None = wire("setZeroIfNotFound", default=None)


@header
class UpdateConsumerOffsetRequest(RequestHeader):
    """How far a group has come; usually one-way."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    commit_offset: QueueOffset = wire("commitOffset")


@header
class GetMaxOffsetRequest(RequestHeader):
    """The offset the next message of a queue will get."""

    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    is_committed: bool = wire("committed", default=True)


@header
class GetMinOffsetRequest(RequestHeader):
    """The oldest offset a queue still has."""

    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")


@header
class SearchOffsetRequest(RequestHeader):
    """The offset that belongs to a time."""

    topic: TopicName = wire("topic")
    lite_topic: Label | None = wire("liteTopic", default=None)
    queue_id: Int32 = wire("queueId")
    timestamp_ms: Int64 = wire("timestamp")
    boundary: BoundaryType | None = wire("boundaryType", default=None)


@header
class OffsetAnswer(Header):
    """One offset: the answer to 14, 29, 30 and 31."""

    offset: QueueOffset = wire("offset")


@header
class GetEarliestStoreTimeRequest(RequestHeader):
    """When the oldest message of a queue was stored."""

    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")


@header
class GetEarliestStoreTimeAnswer(Header):
    """That time."""

    timestamp_ms: Int64 = wire("timestamp")


@header
class HeartbeatAnswer(Header):
    """What a 5.x broker adds: whether a hash may stand for an unchanged heartbeat, and whether it learned anything."""

    is_v2_supported: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_subscription_changed: bool | None = wire("IS_SUB_CHANGE", default=None)


@header
class UnregisterClientRequest(RequestHeader):
    """A client leaves one or both of its groups."""

    client_id: ClientId = wire("clientID")
    producer_group: GroupName | None = wire("producerGroup", default=None)
    consumer_group: GroupName | None = wire("consumerGroup", default=None)


# Our own, beside the header, which other brokers overlook: why a message failed, kept with a dead letter; and after how
# many milliseconds it is wanted again, where `delay_level` can only name the next longer of 18 delays.
REASON_FIELD = "bolideReason"
DELAY_FIELD = "bolideDelayMs"


@header
class SendBackRequest(RequestHeader):
    """A message that could not be consumed: again later, or to the dead letters when `delay_level` is negative."""

    physical_offset: PhysicalOffset = wire("offset")
    group: GroupName = wire("group")
    delay_level: Int32 = wire("delayLevel")
    origin_message_id: Key | None = wire("originMsgId", default=None)
    origin_topic: TopicName | None = wire("originTopic", default=None)
    is_unit_mode: bool = wire("unitMode", default=False)
    reconsume_times_max: Int32 | None = wire("maxReconsumeTimes", default=None)


@header
class GetConsumerListRequest(RequestHeader):
    """Who is in a group."""

    consumer_group: GroupName = wire("consumerGroup")


@header
class QueryMessageRequest(RequestHeader):
    """Messages of a topic by key, or with `is_unique_key` by the id their producer gave them."""

    topic: TopicName = wire("topic")
    key: Key = wire("key")
    message_count_max: Int32 = wire("maxNum")
    begin_ms: Int64 = wire("beginTimestamp")
    end_ms: Int64 = wire("endTimestamp")
    is_unique_key: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)
    index_type: Label | None = wire("indexType", default=None)
    last_key: Key | None = wire("lastKey", default=None)


@header
class QueryMessageAnswer(Header):
    """How far the index of keys is; also in an answer that found nothing."""

    indexed_ms: Int64 = wire("indexLastUpdateTimestamp")
    indexed_physical_offset: PhysicalOffset = wire("indexLastUpdatePhyoffset")


@header
class ViewMessageRequest(RequestHeader):
    """The message at a place in the log, as its offset id says it."""

    topic: TopicName | None = wire("topic", default=None)
    physical_offset: PhysicalOffset = wire("offset")
