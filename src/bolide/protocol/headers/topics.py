"""Admin to broker, about topics."""

from bolide.protocol.headers.header import Int32, RequestHeader, header, wire


@header
class UpdateTopicRequest(RequestHeader):
    """Create or change a topic; also a static one (513). `attributes` is a list of `+key=value` and `-key`."""

    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic")
    read_queue_count: Int32 = wire("readQueueNums")
    write_queue_count: Int32 = wire("writeQueueNums")
    permission: Int32 = wire("perm")
    filter_type: str = wire("topicFilterType")
    sys_flag: Int32 | None = wire("topicSysFlag", default=None)
    is_ordered: bool = wire("order")
    attributes: str | None = wire("attributes", default=None)
    is_forced: bool = wire("force", default=False)


@header
class DeleteTopicRequest(RequestHeader):
    """Delete a topic from a broker."""

    topic: str = wire("topic")


@header
class GetTopicConfigRequest(RequestHeader):
    """What a topic is set to."""

    topic: str = wire("topic")


@header
class GetTopicStatsRequest(RequestHeader):
    """Offsets and last change of each queue."""

    topic: str = wire("topic")


@header
class QueryTopicConsumersRequest(RequestHeader):
    """Which groups consume a topic."""

    topic: str = wire("topic")


@header
class QueryConsumeTimeSpanRequest(RequestHeader):
    """From when to when the messages of each queue are, and which of them a group is at."""

    topic: str = wire("topic")
    group: str = wire("group")
