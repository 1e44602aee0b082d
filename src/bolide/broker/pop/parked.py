"""Pops that found nothing and wait: for a message, for a failed one to come back, or until their time is over.

Who waits for any queue of a topic is woken before who waits for one, the longest waiting first, and one at a time: a
pop takes up to 32 messages, and where it leaves some, it wakes the next. What waits is a request and a way to run it
again; it leaves nothing in its session, and goes with it. One that is refused when it is
woken passes the word on.

Waking happens in the turn after the arrival. A pop stores its checkpoint, and the store must not be appended to while
it tells of an append.

The places are shared as those of pulls are (`budget.py`), over all and at each lane. A pop that has to give way tries
once more, and finds that there is no place for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from bolide.broker.config import LiveConfig
from bolide.broker.pop.lanes import ANY_QUEUE, Lane
from bolide.clock import Clock
from bolide.protocol.popped import retry_topic_v1, retry_topic_v2
from bolide.remoting.budget import Budget, above_share
from bolide.remoting.owner import Reply, Request
from bolide.remoting.session import Session
from bolide.store.dispatch import Arrival

_POLL_MAX_S = 60.0
# A request that is nearly over is over: its answer must be there before the client gives up.
_AHEAD_MS = 50
_UNSENT_SIZE_MAX = 1 << 20


class Tried(NamedTuple):
    """What a pop is answered with, None if it waits again; and whether it was let look, whatever it found."""

    reply: Reply
    has_looked: bool = False


class ParkedPop:
    """One request that waits at a lane. `resume` answers it or parks it again, `dismiss` says that nothing came."""

    __slots__ = ("deadline_ms", "dismiss", "lane", "request", "resume", "timer")

    def __init__(
        self,
        request: Request,
        lane: Lane,
        deadline_ms: int,
        resume: Callable[[], Tried],
        dismiss: Callable[[], Reply],
    ) -> None:
        self.request = request
        request.is_held = True
        self.lane = lane
        self.deadline_ms = deadline_ms
        self.resume = resume
        self.dismiss = dismiss
        self.timer: asyncio.TimerHandle | None = None


class ParkedPops:
    """All of them by lane."""

    def __init__(self, settings: LiveConfig, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._by_lane: dict[Lane, dict[ParkedPop, None]] = {}
        self._lanes_of: dict[str, set[Lane]] = {}  # by topic and by the retry topics that concern them
        self._woken: list[Lane] = []
        self._by_session: dict[Session, dict[ParkedPop, None]] = {}
        self._by_request: dict[int, ParkedPop] = {}  # by identity: one of thousands in a session may be given up
        total_max = settings.now.pop_waiting_total_max
        self.places: Budget[Session] = Budget(max(total_max, 1), max(total_max, 1), self._give_way)

    @property
    def count(self) -> int:
        return self.places.total

    def is_over(self, deadline_ms: int) -> bool:
        return self._clock.now_ms() >= deadline_ms - _AHEAD_MS

    def count_at(self, lane: Lane) -> int:
        return len(self._by_lane.get(lane, ()))

    def park(self, parked: ParkedPop) -> bool:
        """Keep a request until something comes or its time is over; false if its connection has its share already."""
        config, session = self._settings.now, parked.request.session
        self.places.total_max = self.places.holder_max = config.pop_waiting_total_max
        if self.count_at(parked.lane) >= config.pop_waiting_max and not self._make_room(parked.lane, session):
            return False
        if not self.places.grant(session):
            return False
        self._by_session.setdefault(session, {})[parked] = None
        self._by_request[id(parked.request)] = parked
        left_s = (parked.deadline_ms - _AHEAD_MS - self._clock.now_ms()) / 1000
        parked.timer = asyncio.get_running_loop().call_later(min(left_s, _POLL_MAX_S), self._expire, parked)
        at_lane = self._by_lane.get(parked.lane)
        if at_lane is None:
            at_lane = self._by_lane[parked.lane] = {}
            for topic in _topics_of(parked.lane):
                self._lanes_of.setdefault(topic, set()).add(parked.lane)
        at_lane[parked] = None
        return True

    def _make_room(self, lane: Lane, asking: Session) -> bool:
        """Have those give way who have the most places at a lane; false when that is the one who asks."""
        at_lane = self._by_lane.get(lane, {})
        held = Counter(parked.request.session for parked in at_lane)
        held[asking] += 1
        above = above_share(held, self._settings.now.pop_waiting_max)
        if asking in above:
            return False
        for parked in reversed(list(at_lane)):
            session = parked.request.session
            if above.get(session, 0) > 0:
                above[session] -= 1
                self._turn_out(parked)
        return self.count_at(lane) < self._settings.now.pop_waiting_max

    def _give_way(self, session: Session, count: int) -> None:
        for parked in list(islice(reversed(self._by_session[session]), count)):
            self._turn_out(parked)

    def _turn_out(self, parked: ParkedPop) -> None:
        self._leave(parked)
        asyncio.get_running_loop().call_soon(self._answer, parked)

    def left(self, session: Session) -> None:
        """A connection is gone, and what waited for it."""
        for parked in list(self._by_session.get(session, ())):
            self._leave(parked)

    def parted(self, session: Session, group: str, topic: str | None) -> None:
        """A connection consumes a topic of a group no more (None: any of it), though it stays: others go before it."""
        for parked in list(self._by_session.get(session, ())):
            if parked.lane.group == group and topic in (None, parked.lane.topic):
                self._leave(parked)
                session.answer(parked.request, parked.dismiss)

    def give_up(self, request: Request) -> None:
        """One request is not wanted any more, and its connection goes on."""
        parked = self._by_request.get(id(request))
        if parked is not None:
            self._leave(parked)

    def on_arrival(self, arrival: Arrival) -> None:
        """Messages came into a queue."""
        for lane in self._lanes_of.get(arrival.topic, ()):
            if lane.topic != arrival.topic or lane.queue_id in (ANY_QUEUE, arrival.queue_id):
                self.wake(lane)

    def wake_any(self, lane: Lane) -> None:
        """Something may be had in a queue: one who waits for any queue, and one who waits for this."""
        self.wake(Lane(lane.group, lane.topic, ANY_QUEUE))
        self.wake(lane)

    def wake(self, lane: Lane) -> None:
        """Let the first who waits at the lane try again, in the next turn."""
        if lane not in self._by_lane:
            return
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._run_woken)
        self._woken.append(lane)

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, []
        for lane in dict.fromkeys(woken):
            self._offer(lane)

    def _offer(self, lane: Lane) -> None:
        """Let the first try who waits; if it is refused, the next.

        A peer that does not take what is sent to it will be asked again later.
        """
        at_lane = self._by_lane.get(lane)
        if at_lane is None or self._try(next(iter(at_lane))):
            return  # most often: then it does not matter how many wait
        for parked in list(self._by_lane.get(lane, ())):
            if self._try(parked):
                return

    def _try(self, parked: ParkedPop) -> bool:
        """Let one that waits try again; false if it waits on, or was not let look."""
        session = parked.request.session
        is_slow = session.is_open and session.unsent_size > _UNSENT_SIZE_MAX
        if is_slow or parked not in self._by_lane.get(parked.lane, ()):
            return False  # or it had to give way to another that was parked meanwhile
        self._leave(parked)
        return self._answer(parked)

    def _expire(self, parked: ParkedPop) -> None:
        self._leave(parked)
        self._answer(parked)

    def _answer(self, parked: ParkedPop) -> bool:
        """Run it again; false if it was not let look."""
        tried = Tried(None)

        def resume() -> Reply:
            nonlocal tried
            tried = parked.resume()
            return tried.reply

        if parked.request.session.is_open:
            parked.request.session.answer(parked.request, resume)
        return tried.has_looked

    def _leave(self, parked: ParkedPop) -> None:
        if parked.timer is not None:
            parked.timer.cancel()
        at_lane = self._by_lane[parked.lane]
        del at_lane[parked]
        session = parked.request.session
        self.places.give_back(session)
        del self._by_request[id(parked.request)]
        del self._by_session[session][parked]
        if not self._by_session[session]:
            del self._by_session[session]
        if not at_lane:
            del self._by_lane[parked.lane]
            for topic in _topics_of(parked.lane):
                self._lanes_of[topic].discard(parked.lane)
                if not self._lanes_of[topic]:
                    del self._lanes_of[topic]


def _topics_of(lane: Lane) -> tuple[str, ...]:
    """The topics a message of which may be for who waits there."""
    return lane.topic, retry_topic_v1(lane.group, lane.topic), retry_topic_v2(lane.group, lane.topic)
