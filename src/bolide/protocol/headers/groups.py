"""Admin to broker, about groups: their configuration, their members and how far they are."""

from bolide.model.names import GroupName, Text, TopicName
from bolide.protocol.headers.header import RequestHeader, header, wire


@header
class DeleteGroupRequest(RequestHeader):
    """Delete a group. 5.x and 4.9 have different words for its offsets; we send both, and hear either."""

    group: GroupName = wire("groupName")
    is_offset_removed: bool = wire("cleanOffset", "removeOffset", default=False)


@header
class GetGroupConfigRequest(RequestHeader):
    """What a group is set to."""

    group: GroupName = wire("group")


@header
class UpdateGroupForbiddenRequest(RequestHeader):
    """May a group read a topic? Without `is_readable` only ask."""

    group: GroupName = wire("group")
    topic: TopicName = wire("topic")
    is_readable: bool | None = wire("readable", default=None)


@header
class GetConsumerConnectionsRequest(RequestHeader):
    """Who consumes in a group."""

    consumer_group: GroupName = wire("consumerGroup")


@header
class GetProducerConnectionsRequest(RequestHeader):
    """Who produces in a group."""

    producer_group: GroupName = wire("producerGroup")


@header
class GetConsumeStatsRequest(RequestHeader):
    """How far a group is, in all its topics or in some; `topics` is joined by `;`."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName | None = wire("topic", default=None)
    topics: Text | None = wire("topicList", default=None)


@header
class GetBrokerConsumeStatsRequest(RequestHeader):
    """How far all groups are, ordered or not."""

    is_ordered: bool = wire("isOrder")


@header
class QueryTopicsByConsumerRequest(RequestHeader):
    """Which topics a group has offsets in."""

    group: GroupName = wire("group")


@header
class QuerySubscriptionRequest(RequestHeader):
    """What a group subscribes to."""

    group: GroupName = wire("group")
    topic: TopicName | None = wire("topic", default=None)


@header
class QueryCorrectionOffsetRequest(RequestHeader):
    """Offsets of a topic for repair; `filter_groups` is joined by commas."""

    filter_groups: Text | None = wire("filterGroups", default=None)
    compare_group: GroupName = wire("compareGroup")
    topic: TopicName = wire("topic")


@header
class CloneGroupOffsetRequest(RequestHeader):
    """Let one group be where another is."""

    source_group: GroupName = wire("srcGroup")
    destination_group: GroupName = wire("destGroup")
    topic: TopicName | None = wire("topic", default=None)
    is_offline: bool = wire("offline", default=False)
