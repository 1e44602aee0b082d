"""Our requests that wait for an answer on one connection, by opaque.

The opaque number is all that ties an answer to its request, so it is never given out again while it is in flight; it
has 32 bits with a sign, as Java's, and wraps around. Each connection counts for itself.

A sender of very many small requests keeps them itself (`BulkPending`): it takes runs of numbers here, sees the answers
of a whole read at once, and needs neither a future nor a timer for each.
"""

import asyncio
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple, Protocol

from bolide.errors import ConnectionLost, RequestTimeout
from bolide.protocol.command import Command

_OPAQUE_MAX = 0x7FFF_FFFF
_OPAQUE_MIN = -0x8000_0000


def following_opaque(opaque: int, taken: Container[int]) -> int:
    """The next number for a request that is not among the taken ones."""
    while True:
        opaque = _OPAQUE_MIN if opaque == _OPAQUE_MAX else opaque + 1
        if opaque not in taken:
            return opaque


def lost(peer: str, why: str) -> ConnectionLost:
    """What is raised where the answer of a peer is awaited that is gone."""
    return ConnectionLost(f"the connection to {peer} is gone: {why or 'closed'}")


class _Pending(NamedTuple):
    answer: asyncio.Future[Command]
    read_count: int  # of the session when it was sent


class BulkPending(Protocol):
    """Requests in flight that their sender keeps."""

    def __len__(self) -> int: ...

    def __contains__(self, opaque: object) -> bool: ...

    def isdisjoint(self, opaques: Iterable[int], /) -> bool:
        """Whether none of these is in flight."""
        ...

    def take(self, stream: memoryview, bounds: list[int]) -> list[int]:
        """Settle what can be of the frames of one read; returns the bounds of the rest."""
        ...

    def settle(self, answer: Command) -> bool:
        """An answer that `take` left; false when it is for none of these requests."""
        ...


class Taker(Protocol):
    """Who is asked, as far as it takes bytes; `Session` is one."""

    peer: str

    @property
    def is_writable(self) -> bool: ...

    async def writable(self) -> None: ...


class PendingRequests:
    """What was asked and not answered yet."""

    __slots__ = ("_count_max", "_pending", "bulk", "last_opaque", "places")

    def __init__(self, count_max: int) -> None:
        self.places = asyncio.Semaphore(count_max)
        self._count_max = count_max
        self.last_opaque = -1
        self.bulk: BulkPending | None = None
        self._pending: dict[int, _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def has_room(self) -> bool:
        """Whether one more may be asked at once, by somebody who takes no place."""
        return len(self._pending) < self._count_max

    async def acquire(self, taker: Taker, timeout_s: float) -> None:
        """A place among the requests in flight, and a peer that takes bytes."""
        if not self.places.locked() and taker.is_writable:
            await self.places.acquire()  # does not wait
            return
        has_place = False
        try:
            async with asyncio.timeout(timeout_s):
                has_place = await self.places.acquire()
                await taker.writable()
                has_place = False  # it is the caller's now
        except TimeoutError:
            text = f"{taker.peer} took no further request for {timeout_s:g} s: {len(self)} wait for an answer"
            raise RequestTimeout(text) from None
        finally:
            if has_place:
                self.places.release()

    def number(self) -> int:
        """A number that no request in flight has."""
        self.last_opaque = following_opaque(self.last_opaque, self._pending)
        while self.bulk and self.last_opaque in self.bulk:
            self.last_opaque = following_opaque(self.last_opaque, self._pending)
        return self.last_opaque

    def numbers(self, count: int) -> int:
        """The first of this many numbers in a row."""
        while True:
            first = self.number()
            run = range(first, first + count)
            is_free = self._pending.keys().isdisjoint(run) and (not self.bulk or self.bulk.isdisjoint(run))
            self.last_opaque = min(run[-1], _OPAQUE_MAX)
            if is_free and run[-1] <= _OPAQUE_MAX:
                return first

    def add(self, read_count: int) -> tuple[int, asyncio.Future[Command]]:
        """A number for a request that is sent now, and the future of its answer."""
        opaque = self.number()
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._pending[opaque] = _Pending(answer, read_count)
        return opaque, answer

    def remove(self, opaque: int) -> None:
        del self._pending[opaque]

    def settle(self, answer: Command) -> bool:
        """Hand an answer to who asked; false when nobody waits for it any more."""
        pending = self._pending.get(answer.opaque)
        if pending is None:
            return self.bulk is not None and self.bulk.settle(answer)
        if pending.answer.done():
            return False
        pending.answer.set_result(answer)
        return True

    def fail(self, opaque: int, problem: Exception) -> int:
        """Raise `problem` where the answer is awaited; returns the read count of when it was asked."""
        pending = self._pending[opaque]
        if not pending.answer.done():
            pending.answer.set_exception(problem)
        return pending.read_count

    def fail_all(self, problem: Callable[[], Exception]) -> None:
        for opaque in self._pending:
            self.fail(opaque, problem())
