"""Requests 200050, 200052, 200054 and 200055: messages for a while, a look at them, and who waits for some.

A pop gives messages of one queue or of all, hides them from the rest of the group, and says so in a checkpoint before
it answers. A pop that finds nothing waits (`pop/parked.py`); when it is woken, everything here runs again.

Everything between reading a queue and moving the group's offset happens in one turn of the loop, so no two pops see the
same message and no queue is locked.
"""

from collections.abc import Iterable

from bolide.broker.intake import Intake
from bolide.broker.pop.access import Access
from bolide.broker.pop.answers import joined, under_origin
from bolide.broker.pop.checkpoints import Checkpoint, CheckpointKey
from bolide.broker.pop.lanes import Lane
from bolide.broker.pop.parked import ParkedPop, Tried
from bolide.broker.pop.reading import LaneReader, Taken, queues_of
from bolide.broker.pop.state import PopState
from bolide.broker.pulling.filter_budget import MessageFilter
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.model.queue import QueueOffset
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.pop import (
    NotificationAnswer,
    NotificationRequest,
    PeekMessageRequest,
    PollingCountAnswer,
    PollingCountRequest,
    PopMessageAnswer,
    PopMessageRequest,
)
from bolide.protocol.headers.poptext import (
    ORDERLY_REVIVE_QUEUE,
    OrderedItem,
    PopHandle,
    PoppedQueue,
    TopicMark,
    build_message_offsets,
    build_order_counts,
    build_start_offsets,
)
from bolide.protocol.popped import mark_of
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.store.read import PullStatus

_COUNT_MAX = 32
_INVISIBLE_MAX_MS = 3 * 86_400_000  # what Java's timer takes
_LATE_MAX_MS = 500
_FOUND = PullStatus.FOUND.value
_NOTHING = PullStatus.NO_MESSAGE_IN_QUEUE.value
# Enough for one answer: every queue may add its next message, and a frame has its limit.
_SIZE_ENOUGH = 1 << 20


class _Harvest:
    """What one pop has found so far, over its queues."""

    def __init__(self, count_max: int) -> None:
        self.taken: list[Taken] = []
        self.left = count_max
        self.size = 0
        self.remaining = 0
        self.is_skipping = False

    @property
    def is_enough(self) -> bool:
        return self.left <= 0 or self.size >= _SIZE_ENOUGH

    def add(self, taken: Taken) -> None:
        self.remaining += taken.remaining
        self.is_skipping |= taken.is_skipping
        if taken.views:
            self.taken.append(taken)
            self.left -= len(taken.views)
            self.size += sum(map(len, taken.views))


