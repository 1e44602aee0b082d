"""Certificates for tests: an authority that signs them and writes them down."""

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """Signs certificates and writes them down."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._sign(name, self._key, is_authority=True).public_bytes(serialization.Encoding.PEM))

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False) -> x509.Certificate:
        today = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=1))
            .not_valid_after(today + datetime.timedelta(days=9))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, name: str, password: str = "", file: str = "") -> tuple[str, str]:
        """A certificate and its key, as two files."""
        key = ec.generate_private_key(ec.SECP256R1())
        lock: Any = serialization.NoEncryption()
        if password:
            lock = serialization.BestAvailableEncryption(password.encode())
        cert_path, key_path = self._folder / f"{file or name}.crt", self._folder / f"{file or name}.key"
        cert_path.write_bytes(self._sign(name, key).public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        return str(cert_path), str(key_path)
