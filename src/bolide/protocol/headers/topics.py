"""Admin to broker, about topics."""

from bolide.model.names import GroupName, Label, Text, TopicName
from bolide.protocol.headers.header import Int32, RequestHeader, header, wire


@header
class UpdateTopicRequest(RequestHeader):
    """Create or change a topic; also a static one (513). `attributes` is a list of `+key=value` and `-key`."""

    topic: TopicName = wire("topic")
    default_topic: TopicName = wire("defaultTopic")
    read_queue_count: Int32 = wire("readQueueNums")
    write_queue_count: Int32 = wire("writeQueueNums")
    permission: Int32 = wire("perm")
    filter_type: Label = wire("topicFilterType")
    sys_flag: Int32 | None = wire("topicSysFlag", default=None)
    is_ordered: bool = wire("order")
    attributes: Text | None = wire("attributes", default=None)
    is_forced: bool = wire("force", default=False)


@header
class DeleteTopicRequest(RequestHeader):
    """Delete a topic from a broker."""

    topic: TopicName = wire("topic")


@header
class GetTopicConfigRequest(RequestHeader):
    """What a topic is set to."""

    topic: TopicName = wire("topic")


@header
class GetTopicStatsRequest(RequestHeader):
    """Offsets and last change of each queue."""

    topic: TopicName = wire("topic")


@header
class QueryTopicConsumersRequest(RequestHeader):
    """Which groups consume a topic."""

    topic: TopicName = wire("topic")


@header
class QueryConsumeTimeSpanRequest(RequestHeader):
    """From when to when the messages of each queue are, and which of them a group is at."""

    topic: TopicName = wire("topic")
    group: GroupName = wire("group")
