"""Which cluster, and who we are to it, where the caller does not say: the environment, then a profile.

A profile is a file of properties with RocketMQ's keys, `~/.config/bolide/NAME.conf`. It holds a secret, so it must
belong to its owner alone. Environment and profile are read into the same keys, and the environment wins.

A profile speaks for the name servers that stand in it. The one that is found without being asked for (`default`) is
left aside where other name servers are given: a key must not be shown to a cluster that it was not made for. One that
`BOLIDE_PROFILE` names always counts; an empty `BOLIDE_PROFILE` means none.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from bolide.errors import ConfigError
from bolide.remoting.config import ConnectConfig
from bolide.settings import keys_of, read_properties, write_properties

DEFAULT_NAME = "default"
NAMESRV, ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN = "namesrvAddr", "accessKey", "secretKey", "securityToken"
USE_TLS, TRUST, CERTIFICATE, KEY = "useTLS", "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath"
VERIFY = "tls.client.authServer"
PROFILE_VARIABLE, SECRET_FILE_VARIABLE = "BOLIDE_PROFILE", "BOLIDE_SECRET_FILE"
VARIABLES = {
    NAMESRV: "NAMESRV_ADDR",
    ACCESS_KEY: "BOLIDE_ACCESS_KEY",
    SECRET_KEY: "BOLIDE_SECRET_KEY",
    SECURITY_TOKEN: "BOLIDE_SECURITY_TOKEN",
    USE_TLS: "BOLIDE_TLS",
    TRUST: "BOLIDE_TLS_CA",
    CERTIFICATE: "BOLIDE_TLS_CERT",
    KEY: "BOLIDE_TLS_KEY",
}
_IDENTITY = (ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN)
_PATHS = (TRUST, CERTIFICATE, KEY)
_SIZE_MAX = 65_536


def known_settings(
    namesrv: str | None, environment: Mapping[str, str], over: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What is known of the cluster, by RocketMQ's keys: what the caller says (`namesrv` and `over`), the environment,
    and a profile, in this order.
    """
    said = {**(over or {}), **({NAMESRV: namesrv} if namesrv else {})}
    given = _joined(_of_environment(environment), said)
    known = _joined(_of_profile(given.get(NAMESRV), environment), given)
    if known.get(TRUST):
        known.setdefault(VERIFY, "true")
        known.setdefault(USE_TLS, "true")
    return known


def _joined(weaker: Mapping[str, str], stronger: Mapping[str, str]) -> dict[str, str]:
    """Both, but a name and its secret come from one place."""
    is_named = any(key in stronger for key in _IDENTITY)
    return {key: text for key, text in weaker.items() if not (is_named and key in _IDENTITY)} | dict(stronger)


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    given = {key: environment[name] for key, name in VARIABLES.items() if environment.get(name)}
    path = environment.get(SECRET_FILE_VARIABLE)
    if path and SECRET_KEY not in given:
        given[SECRET_KEY] = read_secret(Path(path))
    return given


def read_secret(path: Path) -> str:
    """The secret in a file, without the end of its line."""
    return _owned_text(path, "the file of a secret").strip("\r\n")


def directory(environment: Mapping[str, str]) -> Path:
    """Where the profiles of this user are."""
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "bolide"


def path_of(name: str, environment: Mapping[str, str]) -> Path:
    """The file of a profile: a name stands for one in the user's directory, anything with a slash is a path."""
    if "/" in name:
        return Path(name).expanduser()
    if not name or name.startswith(".") or not name.isprintable():
        raise ConfigError(PROFILE_VARIABLE, name, "is neither a name of a profile nor a path to one")
    return directory(environment) / f"{name}.conf"


def _of_profile(namesrv: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    chosen = environment.get(PROFILE_VARIABLE)
    if chosen == "":
        return {}
    path = path_of(chosen or DEFAULT_NAME, environment)
    if chosen is None and not path.is_file():
        return {}
    found = read_profile(path)
    if chosen is None and namesrv and not set(_addresses(namesrv)) <= set(_addresses(found.get(NAMESRV, ""))):
        return {}
    return found


def _addresses(text: str) -> Iterator[str]:
    for part in filter(None, re.split(r"[;,\s]+", text)):
        host, colon, port = part.removeprefix("http://").rstrip("/").rpartition(":")
        yield f"{'127.0.0.1' if host == 'localhost' else host}{colon}{port}"


def read_profile(path: Path) -> dict[str, str]:
    """The settings of one file; paths in it are meant from where it lies."""
    found = read_properties(_owned_text(path, "a profile"))
    known = {NAMESRV, *_IDENTITY, *(key for key in keys_of(ConnectConfig) if key == USE_TLS or key.startswith("tls."))}
    for key in found:
        if key not in known:
            raise ConfigError(key, str(path), f"stands in this profile, and a profile has {', '.join(sorted(known))}")
    return {key: str(path.parent / value) if key in _PATHS and value else value for key, value in found.items()}


def write_profile(path: Path, settings: Mapping[str, str]) -> None:
    """Write a profile for its owner alone: whole or not at all, and never readable by others, not even for a moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(write_properties(settings))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _owned_text(path: Path, what: str) -> str:
    """The text of a file that nobody but its owner may read."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                why = f"is {what} and can be read by others (mode {mode:04o}): chmod 600 {path}"
                raise ConfigError(PROFILE_VARIABLE, str(path), why)
            return file.read(_SIZE_MAX)
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "is no UTF-8 text"
        advice = "`bolide login` makes a profile"
        raise ConfigError(PROFILE_VARIABLE, str(path), f"cannot be read as {what}: {reason}; {advice}") from problem
