"""Broker to name server, and the one question back: who is here, with which topics, and who leads."""

from bolide.model.names import Label, TopicName
from bolide.model.queue import PhysicalOffset
from bolide.protocol.headers.header import Header, Int32, Int64, RequestHeader, header, wire


@header
class RegisterBrokerRequest(RequestHeader):
    """I am here. The body has the topics; `body_crc32` is its CRC cut to 31 bits, 0 when nobody should check."""

    broker_name: Label = wire("brokerName")
    broker_address: Label = wire("brokerAddr")
    cluster_name: Label = wire("clusterName")
    ha_address: Label = wire("haServerAddr")
    broker_id: Int64 = wire("brokerId")
    heartbeat_timeout_ms: Int64 | None = wire("heartbeatTimeoutMillis", default=None)
    is_acting_master_enabled: bool | None = wire("enableActingMaster", default=None)
    is_compressed: bool = wire("compressed", default=False)
    body_crc32: Int32 = wire("bodyCrc32", default=0)


@header
class RegisterBrokerAnswer(Header):
    """For a slave, where its master is."""

    ha_address: Label | None = wire("haServerAddr", default=None)
    master_address: Label | None = wire("masterAddr", default=None)


@header
class UnregisterBrokerRequest(RequestHeader):
    """I am leaving."""

    broker_name: Label = wire("brokerName")
    broker_address: Label = wire("brokerAddr")
    cluster_name: Label = wire("clusterName")
    broker_id: Int64 = wire("brokerId")


@header
class QueryDataVersionRequest(RequestHeader):
    """Is what you know of me still what I have? The body has my version."""

    broker_name: Label = wire("brokerName")
    broker_address: Label = wire("brokerAddr")
    cluster_name: Label = wire("clusterName")
    broker_id: Int64 = wire("brokerId")


@header
class QueryDataVersionAnswer(Header):
    """Whether the broker should register in full."""

    is_changed: bool = wire("changed")


@header
class RegisterTopicRequest(RequestHeader):
    """One topic, without the rest; the body has its queues."""

    topic: TopicName = wire("topic")


@header
class BrokerHeartbeatRequest(RequestHeader):
    """I am still here. The last five are for a controller."""

    cluster_name: Label = wire("clusterName")
    broker_address: Label = wire("brokerAddr")
    broker_name: Label = wire("brokerName")
    broker_id: Int64 | None = wire("brokerId", default=None)
    epoch: Int32 | None = wire("epoch", default=None)
    max_offset: PhysicalOffset | None = wire("maxOffset", default=None)
    confirm_offset: PhysicalOffset | None = wire("confirmOffset", default=None)
    heartbeat_timeout_ms: Int64 | None = wire("heartbeatTimeoutMills", default=None)  # sic
    election_priority: Int32 | None = wire("electionPriority", default=None)


@header
class GetBrokerMembersRequest(RequestHeader):
    """Who else bears my broker name."""

    cluster_name: Label = wire("clusterName")
    broker_name: Label = wire("brokerName")


@header
class NotifyLeastBrokerIdRequest(RequestHeader):
    """Name server to broker: the smallest id under your name is now another's."""

    least_broker_id: Int64 | None = wire("minBrokerId", default=None)
    broker_name: Label | None = wire("brokerName", default=None)
    least_broker_address: Label | None = wire("minBrokerAddr", default=None)
    offline_broker_address: Label | None = wire("offlineBrokerAddr", default=None)
    ha_address: Label | None = wire("haBrokerAddr", default=None)
