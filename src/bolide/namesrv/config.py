"""The name server's settings, under RocketMQ's names.

A Java namesrv.conf works as it is. Keys that steer threads and pools of the Java server have no effect here: they are
accepted, shown with the value they were given, and named in one warning. A key nobody knows stops the start, because a
misspelt setting that is silently ignored costs its owner an evening.

At run time (request 318) only what is safe to change while brokers are connected may change (`remoting/changes.py`).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolide.access.config import AccessConfig
from bolide.metrics.config import MetricsConfig
from bolide.remoting import config as remoting
from bolide.remoting.changes import LOG_LEVEL, LOG_LEVELS, ChangeRules, Live
from bolide.remoting.config import ConnectConfig, with_tls_file
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.operators import ADMIN_FROM, ANYWHERE, PLACES
from bolide.settings import OneOf, Range, all_keys_of, build_whole, check_bounds, check_keys, conf, shown_whole

PORT = 9876
_HOME = Path.home() / "namesrv"

# RocketMQ's defaults of its keys that steer nothing here.
WITHOUT_EFFECT = {
    # of the name server: home, environments, thread pools and their queues, the embedded controller
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
    **remoting.WITHOUT_EFFECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """How the name server behaves. `ignored` holds given keys without effect, to be shown as they were given."""

    kv_path: Path = conf("kvConfigPath", _HOME / "kvConfig.json")
    store_path: Path = conf("configStorePath", _HOME / "namesrv.properties")
    # RocketMQ 5 scans every 5 s; 10 s is what 4.x does and what this project's users expect.
    scan_interval_ms: int = conf("scanNotActiveBrokerInterval", 10_000, Range(100, 3_600_000))
    has_order_topics: bool = conf("orderMessageEnable", False)
    returns_order_topics: bool = conf("returnOrderTopicConfigToBroker", True)
    has_acting_masters: bool = conf("supportActingMaster", False)
    lists_all_topics: bool = conf("enableAllTopicList", True)
    lists_topics: bool = conf("enableTopicList", True)
    notifies_min_id: bool = conf("notifyMinBrokerIdChanged", False)
    notify_timeout_ms: int = conf("notifyMinBrokerIdChangeTimeoutMillis", 3_000, Range(1, 600_000))
    waits_for_brokers: bool = conf("needWaitForService", False)
    wait_s: int = conf("waitSecondsForService", 45, Range(0, 86_400))
    # our own: memory for all that brokers register, as `shares.py` reckons it
    registrations_size_max: int = conf("bolideRegistrationsSizeMax", 256 << 20, Range(1 << 20, 1 << 40))
    drops_missing_topics: bool = conf("deleteTopicWithBrokerRegistration", False)
    # our own: who may change things here; RocketMQ lets everybody, and its tools are used from other machines
    admin_from: str = conf(ADMIN_FROM, ANYWHERE, OneOf(PLACES))
    log_level: str = conf(LOG_LEVEL, "", OneOf(LOG_LEVELS))  # our own: empty is as --log-level has it
    black_list: str = conf("configBlackList", "configBlackList;configStorePath;kvConfigPath;rocketmqHome")
    access: AccessConfig = field(default_factory=AccessConfig)
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_bounds(self)


LiveConfig = Live[NamesrvConfig]
USED_KEYS = all_keys_of(NamesrvConfig)
RULES = ChangeRules(
    server="name server",
    command="updateNamesrvConfig",
    used=USED_KEYS,
    without_effect=WITHOUT_EFFECT,
    changeable=frozenset(
        {
            "scanNotActiveBrokerInterval",
            LOG_LEVEL,
            "orderMessageEnable",
            "returnOrderTopicConfigToBroker",
            "supportActingMaster",
            "enableAllTopicList",
            "enableTopicList",
            "notifyMinBrokerIdChanged",
            "notifyMinBrokerIdChangeTimeoutMillis",
            "deleteTopicWithBrokerRegistration",
            "bolideRegistrationsSizeMax",
        }
    ),
)


def read_config(properties: Mapping[str, str]) -> NamesrvConfig:
    """The whole configuration from its texts; raises ConfigError for a key or a value that cannot be honoured."""
    properties = with_tls_file(properties)
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    config = build_whole(NamesrvConfig, {"listenPort": str(PORT), **properties})
    return dataclasses.replace(config, ignored={key: properties[key] for key in ignored})


def shown(config: NamesrvConfig) -> dict[str, str]:
    """Every key with its text, those without effect too; stars for secrets."""
    return {**WITHOUT_EFFECT, **config.ignored, **shown_whole(config)}
