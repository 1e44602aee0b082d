"""The broker's settings, under RocketMQ's names: a Java broker.conf works as it is.

Keys that steer threads and pools of the Java broker have no effect here (`ignored.py`): they are accepted, shown with
the value they were given, and named in one warning. A key nobody knows stops the start, and so does a value that asks
for what this broker cannot do and must not be silent about (`refused.py`).

At run time (request 25) only what is read each time it is needed may change; anyone who keeps something made from a
setting is told through `LiveConfig.listen`.
"""

import dataclasses
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolide.access.config import AccessConfig
from bolide.broker.settings.ignored import WITHOUT_EFFECT
from bolide.broker.settings.refused import refuse_beyond
from bolide.broker.settings.replication import ReplicationConfig, with_safety
from bolide.errors import ConfigError, Refusal
from bolide.ha.config import HaConfig
from bolide.metrics.config import MetricsConfig
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.protocol.codes import ResponseCode
from bolide.remoting.changes import LOG_LEVEL, LOG_LEVELS, ChangeRules
from bolide.remoting.config import ConnectConfig, with_tls_file
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.operators import ADMIN_FROM, ANYWHERE, PLACES
from bolide.settings import (
    INT32_MAX,
    INT64_MAX,
    PERCENTS,
    PORTS,
    Name,
    OneOf,
    Range,
    build,
    check_bounds,
    check_keys,
    conf,
    dump,
    keys_of,
    masked,
)
from bolide.store.config import SLAVE, StoreConfig

