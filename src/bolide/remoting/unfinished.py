"""Frames that have begun and not ended: how much memory they may take together, and how long each may last.

Anyone who sends the beginning of a frame makes us keep it. All connections of a server share one budget for this
(`budget.py`), and those who hold the most are hung up on when it is spent: they cannot be told, for a peer that has not
finished his request has no answer. An honest client sends again, over a new connection.

A frame has some seconds, and after them has to have come at a modest rate: enough for the slowest link that is of any
use, too much for somebody who wants to hold thousands of frames open. The clock of a frame stands still while we do not
read it. The holders are looked at every few seconds, and only while there are any.

Anyone who sends without a pause has the beginning of a frame at the end of nearly every read, and its rest a moment
later. So the last few who began one keep the buffer they read into, and only those before them shrink theirs, and doze
until more of it comes (`dozing.py`). Their bytes are few, but a connection takes some kilobytes whatever it says, so
their number has a bound too.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from bolide.clock import Clock
from bolide.remoting.budget import Budget
from bolide.remoting.endings import ENDED_A_TURN_MAX
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.sparse import Sparse

if TYPE_CHECKING:
    from bolide.remoting.session import Session

_LOOK_INTERVAL_S = 5.0
LOOSE_COUNT_MAX = 64
log = logging.getLogger(__name__)
log.addFilter(Sparse())


class Unfinished:
    """The frames that have begun, of all connections of a server."""

    def __init__(self, config: ListenConfig, clock: Clock) -> None:
        size_max = max(config.unfinished_size_max, config.frame_size_max + config.read_size)
        self._config = config
        self._clock = clock
        self._budget: Budget[Session] = Budget(size_max, size_max, self._give_way)
        self._loose: dict[Session, None] = {}  # who may take more memory than his bytes
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """The memory that all of them take."""
        return self._budget.total

    def hold(self, session: "Session", size: int) -> None:
        """A connection now keeps so much of a frame; it is hung up on if that is too much."""
        self._change(session, size)
        self._loose.pop(session, None)
        if size:
            self._loose[session] = None
            if len(self._loose) > LOOSE_COUNT_MAX:
                oldest = next(iter(self._loose))
                del self._loose[oldest]
                self._change(oldest, oldest.shrink())
                oldest.doze()
                surplus = oldest.shared.dozing.take_surplus(self._clock.monotonic_s())
                if surplus is not None:
                    self._hang_up(surplus, "were one of too many beginnings")
        if self._timer is None and self._budget.total:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._look)

    def _change(self, session: "Session", size: int) -> None:
        more = size - self._budget.held_by(session)
        if more < 0:
            self._budget.give_back(session, -more)
        elif more > 0 and not self._budget.grant(session, more):
            self._hang_up(session, "took the most room of all")

    def left(self, session: "Session") -> None:
        self._budget.left(session)
        self._loose.pop(session, None)
        if self._timer is not None and not self._budget.total:
            self._timer.cancel()
            self._timer = None

    def _give_way(self, session: "Session", _: int) -> None:
        self._budget.left(session)  # half a frame is of no use: it gives all of it
        self._hang_up(session, "took the most room of all")

    def _hang_up(self, session: "Session", why: str) -> None:
        text = "connection closed: peer=%s: the %d bytes of a frame that had come %s, while %d bytes of all were held"
        log.warning(text, session.peer, session.reader.held_size, why, self._budget.total)
        session.abort("an unfinished frame")

    def _look(self) -> None:
        self._timer = None
        late = [session for session in self._budget.holders if self._is_late(session)]
        self._hang_up_some(late)
        if self._budget.total:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_INTERVAL_S, self._look)

    def _is_late(self, session: "Session") -> bool:
        late_s = self._clock.monotonic_s() - session.frame_began_s - self._config.frame_free_s
        is_slow = session.reader.held_size < late_s * self._config.frame_rate_min
        return late_s > 0 and is_slow and session.is_reading and session.is_open

    def _hang_up_some(self, late: "list[Session]") -> None:
        """A few in a turn, for thousands may have begun together."""
        for session in late[:ENDED_A_TURN_MAX]:
            if self._is_late(session):
                self._hang_up(session, f"came in {self._clock.monotonic_s() - session.frame_began_s:.0f} s, too slowly")
        if late := late[ENDED_A_TURN_MAX:]:
            asyncio.get_running_loop().call_soon(self._hang_up_some, late)
