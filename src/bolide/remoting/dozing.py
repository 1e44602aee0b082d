"""Connections that nothing is expected from for now, watched beside the loop.

The loop hears of everything that has happened since its last turn in one go, and calls for each before anybody else is
served. Thousands of connections that were opened by one process end in one moment, and each end is read, noted and
logged. So a connection that has begun a frame and does not go on with it is not read by the loop any more: the system
watches it in a set of its own, and the loop watches that set. Of those that stir, a few are read in each turn.

So many may doze. Beyond that the address with the most of them has its oldest hung up on, by the one who asks
(`take_surplus`), if it has been silent for a while: anyone who sends a large frame over a slow link dozes too, but soon
stirs again, and then is the newest.

Without epoll (that is, not on Linux) nobody dozes.
"""

import asyncio
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bolide.remoting.session import Session

WOKEN_A_TURN_MAX = 16
DOZING_MAX = 512
SILENT_S = 0.25
_HAS_EPOLL = hasattr(select, "epoll")


class Dozing:
    """Those of one server, by the descriptors of their sockets."""

    def __init__(self) -> None:
        self._set: select.epoll | None = None
        self._sessions: dict[int, Session] = {}
        self._by_origin: dict[str, dict[int, None]] = {}  # oldest first

    @property
    def count(self) -> int:
        return len(self._sessions)

    def add(self, session: "Session", descriptor: int) -> bool:
        """Wake the session (`Session.wake`) when its peer sends something or leaves; false where that cannot be."""
        if not _HAS_EPOLL:
            return False
        if self._set is None:
            self._set = select.epoll()
            asyncio.get_running_loop().add_reader(self._set.fileno(), self._wake_some)
        wanted = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
        try:
            self._set.register(descriptor, wanted)
        except FileExistsError:  # it dozed before
            self._set.modify(descriptor, wanted)
        self._remove(descriptor)  # of one that is gone, should it not have been told of yet
        self._sessions[descriptor] = session
        self._by_origin.setdefault(session.origin, {})[descriptor] = None
        return True

    def take_surplus(self, now_s: float) -> "Session | None":
        """The one that has to go because there are too many; it dozes no more."""
        if len(self._sessions) <= DOZING_MAX:
            return None
        most: dict[int, None] = max(self._by_origin.values(), key=len)
        oldest = next(iter(most))
        if now_s - self._sessions[oldest].last_active_s < SILENT_S:
            return None
        return self._remove(oldest)

    def left(self, session: "Session", descriptor: int) -> None:
        """It is gone; with its descriptor the system forgot it."""
        if self._sessions.get(descriptor) is session:
            self._remove(descriptor)

    def stop(self) -> None:
        if self._set is not None:
            asyncio.get_running_loop().remove_reader(self._set.fileno())
            self._set.close()
            self._set = None
            self._sessions.clear()
            self._by_origin.clear()

    def _remove(self, descriptor: int) -> "Session | None":
        session = self._sessions.pop(descriptor, None)
        if session is not None:
            of_origin = self._by_origin[session.origin]
            del of_origin[descriptor]
            if not of_origin:
                del self._by_origin[session.origin]
        return session

    def _wake_some(self) -> None:
        assert self._set is not None
        for descriptor, _ in self._set.poll(0, WOKEN_A_TURN_MAX):
            session = self._remove(descriptor)
            if session is not None:
                session.wake()
