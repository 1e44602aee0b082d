"""The keys of replication, of both streams and both sides, under RocketMQ's names.

RocketMQ's default for `haTransferBatchSize` is 32 KiB, and a message of a megabyte is cut into 32 frames there. With
1 MiB a catch-up costs both ends half the processor time (2.2 s a gigabyte against 4.2; 4 MiB gains no more), but
senders wait while a frame is sent, and keep less of their rate than with ours of 256 KiB (docs/benchmarks.md).
A slave of Apache takes a frame of at most 4 MiB with its head; a larger one would never be complete there.
"""

import ipaddress
from dataclasses import dataclass

from bolide.errors import ConfigError
from bolide.settings import INT32_MAX, INT64_MAX, PORTS, Range, check_bounds, conf

BODY_SIZE_MAX = (4 << 20) - 36  # what fits the buffer of an Apache slave beside the longer of the two heads
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_INTERVALS_MS = Range(10, 600_000)
_GAPS = Range(0, INT32_MAX, "RocketMQ reads it as a number of 32 bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """How the log is copied. Port 0 takes a free one; the broker puts listenPort + 1 in its place."""

    host: str = conf("bindAddress", "0.0.0.0")
    port: int = conf("haListenPort", 0, PORTS)
    # our own: slaves that may be connected at a time; a stranger's connection counts until it is found out
    links_max: int = conf("bolideHaConnectionsMax", 64, Range(1, 4_096))
    # our own: slaves and masters that know neither TLS nor a proof of the key here, as Apache's: 10.0.0.5,10.0.1.0/24
    allowed_addresses: str = conf("bolideHaAllowedAddresses", "")
    heartbeat_interval_ms: int = conf("haSendHeartbeatInterval", 5_000, _INTERVALS_MS)
    silence_max_ms: int = conf("haHousekeepingInterval", 20_000, _INTERVALS_MS)
    # our own: Java's slave waits 5 s, and nobody can change it
    reconnect_pause_ms: int = conf("bolideHaReconnectInterval", 5_000, _INTERVALS_MS)
    frame_size_max: int = conf("haTransferBatchSize", 256 << 10, Range(1_024, BODY_SIZE_MAX))
    is_rate_limited: bool = conf("haFlowControlEnable", False)
    bytes_per_s_max: int = conf("maxHaTransferByteInSecond", 104_857_600, Range(1_024, INT64_MAX))

    gap_size_max: int = conf("haMaxGapNotInSync", 268_435_456, _GAPS)
    behind_size_max: int = conf("haSlaveFallbehindMax", 268_435_456, _GAPS)  # the same in 4.9
    caught_up_max_ms: int = conf("haMaxTimeSlaveNotCatchup", 15_000, Range(100, 3_600_000))

    is_learner: bool = conf("asyncLearner", False)
    begins_at_last_file: bool = conf("syncFromLastFile", False)
    epoch_path: str = conf("storePathEpochFile", "")

    def __post_init__(self) -> None:
        check_bounds(self)
        try:
            networks(self.allowed_addresses)
        except ValueError as problem:
            why = f"must be addresses or networks with commas between: {problem}"
            raise ConfigError("bolideHaAllowedAddresses", self.allowed_addresses, why) from problem


def networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks, with commas between; raises ValueError."""
    parts = filter(None, (each.strip() for each in text.split(",")))
    return tuple(ipaddress.ip_network(part, strict=False) for part in parts)
