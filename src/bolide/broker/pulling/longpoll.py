"""Pulls that found nothing and wait for a message: RocketMQ's long polling.

A parked pull is an entry in a few dicts and nothing else: no task, no timer, nothing in its session. Whatever ends it
takes it out of all of them at once, so that none is answered twice and none outlives its connection:

- a message arrives in its queue that it may want: answered in the same turn of the loop, after the arrivals of that
  turn were gathered, so that one answer has them all;
- the check every five seconds finds its time over, or finds that messages came which it did not want: answered with
  nothing, or with how far it may go on. So an idle pull of 15 s is answered after 15 to 20 s, as in RocketMQ;
- its group was put elsewhere in its queue: answered at once with where to go on;
- its connection closes: forgotten.

An arrival looks at the pulls of its own queue only, and the check at those that are due, so thousands that wait cost
memory and hardly any time. A peer that does not take its answers gets no more of them until it does. Of those that are
woken together each connection has one answered in its turn, so that nobody waits for another's thousands.

This many may wait, over all and of one connection (`budget.py`); one that keeps a long expression counts for many. At
one queue a connection has a few hundred: a client has one for each of its groups, and an arrival looks at all of them.
When all places are taken, the newest of those who have the most are answered as if their time was over (19, upon which
a client asks again); the one with the most itself is told that we are busy (2, upon which it rests for a second), for
after a 19 it would ask again without end.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import InitVar, dataclass, field
from typing import TypeVar

from bolide.broker.config import LiveConfig
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.filter.tags import any_passes
from bolide.kernel.layout import ENTRY_SIZE
from bolide.protocol.codes import ResponseCode
from bolide.remoting.budget import Budget
from bolide.remoting.owner import Reply, Request
from bolide.remoting.session import Session
from bolide.store.dispatch import Arrival

CHECK_INTERVAL_S = 5.0
PARKED_MAX = 100_000
PARKED_BY_SESSION_MAX = 16_384
PARKED_AT_QUEUE_MAX = 256  # of one connection
_EXPRESSION_LENGTH_OF_PLACE = 64  # compiled, it takes some kilobytes
_HOLD_MAX_S = 60.0  # clients ask for 15 or 20; one that would wait longer asks again
_TICKS_A_SECOND = 10
_UNSENT_SIZE_MAX = 1 << 20
_SLICE_COUNT = 100  # answered before others on the loop have their turn, and the time it may take
_SLICE_S = 0.002
_FORGOTTEN_COUNT = 500


@dataclass(slots=True, eq=False)
class ParkedPull:
    """One pull of a group that waits at `offset` for messages it wants; `resume` runs it again.

    It wants those with one of the tags in `wanted`, or, where `passes` is given, those of whose entries that says so.
    """

    request: Request
    key: tuple[str, int]
    offset: int
    wanted: frozenset[int] | None
    resume: Callable[[], Reply]
    group: str = ""
    passes: Callable[[bytes], bool] | None = None
    expression: InitVar[str | None] = None
    due_tick: int = field(default=0, init=False)
    weight: int = field(default=1, init=False)

    def __post_init__(self, expression: str | None) -> None:
        if self.passes:
            self.weight += len(expression or "") // _EXPRESSION_LENGTH_OF_PLACE


K = TypeVar("K", bound=Hashable)
_Group = dict[ParkedPull, None]  # a set that keeps the order: first come, first answered


class ParkedPulls:
    """All of them, by queue, by session and by the tick at which their time is over."""

    def __init__(self, settings: LiveConfig, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._by_queue: dict[tuple[str, int], _Group] = {}
        self._by_session: dict[Session, dict[tuple[str, int], _Group]] = {}
        self._by_tick: dict[int, _Group] = {}
        self._stirred: _Group = {}  # there was an arrival for them that they did not take
        self._woken: dict[Session, deque[ParkedPull]] = {}
        self._left: deque[dict[tuple[str, int], _Group]] = deque()  # of connections that are gone
        self._places: Budget[Session] = Budget(PARKED_MAX, PARKED_BY_SESSION_MAX, self._give_way)

    @property
    def count(self) -> int:
        return self._places.total

    def park(self, parked: ParkedPull, suspend_ms: int) -> None:
        """Keep a pull until a message comes or its time is over; a peer with more than its share is refused."""
        session = parked.request.session
        at_queue = self._by_session.get(session, {}).get(parked.key, ())
        if len(at_queue) >= PARKED_AT_QUEUE_MAX or not self._places.grant(session, parked.weight):
            ours = self._places.held_by(session)
            remark = f"{self.count} pulls wait for messages already, {ours} of them on this connection"
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"{remark}, {len(at_queue)} for this queue")
        if not self._settings.now.polls_long:
            suspend_ms = self._settings.now.short_poll_ms
        hold_s = min(max(suspend_ms / 1000, 0.0), _HOLD_MAX_S)
        parked.due_tick = math.ceil((self._clock.monotonic_s() + hold_s) * _TICKS_A_SECOND)
        self._by_queue.setdefault(parked.key, {})[parked] = None
        self._by_session.setdefault(session, {}).setdefault(parked.key, {})[parked] = None
        self._by_tick.setdefault(parked.due_tick, {})[parked] = None

    def waiting(self, topic: str, queue_id: int) -> int:
        """How many wait for a message of a queue."""
        return len(self._by_queue.get((topic, queue_id), ()))

    # What wakes them

    def on_arrival(self, arrival: Arrival) -> None:
        """Answer those that waited for one of these messages, as soon as the caller is done."""
        group = self._by_queue.get((arrival.topic, arrival.queue_id))
        if group is None:
            return
        end = arrival.queue_offset + len(arrival.entries) // ENTRY_SIZE
        for parked in list(group):
            if parked.offset >= end:
                continue
            is_wanted = parked.passes(arrival.entries) if parked.passes else any_passes(arrival.entries, parked.wanted)
            if is_wanted:
                self._wake(parked)
            else:
                self._stirred[parked] = None

    def on_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Have a group that was put elsewhere in a queue hear of it, as soon as the caller is done."""
        # The newest first: one takes the news, and a client that gave up waiting may have left older ones behind.
        for parked in reversed(list(self._by_queue.get((topic, queue_id), ()))):
            if parked.group == group:
                self._wake(parked)

    def left(self, session: Session) -> None:
        """A connection is gone, and its pulls with it."""
        queues = self._by_session.pop(session, None)
        if queues is not None:
            self._places.left(session)
            self._left.append(queues)
            if len(self._left) == 1:
                self._forget_some()

    def _forget_some(self) -> None:
        """Take those of connections that are gone out of the rest, this many a turn; nobody wakes them meanwhile."""
        for _ in range(_FORGOTTEN_COUNT):
            if not self._left:
                return
            queues = self._left[0]
            key, group = next(iter(queues.items()))
            self._discard(group.popitem()[0])
            if not group:
                del queues[key]
            if not queues:
                self._left.popleft()
        asyncio.get_running_loop().call_soon(self._forget_some)

    async def check_forever(self) -> None:
        """Look every five seconds for those whose time is over; with short polling, as often as that says."""
        while True:
            config = self._settings.now
            await asyncio.sleep(CHECK_INTERVAL_S if config.polls_long else max(config.short_poll_ms, 1) / 1000)
            await self.check()

    async def check(self) -> None:
        """Run again what is due, or could go on beyond messages it does not want."""
        now_tick = self._clock.monotonic_s() * _TICKS_A_SECOND
        due = dict(self._stirred)
        for tick in sorted(tick for tick in self._by_tick if tick <= now_tick):
            due.update(self._by_tick[tick])
        for number, parked in enumerate(due, 1):
            if parked in self._by_queue.get(parked.key, ()):
                self._wake(parked)
            if number % _SLICE_COUNT == 0:
                await asyncio.sleep(0)

    def _wake(self, parked: ParkedPull) -> None:
        if parked.request.session not in self._by_session:
            return  # it is gone
        if parked.request.session.unsent_size > _UNSENT_SIZE_MAX:
            self._stirred[parked] = None  # the check comes back to it
            return
        self._answer_soon(parked)

    def _give_way(self, session: Session, amount: int) -> None:
        queues = self._by_session[session]
        for parked in [parked for key in reversed(queues) for parked in reversed(queues[key])]:
            if amount <= 0:
                break
            amount -= parked.weight
            self._answer_soon(parked)

    def _answer_soon(self, parked: ParkedPull) -> None:
        self._remove(parked)
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._answer_woken)
        self._woken.setdefault(parked.request.session, deque()).append(parked)

    def _answer_woken(self) -> None:
        sessions: dict[Session, None] = {}
        over_s = self._clock.monotonic_s() + _SLICE_S
        for _ in range(_SLICE_COUNT):
            if not self._woken or self._clock.monotonic_s() > over_s:
                break
            session = next(iter(self._woken))
            waiting = self._woken.pop(session)
            parked = waiting.popleft()
            if waiting:
                self._woken[session] = waiting  # behind the others
            session.answer(parked.request, parked.resume)
            sessions[session] = None
        for session in sessions:
            session.flush()  # a turn of the loop sooner than by itself: somebody waits for just this
        if self._woken:
            asyncio.get_running_loop().call_soon(self._answer_woken)

    def _remove(self, parked: ParkedPull) -> None:
        session = parked.request.session
        queues = self._by_session[session]
        _discard(queues, parked.key, parked)
        if not queues:
            del self._by_session[session]
        self._places.give_back(session, parked.weight)
        self._discard(parked)

    def _discard(self, parked: ParkedPull) -> None:
        _discard(self._by_queue, parked.key, parked)
        _discard(self._by_tick, parked.due_tick, parked)
        self._stirred.pop(parked, None)


def _discard(groups: dict[K, _Group], key: K, parked: ParkedPull) -> None:
    group = groups[key]
    del group[parked]
    if not group:
        del groups[key]
