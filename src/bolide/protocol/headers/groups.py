"""Admin to broker, about groups: their configuration, their members and how far they are."""

from bolide.protocol.headers.header import RequestHeader, header, wire


@header
class DeleteGroupRequest(RequestHeader):
    """Delete a group. 5.x and 4.9 have different words for its offsets; we send both, and hear either."""

    group: str = wire("groupName")
    is_offset_removed: bool = wire("cleanOffset", "removeOffset", default=False)


@header
class GetGroupConfigRequest(RequestHeader):
    """What a group is set to."""

    group: str = wire("group")


@header
class UpdateGroupForbiddenRequest(RequestHeader):
    """May a group read a topic? Without `is_readable` only ask."""

    group: str = wire("group")
    topic: str = wire("topic")
    is_readable: bool | None = wire("readable", default=None)


@header
class GetConsumerConnectionsRequest(RequestHeader):
    """Who consumes in a group."""

    consumer_group: str = wire("consumerGroup")


@header
class GetProducerConnectionsRequest(RequestHeader):
    """Who produces in a group."""

    producer_group: str = wire("producerGroup")


@header
class GetConsumeStatsRequest(RequestHeader):
    """How far a group is, in all its topics or in some; `topics` is joined by `;`."""

    consumer_group: str = wire("consumerGroup")
    topic: str | None = wire("topic", default=None)
    topics: str | None = wire("topicList", default=None)


@header
class GetBrokerConsumeStatsRequest(RequestHeader):
    """How far all groups are, ordered or not."""

    is_ordered: bool = wire("isOrder")


@header
class QueryTopicsByConsumerRequest(RequestHeader):
    """Which topics a group has offsets in."""

    group: str = wire("group")


@header
class QuerySubscriptionRequest(RequestHeader):
    """What a group subscribes to."""

    group: str = wire("group")
    topic: str | None = wire("topic", default=None)


@header
class QueryCorrectionOffsetRequest(RequestHeader):
    """Offsets of a topic for repair; `filter_groups` is joined by commas."""

    filter_groups: str | None = wire("filterGroups", default=None)
    compare_group: str = wire("compareGroup")
    topic: str = wire("topic")


@header
class CloneGroupOffsetRequest(RequestHeader):
    """Let one group be where another is."""

    source_group: str = wire("srcGroup")
    destination_group: str = wire("destGroup")
    topic: str | None = wire("topic", default=None)
    is_offline: bool = wire("offline", default=False)
