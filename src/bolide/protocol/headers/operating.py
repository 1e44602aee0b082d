"""Admin to broker, about the broker itself: configuration, statistics, its files."""

from bolide.model.names import GroupName, Key, Label, Text, TopicName
from bolide.model.queue import QueueOffset
from bolide.protocol.headers.header import Header, Int32, Int64, RequestHeader, header, wire


@header
class GetBrokerConfigAnswer(Header):
    """The version of the configuration in the body, as JSON."""

    version: Text = wire("version")


@header
class ViewBrokerStatsRequest(RequestHeader):
    """One series of the broker's statistics; the key is a topic or `topic@group`."""

    stats_name: Label = wire("statsName")
    stats_key: Key = wire("statsKey")


@header
class QueryConsumeQueueRequest(RequestHeader):
    """The entries of a consume queue, and whether a group's filter lets them through."""

    topic: TopicName | None = wire("topic", default=None)
    queue_id: Int32 = wire("queueId", default=0)
    first_offset: QueueOffset = wire("index", default=QueueOffset(0))
    entry_count: Int32 = wire("count", default=0)
    consumer_group: GroupName | None = wire("consumerGroup", default=None)


@header
class ResumeCheckHalfMessageRequest(RequestHeader):
    """Ask again after a half message that was given up."""

    topic: TopicName | None = wire("topic", default=None)
    message_id: Key | None = wire("msgId", default=None)


@header
class AddBrokerRequest(RequestHeader):
    """Start another broker in a broker container."""

    config_path: Text | None = wire("configPath", default=None)


@header
class RemoveBrokerRequest(RequestHeader):
    """Stop one."""

    broker_name: Label = wire("brokerName")
    cluster_name: Label = wire("brokerClusterName")
    broker_id: Int64 = wire("brokerId")


@header
class CheckRocksdbQueuesRequest(RequestHeader):
    """Compare the two kinds of consume queue a 5.x broker may keep."""

    topic: TopicName = wire("topic")
    since_ms: Int64 = wire("checkStoreTime", default=0)


@header
class ExportRocksdbConfigRequest(RequestHeader):
    """Write tables kept in RocksDB to the JSON files of other brokers."""

    config_type: Label = wire("configType")


@header
class SetLogReadModeRequest(RequestHeader):
    """How the kernel should read ahead in the log."""

    read_ahead_mode: Label | None = wire("READ_AHEAD_MODE", default=None)
