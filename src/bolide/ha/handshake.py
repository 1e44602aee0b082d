"""Two brokers prove to each other that they know one key, before the first offset. No socket, no loop, no clock.

    slave → master   magic 8, nonce 32, length 1, name
    master → slave   1, nonce 32                                  or 0, length 1, why not
    slave → master   HMAC-SHA256 of all that was said, as slave
    master → slave   1, HMAC-SHA256 of all that was said, as master    or 0, length 1, why not

No secret is on the wire. Both nonces are new for each connection and both are in both proofs, so neither can be used a
second time; a proof of one side is none of the other. Over TLS both proofs cover what only this connection has
(`wire.binding`), so they cannot be passed on by a stranger in the middle either. The slave proves itself first: a
stranger who asks learns nothing that is made of the key.

The first byte of the magic makes a report of the plain stream negative and is no state of the other one, so a master
tells a slave that begins with it from one that does not.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

MAGIC = b"\xb0lideHA\x01"
NONCE_SIZE = PROOF_SIZE = 32
HELLO_SIZE = len(MAGIC) + NONCE_SIZE + 1
NAME_SIZE_MAX = 255
YES, NO = b"\x01", b"\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class HaKey:
    """What all brokers of a cluster share: the name and the secret of their inner credentials."""

    name: str
    secret: str = field(repr=False)


def hello(nonce: bytes, name: str) -> bytes:
    """What a slave says first."""
    packed = name.encode()[:NAME_SIZE_MAX]
    return MAGIC + nonce + bytes((len(packed),)) + packed


def refusal(why: str) -> bytes:
    """What a master says instead of an answer."""
    packed = why.encode()[:NAME_SIZE_MAX]
    return NO + bytes((len(packed),)) + packed


def proof(key: HaKey, side: str, slave_nonce: bytes, master_nonce: bytes, binding: bytes) -> bytes:
    """What shows that `side` (slave or master) knows the key; every part has a fixed size, or its size before it."""
    name = key.name.encode()[:NAME_SIZE_MAX]
    said = MAGIC + bytes((len(name),)) + name + slave_nonce + master_nonce + hashlib.sha256(binding).digest()
    return hmac.digest(key.secret.encode(), side.encode() + b"\0" + said, "sha256")


def is_proof(claimed: bytes, key: HaKey, side: str, slave_nonce: bytes, master_nonce: bytes, binding: bytes) -> bool:
    """Whether a proof is right; a wrong one takes as long."""
    return hmac.compare_digest(claimed, proof(key, side, slave_nonce, master_nonce, binding))
