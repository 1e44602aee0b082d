"""What a dashboard is started with."""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from bolide.errors import ConfigError

PORT = 8082


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardConfig:
    """Where it listens, which cluster it shows, and what may be done with it."""

    namesrv: str
    host: str = "127.0.0.1"
    port: int = PORT
    public_url: str = ""  # the origin that browsers see, where a proxy stands before us
    allows_changes: bool = False
    hides_bodies: bool = False
    password_file: Path | None = None
    audit_file: Path | None = None
    prometheus: str = ""  # where charts come from, instead of what was seen since the start
    walk_interval_s: float = 15.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError("--port", self.port, "must be 0 to 65535")
        if self.prometheus and urlsplit(self.prometheus).scheme not in ("http", "https"):
            raise ConfigError("--prometheus", self.prometheus, "must be a URL like http://127.0.0.1:9090")
        if self.public_url:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ConfigError("--public-url", self.public_url, "must be a URL like https://mq.example.org")
            if parts.path.strip("/"):
                raise ConfigError(
                    "--public-url", self.public_url, "must have no path: the dashboard is at the root of its host"
                )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    @property
    def is_secure(self) -> bool:
        """Whether browsers come by TLS."""
        return self.public_url.startswith("https://")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