class Pops:
    """Gives messages, and lets those wait who found none."""

    def __init__(
        self, state: BrokerState, intake: Intake, access: Access, reader: LaneReader, shared: PopState
    ) -> None:
        self._settings = state.settings
        self._intake = intake
        self._access = access
        self._offsets = state.offsets
        self._reader = reader
        self._revivals = shared.revivals
        self._orders = shared.orders
        self._parked = shared.parked
        self._noticed = shared.noticed
        self._stats = state.stats
        self._clock = state.clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self._reader.compiling(self.pop),
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.count_waiting,
        }

    # 200050

    def pop(self, request: Request) -> Reply:
        """Messages, hidden from others for a while."""
        return self.take(request, PopMessageRequest.decode(request.command.fields))

    def take(self, request: Request, header: PopMessageRequest) -> Reply:
        """The same for a request that was never text: its fields are not looked at."""
        now_ms = self._clock.now_ms()
        deadline_ms = _deadline(header, now_ms)
        if now_ms - deadline_ms > _LATE_MAX_MS:
            remark = f"the request is {now_ms - header.born_ms} ms old by our clock and would wait {header.poll_ms}"
            raise Refusal(ResponseCode.POLLING_TIMEOUT, remark)
        return self._pop(request, header, deadline_ms).reply

    def _pop(self, request: Request, header: PopMessageRequest, deadline_ms: int) -> Tried:
        lane = Lane(header.consumer_group, header.topic, max(-1, header.queue_id))
        self._access.check_readable()
        _check_amounts(header)
        config = self._access.check_lane(lane)
        wanted = self._reader.filter_of(header.expression, header.expression_type)
        if not header.is_ordered and not self._revivals.has_room(lane.group, request.session.origin):
            return Tried(self._full(request, header))
        harvest = self._gather(header, config, lane, wanted)
        if harvest.taken:
            reply = self._give(request, header, harvest)
            if harvest.remaining:
                self._parked.wake(lane)
            return Tried(reply, has_looked=True)
        return Tried(self._wait(request, header, lane, deadline_ms, harvest), has_looked=True)

    def _full(self, request: Request, header: PopMessageRequest) -> Command:
        """209, after which a client asks again in a while. It wants the fields of an answer with it, as Java's does."""
        remark = f"too many messages of {header.consumer_group} are out and not acknowledged; acknowledge some"
        answer = PopMessageAnswer(
            popped_ms=self._clock.now_ms(), invisible_ms=header.invisible_ms, revive_queue_id=0, remaining_count=0
        )
        return request.command.answer(ResponseCode.POLLING_FULL, remark=remark, fields=answer.encode())

    def _gather(self, header: PopMessageRequest, config: TopicConfig, lane: Lane, wanted: MessageFilter) -> _Harvest:
        harvest = _Harvest(header.message_count_max)
        for each in self._reader.lanes(lane, config, has_retries=not header.is_ordered):
            self._follow_reset(each)
            if header.is_ordered and self._orders.is_blocked(each, header.attempt_id):
                continue  # what lies behind is not to be had, so it does not count as remaining either
            if harvest.is_enough:
                harvest.remaining += self._reader.remaining(each)
            else:
                harvest.add(self._reader.read(each, harvest.left, wanted, header.init_mode))
        return harvest

    def _follow_reset(self, lane: Lane) -> None:
        offset = self._offsets.take_reset(*lane)
        if offset is not None:
            self._orders.clear(lane)
            self._offsets.put(*lane, offset)

    def _give(self, request: Request, header: PopMessageRequest, harvest: _Harvest) -> Reply:
        if header.is_ordered:
            revive_queue_id, popped_ms, end = ORDERLY_REVIVE_QUEUE, self._clock.now_ms(), 0
        else:
            revive_queue_id = self._revivals.choose_queue()
            popped_ms, end = self._check_out(request, harvest.taken, revive_queue_id, header.invisible_ms)
        starts: dict[PoppedQueue, int] = {}
        offsets: dict[PoppedQueue, list[int]] = {}
        counts: dict[OrderedItem, int] = {}
        parts: list[bytes | memoryview] = []
        for taken in harvest.taken:
            queue = PoppedQueue(mark_of(taken.lane.topic), taken.lane.queue_id)
            starts[queue], offsets[queue] = taken.start_offset, taken.offsets
            if header.is_ordered:
                counts.update(self._hold_back(taken, header, popped_ms))
            parts += self._messages(taken, header, revive_queue_id, popped_ms)
            self._stats.got(taken.lane.group, taken.lane.topic, len(taken.views), sum(map(len, taken.views)))
        answer = PopMessageAnswer(
            popped_ms=popped_ms,
            invisible_ms=header.invisible_ms,
            revive_queue_id=revive_queue_id,
            remaining_count=harvest.remaining,
            start_offsets=build_start_offsets(starts),
            message_offsets=build_message_offsets(offsets),
            order_counts=build_order_counts(counts) if header.is_ordered else None,
        )
        body = joined(parts)
        reply = request.command.answer(ResponseCode.SUCCESS, remark=_FOUND, fields=answer.encode(), body=body)
        return self._intake.when_safe(request, end, reply)

    def _check_out(
        self, request: Request, taken: Iterable[Taken], revive_queue_id: int, invisible_ms: int
    ) -> tuple[int, int]:
        """Store the checkpoints, then move the group on; returns the time of the pop and the end of the log."""
        taken = list(taken)
        starts = [(each.lane, each.start_offset) for each in taken]
        popped_ms = self._revivals.free_time(revive_queue_id, starts, self._clock.now_ms())
        checkpoints = [
            Checkpoint(
                CheckpointKey(each.lane, each.start_offset, popped_ms),
                tuple(offset - each.start_offset for offset in each.offsets),
                invisible_ms,
                revive_queue_id,
                origin=request.session.origin,
            )
            for each in taken
        ]
        end = self._revivals.give(checkpoints)
        for each in taken:
            self._offsets.put(*each.lane, each.next_offset)
        return popped_ms, end

    def _hold_back(self, taken: Taken, header: PopMessageRequest, popped_ms: int) -> dict[OrderedItem, int]:
        """Close the queue to others until these are done; returns how often each message was given before."""
        lane, offsets = taken.lane, taken.offsets
        given = self._orders.give(lane, header.attempt_id, popped_ms, header.invisible_ms, offsets)
        self._offsets.put(*lane, taken.start_offset)
        mark = mark_of(lane.topic)
        counts = {OrderedItem(mark, lane.queue_id, QueueOffset(offset)): count for offset, count in given.items()}
        counts[OrderedItem(mark, lane.queue_id)] = min(given.values()) if len(given) == len(offsets) else 0
        return counts

    def _messages(
        self, taken: Taken, header: PopMessageRequest, revive_queue_id: int, popped_ms: int
    ) -> list[bytes | memoryview]:
        mark = mark_of(taken.lane.topic)
        if mark is TopicMark.NORMAL or self._settings.now.shows_retry_topics:
            return list(taken.views)
        handle = PopHandle(
            start_offset=QueueOffset(taken.start_offset),
            popped_ms=popped_ms,
            invisible_ms=header.invisible_ms,
            revive_queue_id=revive_queue_id,
            mark=mark,
            broker_name=self._settings.now.name,
            queue_id=taken.lane.queue_id,
            queue_offset=QueueOffset(taken.start_offset),
        )
        return under_origin(taken, header.topic, handle)

    def _wait(
        self, request: Request, header: PopMessageRequest, lane: Lane, deadline_ms: int, harvest: _Harvest
    ) -> Reply:
        code = ResponseCode.POLLING_TIMEOUT
        if not self._parked.is_over(deadline_ms) and not request.command.is_oneway:
            waiting = ParkedPop(
                request,
                lane,
                deadline_ms,
                resume=lambda: self._pop(request, header, deadline_ms),
                dismiss=lambda: self._nothing(request, header, ResponseCode.POLLING_TIMEOUT, 0),
            )
            if self._parked.park(waiting):
                if harvest.is_skipping and harvest.remaining:
                    self._parked.wake(lane)  # a scan has its limit, and what it wants may lie behind
                return None
            code = ResponseCode.POLLING_FULL
        return self._nothing(request, header, code, harvest.remaining)

    def _nothing(self, request: Request, header: PopMessageRequest, code: ResponseCode, remaining: int) -> Command:
        self._stats.missed()
        answer = PopMessageAnswer(
            popped_ms=self._clock.now_ms(),
            invisible_ms=header.invisible_ms,
            revive_queue_id=ORDERLY_REVIVE_QUEUE if header.is_ordered else 0,
            remaining_count=remaining,
        )
        return request.command.answer(code, remark=_NOTHING, fields=answer.encode())

    # 200052

    def peek(self, request: Request) -> Command:
        """Messages to look at: the next ones, as if they were popped."""
        header = PeekMessageRequest.decode(request.command.fields)
        lane = Lane(header.consumer_group, header.topic, max(-1, header.queue_id))
        self._access.check_readable()
        config = self._access.check_lane(lane)
        harvest = _Harvest(min(header.message_count_max, _COUNT_MAX))
        for each in self._reader.lanes(lane, config, has_retries=True):
            if harvest.is_enough:
                harvest.remaining += self._reader.remaining(each)
            else:
                harvest.add(self._reader.read(each, harvest.left, MessageFilter(), None))
        answer = PopMessageAnswer(popped_ms=0, invisible_ms=0, revive_queue_id=0, remaining_count=harvest.remaining)
        code, remark = ResponseCode.PULL_NOT_FOUND, _NOTHING
        if harvest.taken:
            code, remark = ResponseCode.SUCCESS, _FOUND
        body = joined([view for taken in harvest.taken for view in taken.views])
        return request.command.answer(code, remark=remark, fields=answer.encode(), body=body)

    # 200054

    def notify(self, request: Request) -> Reply:
        """Whether there is something to pop; the answer waits until there is."""
        header = NotificationRequest.decode(request.command.fields)
        return self._notify(request, header, _deadline(header, self._clock.now_ms())).reply

    def _notify(self, request: Request, header: NotificationRequest, deadline_ms: int) -> Tried:
        lane = Lane(header.consumer_group, header.topic, max(-1, header.queue_id))
        self._access.check_readable()
        config = self._access.check_lane(lane)
        lanes = queues_of(lane, config, 0)
        if header.is_ordered:
            lanes = [each for each in lanes if not self._orders.is_blocked(each, header.attempt_id)]
        lanes += [*self._reader.retry_lanes(lane, 0), *self._reader.retry_lanes(lane, 1)]
        has_message = any(self._reader.remaining(each) for each in lanes)
        is_full = False
        if not has_message and not self._noticed.is_over(deadline_ms) and not request.command.is_oneway:
            waiting = ParkedPop(
                request,
                lane,
                deadline_ms,
                resume=lambda: self._notify(request, header, deadline_ms),
                dismiss=lambda: _noticed(request, has_message=False),
            )
            if self._noticed.park(waiting):
                return Tried(None, has_looked=True)
            is_full = True
        return Tried(_noticed(request, has_message=has_message, is_full=is_full), has_looked=True)

    # 200055

    def count_waiting(self, request: Request) -> Command:
        """How many pops wait at a queue."""
        header = PollingCountRequest.decode(request.command.fields)
        lane = Lane(header.consumer_group, header.topic, max(-1, header.queue_id))
        self._access.check_readable()
        self._access.check_lane(lane)
        answer = PollingCountAnswer(polling_count=self._parked.count_at(lane))
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())


def _noticed(request: Request, *, has_message: bool, is_full: bool = False) -> Command:
    answer = NotificationAnswer(has_message=has_message, is_polling_full=is_full)
    return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())


def _deadline(header: PopMessageRequest | NotificationRequest, now_ms: int) -> int:
    """When the client wants its answer at the latest; one whose clock is ahead of ours was not born after now."""
    return min(header.born_ms or now_ms, now_ms) + max(0, header.poll_ms)


def _check_amounts(header: PopMessageRequest) -> None:
    if not 1 <= header.message_count_max <= _COUNT_MAX:
        remark = f"maxMsgNums is {header.message_count_max}, a pop gives 1 to {_COUNT_MAX} messages"
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    if not 0 <= header.invisible_ms <= _INVISIBLE_MAX_MS:
        remark = f"invisibleTime is {header.invisible_ms}, messages may be hidden for 0 to {_INVISIBLE_MAX_MS} ms"
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
