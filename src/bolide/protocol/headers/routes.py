"""Client and admin to name server: routes, key-value configuration, write permission, topic lists."""

from bolide.model.names import Key, Label, Text, TopicName
from bolide.protocol.headers.header import Header, Int32, RequestHeader, header, wire

# Beside the list of brokers, in an answer of ours: those that left lately, as JSON lists of name, address and how.
DEPARTED_FIELD = "bolideDeparted"


@header
class GetRouteRequest(RequestHeader):
    """Where a topic lives; `is_standard_json` asks for quoted keys whatever the client's version."""

    topic: TopicName = wire("topic")
    is_standard_json: bool | None = wire("acceptStandardJsonOnly", default=None)


@header
class PutKvRequest(RequestHeader):
    """Keep a value."""

    namespace: Label = wire("namespace")
    key: Key = wire("key")
    value: Text = wire("value")


@header
class GetKvRequest(RequestHeader):
    """Read a value."""

    namespace: Label = wire("namespace")
    key: Key = wire("key")


@header
class GetKvAnswer(Header):
    """The value."""

    value: Text | None = wire("value", default=None)


@header
class DeleteKvRequest(RequestHeader):
    """Forget a value."""

    namespace: Label = wire("namespace")
    key: Key = wire("key")


@header
class GetKvListRequest(RequestHeader):
    """All values of a namespace."""

    namespace: Label = wire("namespace")


@header
class WipeWritePermissionRequest(RequestHeader):
    """Let no more messages be sent to a broker."""

    broker_name: Label = wire("brokerName")


@header
class WipeWritePermissionAnswer(Header):
    """How many topics it concerned."""

    topic_count: Int32 = wire("wipeTopicCount")


@header
class AddWritePermissionRequest(RequestHeader):
    """Let messages be sent to it again."""

    broker_name: Label = wire("brokerName")


@header
class AddWritePermissionAnswer(Header):
    """How many topics it concerned."""

    topic_count: Int32 = wire("addTopicCount")


@header
class DeleteTopicInNamesrvRequest(RequestHeader):
    """Forget a topic's route, everywhere or in one cluster."""

    topic: TopicName = wire("topic")
    cluster_name: Label | None = wire("clusterName", default=None)


@header
class GetTopicsByClusterRequest(RequestHeader):
    """The topics that have a queue in a cluster."""

    cluster_name: Label = wire("cluster")
