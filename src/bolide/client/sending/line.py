"""The line of those who bring a message while too many are under way.

The rule: they are called in the order they came, and nobody passes while one stands here or was called and has not come
in yet. A caller's message is given in the same step of the loop in which `wait` returns.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class Line:
    """That of one producer."""

    def __init__(self, let_in: Callable[[], None]) -> None:
        """`let_in` is called when all who were called have come in: it may call more."""
        self.called_count = 0
        self._let_in = let_in
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._loop = asyncio.get_running_loop()

    def __bool__(self) -> bool:
        return bool(self._waiting or self.called_count)

    async def wait(self) -> None:
        """Until it is one's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((turn, self._loop.time()))
        try:
            await turn
        finally:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.called_count -= 1
            if not self.called_count:  # those who came in may have taken no room: nobody else would call the next
                self._loop.call_soon(self._let_in)

    def call(self, count: int) -> None:
        """It is the turn of this many."""
        while self._waiting and count > 0:
            turn, _ = self._waiting.popleft()
            if not turn.done():  # else it was cancelled
                turn.set_result(None)
                self.called_count += 1
                count -= 1

    def turn_away(self, problem: Exception, waited_s: float = 0.0) -> None:
        """Fail those who have waited at least so long."""
        latest_s = self._loop.time() - waited_s
        while self._waiting and self._waiting[0][1] <= latest_s:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(problem)
