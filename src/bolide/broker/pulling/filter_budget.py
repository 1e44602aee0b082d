"""What is wanted of a queue, and sieves at work: how long they may, and one that finds its filter for each message.

Looking at properties takes time that everybody on the loop waits for, so what pulls and pops may take in one turn of it
is bounded: the first has two milliseconds, and those after it what is left of them, a tenth of one at least. The time
is looked at by the work done, in the middle of a message too. Who finds nothing in that time is told how far the search
came and asks again at once.

Pulls that come together, as those of a consumer for its queues do, wait for each other: one is answered a turn, and its
answer leaves before the next search begins. So the consumer has work while we search on, and others have their turn. If
so many wait that the last would for more than a second, each has less: who waits too long gives up, asks again, and
would never get on.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.tables.filters import Filters
from bolide.clock import Clock
from bolide.kernel import filter_layout
from bolide.model.properties import RETRY_TOPIC
from bolide.protocol.properties import decode_properties
from bolide.remoting.owner import Reply, Request
from bolide.store.read import Sieve

TURN_S = 0.002
LATE_S = 0.0001
WAIT_S = 1.0
PLACES = 8  # of those that a connection has for requests: one that waits to search keeps a kilobyte
_ASKING = filter_layout.HEADER.pack(0, 1, 0) + filter_layout.NODE.pack(filter_layout.ASK, 0, 0, 0, 0)


class MessageFilter(NamedTuple):
    """What passes: messages with one of the tag hashes (None: all), or through the sieve.

    `passes` says of entries that were just written whether the sieve lets one through.
    """

    tags: frozenset[int] | None = None
    sieve: Sieve | None = None
    passes: Callable[[bytes], bool] | None = None


class FilterBudget:
    """What is left of this turn of the loop, and who waits for another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: float | None = None
        self._waiting: deque[tuple[Request, Callable[[], Reply]]] = deque()

    @property
    def is_taken(self) -> bool:
        """Whether somebody has searched in this turn already, or waits to."""
        return self._until_s is not None or bool(self._waiting)

    def wait(self, request: Request, serve: Callable[[], Reply]) -> None:
        """Have a request answered by `serve` in a later turn, after those that wait before it."""
        request.session.hold(PLACES)
        self._waiting.append((request, serve))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._serve_next)

    def _serve_next(self) -> None:
        request, serve = self._waiting.popleft()
        session = request.session
        try:
            if session.is_open:
                session.answer(request, serve)
                session.flush()
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._serve_next)
            session.release(PLACES)

    def begin(self) -> None:
        """A search begins; if it is the first of the turn, so does its time."""
        now_s = self._clock.monotonic_s()
        if self._until_s is None:
            self._until_s = now_s + max(LATE_S, min(TURN_S, WAIT_S / (len(self._waiting) + 1)))
            asyncio.get_running_loop().call_soon(self._end)
        else:
            self._until_s = max(self._until_s, now_s + LATE_S)

    def is_over(self) -> bool:
        return self._until_s is not None and self._clock.monotonic_s() >= self._until_s

    def _end(self) -> None:
        self._until_s = None


class RetrySieve:
    """For a group that subscribed its retry topic by SQL (`filterSupportRetry`): each message has its topic's filter.

    A message whose topic the group does not filter passes.
    """

    program = _ASKING

    def __init__(self, filters: Filters, group: str) -> None:
        self.stalled: dict[int, bytes] = {}  # of what is asked about nothing is kept
        self._filters = filters
        self._group = group

    def passes(self, encoded: bytes) -> bool:
        properties = decode_properties(encoded)
        kept = self._filters.get(properties.get(RETRY_TOPIC, ""), self._group)
        return kept is None or kept.predicate is None or kept.predicate.passes(encoded)
