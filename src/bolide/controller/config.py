"""The controller's settings, under RocketMQ's names.

A Java controller.conf works as it is, as long as it names one peer: `controllerDLegerPeers` and
`controllerDLegerSelfId` say where this controller listens and by which address brokers reach it, `controllerStorePath`
where its groups are kept. Several controllers share an etcd (`bolideEtcdEndpoints`) instead of a log of their own; then
each of them names itself. Keys of Raft libraries have no effect here: they are accepted, shown, and named in a warning.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolide.access.config import AccessConfig
from bolide.errors import ConfigError
from bolide.metrics.config import MetricsConfig
from bolide.remoting import config as remoting
from bolide.remoting.changes import LOG_LEVEL, LOG_LEVELS, ChangeRules, Live
from bolide.remoting.config import ConnectConfig, with_tls_file
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.operators import ADMIN_FROM, ANYWHERE, PLACES
from bolide.settings import (
    Name,
    OneOf,
    Range,
    all_keys_of,
    build,
    build_whole,
    check_bounds,
    check_keys,
    conf,
    shown_whole,
)

PORT = 9877
_HOME = Path.home() / "controller"
_PEER = re.compile(r"(?P<id>[^-;]+)-(?P<host>[^;]+):(?P<port>[0-9]{1,5})")

# RocketMQ's defaults of its keys that steer nothing here.
WITHOUT_EFFECT = {
    "controllerType": "DLedger",
    "controllerThreadPoolNums": "16",
    "controllerRequestThreadPoolQueueCapacity": "50000",
    "mappedFileSize": "1073741824",
    "isProcessReadEvent": "false",
    "electMasterMaxRetryCount": "3",  # it is tried until it succeeds
    "scanNotActiveBrokerInterval": "5000",
    "jraftConfig": "",
    "jRaftGroupId": "jRaft-Controller",
    "jRaftServerId": "localhost:9880",
    "jRaftInitConf": "localhost:9880,localhost:9881,localhost:9882",
    "jRaftControllerRPCAddr": "localhost:9770,localhost:9771,localhost:9772",
    "jRaftElectionTimeoutMs": "1000",
    "jRaftScanWaitTimeoutMs": "1000",
    "jRaftSnapshotIntervalSecs": "3600",
    "metricLoggingExporterIntervalInMills": "10000",
    "metricsInDelta": "false",
    **remoting.WITHOUT_EFFECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """How a controller behaves. `ignored` holds given keys without effect, to be shown as they were given."""

    group: str = conf("controllerDLegerGroup", "bolide", Name(100))
    peers: str = conf("controllerDLegerPeers", "")
    self_id: str = conf("controllerDLegerSelfId", "")
    data_path: Path = conf("controllerStorePath", _HOME)
    store_path: Path = conf("configStorePath", _HOME / "controller.properties")
    scan_interval_ms: int = conf("scanInactiveMasterInterval", 5_000, Range(100, 3_600_000))
    is_unclean_allowed: bool = conf("enableElectUncleanMaster", False)
    notifies_brokers: bool = conf("notifyBrokerRoleChanged", True)
    # our own: addresses of etcd's nodes (`http://host:2379`), separated by commas
    etcd_endpoints: str = conf("bolideEtcdEndpoints", "")
    etcd_timeout_ms: int = conf("bolideEtcdTimeoutMillis", 1_500, Range(100, 60_000))
    # our own: how many broker names are kept, each with up to 64 brokers; a stranger could register without end
    names_max: int = conf("bolideBrokerNamesMax", 1_000, Range(1, 100_000))
    # our own: by which address brokers reach this controller, where that is not the one it listens on
    address: str = conf("bolideControllerAddress", "")
    admin_from: str = conf(ADMIN_FROM, ANYWHERE, OneOf(PLACES))
    log_level: str = conf(LOG_LEVEL, "", OneOf(LOG_LEVELS))  # our own: empty is as --log-level has it
    black_list: str = conf("configBlackList", "configBlackList;configStorePath")
    access: AccessConfig = field(default_factory=AccessConfig)
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_bounds(self)


LiveConfig = Live[ControllerConfig]
USED_KEYS = all_keys_of(ControllerConfig)
RULES = ChangeRules(
    server="controller",
    command="updateControllerConfig",
    used=USED_KEYS,
    without_effect=WITHOUT_EFFECT,
    changeable=frozenset(
        {
            "scanInactiveMasterInterval",
            LOG_LEVEL,
            "enableElectUncleanMaster",
            "notifyBrokerRoleChanged",
            "bolideBrokerNamesMax",
        }
    ),
)


def read_config(properties: Mapping[str, str]) -> ControllerConfig:
    """The whole configuration from its texts; raises ConfigError for a key or a value that cannot be honoured."""
    properties = with_tls_file(properties)
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    if properties.get("controllerType", "DLedger").strip().lower() == "jraft":
        why = "Bolide has no JRaft; leave it out, and share an etcd with bolideEtcdEndpoints where there are several"
        raise ConfigError("controllerType", properties["controllerType"], why)
    config = _at_own_peer(build_whole(ControllerConfig, {"listenPort": str(PORT), **properties}))
    own_port = config.address.rpartition(":")[2]
    if own_port and config.peers:
        config = dataclasses.replace(config, listen=build(ListenConfig, {"listenPort": own_port, **properties}))
    return dataclasses.replace(config, ignored={key: properties[key] for key in ignored})


def _at_own_peer(config: ControllerConfig) -> ControllerConfig:
    """With the address that the list of peers has for this one."""
    texts = [text.strip() for text in config.peers.split(";") if text.strip()]
    found = {match["id"]: f"{match['host']}:{match['port']}" for text in texts if (match := _PEER.fullmatch(text))}
    if len(found) != len(texts):
        raise ConfigError("controllerDLegerPeers", config.peers, "must be id-host:port;id-host:port, each id once")
    if not texts:
        return config
    if len(found) > 1 and not config.etcd_endpoints:
        why = "several controllers share an etcd: add --etcd http://HOST:2379,... (bolideEtcdEndpoints), or name one"
        raise ConfigError("controllerDLegerPeers", config.peers, why)
    self_id = config.self_id or next(iter(found))
    if self_id not in found:
        raise ConfigError("controllerDLegerSelfId", config.self_id, f"must be one of {', '.join(found)}")
    return dataclasses.replace(config, self_id=self_id, address=config.address or found[self_id])


def shown(config: ControllerConfig) -> dict[str, str]:
    """Every key with its text, those without effect too; stars for secrets."""
    return {**WITHOUT_EFFECT, **config.ignored, **shown_whole(config)}
