"""Requests 200051, 200151 and 200053: popped messages are done, or stay hidden for longer.

A handle says where its checkpoint is, so nothing is looked up by message. Acknowledging twice, or too late, is no
error: the client could do nothing about it. Hiding a message for longer that is not out any more is one, for it would
come back twice.
"""

from collections.abc import Sequence

from bolide.broker.intake import Intake
from bolide.broker.pop.access import Access
from bolide.broker.pop.checkpoints import CheckpointKey
from bolide.broker.pop.lanes import Lane
from bolide.broker.pop.state import PopState
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.protocol.bodies.pop import BatchAck, BatchAcks
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import AckMessageRequest, ChangeInvisibleTimeAnswer, ChangeInvisibleTimeRequest
from bolide.protocol.headers.poptext import ORDERLY_REVIVE_QUEUE, PopHandle, TopicMark, parse_handle
from bolide.protocol.popped import marked_topic
from bolide.remoting.handlers import Handler, bounded_body
from bolide.remoting.owner import Reply, Request

_INVISIBLE_MAX_MS = 3 * 86_400_000
_BITS_SIZE_MAX = 4096
_BATCH_MAX = 1024
_BATCH_SIZE_MAX = 1 << 20  # names of 255 characters and the rest of each, this many times


class Acks:
    """Settles what was popped."""

    def __init__(self, state: BrokerState, intake: Intake, access: Access, shared: PopState) -> None:
        self._intake = intake
        self._access = access
        self._offsets = state.offsets
        self._revivals = shared.revivals
        self._orders = shared.orders
        self._parked = shared.parked
        self._stats = state.stats
        self._clock = state.clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_many,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    def ack(self, request: Request) -> Reply:
        """200051: one message is done."""
        header = AckMessageRequest.decode(request.command.fields)
        lane = Lane(header.consumer_group, header.topic, header.queue_id)
        self._access.check_message(lane, header.offset, may_be_next=True)
        handle = parse_handle(header.handle)
        end = 0
        if handle.is_ordered:
            self._ack_in_order(lane, header.offset, handle.popped_ms)
        else:
            end = self._revivals.ack(handle.revive_queue_id, _key(lane, handle), header.offset)
        self._stats.acked(lane.group, lane.topic, 1)
        return self._intake.when_safe(request, end, request.command.answer(ResponseCode.SUCCESS))

    def ack_turn(self, acks: Sequence[tuple[Lane, PopHandle]]) -> list[Refusal | None]:
        """What clients of another protocol acknowledge in one turn of the loop; nothing waits for it to be safe.

        Returns why one was refused. Raises what kept all of them from being stored.
        """
        found: list[Refusal | None] = []
        out: list[tuple[int, CheckpointKey, int]] = []
        for lane, handle in acks:
            offset = handle.queue_offset
            try:
                self._access.check_message(lane, offset, may_be_next=True)
            except Refusal as refusal:
                found.append(refusal)
                continue
            found.append(None)
            if handle.is_ordered:
                self._ack_in_order(lane, offset, handle.popped_ms)
            else:
                out.append((handle.revive_queue_id, _key(lane, handle), offset))
            self._stats.acked(lane.group, lane.topic, 1)
        self._revivals.ack_turn(out)
        return found

    def ack_many(self, request: Request) -> Reply:
        """200151: messages of several pops are done; what is not out, or not here, is passed over."""
        body = bounded_body(request, _BATCH_SIZE_MAX)
        count = body.count(b"{") - 1  # before it is read, for reading tens of thousands would hold up everybody
        if count > _BATCH_MAX:
            remark = f"{count} pops acknowledged at once, the limit is {_BATCH_MAX}: send them in several requests"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        acks = BatchAcks.decode(body).acks if body else []
        if not acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "the batch acknowledges nothing")
        known = self._known(acks)
        end = max([self._ack_batch(ack, lane, offsets) for ack, lane, offsets in known])
        return self._intake.when_safe(request, end, request.command.answer(ResponseCode.SUCCESS))

    def _known(self, acks: list[BatchAck]) -> list[tuple[BatchAck, Lane, list[int]]]:
        """What of a batch is about messages that can be here, looked at before anything is counted or stored.

        A batch is of many groups: one that was deleted since costs the others nothing. Without any, the first says why.
        """
        known: list[tuple[BatchAck, Lane, list[int]]] = []
        refused: Refusal | None = None
        for ack in acks:
            if len(ack.bits) > _BITS_SIZE_MAX:
                remark = f"a bit set of {len(ack.bits)} bytes, a pop has at most 32 messages"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
            topic = marked_topic(ack.consumer_group, ack.topic, _mark(ack.topic_mark))
            lane = Lane(ack.consumer_group, topic, ack.queue_id)
            try:
                first, end = self._access.span(lane)
            except Refusal as refusal:
                refused = refused or refusal
            else:
                known.append((ack, lane, [offset for offset in ack.offsets() if first <= offset <= end]))
        if refused is not None and not known:
            raise refused
        return known

    def _ack_batch(self, ack: BatchAck, lane: Lane, offsets: list[int]) -> int:
        self._stats.acked(lane.group, lane.topic, len(offsets))
        if ack.revive_queue_id != ORDERLY_REVIVE_QUEUE:
            key = CheckpointKey(lane, ack.start_offset, ack.pop_time)
            return self._revivals.ack_many(ack.revive_queue_id, key, offsets)
        for offset in offsets:
            self._ack_in_order(lane, offset, ack.pop_time)
        return 0

    def _ack_in_order(self, lane: Lane, offset: int, popped_ms: int) -> None:
        if offset < (self._offsets.get(*lane) or 0):
            return
        next_offset = self._orders.ack(lane, offset, popped_ms)
        if next_offset is None:
            return
        self._offsets.put(*lane, next_offset)
        if not self._orders.is_blocked(lane, None):
            self._parked.wake_any(lane)

    def change(self, request: Request) -> Reply:
        """200053: a message stays hidden, for so long from now on."""
        header = ChangeInvisibleTimeRequest.decode(request.command.fields)
        lane = Lane(header.consumer_group, header.topic, header.queue_id)
        self._access.check_message(lane, header.offset, may_be_next=False)
        if not 0 <= header.invisible_ms <= _INVISIBLE_MAX_MS:
            remark = f"invisibleTime is {header.invisible_ms}, messages may be hidden for 0 to {_INVISIBLE_MAX_MS} ms"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        handle = parse_handle(header.handle)
        invisible_ms, end = header.invisible_ms, 0
        if handle.is_ordered:
            popped_ms = handle.popped_ms
            visible_ms = self._clock.now_ms() + invisible_ms
            if header.offset >= (self._offsets.get(*lane) or 0):
                self._orders.change(lane, header.offset, popped_ms, visible_ms)
            invisible_ms = visible_ms - popped_ms
        else:
            popped_ms, end = self._revivals.change(
                handle.revive_queue_id, _key(lane, handle), header.offset, invisible_ms, header.is_suspended
            )
        answer = ChangeInvisibleTimeAnswer(
            popped_ms=popped_ms, invisible_ms=invisible_ms, revive_queue_id=handle.revive_queue_id
        )
        reply = request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())
        return self._intake.when_safe(request, end, reply)


def _key(lane: Lane, handle: PopHandle) -> CheckpointKey:
    return CheckpointKey(lane, handle.start_offset, handle.popped_ms)


def _mark(text: str) -> TopicMark:
    try:
        return TopicMark(int(text or "0"))
    except ValueError:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{text[:20]!r} is no topic mark: 0, 1 and 2 are") from None
