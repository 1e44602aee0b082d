"""The name server's settings, under RocketMQ's names.

A Java namesrv.conf works as it is. Keys that steer threads and pools of the Java server have no effect here: they are
accepted, shown with the value they were given, and named in one warning. A key nobody knows stops the start, because a
misspelt setting that is silently ignored costs its owner an evening.

At run time (request 318) only a white list may change: what is safe to change while brokers are connected. The rest is
refused with the reason. What was changed is kept at the end of the configuration file, under a line that says so, and
the owner's own lines and comments above it stay as they are.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolide.errors import ConfigError, Refusal
from bolide.protocol.codes import ResponseCode
from bolide.remoting.config import ConnectConfig, ListenConfig
from bolide.settings import build, check_keys, conf, dump, keys_of, read_properties, write_properties

PORT = 9876
_HOME = Path.home() / "namesrv"
_RUN_TIME_MARK = "# Changed at run time (mqadmin updateNamesrvConfig); later lines win over earlier ones."

# RocketMQ's defaults of its keys that steer nothing here.
WITHOUT_EFFECT = {
    # of the name server: home, environments, thread pools and their queues, the embedded controller
    "rocketmqHome": "",
    "productEnvName": "center",
    "clusterTest": "false",
    "clientRequestThreadPoolNums": "8",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "defaultThreadPoolNums": "16",
    "defaultThreadPoolQueueCapacity": "10000",
    "unRegisterBrokerQueueCapacity": "3000",
    "enableControllerInNamesrv": "false",
    # of the controller that may run beside it
    "enableStartupController": "false",
    "controllerType": "DLedger",
    "controllerDLegerGroup": "",
    "controllerDLegerPeers": "",
    "controllerDLegerSelfId": "",
    "controllerStorePath": "",
    "controllerThreadPoolNums": "16",
    "controllerRequestThreadPoolQueueCapacity": "50000",
    "controllerBrokerHeartbeatTimeoutMills": "30000",
    "mappedFileSize": "1073741824",
    "enableElectUncleanMaster": "false",
    "isProcessReadEvent": "false",
    "notifyBrokerRoleChanged": "true",
    "scanInactiveMasterInterval": "5000",
    "electMasterMaxRetryCount": "3",
    "jraftConfig": "",
    # of the listening side
    "serverWorkerThreads": "8",
    "serverCallbackExecutorThreads": "0",
    "serverSelectorThreads": "3",
    "serverOnewaySemaphoreValue": "256",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "serverNettyWorkerGroupEnable": "true",
    "serverPooledByteBufAllocatorEnable": "true",
    "writeBufferLowWaterMark": "0",
    "enableShutdownGracefully": "false",
    "useEpollNativeSelector": "false",
    # of the connecting side
    "clientWorkerThreads": "4",
    "clientCallbackExecutorThreads": "0",
    "clientOnewaySemaphoreValue": "65535",
    "clientSocketSndBufSize": "0",
    "clientSocketRcvBufSize": "0",
    "clientPooledByteBufAllocatorEnable": "false",
    "channelNotActiveInterval": "60000",
    "scanAvailableNameSrv": "true",
    "circuitBreakerEnable": "false",
    "circuitBreakerRecoverSecond": "180",
    "circuitBreakerDegradeRuleCount": "3",
    "circuitBreakerDegradeRuleSecond": "60",
    "disableCallbackExecutor": "false",
    "disableNettyWorkerGroup": "false",
    "maxReconnectIntervalTimeSeconds": "60",
    "enableReconnectForGoAway": "true",
    "enableTransparentRetry": "true",
    "socksProxyConfig": "{}",
    # of TLS: which side is checked follows from the files that are given
    "tls.enable": "false",
    "tls.config.file": "",
    "tls.server.authClient": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """How the name server behaves. `ignored` holds given keys without effect, to be shown as they were given."""

    kv_path: Path = conf("kvConfigPath", _HOME / "kvConfig.json")
    store_path: Path = conf("configStorePath", _HOME / "namesrv.properties")
    # RocketMQ 5 scans every 5 s; 10 s is what 4.x does and what this project's users expect.
    scan_interval_ms: int = conf("scanNotActiveBrokerInterval", 10_000)
    has_order_topics: bool = conf("orderMessageEnable", False)
    returns_order_topics: bool = conf("returnOrderTopicConfigToBroker", True)
    has_acting_masters: bool = conf("supportActingMaster", False)
    lists_all_topics: bool = conf("enableAllTopicList", True)
    lists_topics: bool = conf("enableTopicList", True)
    notifies_min_id: bool = conf("notifyMinBrokerIdChanged", False)
    notify_timeout_ms: int = conf("notifyMinBrokerIdChangeTimeoutMillis", 3_000)
    waits_for_brokers: bool = conf("needWaitForService", False)
    wait_s: int = conf("waitSecondsForService", 45)
    drops_missing_topics: bool = conf("deleteTopicWithBrokerRegistration", False)
    black_list: str = conf("configBlackList", "configBlackList;configStorePath;kvConfigPath;rocketmqHome")
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, low in (("scan_interval_ms", 1), ("notify_timeout_ms", 1), ("wait_s", 0)):
            value = getattr(self, name)
            if value < low:
                key = next(key for key, field_name in keys_of(NamesrvConfig).items() if field_name == name)
                raise ConfigError(key, value, f"must be at least {low}")


class CurrentConfig:
    """The configuration in force; only request 318 puts another in its place."""

    __slots__ = ("config",)

    def __init__(self, config: NamesrvConfig) -> None:
        self.config = config


USED_KEYS = frozenset(keys_of(NamesrvConfig)) | frozenset(keys_of(ListenConfig)) | frozenset(keys_of(ConnectConfig))
_RUN_TIME_KEYS = frozenset(
    {
        "scanNotActiveBrokerInterval",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "supportActingMaster",
        "enableAllTopicList",
        "enableTopicList",
        "notifyMinBrokerIdChanged",
        "notifyMinBrokerIdChangeTimeoutMillis",
        "deleteTopicWithBrokerRegistration",
    }
)


def read_config(properties: Mapping[str, str]) -> NamesrvConfig:
    """The whole configuration from its texts; raises ConfigError for a key or a value that cannot be honoured."""
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    config = build(NamesrvConfig, properties)
    return dataclasses.replace(
        config,
        listen=build(ListenConfig, {"listenPort": str(PORT), **properties}),
        connect=build(ConnectConfig, properties),
        ignored={key: properties[key] for key in ignored},
    )


def shown(config: NamesrvConfig) -> dict[str, str]:
    """Every key with its text but for secrets, those without effect too."""
    return {**WITHOUT_EFFECT, **config.ignored, **dump(config.connect), **dump(config.listen), **dump(config)}


def updated(config: NamesrvConfig, changes: Mapping[str, str]) -> NamesrvConfig:
    """The configuration after a change at run time: all of it or, refused with the reason, nothing."""
    black_list = {key.strip() for key in config.black_list.split(";")}
    for key in changes:
        _check_change(key, black_list)
    texts = dump(config)
    try:
        changed = build(NamesrvConfig, {**texts, **changes})
    except ConfigError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None
    return dataclasses.replace(changed, listen=config.listen, connect=config.connect, ignored=config.ignored)


def _check_change(key: str, black_list: set[str]) -> None:
    if key in black_list:
        raise Refusal(ResponseCode.NO_PERMISSION, f"{key} is in configBlackList: change it in the file and restart")
    if key in _RUN_TIME_KEYS:
        return
    if key in USED_KEYS:
        raise Refusal(ResponseCode.NO_PERMISSION, f"{key} is read at the start only: change it in the file and restart")
    if key in WITHOUT_EFFECT:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{key} has no effect in this name server, so it was not changed")
    try:
        check_keys({key: ""}, USED_KEYS, WITHOUT_EFFECT)
    except ConfigError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{key}: {problem.why}") from None


def with_changes(text: str, changes: Mapping[str, str]) -> str:
    """The text of a configuration file with `changes` noted at its end, after those noted there before."""
    own, _, noted = text.partition(_RUN_TIME_MARK)
    if own and not own.endswith("\n"):
        own += "\n"
    return f"{own}{_RUN_TIME_MARK}\n{write_properties({**read_properties(noted), **changes})}"
