"""Connections that end together, taken leave of a few in each turn of the loop.

A process that dies ends thousands of connections in one moment, and each takes as long as some requests: its transport
closes, its task wakes, the owner hears of it, its memory goes. Everybody on the loop would wait for all of them. So a
turn ends some, at once as long as it has room for them; the others wait, and are nobody's meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable

ENDED_A_TURN_MAX = 16


class Endings:
    """The steps with which connections end, in the order in which they came."""

    def __init__(self) -> None:
        self._count = 0  # of this turn
        self._is_turn_known = False
        self._waiting: deque[Callable[[], None]] = deque()

    def is_its_turn(self, step: Callable[[], None]) -> bool:
        """Whether a step may be taken now; else it is called when it may."""
        if not self._is_turn_known:
            self._is_turn_known = True
            asyncio.get_running_loop().call_soon(self._begin)
        if self._waiting or self._count >= ENDED_A_TURN_MAX:
            self._waiting.append(step)
            return False
        self._count += 1
        return True

    def _begin(self) -> None:
        """Another turn of the loop: those who waited have it first."""
        self._is_turn_known = bool(self._waiting)
        self._count = min(len(self._waiting), ENDED_A_TURN_MAX)
        if self._is_turn_known:
            asyncio.get_running_loop().call_soon(self._begin)
        for _ in range(self._count):
            self._waiting.popleft()()
