"""A self-signed certificate for loopback, in the files that RocketMQ and Bolide are pointed at."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

VALID_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
VALID_TO = datetime.datetime(2049, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Paths of the certificate and of its key (PKCS#8, the only form that Java's side reads)."""

    certificate: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bolide interop")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_TO)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(directory / "server.pem", directory / "server.key")
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made
