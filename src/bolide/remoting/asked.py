"""Our requests that wait for an answer on one connection, by opaque.

The opaque number is all that ties an answer to its request, so it is never given out again while it is in flight; it
has 32 bits with a sign, as Java's, and wraps around. Each connection counts for itself.
"""

import asyncio
from collections.abc import Callable, Container
from typing import NamedTuple

from bolide.protocol.command import Command

_OPAQUE_MAX = 0x7FFF_FFFF
_OPAQUE_MIN = -0x8000_0000


def following_opaque(opaque: int, taken: Container[int]) -> int:
    """The next number for a request that is not among the taken ones."""
    while True:
        opaque = _OPAQUE_MIN if opaque == _OPAQUE_MAX else opaque + 1
        if opaque not in taken:
            return opaque


class _Question(NamedTuple):
    answer: asyncio.Future[Command]
    read_count: int  # of the session when it was sent


class Asked:
    """What was asked and not answered yet."""

    def __init__(self, count_max: int) -> None:
        self.places = asyncio.Semaphore(count_max)
        self.last_opaque = -1
        self._questions: dict[int, _Question] = {}

    def __len__(self) -> int:
        return len(self._questions)

    def number(self) -> int:
        """A number that no request in flight has."""
        self.last_opaque = following_opaque(self.last_opaque, self._questions)
        return self.last_opaque

    def add(self, read_count: int) -> tuple[int, asyncio.Future[Command]]:
        """A number for a request that is sent now, and the future of its answer."""
        opaque = self.number()
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._questions[opaque] = _Question(answer, read_count)
        return opaque, answer

    def remove(self, opaque: int) -> None:
        del self._questions[opaque]

    def settle(self, answer: Command) -> bool:
        """Hand an answer to who asked; false when nobody waits for it any more."""
        question = self._questions.get(answer.opaque)
        if question is None or question.answer.done():
            return False
        question.answer.set_result(answer)
        return True

    def fail(self, opaque: int, problem: Exception) -> int:
        """Raise `problem` where the answer is awaited; returns the read count of when it was asked."""
        question = self._questions[opaque]
        if not question.answer.done():
            question.answer.set_exception(problem)
        return question.read_count

    def fail_all(self, problem: Callable[[], Exception]) -> None:
        for opaque in self._questions:
            self.fail(opaque, problem())
