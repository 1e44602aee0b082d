"""Slave to master, broker to broker: tables to copy, and who keeps the log."""

from bolide.model.names import Label, Text
from bolide.model.queue import PhysicalOffset
from bolide.protocol.headers.header import Header, Int32, RequestHeader, header, wire

# Our own, beside the fields of 906: the version of topics and groups that each has, and who asks.
TABLES_VERSION_FIELD = "bolideTablesVersion"
REPLICA_ID_FIELD = "bolideReplicaId"


@header
class GetAllTopicConfigRequest(RequestHeader):
    """All topics. Only peers after 5.3 ask in pages; everyone before sends no header at all, so nothing is required."""

    first: Int32 | None = wire("topicSeq", default=None)
    data_version: Text | None = wire("dataVersion", default=None)
    count_max: Int32 | None = wire("maxTopicNum", default=None)


@header
class GetAllTopicConfigAnswer(Header):
    """The total, which makes a paging peer ask on until it has that many; left out, one answer is all there is."""

    total_count: Int32 | None = wire("totalTopicNum", default=None)


@header
class GetAllGroupConfigRequest(RequestHeader):
    """All groups, in pages as above."""

    first: Int32 | None = wire("groupSeq", default=None)
    data_version: Text | None = wire("dataVersion", default=None)
    count_max: Int32 | None = wire("maxGroupNum", default=None)


@header
class GetAllGroupConfigAnswer(Header):
    """The total, as above."""

    total_count: Int32 | None = wire("totalGroupNum", default=None)


@header
class ExchangeHaStateRequest(RequestHeader):
    """What a broker knows of its master."""

    master_ha_address: Label | None = wire("masterHaAddress", default=None)
    master_flush_offset: PhysicalOffset | None = wire("masterFlushOffset", default=None)
    master_address: Label | None = wire("masterAddress", default=None)


@header
class ExchangeHaStateAnswer(Header):
    """What the other one knows."""

    master_ha_address: Label | None = wire("masterHaAddress", default=None)
    master_flush_offset: PhysicalOffset | None = wire("masterFlushOffset", default=None)
    master_address: Label | None = wire("masterAddress", default=None)


@header
class ResetMasterFlushOffsetRequest(RequestHeader):
    """Count the master's flushed bytes from here."""

    master_flush_offset: PhysicalOffset = wire("masterFlushOffset")
