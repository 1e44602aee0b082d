"""The limits of a connection and of the connecting side; those of a port that is served are in `listen_config.py`.

Everything that can grow has its bound here: bytes of a frame, bytes unsent, requests under way, connections, seconds of
silence. Keys are RocketMQ's where it has one; keys of ours follow its spelling, so that all can stand in one file.
The TLS keys are Java's `tls.server.*` and `tls.client.*`, which there come from system properties or tls.properties;
here they stand among the other settings, or in that file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bolide.errors import ConfigError
from bolide.protocol.command import FRAME_SIZE_MAX
from bolide.protocol.frames import READ_SIZE
from bolide.settings import Range, check_bounds, conf, read_properties

# A frame must not begin with CR (0x0D) or 0x16, or it could be taken for a PROXY header or a TLS handshake.
FRAME_SIZE_LIMIT = 0x0CFF_FFFF
SILENCE_S = Range(1, 2_592_000)

# RocketMQ's keys of both sides that steer nothing here, with its defaults.
WITHOUT_EFFECT = {
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
    "tls.server.authClient": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """What one connection may take, whichever side opened it."""

    frame_size_max: int = conf("com.rocketmq.remoting.frameMaxLength", FRAME_SIZE_MAX, Range(64, FRAME_SIZE_LIMIT))
    # A read that fills its buffer is followed by another of the same connection before anybody else has a turn: with
    # 16 KiB that was the rule at bodies of 1 KiB, and cost twice as much a message.
    read_size: int = conf("readBufferSize", READ_SIZE, Range(512, 1 << 20))
    # A consumer parks one pull for each queue it has here, so this is far above what a busy producer needs.
    in_flight_max: int = conf("inFlightRequestsMax", 16_384, Range(1, 1_000_000))
    unsent_size_high: int = conf("writeBufferHighWaterMark", 256 * 1024, Range(0, 1 << 34))  # 0 as in Java: not set
    unsent_size_max: int = conf("unsentBytesMax", 64 * 1024 * 1024, Range(1, 1 << 34))
    close_limit_s: int = conf("closeWaitTimeSeconds", 5, Range(1, 600))
    tls_handshake_limit_s: int = conf("tls.handshakeTimeoutSeconds", 10, Range(1, 600))
    # A frame that has begun may take as long as it likes at first; then it has to have come at this rate.
    frame_free_s: int = conf("frameFreeSeconds", 30, Range(1, 3600))
    frame_rate_min: int = conf("frameBytesPerSecondMin", 4096, Range(0, 1 << 20))
    # Whom we asked may put more into a header than a stranger: the values of a name server's KV tables stand there.
    header_size_max: int = 1 << 20
    requests_max: int = 65_535
    is_silence_fatal: bool = False
    # Who answers stops reading while his answers are not taken. Who asks must not, or both could wait for each other.
    is_reading_tied: bool = True

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.unsent_size_high > self.unsent_size_max:
            why = f"must be at most unsentBytesMax, which is {self.unsent_size_max}"
            raise ConfigError("writeBufferHighWaterMark", self.unsent_size_high, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectConfig(SessionConfig):
    """How other addresses are reached."""

    connect_timeout_ms: int = conf("connectTimeoutMillis", 3_000, Range(1, 600_000))
    idle_max_s: int = conf("clientChannelMaxIdleTimeSeconds", 120, SILENCE_S)
    requests_max: int = conf("clientAsyncSemaphoreValue", 65_535, Range(1, 1_000_000))
    # Java closes at every timeout and so fails all others in flight; here only a peer that was wholly silent is left.
    is_silence_fatal: bool = conf("clientCloseSocketIfTimeout", True)
    is_reading_tied: bool = False
    backoff_first_ms: int = conf("reconnectBackoffMillis", 100, Range(1, 3_600_000))
    backoff_max_ms: int = conf("reconnectBackoffMaxMillis", 5_000, Range(1, 3_600_000))
    is_tls: bool = conf("useTLS", False)
    tls_verify: bool = conf("tls.client.authServer", False)
    tls_trust_path: str = conf("tls.client.trustCertPath", "")
    tls_cert_path: str = conf("tls.client.certPath", "")
    tls_key_path: str = conf("tls.client.keyPath", "")
    tls_key_password: str = conf("tls.client.keyPassword", "", is_secret=True)

    def __post_init__(self) -> None:
        SessionConfig.__post_init__(self)
        if self.backoff_max_ms < self.backoff_first_ms:
            why = f"must be at least reconnectBackoffMillis, which is {self.backoff_first_ms}"
            raise ConfigError("reconnectBackoffMaxMillis", self.backoff_max_ms, why)


def with_tls_file(properties: Mapping[str, str]) -> dict[str, str]:
    """With the settings of the file that `tls.config.file` names, RocketMQ's tls.properties; the others are stronger.

    Raises ConfigError if it cannot be read, or says something else than TLS. It is read at the start, unlike the
    certificates that it names.
    """
    path = properties.get("tls.config.file", "").strip()
    if not path:
        return dict(properties)
    try:
        found = read_properties(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError("tls.config.file", path, f"cannot be read: {problem}") from None
    if strange := [key for key in found if not key.startswith("tls.") or key == "tls.config.file"]:
        raise ConfigError("tls.config.file", path, f"has {strange[0]}, and only settings of TLS stand there")
    return {**found, **properties}
