"""Users and policies on their way from a master to its slaves, sealed with what both know: the inner credentials.

A slave asks with a random number and with a digest of what it has. The master answers nothing where it has the same;
else its tables, encrypted and sealed over the random numbers of both. So no answer holds a secret for anybody without
the inner one, Super users included, and an answer that was heard cannot be told again.

The keys come from HMAC-SHA256 of the inner secret over both numbers, the key stream from SHAKE256, the seal from
HMAC-SHA256 over what is encrypted: each answer has keys of its own.
"""

import hashlib
import hmac
import secrets

import msgspec

from bolide.access.users import UserTable, parse_policies, parse_users
from bolide.protocol.bodies.access import Acl

NUMBER_SIZE = 16
_SEAL_SIZE = 32
_LABEL = b"bolide users"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the request; both in hexadecimal."""

    challenge: str
    have: str

    @property
    def number(self) -> bytes:
        """The slave's random number; raises ValueError."""
        number = bytes.fromhex(self.challenge)
        if len(number) != NUMBER_SIZE:
            raise ValueError(f"a challenge has {NUMBER_SIZE} bytes")
        return number


def wanted(table: UserTable, secret: str) -> Wanted:
    """A new question for what differs from this table."""
    return Wanted(challenge=secrets.token_hex(NUMBER_SIZE), have=digest(table, secret))


def digest(table: UserTable, secret: str) -> str:
    """Equal for equal tables, and nothing to guess passwords by for anyone without the secret."""
    return hmac.digest(secret.encode(), _LABEL + _text(table), "sha256").hex()


def seal(table: UserTable, secret: str, challenge: bytes) -> bytes:
    """A table as it is answered."""
    number, text = secrets.token_bytes(NUMBER_SIZE), _text(table)
    stream_key, seal_key = _keys(secret, challenge, number)
    hidden = _xor(text, hashlib.shake_256(stream_key).digest(len(text)))
    return number + hmac.digest(seal_key, hidden, "sha256") + hidden


def unseal(answer: bytes, secret: str, challenge: bytes) -> UserTable:
    """The table in an answer; raises ValueError for one that is not for this question, or of another secret."""
    number, sealed, hidden = answer[:NUMBER_SIZE], answer[NUMBER_SIZE:][:_SEAL_SIZE], answer[NUMBER_SIZE + _SEAL_SIZE :]
    stream_key, seal_key = _keys(secret, challenge, number)
    if not hmac.compare_digest(sealed, hmac.digest(seal_key, hidden, "sha256")):
        raise ValueError("it is not sealed with our innerClientAuthenticationCredentials")
    users, _, acls = _xor(hidden, hashlib.shake_256(stream_key).digest(len(hidden))).partition(b"\0")
    return UserTable(parse_users(users.decode()), parse_policies(acls.decode()))


def _keys(secret: str, challenge: bytes, number: bytes) -> tuple[bytes, bytes]:
    key = hmac.digest(secret.encode(), _LABEL + challenge + number, "sha256")
    return hmac.digest(key, b"stream", "sha256"), hmac.digest(key, b"seal", "sha256")


def _xor(data: bytes, stream: bytes) -> bytes:
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def _text(table: UserTable) -> bytes:
    """Both files, in one order whatever the order of changes was."""
    users = [table.users[name].shown(with_password=True) for name in sorted(table.users)]
    acls = [_ordered(acl) for name in sorted(table.policies) if (acl := table.told(name)) is not None]
    return msgspec.json.encode({"users": users}) + b"\0" + msgspec.json.encode({"acls": acls})


def _ordered(acl: Acl) -> Acl:
    policies = [
        msgspec.structs.replace(policy, entries=sorted(policy.entries, key=lambda entry: entry.resource or ""))
        for policy in sorted(acl.policies, key=lambda policy: policy.policy_type or "")
    ]
    return msgspec.structs.replace(acl, policies=policies)
