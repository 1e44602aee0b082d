"""Answers that wait for the disk: all sends of one read together, and no task for any of them.

Under synchronous flush the answers of a read lie ready, and leave when the log is durable behind its last record (group
commit: one sync serves all who wait). Too late, they leave all the same and say so, for the messages are stored; if the
disk failed, none of them was true, and each becomes a refusal. While they wait, their requests count as in flight.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bolide import kernel
from bolide.broker.stats import Stats
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import FRAME_SIZE_MAX, Command, encode_commands, read_commands
from bolide.remoting.session import Session
from bolide.store.store import Store


@dataclass(slots=True)
class _Waiting:
    session: Session
    answers: bytes
    count: int
    began_s: float
    flushed: asyncio.Future[None]


class Confirmations:
    """Those who wait, the eldest first. `refused` makes the answer that takes the place of one that was not true."""

    def __init__(
        self, store: Store, stats: Stats, clock: Clock, refused: Callable[[Command, Refusal], Command]
    ) -> None:
        self._store = store
        self._stats = stats
        self._clock = clock
        self._refused = refused
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, session: Session, answers: bytes, count: int) -> None:
        """Have the answers to `count` sends written once everything appended so far is durable."""
        flushed = self._store.when_durable(self._store.log_end)
        waiting = _Waiting(session, answers, count, self._clock.monotonic_s(), flushed)
        session.hold(count)
        self._waiting.append(waiting)
        flushed.add_done_callback(lambda _: self._settle(waiting))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._expire)

    @property
    def _limit_s(self) -> float:
        return self._store.config.sync_flush_timeout_ms / 1000

    def _settle(self, waiting: _Waiting) -> None:
        answers = waiting.answers
        if waiting.flushed.cancelled():
            answers = _rewritten(answers, _told_late)
        elif (problem := waiting.flushed.exception()) is not None:
            assert isinstance(problem, Refusal)
            refusal = problem
            answers = _rewritten(answers, lambda answer: self._refused(answer, refusal))
        waiting.answers = b""
        while self._waiting and self._waiting[0].flushed.done():  # they are durable in the order in which they came
            self._waiting.popleft()
        self._stats.took(waiting.count, int((self._clock.monotonic_s() - waiting.began_s) * 1000))
        if answers:
            waiting.session.push(answers)
        waiting.session.release(waiting.count)

    def _expire(self) -> None:
        """Give up on those that are due, and look again when the next one is."""
        self._timer = None
        now_s = self._clock.monotonic_s()
        for waiting in list(self._waiting):
            left_s = waiting.began_s + self._limit_s - now_s
            if left_s > 0:
                self._timer = asyncio.get_running_loop().call_later(left_s, self._expire)
                return
            waiting.flushed.cancel()


def _told_late(answer: Command) -> Command:
    answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
    return answer


def _rewritten(answers: bytes, change: Callable[[Command], Command]) -> bytes:
    """Ready answers with another code: read back, for this is rare."""
    bounds, _, _ = kernel.cut_frames(answers, len(answers), FRAME_SIZE_MAX)
    return encode_commands([change(answer) for answer in read_commands(answers, bounds)])
