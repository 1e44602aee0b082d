"""How a client behaves; the defaults are RocketMQ's, the names ours: nobody keeps a client's settings in a file."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from bolide.client import profiles
from bolide.errors import ClientError, ConfigError
from bolide.remoting.address import split_address
from bolide.remoting.config import ConnectConfig
from bolide.settings import build

NO_NAME_SERVER = 10004  # RocketMQ's own code for a client that was told no name server


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who we are to a broker with access control; the secret is never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What producers and consumers share."""

    namesrv: tuple[str, ...]
    instance_name: str = ""  # empty: one of our own, so that two in one process are two members
    unit_name: str = ""
    request_timeout_s: float = 3.0
    route_interval_s: float = 30.0
    heartbeat_interval_s: float = 30.0
    offset_interval_s: float = 5.0
    credentials: Credentials | None = None
    connect: ConnectConfig = msgspec.field(default_factory=ConnectConfig)

    def __post_init__(self) -> None:
        for name in ("request_timeout_s", "route_interval_s", "heartbeat_interval_s", "offset_interval_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "must be more than 0")
        for address in self.namesrv:
            split_address(address)


def client_config(
    namesrv: str | None,
    *,
    instance_name: str = "",
    credentials: Credentials | None = None,
    connect: ConnectConfig | None = None,
    over: Mapping[str, str] | None = None,
) -> ClientConfig:
    """What a user gives to a producer or consumer, as one value; what is left out environment or profile tell.

    `over` has settings by RocketMQ's keys, which win over both.
    """
    if not isinstance(namesrv, str | None):
        raise ConfigError("namesrv", namesrv, 'must be a text, as "host:9876;other:9876"')
    known = profiles.known_settings(namesrv, os.environ, over or {})
    return ClientConfig(
        namesrv=parse_namesrv(known.get(profiles.NAMESRV)),
        instance_name=instance_name,
        credentials=credentials or credentials_of(known),
        connect=connect or build(ConnectConfig, known),
    )


def credentials_of(known: Mapping[str, str]) -> Credentials | None:
    """Name and secret, if there are any."""
    access_key, secret_key = known.get(profiles.ACCESS_KEY), known.get(profiles.SECRET_KEY)
    if access_key is None and secret_key is None:
        return None
    if access_key is None or secret_key is None:
        key, shown = (profiles.ACCESS_KEY, access_key) if secret_key is None else (profiles.SECRET_KEY, "******")
        raise ConfigError(key, shown, "accessKey and secretKey go together (BOLIDE_ACCESS_KEY, BOLIDE_SECRET_KEY)")
    return Credentials(
        access_key=access_key, secret_key=secret_key, security_token=known.get(profiles.SECURITY_TOKEN) or None
    )


def parse_namesrv(text: str | None) -> tuple[str, ...]:
    """`a:9876;b:9876`, also with commas, blanks or `http://` in front, as people write them."""
    addresses = [part.removeprefix("http://").rstrip("/") for part in re.split(r"[;,\s]+", text or "") if part]
    if not addresses:
        raise ClientError(
            'no name server is known: pass namesrv="host:9876" or set NAMESRV_ADDR; `bolide up` starts one here, and '
            "`bolide login` keeps where another cluster is",
            NO_NAME_SERVER,
        )
    return tuple(addresses)
