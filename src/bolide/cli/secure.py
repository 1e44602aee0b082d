"""`bolide up --secure`: one administrator, one certificate, TLS alone, and a profile that opens it again.

What is made at the first start lies in `secure/` of the data directory, for its owner alone, and is kept at every later
one: the certificate with its key, and the settings of the servers with two secrets, the administrator's and the one by
which servers know each other. Processes read them from that file; on a command line they would be seen by everybody.

The certificate vouches for itself: clients are given it as the only one to trust, so no authority is asked and no name
in it matters. The package `cryptography` makes it where it is installed (`bolide[tls]`), else `openssl`, which nearly
every machine has: a dependency that nobody else needs would be brought to all.
"""

import json
import os
import secrets
import shutil
import string
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bolide.client import profiles
from bolide.client.config import Credentials
from bolide.clock import SystemClock
from bolide.errors import ConfigError
from bolide.remoting.config import ConnectConfig
from bolide.settings import build, read_properties

ADMINISTRATOR = "admin"
INNER = "bolide-servers"
_AUTH = "org.apache.rocketmq.auth."
_DAYS = "3650"
_SECRET_LENGTH = 32
_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Kept:
    """What a secured cluster has on disk."""

    directory: Path

    @property
    def certificate(self) -> Path:
        return self.directory / "tls.crt"

    @property
    def settings_file(self) -> Path:
        return self.directory / "servers.conf"

    @property
    def client_file(self) -> Path:
        """A profile of this cluster, whatever becomes of the user's own."""
        return self.directory / "client.conf"

    def settings(self) -> dict[str, str]:
        """What all servers are told."""
        return read_properties(self.settings_file.read_text("utf-8"))

    def as_server(self) -> tuple[Credentials, ConnectConfig]:
        """How one of the servers asks another: its secret is not the administrator's to change."""
        settings = self.settings()
        pair = json.loads(settings["innerClientAuthenticationCredentials"])
        credentials = Credentials(access_key=pair["accessKey"], secret_key=pair["secretKey"])
        return credentials, build(ConnectConfig, settings)


def generated_secret() -> str:
    """Random, and of letters and digits alone, so that it can stand in any file and shell."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_SECRET_LENGTH))


def prepared(data: Path) -> Kept:
    """What the first start made; it is made now if this is the first."""
    directory = data / "secure"
    kept = Kept(directory)
    if not kept.settings_file.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (data, directory):  # the messages are for their owner alone, as the keys are
            each.chmod(0o700)
        _make_certificate(directory / "tls.key", kept.certificate)
        secret = generated_secret()
        # The profile first: were we stopped between the two, the next start would make both again.
        profiles.write_profile(kept.client_file, _profile(kept.certificate, secret))
        profiles.write_profile(kept.settings_file, _of_servers(kept, secret))
    return kept


def _of_servers(kept: Kept, secret: str) -> dict[str, str]:
    certificate, key = str(kept.certificate.absolute()), str((kept.directory / "tls.key").absolute())
    inner = generated_secret()
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
        "useTLS": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificate,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": f"{_AUTH}authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{_AUTH}authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": f'{{"username":"{ADMINISTRATOR}","password":"{secret}"}}',
        "innerClientAuthenticationCredentials": f'{{"accessKey":"{INNER}","secretKey":"{inner}"}}',
    }


def _profile(certificate: Path, secret: str) -> dict[str, str]:
    return {
        profiles.USE_TLS: "true",
        profiles.VERIFY: "true",
        profiles.TRUST: str(certificate.absolute()),
        profiles.ACCESS_KEY: ADMINISTRATOR,
        profiles.SECRET_KEY: secret,
    }


def _make_certificate(key: Path, certificate: Path) -> None:
    from bolide.remoting.tls import self_signed_pem

    for path in (key, certificate):
        path.unlink(missing_ok=True)
    try:
        pem = self_signed_pem(SystemClock()).decode()
    except ImportError:
        _ask_openssl(key, certificate)
        return
    begin = pem.index("-----BEGIN CERTIFICATE")
    for path, text, mode in ((key, pem[:begin], 0o600), (certificate, pem[begin:], 0o644)):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as file:
            file.write(text)


def _ask_openssl(key: Path, certificate: Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        why = "needs a certificate: install bolide[tls], or the program openssl"
        raise ConfigError("--secure", True, why)
    os.close(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    command = (program, "req", "-x509", *curve, *name, "-days", _DAYS, "-keyout", str(key), "-out", str(certificate))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError("--secure", True, f"openssl made no certificate: {done.stderr.strip()[-300:]}")


@dataclass(frozen=True, slots=True)
class Opened:
    """How people get in: the profile they have, and what is said of it once."""

    path: Path
    option: str  # what a command needs to find it, with a blank in front
    lines: tuple[str, ...]


def open_to_user(kept: Kept, namesrv: str, environment: Mapping[str, str]) -> Opened:
    """Have profiles that lead to where the cluster is now; say the secret where it was never said."""
    own = profiles.read_profile(kept.client_file)
    is_first = profiles.NAMESRV not in own  # a start that failed before this has said nothing
    own[profiles.NAMESRV] = namesrv
    profiles.write_profile(kept.client_file, own)
    name = environment.get(profiles.PROFILE_VARIABLE) or profiles.DEFAULT_NAME
    path = profiles.path_of(name, environment)
    found = profiles.read_profile(path) if path.is_file() else None
    if found is not None and found.get(profiles.TRUST) != own[profiles.TRUST]:
        at = f"{kept.client_file} (profile {name} is of another cluster and stays)"
        option, path = f" --profile {kept.client_file}", kept.client_file
    else:
        # A secret that was changed since stays as its owner has it; that of a directory that was deleted does not.
        profiles.write_profile(path, own if found is None or is_first else found | {profiles.NAMESRV: namesrv})
        option, at = ("" if name == profiles.DEFAULT_NAME else f" --profile {name}"), str(path)
    lines = [f"  profile           {at}"]
    if is_first:
        secret = own[profiles.SECRET_KEY]
        lines.append(f"  administrator     {ADMINISTRATOR}, secret {secret} (shown this once; the profile has it)")
    else:
        lines.append(
            f"  administrator     {ADMINISTRATOR}, as before; `bolide user password {ADMINISTRATOR}` changes its secret"
        )
    return Opened(path, option, tuple(lines))
