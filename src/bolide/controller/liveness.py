"""Which brokers are alive, by what they send to this controller and by the connections they send it on.

A broker lives while its heartbeats come. It dies at once when the last connection that carried one has ended, which is
how a killed process is noticed within milliseconds, and otherwise when its own time-out has passed. Every controller
listens, leading or not, so one that takes over knows who was there.

Nobody is missed before there was time to be heard: after a takeover, and after a pause in which this process itself
stood still, the members that were not heard are `awaited` for one time-out. A member that was heard here and whose
connection ended is dead all the same: that is knowledge, not silence.

All time is the steady clock's, so a jump of the wall clock changes nothing. What a broker says of its log only moves
forward, until it dies or begins a new life (`forget`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bolide.clock import Clock
from bolide.controller.elections import Health, Report
from bolide.remoting.session import Session

TIMEOUT_MS = 10_000
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 600_000
TICK_S = 0.1
# A tick this late was no slow turn of the loop: the process stood still, and so did the heartbeats in its sockets.
PAUSE_S = 1.0
_CONNECTIONS_MAX = 4  # of one broker
log = logging.getLogger(__name__)

Key = tuple[str, int]  # broker name and id


@dataclass(slots=True)
class _Life:
    """What is known of one broker; without connections it is over."""

    report: Report
    heard_s: float
    timeout_s: float
    sessions: dict[Session, None] = field(default_factory=dict)
    is_seen_to_end: bool = False  # its last connection ended; one that was only silent may go on elsewhere


class Liveness:
    """The brokers that were heard, and what becomes of them."""

    def __init__(self, clock: Clock, died: Callable[[str, int], None]) -> None:
        self._clock = clock
        self._died = died
        self._lives: dict[Key, _Life] = {}
        self._by_session: dict[Session, set[Key]] = {}
        self._patient_until_s = clock.monotonic_s()

    def be_patient(self) -> None:
        """From now on nobody is missed before one time-out has passed."""
        self._patient_until_s = self._clock.monotonic_s() + TIMEOUT_MS / 1000
        for life in self._lives.values():
            if life.sessions:
                life.heard_s = self._clock.monotonic_s()

    def heard(self, name: str, member: int, report: Report, timeout_ms: int | None, session: Session) -> bool:
        """A heartbeat came; tells whether the broker was not alive before."""
        timeout_ms = TIMEOUT_MS if timeout_ms is None else timeout_ms
        timeout_s = min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX) / 1000
        life = self._lives.get((name, member))
        is_new = life is None or not life.sessions
        if life is None or is_new:
            life = self._lives[name, member] = _Life(report, 0.0, timeout_s)
        elif report.is_above(life.report):
            life.report = report
        else:
            life.report = Report(life.report.epoch, life.report.end, report.priority)
        life.heard_s, life.timeout_s = self._clock.monotonic_s(), timeout_s
        if session not in life.sessions:
            if len(life.sessions) >= _CONNECTIONS_MAX:
                self._part((name, member), next(iter(life.sessions)), life)
            life.sessions[session] = None
            self._by_session.setdefault(session, set()).add((name, member))
        return is_new

    def ended(self, session: Session) -> None:
        """A connection is gone, and with it every broker that has no other."""
        for key in sorted(self._by_session.pop(session, ())):
            life = self._lives[key]
            life.sessions.pop(session, None)
            if not life.sessions:
                life.is_seen_to_end = True
                log.info("broker gone name=%s id=%d peer=%s: its connection ended", *key, session.peer)
                self._died(*key)

    def forget(self, name: str, member: int) -> None:
        """A broker begins a new life: what it said in the one before counts no more, and it has to be heard again."""
        life = self._lives.get((name, member))
        if life is None:
            self._lives[name, member] = _Life(Report(), 0.0, 0.0)
            return
        for session in list(life.sessions):
            self._part((name, member), session, life)

    def is_seen_to_end(self, name: str, member: int) -> bool:
        """Whether a broker that is not alive is known to have ended; others may be frozen or cut off."""
        life = self._lives.get((name, member))
        return life is not None and life.is_seen_to_end

    def drop(self, name: str, members: Iterable[int]) -> None:
        """The members were cleaned: nothing is kept of them."""
        for member in members:
            self.forget(name, member)
            del self._lives[name, member]

    def health(self, name: str, members: Iterable[int]) -> Health:
        """How the members of a name are, as far as this controller can tell."""
        reports: dict[int, Report] = {}
        awaited = set()
        is_patient = self._clock.monotonic_s() < self._patient_until_s
        for member in members:
            life = self._lives.get((name, member))
            if life is None:
                if is_patient:
                    awaited.add(member)
            elif self._is_fresh(life):
                reports[member] = life.report
        return Health(reports, frozenset(awaited))

    async def expire_forever(self) -> None:
        """Look for brokers whose time-out has passed, until cancelled."""
        seen_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = self._clock.monotonic_s()
            if now_s - seen_s > TICK_S + PAUSE_S:
                log.warning("this controller stood still for %.1f s: brokers get another time-out", now_s - seen_s)
                self.be_patient()
            seen_s = now_s
            self._expire()

    def _expire(self) -> None:
        late = [key for key, life in self._lives.items() if life.sessions and not self._is_fresh(life)]
        for key in late:
            life = self._lives[key]
            for session in list(life.sessions):
                self._part(key, session, life)
            log.warning("broker gone name=%s id=%d: no heartbeat for %.1f s", *key, life.timeout_s)
            self._died(*key)

    def _is_fresh(self, life: _Life) -> bool:
        return bool(life.sessions) and self._clock.monotonic_s() <= life.heard_s + life.timeout_s

    def _part(self, key: Key, session: Session, life: _Life) -> None:
        life.sessions.pop(session, None)
        keys = self._by_session.get(session)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._by_session[session]
