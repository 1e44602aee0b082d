"""The settings of access control, under RocketMQ's names: the same for brokers, name servers and controllers.

ACL 1.0 (`aclEnable`) has accounts in YAML files, ACL 2.0 (`authenticationEnabled`, `authorizationEnabled`) has users
and policies in tables of its own. One of the two may be on. RocketMQ's pair that lets anybody in, authorisation without
authentication, stops the start.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bolide.errors import ConfigError
from bolide.settings import Name, OneOf, check_bounds, conf

_AUTH = "org.apache.rocketmq.auth."
_CODES = re.compile(r"\s*(\d{1,6}\s*(,\s*\d{1,6}\s*)*)?")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The name and the secret that a server signs with."""

    access_key: str
    secret_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Whether access is checked, and where the accounts are. Off without a setting, as RocketMQ has it."""

    has_accounts: bool = conf("aclEnable", False)
    home: Path = conf("rocketmqHome", Path())
    accounts_file: str = conf("rocketmq.acl.plain.file", "")  # a system property in Java; below the home
    is_authenticating: bool = conf("authenticationEnabled", False)
    is_authorizing: bool = conf("authorizationEnabled", False)
    authentication_provider: str = conf(
        "authenticationProvider", "", OneOf(("", _AUTH + "authentication.provider.DefaultAuthenticationProvider"))
    )
    authorization_provider: str = conf(
        "authorizationProvider", "", OneOf(("", _AUTH + "authorization.provider.DefaultAuthorizationProvider"))
    )
    users_provider: str = conf(
        "authenticationMetadataProvider",
        "",
        OneOf(("", _AUTH + "authentication.provider.LocalAuthenticationMetadataProvider")),
    )
    policies_provider: str = conf(
        "authorizationMetadataProvider",
        "",
        OneOf(("", _AUTH + "authorization.provider.LocalAuthorizationMetadataProvider")),
    )
    # Both of RocketMQ's strategies are taken, and mean the same here: every request is checked.
    authentication_strategy: str = conf(
        "authenticationStrategy",
        "",
        OneOf(("", *(f"{_AUTH}authentication.strategy.State{kind}AuthenticationStrategy" for kind in ("less", "ful")))),
    )
    authorization_strategy: str = conf(
        "authorizationStrategy",
        "",
        OneOf(("", *(f"{_AUTH}authorization.strategy.State{kind}AuthorizationStrategy" for kind in ("less", "ful")))),
    )
    unauthenticated: str = conf("authenticationWhitelist", "")
    unauthorized: str = conf("authorizationWhitelist", "")
    first_user: str = conf("initAuthenticationUser", "", is_secret=True)
    inner: str = conf("innerClientAuthenticationCredentials", "", is_secret=True)
    is_migrating: bool = conf("migrateAuthFromV1Enabled", False)
    directory: Path = conf("authConfigPath", Path())
    # our own: the name in `Cluster:name` where a name server or controller is asked; a broker has its cluster's
    cluster: str = conf("bolideAccessCluster", "DefaultCluster", Name(100))

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.has_accounts and (self.is_authenticating or self.is_authorizing):
            why = "cannot be on together with authenticationEnabled or authorizationEnabled: leave one of them out"
            raise ConfigError("aclEnable", True, f"{why}; migrateAuthFromV1Enabled=true takes its accounts over")
        if self.is_authorizing and not self.is_authenticating:
            why = "alone would believe any name without a signature: set authenticationEnabled=true too"
            raise ConfigError("authorizationEnabled", True, why)
        for key, text in (
            ("authenticationWhitelist", self.unauthenticated),
            ("authorizationWhitelist", self.unauthorized),
        ):
            if not _CODES.fullmatch(text):
                raise ConfigError(key, text, "must be request codes with commas between them")
        _ = self.first_pair, self.inner_pair

    @property
    def is_on(self) -> bool:
        return self.has_accounts or self.is_authenticating

    @property
    def first_pair(self) -> KeyPair | None:
        """The user that is made at the start if it is not there."""
        return _pair("initAuthenticationUser", self.first_user, "username", "password")

    @property
    def inner_pair(self) -> KeyPair | None:
        """What this server signs its own requests with."""
        return _pair("innerClientAuthenticationCredentials", self.inner, "accessKey", "secretKey")

    @property
    def unauthenticated_codes(self) -> frozenset[int]:
        return _codes(self.unauthenticated)

    @property
    def unauthorized_codes(self) -> frozenset[int]:
        return _codes(self.unauthorized)


def _codes(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part.strip())


def _pair(key: str, text: str, name_member: str, secret_member: str) -> KeyPair | None:
    if not text.strip():
        return None
    try:
        members = msgspec.json.decode(text, type=dict[str, str])
        name, secret = members[name_member], members[secret_member]
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
        name = secret = ""
    if not name or not secret:
        shape = f'{{"{name_member}":"...","{secret_member}":"..."}}'
        raise ConfigError(key, "(not shown)", f"must be JSON of this shape: {shape}")
    return KeyPair(name, secret)
