"""The limits of a connection, of a listening port and of the connecting side.

Everything that can grow has its bound here: bytes of a frame, bytes unsent, requests under way, connections, seconds of
silence. Keys are RocketMQ's where it has one; keys of ours follow its spelling, so that all can stand in one file.
The TLS keys are Java's `tls.server.*` and `tls.client.*`, which there come from system properties or tls.properties.
"""

from dataclasses import dataclass

from bolide.errors import ConfigError
from bolide.protocol.command import FRAME_SIZE_MAX
from bolide.protocol.frames import READ_SIZE
from bolide.settings import conf

# A frame must not begin with CR (0x0D) or 0x16, or it could be taken for a PROXY header or a TLS handshake.
_FRAME_SIZE_LIMIT = 0x0CFF_FFFF
_TLS_MODES = ("disabled", "permissive", "enforcing")
_CLIENT_AUTHS = ("none", "optional", "require")

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
    "tls.config.file": "",
    "tls.server.authClient": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """What one connection may take, whichever side opened it."""

    frame_size_max: int = conf("com.rocketmq.remoting.frameMaxLength", FRAME_SIZE_MAX)
    # A read that fills its buffer is followed by another of the same connection before anybody else has a turn: with
    # 16 KiB that was the rule at bodies of 1 KiB, and cost twice as much a message.
    read_size: int = conf("readBufferSize", READ_SIZE)
    # A consumer parks one pull for each queue it has here, so this is far above what a busy producer needs.
    in_flight_max: int = conf("inFlightRequestsMax", 16_384)
    unsent_size_high: int = conf("writeBufferHighWaterMark", 256 * 1024)  # 0 as in Java: not set
    unsent_size_max: int = conf("unsentBytesMax", 64 * 1024 * 1024)
    close_limit_s: int = conf("closeWaitTimeSeconds", 5)
    tls_handshake_limit_s: int = conf("tls.handshakeTimeoutSeconds", 10)
    requests_max: int = 65_535
    is_silence_fatal: bool = False
    # Who answers stops reading while his answers are not taken. Who asks must not, or both could wait for each other.
    is_reading_tied: bool = True

    def __post_init__(self) -> None:
        _demand(self, "frame_size_max", 8, _FRAME_SIZE_LIMIT)
        _demand(self, "read_size", 512, 1 << 20)
        _demand(self, "unsent_size_high", 0, self.unsent_size_max)
        for name in ("in_flight_max", "close_limit_s", "tls_handshake_limit_s", "requests_max"):
            _demand(self, name, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig(SessionConfig):
    """A port that is served; port 0 takes a free one."""

    host: str = conf("bindAddress", "0.0.0.0")
    port: int = conf("listenPort", 0)
    backlog: int = conf("serverSocketBacklog", 1024)
    idle_max_s: int = conf("serverChannelMaxIdleTimeSeconds", 120)
    connections_max: int = conf("serverConnectionsMax", 16_384)
    stop_limit_s: int = conf("shutdownWaitTimeSeconds", 5)
    requests_max: int = conf("serverAsyncSemaphoreValue", 64)
    # As in RocketMQ 5: whoever may connect may also say, in a PROXY header, for whom he does.
    is_proxy_accepted: bool = conf("proxyProtocolEnable", True)
    tls_mode: str = conf("tls.server.mode", "permissive")
    tls_test_mode: bool = conf("tls.test.mode.enable", True)
    tls_cert_path: str = conf("tls.server.certPath", "")
    tls_key_path: str = conf("tls.server.keyPath", "")
    tls_key_password: str = conf("tls.server.keyPassword", "", is_secret=True)
    tls_trust_path: str = conf("tls.server.trustCertPath", "")
    tls_client_auth: str = conf("tls.server.need.client.auth", "none")

    def __post_init__(self) -> None:
        SessionConfig.__post_init__(self)
        _demand(self, "port", 0, 65_535)
        for name in ("backlog", "idle_max_s", "connections_max", "stop_limit_s"):
            _demand(self, name, 1)
        if self.tls_mode not in _TLS_MODES:
            raise ConfigError("tls.server.mode", self.tls_mode, f"must be one of {', '.join(_TLS_MODES)}")
        if self.tls_client_auth not in _CLIENT_AUTHS:
            raise ConfigError("tls.server.need.client.auth", self.tls_client_auth, "must be none, optional or require")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectConfig(SessionConfig):
    """How other addresses are reached."""

    connect_timeout_ms: int = conf("connectTimeoutMillis", 3_000)
    idle_max_s: int = conf("clientChannelMaxIdleTimeSeconds", 120)
    requests_max: int = conf("clientAsyncSemaphoreValue", 65_535)
    # Java closes at every timeout and so fails all others in flight; here only a peer that was wholly silent is left.
    is_silence_fatal: bool = conf("clientCloseSocketIfTimeout", True)
    is_reading_tied: bool = False
    backoff_first_ms: int = conf("reconnectBackoffMillis", 100)
    backoff_max_ms: int = conf("reconnectBackoffMaxMillis", 5_000)
    is_tls: bool = conf("useTLS", False)
    tls_verify: bool = conf("tls.client.authServer", False)
    tls_trust_path: str = conf("tls.client.trustCertPath", "")
    tls_cert_path: str = conf("tls.client.certPath", "")
    tls_key_path: str = conf("tls.client.keyPath", "")
    tls_key_password: str = conf("tls.client.keyPassword", "", is_secret=True)

    def __post_init__(self) -> None:
        SessionConfig.__post_init__(self)
        for name in ("connect_timeout_ms", "idle_max_s", "backoff_first_ms"):
            _demand(self, name, 1)
        _demand(self, "backoff_max_ms", self.backoff_first_ms)


def _demand(config: SessionConfig, name: str, low: int, high: int | None = None) -> None:
    value = getattr(config, name)
    if value < low or (high is not None and value > high):
        raise ConfigError(name, value, f"must be at least {low}" + (f" and at most {high}" if high is not None else ""))
