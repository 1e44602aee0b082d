"""Broker to client, on the connection the client opened. Some are an admin's question that the broker passes on."""

from bolide.model.names import ClientId, GroupName, Key, Label, Text, TopicName
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.headers.header import Int32, Int64, RequestHeader, header, wire


@header
class NotifyConsumersChangedRequest(RequestHeader):
    """Somebody joined or left the group; share the queues again."""

    consumer_group: GroupName = wire("consumerGroup")


@header
class CheckTransactionRequest(RequestHeader):
    """How did the transaction of this half message end? One-way; the answer is an END_TRANSACTION."""

    topic: TopicName | None = wire("topic", default=None)
    half_queue_offset: QueueOffset = wire("tranStateTableOffset")
    physical_offset: PhysicalOffset = wire("commitLogOffset")
    message_id: Key | None = wire("msgId", default=None)
    transaction_id: Key | None = wire("transactionId", default=None)
    offset_message_id: Key | None = wire("offsetMsgId", default=None)


@header
class ResetOffsetRequest(RequestHeader):
    """Consume again from a time, or skip to it. -1 stands for all queues and for no given offset."""

    topic: TopicName = wire("topic")
    group: GroupName = wire("group")
    timestamp_ms: Int64 = wire("timestamp")
    is_forced: bool = wire("isForce")
    queue_id: Int32 = wire("queueId", default=-1)
    offset: QueueOffset = wire("offset", default=QueueOffset(-1))


@header
class GetConsumerStatusRequest(RequestHeader):
    """Which offsets the clients of a group are at; an admin may name one client."""

    topic: TopicName = wire("topic")
    group: GroupName = wire("group")
    client_address: ClientId | None = wire("clientAddr", default=None)


@header
class GetConsumerStateRequest(RequestHeader):
    """Everything a consumer can say about itself, with its threads' stacks if wanted."""

    consumer_group: GroupName = wire("consumerGroup")
    client_id: ClientId = wire("clientId")
    is_stack_wanted: bool = wire("jstackEnable", default=False)


@header
class ConsumeDirectlyRequest(RequestHeader):
    """Consume this one message now and tell how it went."""

    consumer_group: GroupName = wire("consumerGroup")
    client_id: ClientId | None = wire("clientId", default=None)
    message_id: Key | None = wire("msgId", default=None)
    broker_name: Label | None = wire("brokerName", default=None)
    topic: TopicName | None = wire("topic", default=None)
    topic_sys_flag: Int32 | None = wire("topicSysFlag", default=None)
    group_sys_flag: Int32 | None = wire("groupSysFlag", default=None)


@header
class PushReplyRequest(RequestHeader):
    """The reply to a request message. The hosts are `ip:port`."""

    producer_group: GroupName = wire("producerGroup")
    topic: TopicName = wire("topic")
    default_topic: TopicName = wire("defaultTopic")
    default_topic_queue_count: Int32 = wire("defaultTopicQueueNums")
    queue_id: Int32 = wire("queueId")
    sys_flag: Int32 = wire("sysFlag")
    born_ms: Int64 = wire("bornTimestamp")
    flag: Int32 = wire("flag")
    properties: Text | None = wire("properties", default=None)
    reconsume_times: Int32 | None = wire("reconsumeTimes", default=None)
    is_unit_mode: bool = wire("unitMode", default=False)
    born_host: Label = wire("bornHost")
    store_host: Label = wire("storeHost")
    stored_ms: Int64 = wire("storeTimestamp")
