"""The settings of the gRPC face, under the names of RocketMQ's rmq-proxy.json.

Keys that steer threads, caches and parts of Apache's proxy that are not here have no effect: they are accepted and
named in one warning. A key that nobody knows stops the start.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolide.access.config import AccessConfig
from bolide.errors import ConfigError
from bolide.metrics.config import MetricsConfig
from bolide.remoting import config as remoting
from bolide.remoting.config import ConnectConfig, with_tls_file
from bolide.remoting.listen_config import ListenConfig
from bolide.settings import OneOf, Range, as_text, build, check_bounds, check_keys, conf, dump, keys_of
from bolide.store.config import StoreConfig, delays_ms_of

PORT = 8081
_DAY_MS = 86_400_000
_SPANS_MS = Range(0, 30 * _DAY_MS)

# Apache's keys without an effect here, with its defaults as far as they were read.
WITHOUT_EFFECT = {
    "remotingListenPort": "8080",
    "enableRemotingLocalProxyGrpc": "true",
    "localServeAddr": "",
    "useEndpointPortFromRequest": "false",
    "topicRouteServiceCacheExpiredSeconds": "300",
    "topicRouteServiceCacheMaxNum": "20000",
    "subscriptionGroupConfigCacheExpiredSeconds": "1800",
    "subscriptionGroupConfigCacheMaxNum": "20000",
    "topicConfigCacheExpiredSeconds": "1800",
    "topicConfigCacheMaxNum": "20000",
    "topicConfigCacheRefreshSeconds": "20",
    "transactionHeartbeatPeriodSecond": "20",
    "transactionDataExpireMillis": "30000",
    "transactionDataMaxNum": "15",
    "enableBatchAck": "false",
    "metricCollectorMode": "off",
    "tlsTestModeEnable": "true",
    "tlsCertWatchIntervalMs": "3600000",
    "enableACL": "false",
    "enableAclRpcHookForClusterMode": "false",
    "grpcThreadPoolNums": "",
    "grpcThreadPoolQueueCapacity": "100000",
    "grpcBossLoopNum": "1",
    "grpcWorkerLoopNum": "",
    "enableGrpcEpoll": "false",
    **remoting.WITHOUT_EFFECT,
}
# Apache's spelling of what every port here has under another name.
_OURS = {"tlsKeyPath": "tls.server.keyPath", "tlsCertPath": "tls.server.certPath", "grpcServerPort": "listenPort"}
_OURS |= {"tlsKeyPassword": "tls.server.keyPassword"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortConfig:
    """What a connection may take."""

    message_size_max: int = conf("grpcMaxInboundMessageSize", 16 << 20, Range(1 << 16, 1 << 30))
    # Of requests that are not whole, over all connections.
    unwhole_size_max: int = conf("bolideGrpcUnfinishedBytesMax", 256 << 20, Range(1 << 20, 1 << 40))
    idle_ms: int = conf("grpcClientIdleTimeMills", 120_000, Range(1_000, 30 * _DAY_MS))
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT, alpn=("h2",)))

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """How clients are served."""

    mode: str = conf("proxyMode", "CLUSTER", OneOf(("CLUSTER", "LOCAL", "cluster", "local")))
    cluster: str = conf("rocketMQClusterName", "DefaultCluster")
    namesrv: str = conf("namesrvAddr", "")
    body_size_max: int = conf("maxMessageSize", 4 << 20, Range(0, 1 << 30))
    properties_size_max: int = conf("maxUserPropertySize", 16 << 10, Range(0, 32_767))
    properties_count_max: int = conf("userPropertyMaxNum", 128, Range(0, 1_000_000))
    group_size_max: int = conf("maxMessageGroupSize", 64, Range(0, 32_767))
    checks_types: bool = conf("enableTopicMessageTypeCheck", True)
    checks_empty: bool = conf("enableMessageBodyEmptyCheck", True)
    invisible_ms: int = conf("defaultInvisibleTimeMills", 60_000, Range(1_000, 3 * _DAY_MS))
    invisible_min_ms: int = conf("minInvisibleTimeMillsForRecv", 10_000, _SPANS_MS)
    invisible_max_ms: int = conf("maxInvisibleTimeMills", 12 * 3_600_000, Range(1_000, 3 * _DAY_MS))
    delay_max_ms: int = conf("maxDelayTimeMills", _DAY_MS, _SPANS_MS)
    # For brokers without a timer: a message waits for the first level that is longer than its time.
    uses_delay_levels: bool = conf("useDelayLevel", False)
    delay_levels: str = conf("messageDelayLevel", StoreConfig().delay_levels)
    recovery_max_s: int = conf("maxTransactionRecoverySecond", 3_600, Range(0, 30 * 86_400))
    polling_min_ms: int = conf("grpcClientConsumerMinLongPollingTimeoutMillis", 5_000, Range(0, 60_000))
    polling_max_ms: int = conf("grpcClientConsumerMaxLongPollingTimeoutMillis", 20_000, Range(1, 60_000))
    receive_count: int = conf("grpcClientConsumerLongPollingBatchSize", 32, Range(1, 32))
    send_attempts: int = conf("grpcClientProducerMaxAttempts", 3, Range(1, 100))
    send_backoff_ms: int = conf("grpcClientProducerBackoffInitialMillis", 10, Range(0, 3_600_000))
    send_backoff_max_ms: int = conf("grpcClientProducerBackoffMaxMillis", 1_000, Range(0, 3_600_000))
    send_backoff_factor: int = conf("grpcClientProducerBackoffMultiplier", 2, Range(1, 100))
    renews: bool = conf("enableProxyAutoRenew", True)
    renew_ahead_ms: int = conf("renewAheadTimeMillis", 10_000, Range(100, 3_600_000))
    renew_interval_ms: int = conf("renewSchedulePeriodMillis", 5_000, Range(100, 3_600_000))
    renew_max_ms: int = conf("renewMaxTimeMillis", 3 * 3_600_000, Range(1_000, 30 * _DAY_MS))
    renew_failures_max: int = conf("maxRenewRetryTimes", 3, Range(1, 100))
    released_ms: int = conf("invisibleTimeMillisWhenClear", 1_000, Range(0, 3_600_000))
    silence_max_ms: int = conf("channelExpiredTimeout", 120_000, Range(1_000, 30 * _DAY_MS))
    route_fresh_s: int = conf("topicRouteServiceCacheRefreshSeconds", 20, Range(1, 3_600))
    group_fresh_s: int = conf("subscriptionGroupConfigCacheRefreshSeconds", 20, Range(1, 3_600))
    # Handles that are renewed, clients that are known: what peers can make us keep.
    clients_max: int = conf("bolideGrpcClientsMax", 20_000, Range(1, 1_000_000))
    renewed_max: int = conf("bolideGrpcRenewedMax", 200_000, Range(0, 10_000_000))
    port: PortConfig = field(default_factory=PortConfig)
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)

    def __post_init__(self) -> None:
        check_bounds(self)
        delays_ms_of(self.delay_levels)
        access = self.access
        if access.is_authenticating and access.directory == Path():
            why = "names no directory: a proxy knows its clients' secrets by a users.json like a broker's"
            raise ConfigError("authConfigPath", "", why)
        if access.has_accounts and access.home == Path():
            raise ConfigError("rocketmqHome", "", "names no directory: accounts are in its conf/plain_acl.yml")


_ROOMS = (ProxyConfig, PortConfig, ListenConfig, ConnectConfig, AccessConfig, MetricsConfig)
USED_KEYS = frozenset(key for room in _ROOMS for key in keys_of(room)) | frozenset(_OURS)
# What a broker's settings can say of the port beside it, and what it has in common with the broker's own ports.
OWN_KEYS = frozenset(keys_of(ProxyConfig)) | frozenset(keys_of(PortConfig)) | {"grpcServerPort"}
SHARED_KEYS = frozenset(keys_of(ListenConfig)) - {"listenPort"} | {"maxMessageSize", "messageDelayLevel"}


def read_config(properties: Mapping[str, str]) -> tuple[ProxyConfig, list[str]]:
    """The configuration from its texts, and the keys without effect; raises ConfigError."""
    properties = with_tls_file(properties)
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    ours = {_OURS.get(key, key): value for key, value in properties.items()}
    port, listen = build(PortConfig, ours), build(ListenConfig, {"listenPort": str(PORT), **ours})
    listen = dataclasses.replace(listen, idle_max_s=max(1, port.idle_ms // 1000), alpn=("h2",))
    config = build(ProxyConfig, ours)
    port = dataclasses.replace(port, listen=listen)
    connect, access = build(ConnectConfig, ours), build(AccessConfig, ours)
    metrics = build(MetricsConfig, ours)
    return dataclasses.replace(config, port=port, connect=connect, access=access, metrics=metrics), ignored


def shown(config: ProxyConfig) -> dict[str, str]:
    """Every key with its text but for secrets."""
    rooms = (config.metrics, config.access, config.connect, config.port.listen, config.port, config)
    return {key: text for room in rooms for key, text in dump(room).items()}


def read_json(path: Path) -> dict[str, str]:
    """The settings of an rmq-proxy.json."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as problem:
        raise ConfigError(str(path), "", f"is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise ConfigError(str(path), type(found).__name__, "must be an object of settings, as rmq-proxy.json is")
    return {str(key): as_text(value) for key, value in found.items()}
