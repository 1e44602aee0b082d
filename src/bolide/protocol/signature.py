"""The HMAC with which a request proves who sent it; RocketMQ's ACL 1.0 and its auth 2.0 use the same.

Signed are the values of all ext fields except the signature, in the order of their names, and then the body. The names
are not signed and nothing stands between two values; that is the format. It keeps the secret off the wire, but anyone
who listens can send a request again: only TLS prevents that.
"""

import base64
import hmac
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def sign(fields: Mapping[str, str], body: bytes, secret: str) -> str:
    """The value of the field `Signature`; `fields` already hold the access key and, if there is one, the token."""
    return _signature(fields, body, secret).decode()


def verify(fields: Mapping[str, str], body: bytes, secret: str) -> bool:
    """Whether the request's own signature is that of the secret; takes equally long for every wrong one.

    Clients before 4.9.4 do not cover `_UNIQUE_KEY_QUERY`, later ones do: either is accepted.
    """
    claimed = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    accepted = [_signature(fields, body, secret)]
    if UNIQUE_KEY_QUERY in fields:
        covered = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
        accepted.append(_signature(covered, body, secret))
    matches = [hmac.compare_digest(claimed, signature) for signature in accepted]
    return any(matches)


def _signature(fields: Mapping[str, str], body: bytes, secret: str) -> bytes:
    # Java compares UTF-16 units; that differs from code points only beyond the basic plane.
    names = sorted(
        (name for name in fields if name != SIGNATURE), key=lambda name: name.encode("utf-16-be", "surrogatepass")
    )
    values = "".join(fields[name] for name in names).encode("utf-8", "replace")
    return base64.b64encode(hmac.digest(secret.encode(), values + body, "sha1"))
