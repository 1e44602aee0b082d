"""The one door through which the broker stores: nobody else in this package appends to the log.

A message is routed (one that is to be delivered later waits elsewhere), appended and counted where it lies. Records of
the broker's own (checkpoints of pops, notes of decided transactions, marks of batches) go through the same door, and no
statistic counts them.

There is one way to say that something is safe. Under synchronous flush an answer waits until the log is durable up to
what it speaks of, at most `syncFlushTimeout` from the arrival of its request on. One sync serves all who wait (group
commit), and what waits is an entry in a list, no task. What an answer that can wait no longer says instead stands in
one table, `LATE_DISK`: the records are in the log by then, and a client that hears otherwise would store them twice. If
the disk failed, none of the answers was true, and each becomes a refusal. While answers wait, their requests count as
in flight.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bolide import kernel
from bolide.broker.later.routing import DelayRouter
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import FRAME_SIZE_MAX, Command, encode_commands, read_commands
from bolide.protocol.headers.send import RefusedSendAnswer
from bolide.remoting.owner import Reply, Request
from bolide.remoting.session import Session
from bolide.store.record import Appended, Draft
from bolide.store.redelivery import NOBODY, Redelivered, redeliver
from bolide.store.store import Encode

T = TypeVar("T")
Refuse = Callable[[Command, Refusal], Command]

# What each request that stores something is told when the disk is late. docs/compat.md has the reasons.
LATE_DISK: dict[int, ResponseCode] = {
    RequestCode.SEND_MESSAGE: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.SEND_MESSAGE_V2: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.SEND_BATCH_MESSAGE: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.SEND_REPLY_MESSAGE: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.SEND_REPLY_MESSAGE_V2: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.RECALL_MESSAGE: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.END_TRANSACTION: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.PUBLISH_STAGED: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.ACK_MESSAGE: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.BATCH_ACK_MESSAGE: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_ERROR,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ResponseCode.SYSTEM_ERROR,
    RequestCode.POP_MESSAGE: ResponseCode.SUCCESS,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ResponseCode.SUCCESS,
}


@dataclass(slots=True)
class _Pending:
    """Answers of one connection that wait for the disk; `tell` writes them, late or refused if they are."""

    session: Session
    request_count: int
    message_count: int
    began_s: float
    flushed: "asyncio.Future[None]"
    tell: Callable[[bool, Refusal | None], None]


class Intake:
    """Stores for everybody else, and says when what was stored is safe."""

    def __init__(self, state: BrokerState, router: DelayRouter) -> None:
        self._settings = state.settings
        self._store = state.store
        self._stats = state.stats
        self._clock = state.clock
        self.route = router.route
        self.has_timer = router.has_timer
        self._pending: deque[_Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0  # when it looks

    # Storing

    def append(self, drafts: Sequence[Draft]) -> Appended:
        """Store messages, all or none. Each counts where it lies: one that waits, for its own topic when it is due."""
        appended = self._store.append(drafts)
        if len(drafts) == 1 or len({draft[0] for draft in drafts}) == 1:
            self._stats.put(drafts[0][0], len(drafts), appended.end - appended.places[0])
        else:
            places = [*appended.places, appended.end]
            for i, draft in enumerate(drafts):
                self._stats.put(draft[0], 1, places[i + 1] - places[i])
        return appended

    def append_own(self, drafts: Sequence[Draft]) -> Appended:
        """Store records that the broker writes for itself."""
        return self._store.append(drafts)

    def append_encoded(self, encode: Encode[T]) -> T:
        """Store what the kernel lays out; anyone who gives it counts its tallies."""
        return self._store.append_encoded(encode)[0]

    def count(self, tallies: Iterable[tuple[str, int, int]]) -> int:
        """This many messages and bytes of each topic were laid out and stored; returns how many messages."""
        total = 0
        for topic, count, size in tallies:
            self._stats.put(topic, count, size)
            total += count
        return total

    def redeliver(
        self,
        entries: bytes | memoryview,
        stamp_ms: int = -1,
        rolls: bool = False,
        recalled: frozenset[bytes] = NOBODY,
    ) -> Redelivered:
        """Store again, where they belong, messages that were due (`store/redelivery.py`)."""
        redelivered = redeliver(self._store, entries, stamp_ms, rolls, recalled)
        self.count((topic, count, size) for topic, count, size, _ in redelivered.tallies if count)
        return redelivered

    def refused(self, command: Command, refusal: Refusal) -> Command:
        """The answer that refuses a send; `command` is the request, or an answer that must not leave."""
        settings = self._settings.now
        fields = RefusedSendAnswer(region=settings.region, is_traced=settings.is_traced).encode()
        return command.answer(refusal.code, remark=refusal.remark, fields=fields)

    # Being safe

    @property
    def is_sync(self) -> bool:
        """Whether answers wait for the disk."""
        return self._store.config.is_sync

    def when_safe(
        self, request: Request, end: int, reply: Command, *, count: int = 0, refuse: Refuse | None = None
    ) -> Reply:
        """The reply if the log is safe up to `end`, else None: it is written as soon as that is so, or time is over.

        `count` messages of a sender are in it, whose times are counted. `refuse` makes the answer when the disk failed.
        """
        if not self.is_sync or end <= self._store.durable_end:
            if count:
                self._stats.took(count, int(self._store.took_s * 1000))
            return reply

        def tell(is_late: bool, refusal: Refusal | None) -> None:
            request.session.answer(request, partial(self._outcome, request, reply, is_late, refusal, refuse))

        self._wait(request.session, end, (1, count), request.arrived_s, tell)
        return None

    def _outcome(
        self, request: Request, reply: Command, is_late: bool, refusal: Refusal | None, refuse: Refuse | None
    ) -> Reply:
        if refusal is not None:
            if refuse is None:
                raise refusal
            return refuse(request.command, refusal)
        return self._told_late(LATE_DISK[request.command.code], reply) if is_late else reply

    def push_when_safe(self, session: Session, answers: bytes, count: int) -> None:
        """The same for ready answers to `count` sends of one read: they wait for everything appended so far."""

        def tell(is_late: bool, refusal: Refusal | None) -> None:
            told = answers
            if refusal is not None:
                told = _rewritten(answers, lambda answer: self.refused(answer, refusal))
            elif is_late:
                told = _rewritten(answers, partial(self._told_late, LATE_DISK[RequestCode.SEND_MESSAGE_V2]))
            if told:
                session.push(told)

        self._wait(session, self._store.log_end, (count, count), self._clock.monotonic_s(), tell)

    def _told_late(self, code: ResponseCode, answer: Command) -> Command:
        if code is not ResponseCode.SUCCESS:
            answer.code = code
            limit_ms = self._store.config.sync_flush_timeout_ms
            answer.remark = f"stored, but not on the disk within {limit_ms} ms (syncFlushTimeout)"
        return answer

    def _wait(
        self,
        session: Session,
        end: int,
        counts: tuple[int, int],
        began_s: float,
        tell: Callable[[bool, Refusal | None], None],
    ) -> None:
        flushed = self._store.when_durable(end)
        pending = _Pending(session, *counts, began_s, flushed, tell)
        session.hold(pending.request_count)
        self._pending.append(pending)
        flushed.add_done_callback(lambda _: self._settle(pending))
        due_s = began_s + self._limit_s
        if self._timer is None or due_s < self._timer_s:
            self._look_at(due_s)

    @property
    def _limit_s(self) -> float:
        return self._store.config.sync_flush_timeout_ms / 1000

    def _settle(self, pending: _Pending) -> None:
        is_late, refusal = pending.flushed.cancelled(), None
        if not is_late and (problem := pending.flushed.exception()) is not None:
            assert isinstance(problem, Refusal)
            refusal = problem
        while self._pending and self._pending[0].flushed.done():
            self._pending.popleft()
        if pending.message_count:
            self._stats.took(pending.message_count, int((self._clock.monotonic_s() - pending.began_s) * 1000))
        pending.tell(is_late, refusal)
        pending.session.release(pending.request_count)

    def _look_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = due_s
        left_s = max(due_s - self._clock.monotonic_s(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(left_s, self._expire)

    def _expire(self) -> None:
        """Give up on those that are due, and look again when the next one is."""
        self._timer = None
        now_s, next_s = self._clock.monotonic_s(), 0.0
        for pending in list(self._pending):
            due_s = pending.began_s + self._limit_s
            if due_s <= now_s:
                pending.flushed.cancel()
            elif not pending.flushed.done():
                next_s = min(next_s or due_s, due_s)
        if next_s:
            self._look_at(next_s)


def _rewritten(answers: bytes, change: Callable[[Command], Command]) -> bytes:
    """Ready answers with another code: read back, for this is rare."""
    bounds, _, _ = kernel.cut_frames(answers, len(answers), FRAME_SIZE_MAX)
    return encode_commands([change(answer) for answer in read_commands(answers, bounds)])
