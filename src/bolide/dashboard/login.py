"""Who may look: nobody is asked on this machine alone, or users of a file, or the cluster's own users.

With access control on, a user of the cluster signs in with name and secret. The dashboard then asks in that name, and
brokers decide what may be seen and changed. A file has a line `name:password` for each user, and is read by its owner
alone. Tries are counted by address: five a minute.
"""

import hashlib
import hmac
import stat
from collections import deque
from enum import Enum
from pathlib import Path

from bolide.admin.admin import Admin
from bolide.client.config import Credentials
from bolide.clock import Clock
from bolide.errors import AccessRefused, ConfigError

TRIES_MAX = 5
TRIES_SPAN_S = 60.0
_ADDRESSES_MAX = 10_000


class Door(Enum):
    """Who is let in."""

    OPEN = "open"
    PASSWORDS = "passwords"
    CLUSTER = "cluster"


def read_passwords(path: Path) -> dict[str, bytes]:
    """Users of a file, each with the digest of its password; raises ConfigError."""
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError("--password-file", str(path), f"cannot be read: {problem}") from problem
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("--password-file", str(path), f"others may read it; `chmod 600 {path}` keeps it to its owner")
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not name or not colon or not password:
            raise ConfigError("--password-file", str(path), f"line {number} is not name:password")
        users[name] = _digest(password)
    if not users:
        raise ConfigError("--password-file", str(path), "has no user; write a line name:password")
    return users


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def is_right(users: dict[str, bytes], name: str, password: str) -> bool:
    """Whether a password is the user's; takes as long for a user that is not there."""
    wanted = users.get(name, b"\0" * 32)
    return hmac.compare_digest(_digest(password), wanted) and name in users


async def is_user(namesrv: str, credentials: Credentials, clock: Clock) -> bool:
    """Whether every master of a cluster takes this user."""
    async with Admin(namesrv, credentials=credentials, clock=clock) as admin:
        try:
            await admin.check_access()
        except AccessRefused:
            return False
    return True


class Tries:
    """How often each address tried to sign in, of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: dict[str, deque[float]] = {}

    def take(self, address: str) -> bool:
        """Whether one more is allowed; it is counted."""
        now_s = self._clock.monotonic_s()
        recent = self._tries.setdefault(address, deque(maxlen=TRIES_MAX))
        while recent and now_s - recent[0] > TRIES_SPAN_S:
            recent.popleft()
        if len(recent) >= TRIES_MAX:
            return False
        recent.append(now_s)
        if len(self._tries) > _ADDRESSES_MAX:
            del self._tries[next(iter(self._tries))]
        return True

    def give_back(self, address: str) -> None:
        """The last one was right and is not counted; those before it stay, or a user could guess another's password."""
        recent = self._tries.get(address)
        if recent:
            recent.pop()
