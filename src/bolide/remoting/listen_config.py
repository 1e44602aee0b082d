"""The limits of a port that is served. They stand apart from `config.py`: clients and commands serve none."""

from dataclasses import dataclass

from bolide.protocol.frames import HEADER_SIZE_MAX
from bolide.remoting.config import SILENCE_S, SessionConfig
from bolide.settings import PORTS, OneOf, Range, conf

_TLS_MODES = ("disabled", "permissive", "enforcing")
_CLIENT_AUTHS = ("none", "optional", "require")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig(SessionConfig):
    """A port that is served; port 0 takes a free one."""

    host: str = conf("bindAddress", "0.0.0.0")
    port: int = conf("listenPort", 0, PORTS)
    backlog: int = conf("serverSocketBacklog", 1024, Range(1, 65_535))
    idle_max_s: int = conf("serverChannelMaxIdleTimeSeconds", 120, SILENCE_S)
    connections_max: int = conf("serverConnectionsMax", 16_384, Range(1, 1_000_000))
    stop_limit_s: int = conf("shutdownWaitTimeSeconds", 5, Range(1, 600))
    header_size_max: int = conf("headerMaxLength", HEADER_SIZE_MAX, Range(32_768, 0xFF_FFFF))
    # Frames that have begun, of all connections together, each with the memory it takes; one always has its room.
    unfinished_size_max: int = conf("unfinishedBytesMax", 256 * 1024 * 1024, Range(1, 1 << 40))
    requests_max: int = conf("serverAsyncSemaphoreValue", 64, Range(1, 1_000_000))
    # As in RocketMQ 5: anyone who may connect may also say, in a PROXY header, for whom he does.
    is_proxy_accepted: bool = conf("proxyProtocolEnable", True)
    tls_file: str = conf("tls.config.file", "")  # see `with_tls_file`
    tls_mode: str = conf("tls.server.mode", "permissive", OneOf(_TLS_MODES))
    tls_test_mode: bool = conf("tls.test.mode.enable", True)
    tls_cert_path: str = conf("tls.server.certPath", "")
    tls_key_path: str = conf("tls.server.keyPath", "")
    tls_key_password: str = conf("tls.server.keyPassword", "", is_secret=True)
    tls_trust_path: str = conf("tls.server.trustCertPath", "")
    tls_client_auth: str = conf("tls.server.need.client.auth", "none", OneOf(_CLIENT_AUTHS))
    alpn: tuple[str, ...] = ()  # what is spoken above TLS, where a protocol has a name for it
