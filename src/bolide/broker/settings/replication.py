"""Who must have a message before its sender hears that it is safe, and who decides which broker is the master.

`inSyncReplicas` counts the master too. Where it is not set (0), a SYNC_MASTER waits for one slave, as RocketMQ 4.9
does: 5.x waits for nobody then, and a broker that is called synchronous should not.

`bolideReplication=safe` is one word for what loses no acknowledged message when any one broker fails: a controller
elects the master, every replica that is in sync acknowledges, and there are two of them at least.

Without a controller nobody takes a master's place, but its first slave may act for it (`replication/acting.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bolide.errors import ConfigError
from bolide.remoting.address import split_address
from bolide.settings import INT32_MAX, OneOf, Range, check_bounds, conf

SAFE = "safe"
_COUNTS = Range(0, 1_024, "the master counts too")
_PERIODS_MS = Range(10, 600_000)
# What `safe` stands for; a number may be larger.
_SAFE_SETTINGS = {"enableControllerMode": "true", "allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """The keys of replication that are the broker's, not the stream's (`ha/config.py`)."""

    safety: str = conf("bolideReplication", "", OneOf(("", SAFE)))  # our own
    master_ha_address: str = conf("haMasterAddress", "")
    slave_timeout_ms: int = conf("slaveTimeout", 3_000, Range(10, 600_000))
    replica_count: int = conf("totalReplicas", 1, Range(1, 1_024))
    in_sync_count: int = conf("inSyncReplicas", 0, _COUNTS)
    in_sync_min: int = conf("minInSyncReplicas", 1, _COUNTS)
    adapts_in_sync: bool = conf("enableAutoInSyncReplicas", False)
    corrects_offsets: bool = conf("offsetCheckInSlave", False)

    stands_in: bool = conf("enableSlaveActingMaster", False)
    escapes: bool = conf("enableRemoteEscape", False)
    silence_max_ms: int = conf("brokerNotActiveTimeoutMillis", 10_000, _PERIODS_MS)
    beats_as_before: bool = conf("compatibleWithOldNameSrv", True)

    is_controlled: bool = conf("enableControllerMode", False)
    controllers: str = conf("controllerAddr", "")
    replica_info_interval_ms: int = conf("syncBrokerMetadataPeriod", 5_000, _PERIODS_MS)
    controller_info_interval_ms: int = conf("syncControllerMetadataPeriod", 10_000, _PERIODS_MS)
    set_check_interval_ms: int = conf("checkSyncStateSetPeriod", 5_000, _PERIODS_MS)
    heartbeat_interval_ms: int = conf("brokerHeartbeatInterval", 1_000, _PERIODS_MS)
    heartbeat_timeout_ms: int = conf("controllerHeartBeatTimeoutMills", 10_000, _PERIODS_MS)
    all_ack: bool = conf("allAckInSyncStateSet", False)
    election_priority: int = conf("brokerElectionPriority", INT32_MAX, Range(0, INT32_MAX, "lower is rather elected"))
    identity_path: str = conf("storePathBrokerIdentity", "")

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.in_sync_count and self.in_sync_min > self.in_sync_count and not self.is_controlled:
            why = f"must be at most inSyncReplicas, which is {self.in_sync_count}"
            raise ConfigError("minInSyncReplicas", self.in_sync_min, why)
        if self.is_controlled and not self.controller_addresses:
            why = "enableControllerMode needs the addresses of controllers: host:port;host:port"
            raise ConfigError("controllerAddr", self.controllers, why)
        if self.is_controlled and self.stands_in:
            why = "with enableControllerMode another master is elected, and no slave acts for it; leave one of them out"
            raise ConfigError("enableSlaveActingMaster", "true", why)

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """Each once; raises ConfigError for one that is no address."""
        named = dict.fromkeys(address.strip() for address in self.controllers.split(";") if address.strip())
        for address in named:
            split_address(address)
        return tuple(named)


def with_safety(properties: Mapping[str, str]) -> dict[str, str]:
    """The texts with what `bolideReplication=safe` stands for; one that is weaker than that is refused."""
    if properties.get("bolideReplication", "").strip() != SAFE:
        return dict(properties)
    for key, needed in _SAFE_SETTINGS.items():
        given = properties.get(key, needed).strip().lower()
        is_enough = int(given) >= int(needed) if needed.isdigit() and given.isdecimal() else given == needed
        if not is_enough:
            raise ConfigError(key, properties[key], f"bolideReplication=safe needs {needed} here; leave the key out")
    return {**_SAFE_SETTINGS, **properties}
