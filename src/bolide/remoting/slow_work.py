"""Work that takes long, done in small pieces: who may go on next, and how much of the loop all of it may have.

A search through a long chain, a filter to compile or a body that only the slow reader can read takes as much time as
its sender likes, and everybody on the loop waits meanwhile. So such work has one queue. Who works asks for a turn
between its pieces: it goes on for a millisecond at a time, the addresses after each other, within an address its
connections, within a connection its requests. After each turn the queue rests four times as long as that took, so all
of this work together has a fifth of the loop, however many ask; a piece that took longer is rested for too.

The places in the queue are a budget (`budget.py`): the one with the most gives way when they are taken. A request with
a large body, which is kept meanwhile, takes as many places as that is heavy. Anyone who is turned away is told that we
are busy, which clients take for a reason to come back.

Work in a thread takes part as well (`Place.in_thread`): it runs in its turns only, so that the loop never waits for the
interpreter longer than a turn lasts. It has threads of its own, for it stays in one from turn to turn, and a connection
that has such work is not read until it is done (`alone`), so one connection has one at a time. A turn that would begin
such work is given when there is a thread for it, for anyone who has the turn and does not work keeps all others from
theirs; some threads are never left to one address. When its connection has gone, work in a thread ends at its next
breath. A connection that is not read does not see that its peer hung up, so that is asked before each turn.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.remoting.budget import Budget, Holder

if TYPE_CHECKING:
    from bolide.remoting.session import Session

TURN_S = 0.001
REST_RATIO = 4
PLACES_MAX = 1_024
PLACES_BY_CONNECTION_MAX = 64
SIZE_OF_PLACE = 32 * 1024
ALONE_COUNT = 1 << 30  # held by a request beside which no other of its connection is begun
THREADS_MAX = 4  # more would get on no faster, and each keeps what it has read so far
THREADS_BY_ADDRESS_MAX = 3
_STEPS_BETWEEN = 16  # looks at the clock

T = TypeVar("T")


class Asker(Holder, Protocol):
    """A connection whose request takes long; `Session` is one."""

    @property
    def has_hung_up(self) -> bool:
        """Nobody is there any more who waits for an answer, whether we have read so far or not."""
        ...


def place_of(session: "Session", size: int = 0) -> "Place":
    """A place for a request of this connection with so large a body; raises Refusal if it has its share already."""
    assert session.shared.slow_work is not None, "who serves strangers bounds what they may have"
    return session.shared.slow_work.place(session, size)


def check_room(session: "Session") -> None:
    """Raise Refusal at once if a connection has its share: a flood need not have a task for each refusal."""
    assert session.shared.slow_work is not None, "who serves strangers bounds what they may have"
    session.shared.slow_work.check_room(session)


@contextlib.contextmanager
def alone(session: "Session") -> Iterator[None]:
    """Read no more of a connection meanwhile: more of the kind stays with its sender until this one is done."""
    session.hold(ALONE_COUNT)
    try:
        yield
    finally:
        session.release(ALONE_COUNT)


class Place:
    """One request's place in the queue, for as long as the `with` block lasts."""

    def __init__(self, queue: "SlowWork", holder: Asker, weight: int) -> None:
        self.holder = holder
        self.weight = weight
        self._queue = queue
        self._step_count = 0
        self.granted: asyncio.Future[None] | None = None  # while it waits
        self.is_turned_away = self.has_left = False
        self.wants_thread = self.has_thread = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.leave(self)

    async def turn(self) -> None:
        """Go on at once while this turn lasts, else in the next; raises Refusal if the place was taken away."""
        await self._queue.turn(self)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run work in a thread; it calls what `breather` gives as often as it can."""
        self.wants_thread = True
        await self.turn()
        loop, queue = asyncio.get_running_loop(), self._queue
        underway = queue.threads.submit(work)
        self.wants_thread = False  # from here on it is given back when the work has ended, anyone who waits for it
        underway.add_done_callback(lambda _: _soon(loop, queue.thread_ended, self))
        return await asyncio.wrap_future(underway)

    def breather(self) -> Callable[[], None]:
        """What work in a thread calls between its pieces: it waits there until the next turn."""
        return partial(self._breathe, asyncio.get_running_loop())

    def _breathe(self, loop: asyncio.AbstractEventLoop) -> None:
        self._step_count += 1
        if self._step_count % _STEPS_BETWEEN == 0 and (self.has_left or self._queue.is_over()):
            asyncio.run_coroutine_threadsafe(self.turn(), loop).result()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[Place], None], place: Place) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has closed, and nobody needs to know any more
        loop.call_soon_threadsafe(call, place)


class SlowWork:
    """The queue of a server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="slow_work")  # none begins before it is used
        self._places: Budget[Asker] = Budget(PLACES_MAX, PLACES_BY_CONNECTION_MAX, self._give_way)
        self._waiting: dict[str, dict[Asker, deque[Place]]] = {}  # by address, by connection
        self._working: Place | None = None
        self._threads_taken: Counter[str] = Counter()  # by address
        self._began_s = 0.0
        self._rests_until_s = 0.0
        self._timer: asyncio.Handle | None = None

    @property
    def count(self) -> int:
        return self._places.total

    def place(self, holder: Asker, size: int = 0) -> Place:
        """A place for a request of this connection; raises Refusal if it has its share already."""
        weight = 1 + size // SIZE_OF_PLACE
        if not self._places.grant(holder, weight):
            raise self._refusal()
        return Place(self, holder, weight)

    def check_room(self, holder: Asker) -> None:
        if self._places.held_by(holder) >= PLACES_BY_CONNECTION_MAX:
            raise self._refusal()

    def is_over(self) -> bool:
        """Whether who works now has had his turn."""
        return self._clock.monotonic_s() >= self._began_s + TURN_S

    async def turn(self, place: Place) -> None:
        has_worked = self._working is place
        if has_worked:
            if not self.is_over():
                return
            self._end_turn()
        if has_worked or not self._may_begin(place):
            place.granted = asyncio.get_running_loop().create_future()
            by_connection = self._waiting.setdefault(place.holder.origin, {})
            by_connection.setdefault(place.holder, deque()).append(place)
            self._go_on()
            await place.granted
            place.granted = None
        if place.is_turned_away or place.has_left or place.holder.has_hung_up:
            raise self._refusal()
        self._give_turn(place)

    def leave(self, place: Place) -> None:
        place.has_left = True
        if not place.is_turned_away:
            self._places.give_back(place.holder, place.weight)
        if place.wants_thread and place.has_thread:  # it never used it
            self.thread_ended(place)
        if self._working is place:
            self._end_turn()
        elif place.granted is not None:
            self._remove(place)
            if not place.granted.done():
                place.granted.set_result(None)  # its work may wait in a thread

    def thread_ended(self, place: Place) -> None:
        self._threads_taken[place.holder.origin] -= 1
        self._threads_taken += Counter()  # a peer with none is not kept
        place.has_thread = False
        self._go_on()

    def _may_begin(self, place: Place) -> bool:
        """Whether nobody is before it."""
        is_free = self._working is None and not self._waiting
        return is_free and self._clock.monotonic_s() >= self._rests_until_s and self._can_work(place)

    def _can_work(self, place: Place) -> bool:
        """Whether there is a thread for it, if it wants one."""
        if not place.wants_thread or place.has_thread:
            return True
        taken, of_address = self._threads_taken.total(), self._threads_taken[place.holder.origin]
        return taken < THREADS_MAX and of_address < THREADS_BY_ADDRESS_MAX

    def _give_turn(self, place: Place) -> None:
        if place.wants_thread and not place.has_thread:
            place.has_thread = True
            self._threads_taken[place.holder.origin] += 1
        self._working = place
        self._began_s = self._clock.monotonic_s()

    def _end_turn(self) -> None:
        now_s = self._clock.monotonic_s()
        self._working = None
        self._rests_until_s = now_s + REST_RATIO * (now_s - self._began_s)
        self._go_on()

    def _go_on(self) -> None:
        if self._timer is None and self._waiting and self._working is None:
            rest_s = max(self._rests_until_s - self._clock.monotonic_s(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(rest_s, self._grant)

    def _grant(self) -> None:
        """Give the turn to the next who can use it: its address and connection go behind the others of their kind."""
        self._timer = None
        place = self._next() if self._working is None else None
        if place is None:
            return
        by_connection = self._waiting.pop(place.holder.origin)
        places = by_connection.pop(place.holder)
        places.popleft()
        if places:
            by_connection[place.holder] = places
        if by_connection:
            self._waiting[place.holder.origin] = by_connection
        self._give_turn(place)
        if place.granted is not None and not place.granted.done():
            place.granted.set_result(None)

    def _next(self) -> Place | None:
        firsts = (places[0] for by_connection in self._waiting.values() for places in by_connection.values())
        return next(filter(self._can_work, firsts), None)

    def _remove(self, place: Place) -> None:
        by_connection = self._waiting.get(place.holder.origin, {})
        places = by_connection.get(place.holder)
        if places is not None and place in places:
            places.remove(place)
            if not places:
                del by_connection[place.holder]
            if not by_connection:
                del self._waiting[place.holder.origin]

    def _give_way(self, holder: Asker, amount: int) -> None:
        """The newest that wait are turned away; if fewer do, the rest is working and goes on uncounted."""
        for place in reversed(list(self._waiting.get(holder.origin, {}).get(holder, ()))):
            if amount <= 0:
                break
            amount -= place.weight
            place.is_turned_away = True
            self._remove(place)
            self._places.give_back(holder, place.weight)
            if place.granted is not None and not place.granted.done():
                place.granted.set_result(None)

    def _refusal(self) -> Refusal:
        remark = f"{self.count} requests that take long wait already; try again later"
        return Refusal(ResponseCode.SYSTEM_BUSY, remark)
