"""The broker's settings, under RocketMQ's names: a Java broker.conf works as it is.

Keys that steer threads and pools of the Java broker have no effect here (`ignored.py`): they are accepted, shown with
the value they were given, and named in one warning. A key nobody knows stops the start.
"""

import dataclasses
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolide.broker.ignored import WITHOUT_EFFECT
from bolide.errors import ConfigError
from bolide.remoting.config import ConnectConfig, ListenConfig
from bolide.settings import build, check_keys, conf, dump, keys_of
from bolide.store.config import StoreConfig

PORT = 10911


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How the broker behaves. `ignored` holds given keys without effect, to be shown as they were given."""

    name: str = conf("brokerName", socket.gethostname())
    cluster: str = conf("brokerClusterName", "DefaultCluster")
    broker_id: int = conf("brokerId", 0)
    advertised_host: str = conf("brokerIP1", "")
    ha_host: str = conf("brokerIP2", "")
    namesrv: str = conf("namesrvAddr", "")
    permission: int = conf("brokerPermission", 6)
    region: str = conf("regionId", "DefaultRegion")
    is_traced: bool = conf("traceOn", True)
    config_path: str = conf("brokerConfigPath", "")

    topic_queue_count: int = conf("defaultTopicQueueNums", 8)
    creates_topics: bool = conf("autoCreateTopicEnable", True)
    creates_groups: bool = conf("autoCreateSubscriptionGroup", True)
    has_cluster_topic: bool = conf("clusterTopicEnable", True)
    has_broker_topic: bool = conf("brokerTopicEnable", True)
    has_trace_topic: bool = conf("traceTopicEnable", False)
    trace_topic: str = conf("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC")

    register_interval_ms: int = conf("registerNameServerPeriod", 30_000)
    register_timeout_ms: int = conf("registerBrokerTimeoutMills", 24_000)
    registers_always: bool = conf("forceRegister", True)
    register_compressed: bool = conf("compressedRegister", False)
    offset_save_interval_ms: int = conf("flushConsumerOffsetInterval", 5_000)

    polls_long: bool = conf("longPollingEnable", True)
    short_poll_ms: int = conf("shortPollingTimeMills", 1_000)
    reads_from_slave: bool = conf("slaveReadEnable", False)
    notifies_members: bool = conf("notifyConsumerIdsChangedEnable", True)
    has_property_filter: bool = conf("enablePropertyFilter", False)
    resets_at_server: bool = conf("useServerSideResetOffset", True)
    accepts_sends_from_ms: int = conf("startAcceptSendRequestTimeStamp", 0)
    refuses_transactions: bool = conf("rejectTransactionMessage", False)
    fails_fast: bool = conf("brokerFastFailureEnable", True)
    send_wait_max_ms: int = conf("waitTimeMillsInSendQueue", 200)
    refuses_pulls: bool = conf("rejectPullConsumerEnable", False)
    protects_from_slow: bool = conf("disableConsumeIfConsumerReadSlowly", False)
    slow_size_max: int = conf("consumerFallbehindThreshold", 17_179_869_184)

    revive_queue_count: int = conf("reviveQueueNum", 8)
    revive_interval_ms: int = conf("reviveInterval", 1_000)

    store: StoreConfig = field(default_factory=StoreConfig)
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.permission <= 7:
            raise ConfigError("brokerPermission", self.permission, "must be 0 to 7: read is 4, write is 2")
        if self.store.role == "SLAVE" and self.broker_id <= 0:
            raise ConfigError("brokerId", self.broker_id, "a slave's id must be more than 0")

    @property
    def directory(self) -> Path:
        """Where the tables are kept."""
        return self.store.root / "config"

    @property
    def register_every_s(self) -> float:
        return max(10_000, min(self.register_interval_ms, 60_000)) / 1000


class CurrentConfig:
    """The configuration in force; only request 25 puts another in its place."""

    __slots__ = ("config",)

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config


_ROOMS = (BrokerConfig, StoreConfig, ListenConfig, ConnectConfig)
USED_KEYS = frozenset(key for room in _ROOMS for key in keys_of(room))


def read_config(properties: Mapping[str, str]) -> BrokerConfig:
    """The whole configuration from its texts; raises ConfigError for a key or a value that cannot be honoured."""
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    return dataclasses.replace(
        build(BrokerConfig, properties),
        store=build(StoreConfig, properties),
        listen=build(ListenConfig, {"listenPort": str(PORT), **properties}),
        connect=build(ConnectConfig, properties),
        ignored={key: properties[key] for key in ignored},
    )


def shown(config: BrokerConfig) -> dict[str, str]:
    """Every key with its text but for secrets, those without effect too."""
    rooms = (config.connect, config.listen, config.store, config)
    return {**WITHOUT_EFFECT, **config.ignored, **{key: text for room in rooms for key, text in dump(room).items()}}
