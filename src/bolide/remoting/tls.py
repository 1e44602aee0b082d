"""TLS as RocketMQ sets it up: one port for both, certificates from files or made on the spot.

Java's test mode, on by default, takes a self-signed certificate that nobody can check. It is made here too when no
files are given, at the first TLS handshake, because that costs the import of a large library, and in a thread, because
any stranger can begin a handshake and nobody else should wait for it. Files that are given are used whether or not test
mode is on. They are looked at before each handshake and read again when they changed, so a
renewed certificate needs no restart and no watching thread; what cannot be read then leaves the old one at work.

Two differences from Java: a client certificate that is asked for is always checked, so asking needs trustCertPath; and
host names are compared with a certificate only where the system's authorities are trusted, for theirs has everybody; a
certificate of one's own authority (trustCertPath) counts under any name, for brokers are reached by whatever address
they gave.
"""

import asyncio
import datetime
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.clock import Clock
from bolide.errors import ConfigError
from bolide.remoting.config import ConnectConfig

if TYPE_CHECKING:
    from bolide.remoting.listen_config import ListenConfig

log = logging.getLogger(__name__)

_AUTHS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
_SELF_SIGNED_DAYS = 3650
_ADVICE = "install bolide[tls] for a self-signed one, or set tls.server.certPath and tls.server.keyPath"

Stamp = tuple[tuple[int, int, int], ...]


class Certificates:
    """The listening side's TLS context, kept equal to its files."""

    def __init__(self, config: "ListenConfig", clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._paths = _paths_of(config)
        self._context: ssl.SSLContext | None = None
        self._stamp: Stamp | None = None
        self._is_hopeless = False
        self._making: asyncio.Future[ssl.SSLContext | None] | None = None
        self._check()

    def _check(self) -> None:
        """Say at the start what could only fail later: files that cannot be read, an enforcing port without any."""
        config = self._config
        if config.tls_mode == "disabled":
            return
        if config.tls_client_auth != "none" and not config.tls_trust_path:
            why = "needs tls.server.trustCertPath, for a client's certificate is always checked"
            raise ConfigError("tls.server.need.client.auth", config.tls_client_auth, why)
        if config.tls_cert_path:
            self._reload()
        elif config.tls_mode == "enforcing" and self._keep(self._self_signed()) is None:
            raise ConfigError("tls.server.mode", config.tls_mode, f"there is no certificate; {_ADVICE}")

    async def context(self) -> ssl.SSLContext | None:
        """What the next handshake uses; None when there is no certificate to show, which is logged once."""
        if self._config.tls_cert_path:
            self._refresh()
        elif self._context is None and not self._is_hopeless:
            return self._keep(await self._made_in_a_thread())
        return self._context

    async def _made_in_a_thread(self) -> ssl.SSLContext | None:
        """The one self-signed certificate for all who wait; it is made on when one of them leaves."""
        making = self._making
        if making is None:
            making = self._making = asyncio.get_running_loop().run_in_executor(None, self._self_signed)
        try:
            return await asyncio.shield(making)
        finally:
            if making.done() and self._making is making:
                self._making = None  # what failed is tried again by the next handshake

    def _keep(self, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
        self._context, self._is_hopeless = context, context is None
        return context

    def _refresh(self) -> None:
        stamp = _stamp_of(self._paths)
        if stamp is None or stamp == self._stamp:
            return
        try:
            self._reload()
            log.info("TLS certificate read again path=%s", self._config.tls_cert_path)
        except ConfigError as problem:
            self._stamp = stamp  # once is enough to complain of one state of the files
            log.warning("TLS certificate not read again, the old one stays: %s", problem)

    def _reload(self) -> None:
        config = self._config
        stamp = _stamp_of(self._paths)
        try:
            context = self._new_context()
            context.load_cert_chain(config.tls_cert_path, config.tls_key_path or None, lambda: config.tls_key_password)
            if config.tls_trust_path:
                context.load_verify_locations(config.tls_trust_path)
        except OSError as problem:  # ssl.SSLError is one too
            raise ConfigError("tls.server.certPath", config.tls_cert_path, f"cannot be used: {problem}") from problem
        self._context, self._stamp = context, stamp

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _AUTHS[self._config.tls_client_auth]
        if self._config.alpn:
            context.set_alpn_protocols(list(self._config.alpn))
        return context

    def _self_signed(self) -> ssl.SSLContext | None:
        if not self._config.tls_test_mode:
            log.warning("TLS refused: tls.test.mode.enable is false and there is no certificate; %s", _ADVICE)
            return None
        try:
            pem = self_signed_pem(self._clock)
        except ImportError:
            log.warning("TLS refused: there is no certificate; %s", _ADVICE)
            return None
        import tempfile

        context = self._new_context()
        with tempfile.NamedTemporaryFile(prefix="bolide-tls-", suffix=".pem") as file:  # mode 0600, gone at once
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
        log.info("TLS with a self-signed certificate: nobody can check it, tls.server.certPath sets a real one")
        return context


def _paths_of(config: "ListenConfig | ConnectConfig") -> list[Path]:
    return [Path(path) for path in (config.tls_cert_path, config.tls_key_path, config.tls_trust_path) if path]


def _stamp_of(paths: list[Path]) -> Stamp | None:
    """What tells one state of the files from another; None while one of them is not there."""
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return None
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found)


def self_signed_pem(clock: Clock) -> bytes:
    """A new private key and a certificate for it, in one text; needs the package cryptography."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=_SELF_SIGNED_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)


class ConnectingTls:
    """The connecting side's TLS context, kept equal to its files as the listening side's is."""

    def __init__(self, config: ConnectConfig) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._config = config
        self._paths = _paths_of(config) if config.is_tls else []
        self._stamp = _stamp_of(self._paths)
        self._context = connecting_context(config)

    def context(self) -> ssl.SSLContext | None:
        """What the next connection uses; None for a plain one."""
        stamp = _stamp_of(self._paths) if self._paths else self._stamp
        if stamp is not None and stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = connecting_context(self._config)
                log.info("TLS files of the connecting side read again")
            except ConfigError as problem:
                log.warning("TLS files not read again, the old ones stay: %s", problem)
        return self._context


def connecting_context(config: ConnectConfig) -> ssl.SSLContext | None:
    """The connecting side's TLS context; None for plain connections. Checks the server if it is told to."""
    if not config.is_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if config.tls_verify else ssl.CERT_NONE
    try:
        if config.tls_verify and config.tls_trust_path:
            context.load_verify_locations(config.tls_trust_path)
        elif config.tls_verify:
            context.load_default_certs()
            context.check_hostname = True
        if config.tls_cert_path:
            context.load_cert_chain(config.tls_cert_path, config.tls_key_path or None, lambda: config.tls_key_password)
    except OSError as problem:
        raise _unusable(config, problem) from problem
    return context


def _unusable(config: ConnectConfig, problem: OSError) -> ConfigError:
    """Which of the files it was, as far as the system tells."""
    is_trust = config.tls_trust_path and (not config.tls_cert_path or problem.filename == config.tls_trust_path)
    key, path = ("trustCertPath", config.tls_trust_path) if is_trust else ("certPath", config.tls_cert_path)
    return ConfigError(f"tls.client.{key}", path, f"cannot be used: {problem.strerror or problem}")
