"""One after another: anyone who changes the tables takes a turn.

Rule: acts are carried out in the order they came, and the next begins when the one before has ended. An act that does
not wait is carried out at once while nobody is at it, which is nearly always; only a long one (a registration of
thousands of topics) makes others queue, and those are carried out by the background task `run_forever`.

What queues is bounded in bytes: a stranger could otherwise have us hold as many large bodies as he cares to send. An
act whose asker hung up before it began is skipped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import NamedTuple

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command

WAITING_SIZE_MAX = 128 * 1024 * 1024

Act = Callable[[], Command | Awaitable[Command]]


class _Waiting(NamedTuple):
    act: Act
    size: int
    answer: asyncio.Future[Command]


class ChangeQueue:
    """The queue of those who change the tables; the first in it is the one at work."""

    def __init__(self, size_max: int = WAITING_SIZE_MAX) -> None:
        self._size_max = size_max
        self._queue: deque[_Waiting] = deque()
        self._size = 0
        self._arrival = asyncio.Event()

    @property
    def waiting_count(self) -> int:
        return len(self._queue)

    def run(self, act: Act, size: int = 0, *, is_long: bool = False) -> Command | Awaitable[Command]:
        """Act now if that is short and nobody is at it, otherwise after those who came before."""
        if not self._queue and not is_long:
            return act()
        if self._size + size > self._size_max:
            text = f"{len(self._queue)} requests of {self._size} bytes wait to change the tables; try again later"
            raise Refusal(ResponseCode.SYSTEM_BUSY, text)
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(act, size, answer))
        self._size += size
        self._arrival.set()
        return answer

    async def run_forever(self) -> None:
        """Carry out what queues."""
        while True:
            await self._arrival.wait()
            while self._queue:
                waiting = self._queue[0]
                if not waiting.answer.done():
                    await _carry_out(waiting.act, waiting.answer)
                self._queue.popleft()
                self._size -= waiting.size
            self._arrival.clear()


async def _carry_out(act: Act, answer: asyncio.Future[Command]) -> None:
    """Hand the outcome, or the error, to the one who asked: the session answers with it, and the next turn begins."""
    (outcome,) = await asyncio.gather(_outcome(act), return_exceptions=True)
    if answer.done():
        return
    if isinstance(outcome, BaseException):
        if isinstance(outcome, Refusal):
            outcome.__traceback__ = outcome.__context__ = None  # they would keep what was read of a large registration
        answer.set_exception(outcome)
        answer.exception()  # seen, even if he hangs up before he looks
    else:
        answer.set_result(outcome)


async def _outcome(act: Act) -> Command:
    result = act()
    return await result if isawaitable(result) else result
