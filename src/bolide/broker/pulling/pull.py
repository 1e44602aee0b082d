"""Requests 11 and 361: messages of one queue from an offset on.

Nothing is delivered without one: a push consumer is a client that always has a pull with us. The order of the checks
and the code for each state of the queue are RocketMQ's, for every client reads its next step from them: 19 means wait
here, 20 go on from the offset in the answer, 21 jump to it. A pull that would be answered with 19 is parked instead
(`longpoll.py`) if it says so; when it is resumed all checks run again, but it commits nothing and is not parked twice.

Pulls are answered a read at a time (`take`): the kernel reads the requests and copies the records into one frame. What
it leaves goes the plain way, with the same bytes as its result.

Whether a message is wanted is decided by the tag hash in its queue entry; the message itself is not looked at, unless
the group filters by SQL92: then its properties are, a stretch of the queue at a time and for a bounded time
(`filter_budget.py`). Who may pull what, and what of it is wanted, is in `access.py`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from bolide import kernel
from bolide.broker.pulling.access import COMMIT_FLAG, SUSPEND_FLAG, Allowed, Pull, PullAccess, read_pull
from bolide.broker.pulling.filter_budget import FilterBudget, MessageFilter
from bolide.broker.pulling.longpoll import ParkedPull, ParkedPulls
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.filter.sql import Predicate
from bolide.kernel.layout import ENTRY_SIZE
from bolide.kernel.layout import Pull as PullFields
from bolide.model.queue import QueueKey, QueueOffset
from bolide.protocol.bodies import GroupConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import VERSION, Command
from bolide.protocol.headers import PullMessageAnswer, PullMessageRequest
from bolide.protocol.headers.consume import BULK_FIELD
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Answered, Read, Reply, Request
from bolide.remoting.session import LARGE_SIZE, Session
from bolide.store.read import PullStatus, Slices

_ANSWERED_SIZE_MAX = 1 << 20  # answered at once to what one read brought
# At the end of a slave's queue a consumer waits a moment only, and is sent back to the master. Not at once: one whose
# route has no master yet would ask again and again.
_SLAVE_SUSPEND_MAX_MS = 1_000
_EMPTY_AT_ONCE_MAX = 32  # of one read that wait or are refused; more take their turns

# A pull in bulk: what it may ask for at most, and how much of it from the disk, for the loop waits meanwhile.
BULK_SIZE_MAX = 4 << 20
_BULK_FAR_SIZE_MAX = 1 << 20
_BULK_COUNT_MAX = 65_536

_CODES = {
    PullStatus.FOUND: ResponseCode.SUCCESS,
    PullStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    PullStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    PullStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    # Nothing was ever stored there: for who begins, there is nothing yet; for others, their offset is of another queue.
    PullStatus.NO_MATCHED_LOGIC_QUEUE: None,
    PullStatus.NO_MESSAGE_IN_QUEUE: None,
}
_RESET = "OFFSET_RESET"
_SUCCESS = int(ResponseCode.SUCCESS)
_new = tuple.__new__  # of a Pull: a third of the cost of its own


class _Found(NamedTuple):
    """What a pull is told: the code, why, and where to go on."""

    code: ResponseCode
    remark: str
    views: list[memoryview]
    next_offset: int
    min_offset: int
    max_offset: int


class Pulls:
    """Answers pulls; the first run of each and, for those parked, the second."""

    def __init__(
        self,
        state: BrokerState,
        access: PullAccess,
        parked: ParkedPulls,
        filter_budget: FilterBudget,
        is_master_here: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_master_here` tells a slave whether consumers can go back to its master."""
        self._is_master_here = is_master_here
        self._access = access
        self._offsets = state.offsets
        self._store = state.store
        self._parked = parked
        self._state = state
        self._settings = state.settings
        self._stats = state.stats
        self._clock = state.clock
        self._meter = state.meter
        self._filter_budget = filter_budget

    def handlers(self) -> dict[int, Handler]:
        pull = self._access.compiling(self.pull)
        return {RequestCode.PULL_MESSAGE: pull, RequestCode.LITE_PULL_MESSAGE: pull}

    def answer_read(self, read: Read) -> Answered:
        """Answer the pulls of one read; returns the answers and the bounds of what is left to be served one by one.

        Those that wait are parked and done with; those to be refused are left, for refusals are told there. So are
        those beyond a measure of answers: there, anyone who does not take what he has been given gets no more.
        """
        session, stream, bounds = read
        requests = kernel.read_pulls(stream, bounds)
        if len(requests) == 1:  # a consumer has one on the way
            frame = None if requests[0] is None else self._frame(session, *requests[0])
            return (b"", bounds) if frame is None else (frame, [])
        if not any(requests):
            return b"", bounds
        frames: list[bytes] = []
        left: list[int] = []
        size = empty_count = 0
        for i, request in enumerate(requests):
            is_left = request is None or size > _ANSWERED_SIZE_MAX or empty_count >= _EMPTY_AT_ONCE_MAX
            frame = None if request is None or is_left else self._frame(session, *request)
            empty_count += not (frame or is_left)
            if frame is None:
                left += bounds[2 * i : 2 * i + 2]
            else:
                frames.append(frame)
                size += len(frame)
        return b"".join(frames), left

    def _frame(self, session: Session, codec: int, code: int, opaque: int, fields: PullFields) -> bytes | None:
        pull = _new(Pull, fields)
        try:
            allowed = self._access.check(pull)
            frame = self._gather(codec, opaque, pull, allowed)
            if frame is not None:
                self._commit(pull)
                if self._meter is not None:
                    self._meter.told.append((code, _SUCCESS))
                return frame
            request = Request(Command(code, opaque=opaque, codec=codec), session, self._clock.monotonic_s())
            reply = self._first_in_turn(request, pull, allowed)
        except Refusal:
            return None
        if reply is None:
            return b""
        if self._meter is not None:
            self._meter.told.append((code, reply.code))
        answer = reply.encode()
        return answer if len(answer) <= self._settings.now.listen.frame_size_max else None

    def pull(self, request: Request) -> Reply:
        """11 and 361."""
        command = request.command
        pull = read_pull(PullMessageRequest.decode(command.fields))
        allowed = self._access.check(pull)
        bulk_size_max = _bulk_size(command)
        if bulk_size_max and not command.is_oneway:
            frame = self._gather(command.codec, command.opaque, pull, allowed, bulk_size_max)
            if frame is not None:
                self._push(request, frame)
                return None
        return self._first_in_turn(request, pull, allowed)

    def _first_in_turn(self, request: Request, pull: Pull, allowed: Allowed) -> Reply:
        """The first run, now or when it is its turn to search."""
        if allowed.wanted.sieve is None or not self._filter_budget.is_taken:
            return self._first(request, pull, allowed)
        if isinstance(allowed.wanted.sieve, Predicate):  # thousands that wait need not have a text each
            pull = pull._replace(expression=allowed.wanted.sieve.expression)
            request.command.fields = {}
        self._filter_budget.wait(request, functools.partial(self._first_again, request, pull, allowed))
        return None

    def _first_again(self, request: Request, pull: Pull, _: Allowed) -> Reply:
        """The first run after a wait; what allowed it before was kept, so that its expression is still compiled."""
        return self._first(request, pull, self._access.check(pull))

    def _first(self, request: Request, pull: Pull, allowed: Allowed) -> Reply:
        """The first run of a pull: it may commit an offset, and it may be parked."""
        found = self._find(pull, allowed)
        self._note(pull, found)
        if found.remark != _RESET:  # who was just reset commits where he was before: that must not undo it
            self._commit(pull)
        if (
            found.code is ResponseCode.PULL_NOT_FOUND
            and pull.sys_flag & SUSPEND_FLAG
            and found.next_offset == pull.offset
            and not request.command.is_oneway
        ):
            self._park(request, pull, allowed)
            return None
        return self._reply(request, allowed, found)

    def _park(self, request: Request, pull: Pull, allowed: Allowed) -> None:
        # The fields were read: a pull that waits need not keep their texts.
        request.command.fields = {}
        request.is_held = True
        place = pull.topic, pull.queue_id
        resume = functools.partial(self._resume, request, pull)
        wanted = allowed.wanted
        parked = ParkedPull(
            request, place, pull.offset, wanted.tags, resume, pull.group, wanted.passes, pull.expression
        )
        suspend_ms = pull.suspend_ms
        if self._state.is_slave and self._is_master_here():
            suspend_ms = min(suspend_ms, _SLAVE_SUSPEND_MAX_MS)
        self._parked.park(parked, suspend_ms)

    def _resume(self, request: Request, pull: Pull) -> Reply:
        """The second run of a parked pull: it is answered, whatever is found."""
        allowed = self._access.check(pull)
        frame = self._gather(request.command.codec, request.command.opaque, pull, allowed)
        if frame is not None:
            self._push(request, frame)
            return None
        found = self._find(pull, allowed)
        if found.code is ResponseCode.PULL_NOT_FOUND and self._state.is_slave and self._is_master_here():
            # The consumer has caught up with a slave: its next pull goes to the master, and need not wait.
            found = found._replace(code=ResponseCode.PULL_RETRY_IMMEDIATELY)
        self._note(pull, found)
        return self._reply(request, allowed, found)

    def _push(self, request: Request, *frames: bytes | memoryview) -> None:
        """Write an answer that is ready, in one piece or two."""
        for frame in frames:
            request.session.push(frame)
        if self._meter is not None:
            self._meter.answered(request, ResponseCode.SUCCESS)

    # What is there?

    def _find(self, pull: Pull, allowed: Allowed) -> _Found:
        reset = self._offsets.take_reset(pull.group, pull.topic, pull.queue_id)
        if reset is not None:
            queue = self._store.queue(QueueKey(pull.topic, pull.queue_id))
            low, high = (0, 0) if queue is None else (queue.min_offset, queue.next_offset)
            return _Found(ResponseCode.PULL_OFFSET_MOVED, _RESET, [], reset, low, high)
        count_max, size_max = pull.limits
        slices = self._read(pull, count_max, size_max, allowed.wanted)
        code = _CODES[slices.status]
        if code is None:
            code = ResponseCode.PULL_OFFSET_MOVED if pull.offset else ResponseCode.PULL_NOT_FOUND
        next_offset = slices.next_offset
        if code is ResponseCode.PULL_OFFSET_MOVED and self._state.is_slave:
            code, next_offset = self._of_slave(pull, slices)
        return _Found(code, slices.status.value, slices.views, next_offset, slices.min_offset, slices.max_offset)

    def _of_slave(self, pull: Pull, slices: Slices) -> tuple[ResponseCode, int]:
        """An offset that is not in our queue: we may lag behind, and the master knows better which there are.

        While it is away nobody knows better. What lies beyond our end may come with the next master: it is waited for.
        """
        if self._settings.now.replication.corrects_offsets:
            return ResponseCode.PULL_OFFSET_MOVED, slices.next_offset
        if self._is_master_here():
            return ResponseCode.PULL_RETRY_IMMEDIATELY, pull.offset
        if slices.status is PullStatus.OFFSET_TOO_SMALL:
            return ResponseCode.PULL_OFFSET_MOVED, slices.next_offset
        return ResponseCode.PULL_NOT_FOUND, pull.offset

    def _read(self, pull: Pull, count_max: int, size_max: int, wanted: MessageFilter) -> Slices:
        key = QueueKey(pull.topic, pull.queue_id)
        if wanted.sieve is None:
            return self._store.read(key, pull.offset, count_max, wanted.tags, size_max)
        self._filter_budget.begin()
        is_over = self._filter_budget.is_over
        return self._store.read(key, pull.offset, count_max, None, size_max, wanted.sieve, is_over)

    def _gather(
        self, codec: int, opaque: int, pull: Pull, allowed: Allowed, bulk_size_max: int | None = None
    ) -> bytes | None:
        """The usual case in one piece: a frame with messages, as `_find` and `_answer` would make it; else None.

        In bulk, for who reads whole topics, it has as many as fit the size; the rest is the same.
        """
        group, topic, queue_id, offset = pull[:4]
        queue = self._store.find_queue((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return None
        wanted, _, _, is_special = allowed
        if is_special or self._offsets.has_reset(group, topic, queue_id):
            return None
        tags = wanted.tags
        count_max, size_max = pull.limits
        if bulk_size_max is not None:
            count_max = min(pull.count_max, _BULK_COUNT_MAX)
        stretch = self._store.stretch(queue, offset, count_max, tags is not None)
        if stretch is not None and bulk_size_max is not None:
            stretch = stretch.in_bulk(count_max, bulk_size_max, min(bulk_size_max, _BULK_FAR_SIZE_MAX))
        if stretch is None:
            return None
        entries, log_min, near_from, near_limits, far_limits, log, log_base, first_size, fault_count = stretch
        if first_size >= LARGE_SIZE:
            return None
        answer = kernel.answer_pull(
            codec,
            opaque,
            VERSION,
            0,
            queue.name,
            queue_id,
            offset,
            queue.min_offset,
            queue.next_offset,
            entries,
            tags,
            log_min,
            near_from,
            count_max,
            size_max,
            near_limits,
            far_limits,
            log,
            log_base,
        )
        if answer is None:
            return None
        frame, count, size, scanned = answer
        if len(frame) > self._settings.now.listen.frame_size_max or kernel.fault_count() != fault_count:
            return None  # a page could not be read, and zeros stand for it
        if scanned > count and tags is None:
            self._store.note_passed(queue, offset, entries[: scanned * ENTRY_SIZE])
        self._stats.got(group, topic, count, size)
        self._offsets.put_pulled(group, topic, queue_id, offset + scanned)
        return frame

    def _note(self, pull: Pull, found: _Found) -> None:
        if found.code is ResponseCode.SUCCESS:
            self._stats.got(pull.group, pull.topic, len(found.views), sum(map(len, found.views)))
        else:
            self._stats.missed()
        self._offsets.put_pulled(pull.group, pull.topic, pull.queue_id, found.next_offset)

    def _commit(self, pull: Pull) -> None:
        if pull.sys_flag & COMMIT_FLAG and pull.commit_offset >= 0:
            self._offsets.put(pull.group, pull.topic, pull.queue_id, pull.commit_offset)

    def _reply(self, request: Request, allowed: Allowed, found: _Found) -> Reply:
        """The answer; a message too large for company is sent from where it lies in the log, without a copy."""
        if len(found.views) != 1 or len(found.views[0]) < LARGE_SIZE or request.command.is_oneway:
            return self._answer(request.command, allowed, found, b"".join(found.views))
        head = bytearray(self._answer(request.command, allowed, found, b"").encode())
        size = len(head) + len(found.views[0])
        if size > self._settings.now.listen.frame_size_max:
            return self._answer(request.command, allowed, found, bytes(found.views[0]))  # to be refused by the session
        head[:4] = (size - 4).to_bytes(4, "big")
        self._push(request, bytes(head), found.views[0])
        return None

    def _answer(self, command: Command, allowed: Allowed, found: _Found, body: bytes) -> Command:
        header = PullMessageAnswer(
            suggested_broker_id=self._suggested(allowed.group, found),
            next_offset=QueueOffset(found.next_offset),
            min_offset=QueueOffset(found.min_offset),
            max_offset=QueueOffset(found.max_offset),
            topic_sys_flag=allowed.topic.topic_sys_flag or None,
            group_sys_flag=allowed.group.group_sys_flag or None,
        )
        return command.answer(found.code, remark=found.remark, fields=header.encode(), body=body)

    def _suggested(self, group: GroupConfig, found: _Found) -> int:
        """Where the next pull should go: who reads far behind the end of the log may be sent to a slave."""
        config = self._settings.now
        if not config.reads_from_slave:
            return 0
        is_slow = bool(found.views) and self._store.is_far(physical_offset_of(found.views[-1]))
        if self._state.role.now.broker_id and not is_slow:
            return 0
        return group.which_broker_when_consume_slowly if is_slow else group.broker_id


def _bulk_size(command: Command) -> int:
    """What `bolideBulkMax` allows, Bolide's own field, which other brokers pass over; 0 where it is not there."""
    text = command.fields.get(BULK_FIELD, "")
    return min(int(text), BULK_SIZE_MAX) if text.isdecimal() and len(text) < 10 else 0


def physical_offset_of(record: memoryview) -> int:
    """Where a record lies in the log, as it says itself."""
    return int.from_bytes(record[28:36], "big")
