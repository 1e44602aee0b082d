"""What a broker tells of itself: rates, replication, timers.

| here | RocketMQ |
|---|---|
| `BrokerStats`, `StatsItem` | BrokerStatsData, BrokerStatsItem |
| `ReplicationState` | HARuntimeInfo |
| `ReplicaState`, `ReplicaConnection` | HAClientRuntimeInfo, HAConnectionRuntimeInfo |
| `TimerCounts`, `TimerCount` | TimerMetricsSerializeWrapper, Metric |
"""

from bolide.protocol.bodies.body import Body, always
from bolide.protocol.bodies.queues import Rates
from bolide.protocol.bodies.routes import DataVersion


class StatsItem(Rates, frozen=True, kw_only=True, gc=False):
    """One counter over some time: its sum, its rate, and the average of one event."""

    rocketmq_name = "BrokerStatsItem"

    avgpt: float = always(0.0)
    sum: int = always(0)
    tps: float = always(0.0)


class BrokerStats(Body, frozen=True, kw_only=True):
    """One counter over the last minute, hour and day."""

    rocketmq_name = "BrokerStatsData"

    stats_day: StatsItem = always(StatsItem())
    stats_hour: StatsItem = always(StatsItem())
    stats_minute: StatsItem = always(StatsItem())


class ReplicaState(Body, frozen=True, kw_only=True, gc=False):
    """A slave's side of replication."""

    rocketmq_name = "HAClientRuntimeInfo"

    last_read_timestamp: int = always(0)
    last_write_timestamp: int = always(0)
    master_addr: str | None = None
    master_flush_offset: int = always(0)
    max_offset: int = always(0)
    transferred_byte_in_second: int = always(0)


class ReplicaConnection(Body, frozen=True, kw_only=True, gc=False):
    """One slave as its master sees it; Java passes over what is our own."""

    rocketmq_name = "HAConnectionRuntimeInfo"

    addr: str = always("")
    bolide_lag_ms: int | None = None
    bolide_slave_id: int | None = None
    diff: int = always(0)
    in_sync: bool = always(False)
    slave_ack_offset: int = always(0)
    transfer_from_where: int = always(0)
    transferred_byte_in_second: int = always(0)


class ReplicationState(Body, frozen=True, kw_only=True):
    """How replication goes, from either side; Java passes over what is our own."""

    rocketmq_name = "HARuntimeInfo"

    bolide_is_acting: bool | None = None
    ha_client_runtime_info: ReplicaState = always(ReplicaState())
    ha_connection_info: list[ReplicaConnection] = always([])
    in_sync_slave_nums: int = always(0)
    is_master: bool = always(False, name="master")
    master_commit_log_max_offset: int = always(0)


class TimerCount(Body, frozen=True, kw_only=True, gc=False):
    """How many messages of a topic wait for their time."""

    rocketmq_name = "Metric"

    count: int = always(0)
    time_stamp: int = always(0)


class TimerCounts(Body, frozen=True, kw_only=True):
    """The same for all topics, for slaves."""

    rocketmq_name = "TimerMetricsSerializeWrapper"

    data_version: DataVersion | None = None
    timing_count: dict[str, TimerCount] = always({})
