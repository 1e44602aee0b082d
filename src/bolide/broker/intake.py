"""The one door through which the broker stores: nobody else in this package appends to the log.

A message is routed (one that is to be delivered later waits elsewhere), appended and counted where it lies. Records of
the broker's own (checkpoints of pops, notes of decided transactions, marks of batches) go through the same door, and no
statistic counts them.

There is one way to say that something is safe. Under synchronous flush an answer waits until the log is durable up to
what it speaks of, at most `syncFlushTimeout` from the arrival of its request on; where replicas count (`safety.py`),
until they have it too, at most `slaveTimeout`. Both are waited for at once. One sync serves all who wait (group
commit), and what waits is an entry in a list, no task: one for all answers of a turn of the loop, for they wait for the
same. What an answer that can wait no longer says instead stands in
one table, `LATE_DISK`, and where a replica is missing its code says that (`told_late`): the records are in the log by
then, and a client that hears otherwise would store them twice. If the disk failed, none of the answers was true, and
each becomes a refusal. So it does if the lead is lost while an answer waits: the new master may have the records, and a
sender who hears of a refusal sends again. While answers wait, their requests count as in flight.

Where too few replicas are there, nothing is appended at all, and the sender hears that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
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
LEAD_LOST = (
    "[REJECTREQUEST]another broker leads before enough replicas had the message: it may be stored or not, send it again"
)
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


class Late(Enum):
    """What did not come in time, though the message is stored."""

    DISK = ResponseCode.FLUSH_DISK_TIMEOUT
    NO_REPLICA = ResponseCode.SLAVE_NOT_AVAILABLE  # nobody is there to wait for
    REPLICA = ResponseCode.FLUSH_SLAVE_TIMEOUT


Tell = Callable[[Late | None, Refusal | None], None]


@dataclass(slots=True)
class _Pending:
    """Answers that wait for the disk, for replicas or for both; `tell` writes them. Each session holds its requests."""

    held: Sequence[tuple[Session, int]]
    message_count: int
    began_s: float
    flushed: "asyncio.Future[None] | None"
    replicated: "asyncio.Future[None] | None"
    has_replica: bool
    tell: Tell

    @property
    def is_done(self) -> bool:
        return (self.flushed is None or self.flushed.done()) and (self.replicated is None or self.replicated.done())

    @property
    def late(self) -> Late | None:
        """A replica's lateness counts for more than the disk's, as in RocketMQ."""
        if not self.has_replica:
            return Late.NO_REPLICA
        if self.replicated is not None and self.replicated.cancelled():
            return Late.REPLICA
        return Late.DISK if self.flushed is not None and self.flushed.cancelled() else None


class Intake:
    """Stores for everybody else, and says when what was stored is safe."""

    def __init__(self, state: BrokerState, router: DelayRouter) -> None:
        self._settings = state.settings
        self._store = state.store
        self._stats = state.stats
        self._clock = state.clock
        self._safety = state.safety
        self._meter = state.meter
        self.route = router.route
        self.has_timer = router.has_timer
        self._pending: deque[_Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0  # when it looks

    # Storing

    def append(self, drafts: Sequence[Draft], *, waits: bool = True) -> Appended:
        """Store messages, all or none. Each counts where it lies: one that waits, for its own topic when it is due.

        A sender who does not wait is not refused where replicas are missing.
        """
        if waits and self._safety.policy.needs_replicas:
            self._safety.check()
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
        if self._safety.policy.needs_replicas:
            self._safety.check()
        return self._store.append(drafts)

    def append_encoded(self, encode: Encode[T]) -> T:
        """Store what the kernel lays out; anyone who gives it counts its tallies."""
        if self._safety.policy.needs_replicas:
            self._safety.check()
        return self._store.append_encoded(encode)[0]

    def redeliver(
        self,
        entries: bytes | memoryview,
        stamp_ms: int = -1,
        rolls: bool = False,
        recalled: frozenset[bytes] = NOBODY,
    ) -> Redelivered:
        """Store again, where they belong, messages that were due (`store/redelivery.py`)."""
        if self._safety.policy.needs_replicas:
            self._safety.check()
        redelivered = redeliver(self._store, entries, stamp_ms, rolls, recalled)
        self._stats.put_all(tally for tally in redelivered.tallies if tally[1])
        return redelivered

    def refused(self, command: Command, refusal: Refusal) -> Command:
        """The answer that refuses a send; `command` is the request, or an answer that must not leave."""
        settings = self._settings.now
        fields = RefusedSendAnswer(region=settings.region, is_traced=settings.is_traced).encode()
        return command.answer(refusal.code, remark=refusal.remark, fields=fields)

    # Being safe

    @property
    def is_sync(self) -> bool:
        """Whether answers wait, for the disk or for replicas."""
        return self._store.config.is_sync or self._safety.policy.needs_replicas

    def when_safe(
        self, request: Request, end: int, reply: Command, *, count: int = 0, refuse: Refuse | None = None
    ) -> Reply:
        """The reply if the log is safe up to `end`, else None: it is written as soon as that is so, or time is over.

        `count` messages of a sender are in it, whose times are counted. `refuse` makes the answer when the disk failed.
        """
        if self._is_safe(end):
            if count:
                self._stats.took(count, int(self._store.took_s * 1000))
            return reply

        def tell(late: Late | None, refusal: Refusal | None) -> None:
            request.session.answer(request, partial(self._outcome, request, reply, late, refusal, refuse))

        self._wait([(request.session, 1)], end, count, request.arrived_s, tell)
        return None

    def _is_safe(self, end: int) -> bool:
        if self._safety.policy.needs_replicas:
            return end <= 0
        return not self._store.config.is_sync or end <= self._store.durable_end

    def _outcome(
        self, request: Request, reply: Command, late: Late | None, refusal: Refusal | None, refuse: Refuse | None
    ) -> Reply:
        if refusal is not None:
            if refuse is None:
                raise refusal
            return refuse(request.command, refusal)
        return reply if late is None else self._told_late(request.command.code, late, reply)

    def push_when_safe(
        self, answered: Sequence[tuple[Session, bytes, int]], code: int = RequestCode.SEND_MESSAGE_V2
    ) -> None:
        """The same for ready answers to the sends of a turn, for each session with their number.

        They wait together, for everything appended so far.
        """
        began_s = self._clock.monotonic_s()
        held = [(session, count) for session, _, count in answered]
        message_count = sum(count for _, count in held)

        def tell(late: Late | None, refusal: Refusal | None) -> None:
            if self._meter is not None:
                answer = refusal.code if refusal is not None else ResponseCode.SUCCESS if late is None else late.value
                self._meter.answered_later(code, answer, message_count, began_s)
            for session, answers, _ in answered:
                if told := self._told(answers, late, refusal):
                    session.push(told)

        self._wait(held, self._store.log_end, message_count, began_s, tell)

    def _told(self, answers: bytes, late: Late | None, refusal: Refusal | None) -> bytes:
        """Ready answers as they stand, unless something went wrong."""
        if refusal is not None:
            return _rewritten(answers, lambda answer: self.refused(answer, refusal))
        if late is not None:
            return _rewritten(answers, partial(self._told_late, RequestCode.SEND_MESSAGE_V2, late))
        return answers

    def _told_late(self, request_code: int, late: Late, answer: Command) -> Command:
        code = LATE_DISK[request_code]
        if code is not ResponseCode.SUCCESS:
            answer.code = late.value if code is ResponseCode.FLUSH_DISK_TIMEOUT else code
            answer.remark = self._why_late(late)
        return answer

    def _why_late(self, late: Late) -> str:
        if late is Late.NO_REPLICA:
            return "stored, but no slave is connected, or it is too far behind (haSlaveFallbehindMax)"
        if late is Late.REPLICA:
            limit_ms = self._settings.now.replication.slave_timeout_ms
            return f"stored, but not on enough slaves within {limit_ms} ms (slaveTimeout)"
        limit_ms = self._store.config.sync_flush_timeout_ms
        return f"stored, but not on the disk within {limit_ms} ms (syncFlushTimeout)"

    def _wait(
        self, held: Sequence[tuple[Session, int]], end: int, message_count: int, began_s: float, tell: Tell
    ) -> None:
        store, needs_replicas = self._store, self._safety.policy.needs_replicas
        flushed = store.when_durable(end) if store.config.is_sync and end > store.durable_end else None
        replicated = self._safety.wait(end) if needs_replicas else None
        has_replica = replicated is not None or not needs_replicas
        pending = _Pending(held, message_count, began_s, flushed, replicated, has_replica, tell)
        for session, request_count in held:
            session.hold(request_count)
        self._pending.append(pending)
        waits = [future for future in (flushed, replicated) if future is not None]
        for future in waits:
            future.add_done_callback(lambda _: self._settle(pending))
        if not waits:
            asyncio.get_running_loop().call_soon(self._settle, pending)
        due_s = self._due_s(pending)
        if self._timer is None or due_s < self._timer_s:
            self._look_at(due_s)

    def _flush_due_s(self, pending: _Pending) -> float:
        return pending.began_s + self._store.config.sync_flush_timeout_ms / 1000

    def _replica_due_s(self, pending: _Pending) -> float:
        return pending.began_s + self._settings.now.replication.slave_timeout_ms / 1000

    def _due_s(self, pending: _Pending) -> float:
        """When the first of what it waits for is late."""
        dues_s = [self._flush_due_s(pending)] if pending.flushed is not None and not pending.flushed.done() else []
        if pending.replicated is not None and not pending.replicated.done():
            dues_s.append(self._replica_due_s(pending))
        return min(dues_s, default=pending.began_s)

    def _settle(self, pending: _Pending) -> None:
        if not pending.is_done:
            return
        flushed, refusal = pending.flushed, None
        if flushed is not None and not flushed.cancelled() and (problem := flushed.exception()) is not None:
            assert isinstance(problem, Refusal)
            refusal = problem
        elif pending.late is Late.REPLICA and self._clock.monotonic_s() < self._replica_due_s(pending):
            refusal = Refusal(ResponseCode.SYSTEM_BUSY, LEAD_LOST)  # nobody waits any more, and time is not over
        while self._pending and self._pending[0].is_done:
            self._pending.popleft()
        if pending.message_count:
            self._stats.took(pending.message_count, int((self._clock.monotonic_s() - pending.began_s) * 1000))
        pending.tell(pending.late, refusal)
        for session, request_count in pending.held:
            session.release(request_count)

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
            if pending.flushed is not None and self._flush_due_s(pending) <= now_s:
                pending.flushed.cancel()
            if pending.replicated is not None and self._replica_due_s(pending) <= now_s:
                pending.replicated.cancel()
            if not pending.is_done:
                due_s = self._due_s(pending)
                next_s = min(next_s or due_s, due_s)
        if next_s:
            self._look_at(next_s)


def _rewritten(answers: bytes, change: Callable[[Command], Command]) -> bytes:
    """Ready answers with another code: read back, for this is rare."""
    bounds, _, _ = kernel.cut_frames(answers, len(answers), FRAME_SIZE_MAX)
    return encode_commands([change(answer) for answer in read_commands(answers, bounds)])
