"""Requests that are served one by one: how long in one turn of the loop, and who goes on in the next.

A read may bring hundreds of requests, and thousands of connections may have one each: served to the last, they would
keep everybody waiting whose messages go the fast way. So all of them together have a millisecond of a turn; what is
left waits in its connection, which is not read meanwhile. The addresses go on after each other, and the connections of
an address, one request each.
"""

import asyncio
from typing import TYPE_CHECKING

from bolide.clock import Clock

if TYPE_CHECKING:
    from bolide.remoting.session import Session

TURN_S = 0.001


class Serving:
    """The time of this turn, and the connections that wait for another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: float | None = None
        self._waiting: dict[str, dict[Session, None]] = {}  # by address

    def has_to_wait(self, session: "Session") -> bool:
        """Whether a connection has to wait with its next request; then it is called (`go_on`) when it may."""
        if not self._waiting and not self._is_over():
            return False
        self._waiting.setdefault(session.origin, {})[session] = None
        return True

    def _is_over(self) -> bool:
        now_s = self._clock.monotonic_s()
        if self._until_s is None:
            self._until_s = now_s + TURN_S
            asyncio.get_running_loop().call_soon(self._begin)
        return now_s >= self._until_s

    def _begin(self) -> None:
        """Another turn of the loop: those who waited have it first."""
        self._until_s = None
        is_over = False
        while self._waiting and not is_over:
            origin, sessions = next(iter(self._waiting.items()))
            session = next(iter(sessions))
            del self._waiting[origin], sessions[session]
            if sessions:
                self._waiting[origin] = sessions  # behind the others
            session.go_on(is_its_turn=True)
            is_over = self._is_over()
