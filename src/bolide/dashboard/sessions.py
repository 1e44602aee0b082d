"""Who is looking: sessions by cookie, in memory, with an end.

Everybody has a session, signed in or not, because a form carries a token that belongs to it. The cookie is no use to
another site: it is sent with requests of our own pages alone (SameSite=Strict), and no script reads it.
"""

import hmac
import secrets
from dataclasses import dataclass, field

from bolide.client.config import Credentials
from bolide.clock import Clock

COOKIE = "bolide_session"
IDLE_S = 8 * 3600
COUNT_MAX = 10_000
_ID_SIZE = 32


@dataclass(slots=True)
class Session:
    """One browser. `credentials` are those of a user of the cluster, who asks in that name."""

    id: str
    token: str
    seen_s: float
    user: str = ""
    credentials: Credentials | None = field(default=None, repr=False)

    def owns(self, token: str) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(self.token.encode(), token.encode("utf-8", "replace"))


class Sessions:
    """All of them; of those without a user the one unseen for longest goes first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def find(self, session_id: str | None) -> Session | None:
        """The session of a cookie, if it has one and was not idle for too long."""
        session = self._sessions.pop(session_id, None) if session_id else None
        now_s = self._clock.monotonic_s()
        if session is None or now_s - session.seen_s > IDLE_S:
            return None
        session.seen_s = now_s
        self._sessions[session.id] = session  # now the newest
        return session

    def begin(self, user: str = "", credentials: Credentials | None = None) -> Session:
        """A new one; signing in never keeps an old id, which somebody else may know."""
        while len(self._sessions) >= COUNT_MAX:
            # Those that nobody signed in to go first: a flood of visitors signs nobody out.
            unsigned = (each.id for each in self._sessions.values() if not each.user)
            del self._sessions[next(unsigned, next(iter(self._sessions)))]
        session_id, token = secrets.token_urlsafe(_ID_SIZE), secrets.token_urlsafe(_ID_SIZE)
        session = Session(session_id, token, self._clock.monotonic_s(), user, credentials)
        self._sessions[session_id] = session
        return session

    def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