PORT = 10911
DAY_MS = 86_400_000
_MOMENTS = Range(0, 253_402_300_799_999, "milliseconds since 1970, up to the year 9999")
# RocketMQ 4.0 misspelt two keys, and files of that time are still about.
_OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How the broker behaves. `ignored` holds given keys without effect, to be shown as they were given."""

    name: str = conf("brokerName", socket.gethostname(), Name(127))
    cluster: str = conf("brokerClusterName", "DefaultCluster", Name(100))
    broker_id: int = conf("brokerId", 0, Range(0, INT32_MAX, "0 for a master and more for a slave"))
    advertised_host: str = conf("brokerIP1", "")
    # our own: beside brokerIP1, where the port is mapped too
    advertised_port: int = conf("bolideAdvertisedPort", 0, PORTS)
    ha_host: str = conf("brokerIP2", "")
    namesrv: str = conf("namesrvAddr", "")
    permission: int = conf("brokerPermission", 6, Range(0, 7, "read is 4, write is 2"))
    region: str = conf("regionId", "DefaultRegion")
    is_traced: bool = conf("traceOn", True)
    config_path: str = conf("brokerConfigPath", "")
    # our own: who may change things here; RocketMQ lets everybody, and its tools are used from other machines
    admin_from: str = conf(ADMIN_FROM, ANYWHERE, OneOf(PLACES))
    log_level: str = conf(LOG_LEVEL, "", OneOf(LOG_LEVELS))  # our own: empty is as --log-level has it
    black_list: str = conf("configBlackList", "configBlackList;brokerConfigPath")

    topic_queue_count: int = conf("defaultTopicQueueNums", 8, Range(1, QUEUE_COUNT_MAX))
    creates_topics: bool = conf("autoCreateTopicEnable", True)
    creates_groups: bool = conf("autoCreateSubscriptionGroup", True)
    has_cluster_topic: bool = conf("clusterTopicEnable", True)
    has_broker_topic: bool = conf("brokerTopicEnable", True)
    has_trace_topic: bool = conf("traceTopicEnable", False)
    trace_topic: str = conf("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC")

    register_interval_ms: int = conf("registerNameServerPeriod", 30_000, Range(1, INT32_MAX))
    register_timeout_ms: int = conf("registerBrokerTimeoutMills", 24_000, Range(1_000, 600_000))
    registers_always: bool = conf("forceRegister", True)
    register_compressed: bool = conf("compressedRegister", False)
    offset_save_interval_ms: int = conf("flushConsumerOffsetInterval", 5_000, Range(100, DAY_MS))

    polls_long: bool = conf("longPollingEnable", True)
    short_poll_ms: int = conf("shortPollingTimeMills", 1_000, Range(10, 600_000))
    reads_from_slave: bool = conf("slaveReadEnable", False)
    notifies_members: bool = conf("notifyConsumerIdsChangedEnable", True)
    # a system property in Java
    lock_life_ms: int = conf("rocketmq.broker.rebalance.lockMaxLiveTime", 60_000, Range(1_000, DAY_MS))
    refuses_conflicts: bool = conf("bolideRefuseSubscriptionConflict", False)  # our own: `conflicts.py`
    has_property_filter: bool = conf("enablePropertyFilter", False)
    filters_retries: bool = conf("filterSupportRetry", False)
    filter_life_ms: int = conf("filterDataCleanTimeSpan", 86_400_000, Range(1_000, 3_650 * DAY_MS))
    filter_error_percent: int = conf("maxErrorRateOfBloomFilter", 20, Range(1, 99))
    filter_group_count: int = conf("expectConsumerNumUseFilter", 32, Range(1, 1_000_000))
    filter_server_count: int = conf("filterServerNums", 0, Range(0, 64))
    filter_server_file: str = conf("bolideFilterServerConfig", "")  # our own: the settings of those that are started
    resets_at_server: bool = conf("useServerSideResetOffset", True)
    accepts_sends_from_ms: int = conf("startAcceptSendRequestTimeStamp", 0, _MOMENTS)
    stores_replies: bool = conf("storeReplyMessageEnable", True)
    refuses_transactions: bool = conf("rejectTransactionMessage", False)
    transaction_timeout_ms: int = conf("transactionTimeOut", 6_000, Range(1, INT32_MAX))
    transaction_check_max: int = conf("transactionCheckMax", 15, Range(1, 1_000_000))
    transaction_check_interval_ms: int = conf("transactionCheckInterval", 30_000, Range(10, DAY_MS))
    op_size_max: int = conf("transactionOpMsgMaxSize", 4_096, Range(1, 1 << 20))
    op_interval_ms: int = conf("transactionOpBatchInterval", 3_000, Range(0, 600_000))
    recalls: bool = conf("recallMessageEnable", False)
    mixes_types: bool = conf("enableMixedMessageType", False)
    recalls_unless_writable: bool = conf("allowRecallWhenBrokerNotWriteable", True)
    fails_fast: bool = conf("brokerFastFailureEnable", True)
    send_wait_max_ms: int = conf("waitTimeMillsInSendQueue", 200, Range(10, 600_000))
    refuses_pulls: bool = conf("rejectPullConsumerEnable", False)
    protects_from_slow: bool = conf("disableConsumeIfConsumerReadSlowly", False)
    slow_size_max: int = conf("consumerFallbehindThreshold", 17_179_869_184, Range(1, INT64_MAX))

    revive_queue_count: int = conf("reviveQueueNum", 8, Range(1, 1_024))
    revive_interval_ms: int = conf("reviveInterval", 1_000, Range(10, 600_000))
    request_mode: str = conf("defaultMessageRequestMode", "PULL", OneOf(("PULL", "POP")))
    pop_share_count: int = conf("defaultPopShareQueueNum", -1, Range(-1, QUEUE_COUNT_MAX))
    balances_load: bool = conf("serverLoadBalancerEnable", True)
    pop_waiting_max: int = conf("popPollingSize", 1_024, Range(1, 1_000_000))
    pop_waiting_total_max: int = conf("maxPopPollingSize", 100_000, Range(1, 10_000_000))
    pop_retry_percent: int = conf("popFromRetryProbability", 20, PERCENTS)
    makes_retry_topics_v2: bool = conf("enableRetryTopicV2", False)
    reads_retry_topics_v1: bool = conf("retrieveMessageFromPopRetryTopicV1", True)
    shows_retry_topics: bool = conf("popResponseReturnActualRetryTopic", False)

    store: StoreConfig = field(default_factory=StoreConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    ha: HaConfig = field(default_factory=HaConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.store.role == SLAVE and self.broker_id <= 0 and not self.replication.is_controlled:
            raise ConfigError("brokerId", self.broker_id, "a slave's id must be more than 0: 0 is the master's")

    @property
    def directory(self) -> Path:
        """Where the tables are kept."""
        return self.store.root / "config"

    @property
    def changes_path(self) -> Path:
        """Where changes at run time are kept: the file that was given, or one beside the tables."""
        return Path(self.config_path) if self.config_path else self.directory / "broker.properties"

    @property
    def register_every_s(self) -> float:
        return max(10_000, min(self.register_interval_ms, 60_000)) / 1000


class LiveConfig:
    """The configuration in force; only request 25 puts another in its place, and those who `listen` are told."""

    __slots__ = ("_on_change", "now")

    def __init__(self, config: BrokerConfig) -> None:
        self.now = config
        self._on_change: list[Callable[[], None]] = []

    def listen(self, tell: Callable[[], None]) -> None:
        """Have it told whenever the settings changed."""
        self._on_change.append(tell)

    def replace(self, config: BrokerConfig) -> None:
        """Put another configuration in place."""
        self.now = config
        for tell in self._on_change:
            tell()


_ROOMS = (
    *(AccessConfig, BrokerConfig, StoreConfig, ListenConfig),
    *(ConnectConfig, ReplicationConfig, HaConfig, MetricsConfig),
)
USED_KEYS = frozenset(key for room in _ROOMS for key in keys_of(room))


RULES = ChangeRules(
    server="broker",
    command="updateBrokerConfig",
    used=USED_KEYS,
    without_effect=WITHOUT_EFFECT,
    changeable=frozenset(
        {
            "brokerPermission",
            LOG_LEVEL,
            "traceOn",
            "defaultTopicQueueNums",
            "autoCreateTopicEnable",
            "autoCreateSubscriptionGroup",
            "registerNameServerPeriod",
            "registerBrokerTimeoutMills",
            "forceRegister",
            "compressedRegister",
            "flushConsumerOffsetInterval",
            "longPollingEnable",
            "shortPollingTimeMills",
            "slaveReadEnable",
            "notifyConsumerIdsChangedEnable",
            "enablePropertyFilter",
            "filterSupportRetry",
            "filterDataCleanTimeSpan",
            "useServerSideResetOffset",
            "bolideRefuseSubscriptionConflict",
            "startAcceptSendRequestTimeStamp",
            "storeReplyMessageEnable",
            "rejectTransactionMessage",
            "transactionTimeOut",
            "transactionCheckMax",
            "transactionCheckInterval",
            "transactionOpMsgMaxSize",
            "transactionOpBatchInterval",
            "recallMessageEnable",
            "enableMixedMessageType",
            "allowRecallWhenBrokerNotWriteable",
            "brokerFastFailureEnable",
            "waitTimeMillsInSendQueue",
            "rejectPullConsumerEnable",
            "disableConsumeIfConsumerReadSlowly",
            "consumerFallbehindThreshold",
            "reviveInterval",
            "defaultMessageRequestMode",
            "defaultPopShareQueueNum",
            "serverLoadBalancerEnable",
            "popPollingSize",
            "maxPopPollingSize",
            "popFromRetryProbability",
            "enableRetryTopicV2",
            "retrieveMessageFromPopRetryTopicV1",
            "popResponseReturnActualRetryTopic",
            # of the store, which asks its configuration each time
            "maxMessageSize",
            "maxMsgsNumBatch",
            "deleteWhen",
            "fileReservedTime",
            "deleteFileBatchMax",
            "cleanResourceInterval",
            "cleanFileForciblyEnable",
            "diskMaxUsedSpaceRatio",
            "diskSpaceCleanForciblyRatio",
            "diskSpaceWarningLevelRatio",
            "bolideLogSizeMax",
            "osPageCacheBusyTimeOutMills",
            "syncFlushTimeout",
            "flushDelayOffsetInterval",
            "timerMaxDelaySec",
            "timerCongestNumEachSlot",
            "timerFlushIntervalMs",
            "timerStopEnqueue",
            "timerStopDequeue",
            # of replication
            "slaveTimeout",
            "inSyncReplicas",
            "minInSyncReplicas",
            "enableAutoInSyncReplicas",
            "offsetCheckInSlave",
            "haMaxGapNotInSync",
            "haSlaveFallbehindMax",
        }
    ),
)


def read_config(properties: Mapping[str, str]) -> BrokerConfig:
    """The whole configuration from its texts; raises ConfigError for a key or a value that cannot be honoured."""
    properties = with_safety(_respelt(with_tls_file(properties)))
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    refuse_beyond(properties)
    config, store = build(BrokerConfig, properties), build(StoreConfig, properties)
    listen = build(ListenConfig, {"listenPort": str(PORT), **properties})
    if "maxMessageSize" in properties:
        _check_body_fits(store, listen)
    return dataclasses.replace(
        config,
        broker_id=config.broker_id if store.role == SLAVE else 0,  # as Java does: a master is number 0
        store=store,
        access=build(AccessConfig, properties),
        listen=listen,
        connect=build(ConnectConfig, properties),
        replication=build(ReplicationConfig, properties),
        ha=build(HaConfig, properties),
        metrics=build(MetricsConfig, properties),
        ignored={key: properties[key] for key in ignored},
    )


def _check_body_fits(store: StoreConfig, listen: ListenConfig) -> None:
    """A limit that was asked for is one that can be used; the default may be more, for small logs and frames."""
    for key, limit in (
        ("com.rocketmq.remoting.frameMaxLength", listen.frame_size_max),
        ("mappedFileSizeCommitLog", store.segment_size),
    ):
        if store.body_size_max > limit:
            why = f"must be at most {limit}, for {key} is {limit}; raise that one first"
            raise ConfigError("maxMessageSize", store.body_size_max, why)


def _respelt(properties: Mapping[str, str]) -> dict[str, str]:
    respelt = {_OLD_SPELLINGS.get(key, key): value for key, value in properties.items()}
    return {**respelt, **{key: value for key, value in properties.items() if key not in _OLD_SPELLINGS}}


def shown(config: BrokerConfig) -> dict[str, str]:
    """Every key with its text, those without effect too; stars for secrets."""
    of_wire = (config.metrics, config.access, config.ha, config.connect, config.listen)
    rooms = (*of_wire, config.store, config.replication, config)
    used = {key: text for room in rooms for key, text in (dump(room) | masked(room)).items()}
    idle = {**WITHOUT_EFFECT, **config.ignored}
    return {**idle, **used}


def updated(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """The configuration after a change at run time: all of it or, refused with the reason, nothing."""
    RULES.check(changes, config.black_list)
    try:
        changed = build(BrokerConfig, {**dump(config), **changes})
        store = build(StoreConfig, {**dump(config.store), **changes})
        replication = build(ReplicationConfig, {**dump(config.replication), **changes})
        with_safety({**dump(replication)})
        ha = build(HaConfig, {**dump(config.ha), **changes})
        if "maxMessageSize" in changes:
            _check_body_fits(store, config.listen)
    except ConfigError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None
    changed = dataclasses.replace(changed, store=store, replication=replication, ha=ha, metrics=config.metrics)
    return dataclasses.replace(
        changed, access=config.access, listen=config.listen, connect=config.connect, ignored=config.ignored
    )
