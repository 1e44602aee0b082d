"""Ranges of queues, read over few round trips: records as bytes, in order, exactly those between two offsets.

A range is cut into pulls, several of them in flight, so that a broker looks for the next while a task turns the last
into columns. How many messages a pull asks for follows from what the broker gave before: Apache's gives 32 (8 from the
disk) however many are wanted, ours as much as fits the size that the field `bolideBulkMax` allows. An answer that
stops short is followed by a pull for the rest, before any later answer is handed on. A filter makes a broker look
further than it was asked to; what lies beyond the end of a pull belongs to the next and is cut off.

A broker that goes away is waited for: its ranges go on where they were, over a new connection, until `timeout_s` have
passed without a record.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bolide.client.blocking.connection import Answer, Connection
from bolide.clock import Clock
from bolide.errors import ClientError, NoAnswer
from bolide.kernel.layout import Buffer
from bolide.model.queue import MessageQueue, QueueOffset
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import BULK_FIELD, PullMessageRequest
from bolide.spark.cluster import Cluster
from bolide.spark.options import TOOLS_GROUP, Subscription
from bolide.spark.source.offsets import Range

log = logging.getLogger(__name__)

BULK_SIZE = 4 << 20
SUSPEND_FLAG, SUBSCRIPTION_FLAG = 2, 4
_COUNT_FIRST, _COUNT_MAX = 8_000, 65_536
_IN_FLIGHT_MAX, _IN_FLIGHT_SIZE_MAX = 16, 2 * BULK_SIZE
_RETRY_S = 0.2
_APACHE_COUNT_MAX = 32  # a broker that stops there will do so again
_KNOWN = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class LostMessages(ClientError):
    """Offsets that were to be read are gone from the broker."""


def pull_command(
    queue: MessageQueue, offset: int, count: int, subscription: Subscription, group: str | None
) -> Command:
    """A pull that brings its filter along, so that nobody need have subscribed before; and may be answered in bulk."""
    fields = _pull(queue, offset, count, subscription, group, SUBSCRIPTION_FLAG, 0)
    fields[BULK_FIELD] = str(BULK_SIZE)
    return Command(RequestCode.PULL_MESSAGE, fields=fields)


def watch_command(queue: MessageQueue, offset: int, group: str | None, wait_ms: int) -> Command:
    """A pull that is answered when a message comes to the end of a queue."""
    flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG
    fields = _pull(queue, offset, 1, Subscription(), group, flags, wait_ms)
    return Command(RequestCode.PULL_MESSAGE, fields=fields)


def _pull(
    queue: MessageQueue,
    offset: int,
    count: int,
    subscription: Subscription,
    group: str | None,
    flags: int,
    wait_ms: int,
) -> dict[str, str]:
    return PullMessageRequest(
        consumer_group=group or TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=QueueOffset(offset),
        message_count_max=count,
        sys_flag=flags,
        commit_offset=QueueOffset(0),
        suspend_timeout_ms=wait_ms,
        subscription=subscription.expression,
        subscription_version=0,
        expression_type=subscription.expression_type,
    ).encode()


@dataclass(slots=True)
class _Piece:
    """A pull of [first, end) and the number of its request; 0 while it was not sent."""

    queue: MessageQueue
    first: int
    end: int
    opaque: int = 0


class RangePulls:
    """Reads ranges of one broker after each other."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        subscription: Subscription,
        group: str | None,
        *,
        fails_on_loss: bool = True,
        timeout_s: float = 60.0,
        count_max: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._subscription = subscription
        self._group = group
        self._fails_on_loss = fails_on_loss
        self._timeout_s = timeout_s
        self._count_max = min(count_max or _COUNT_MAX, _COUNT_MAX)
        self._count = min(_COUNT_FIRST, self._count_max)
        self._answer_size = BULK_SIZE
        self._is_bulk = False

    def read(self, ranges: Sequence[Range]) -> Iterator[tuple[MessageQueue, Buffer]]:
        """The records of the ranges in their order, as they came: some whole records of one queue at a time."""
        left = deque(_Piece(each.queue, each.first, each.end) for each in ranges if each.row_count > 0)
        flying: deque[_Piece] = deque()
        silent_since_s = self._clock.monotonic_s()
        while left or flying:
            try:
                self._fill(flying, left)
                piece = flying[0]
                answer = self._connection(piece).take(piece.opaque)
            except NoAnswer as problem:
                if self._clock.monotonic_s() - silent_since_s > self._timeout_s:
                    raise
                log.warning("broker lost, tried again problem=%s", problem)
                self._begin_again(flying, left)
                time.sleep(_RETRY_S)
                continue
            flying.popleft()
            silent_since_s = self._clock.monotonic_s()
            records = self._taken(piece, answer, flying)
            if len(records):
                yield piece.queue, records

    def _connection(self, piece: _Piece) -> Connection:
        return self._cluster.of_broker(piece.queue.broker_name, piece.queue.topic)

    def _fill(self, flying: deque[_Piece], left: deque[_Piece]) -> None:
        """Send what may be in flight: the rest of an answer that stopped short is at the head, and goes first."""
        if flying and not flying[0].opaque:
            self._send(flying[0])
        count_max = max(2, min(_IN_FLIGHT_MAX, _IN_FLIGHT_SIZE_MAX // max(self._answer_size, 1)))
        while left and len(flying) < count_max:
            whole = left[0]
            piece = _Piece(whole.queue, whole.first, min(whole.first + self._count, whole.end))
            self._send(piece)
            flying.append(piece)
            whole.first = piece.end
            if whole.first >= whole.end:
                left.popleft()

    def _send(self, piece: _Piece) -> None:
        count = piece.end - piece.first
        command = pull_command(piece.queue, piece.first, count, self._subscription, self._group)
        (piece.opaque,) = self._connection(piece).put([command])

    def _begin_again(self, flying: deque[_Piece], left: deque[_Piece]) -> None:
        for name in {piece.queue.broker_name for piece in (*flying, *left)}:
            self._cluster.forget_broker(name)
        while flying:
            piece = flying.pop()
            piece.opaque = 0
            left.appendleft(piece)

    def _taken(self, piece: _Piece, answer: Answer, flying: deque[_Piece]) -> Buffer:
        """The records of an answer that belong to its piece; what the piece still lacks is put at the head."""
        next_offset, records = self._judge(piece, answer)
        self._learn(piece, next_offset, len(records))
        if next_offset < piece.end:
            flying.appendleft(_Piece(piece.queue, next_offset, piece.end))
        return records if next_offset <= piece.end else records_before(records, piece.end)

    def _learn(self, piece: _Piece, next_offset: int, size: int) -> None:
        """How many messages the next pulls should ask for, from what this one was given."""
        given = next_offset - piece.first
        if not size or self._subscription.is_filtered:
            return
        self._answer_size = size
        self._is_bulk = self._is_bulk or given > _APACHE_COUNT_MAX
        if next_offset < piece.end and (not self._is_bulk or 2 * size > BULK_SIZE):
            self._count = max(1, given)  # it will give as much again; in bulk, a short one may have met a file's end
        elif self._is_bulk and next_offset >= piece.end and 2 * size < BULK_SIZE and given >= self._count:
            self._count = min(2 * self._count, self._count_max)

    def _judge(self, piece: _Piece, answer: Answer) -> tuple[int, Buffer]:
        """Where to go on, and what was found; raises where something is gone that was to be read."""
        if answer.code not in _KNOWN:
            raise ClientError(
                f"queue {piece.queue.queue_id} of {piece.queue.topic} on {piece.queue.broker_name} could not be read "
                f"at {piece.first}: code {answer.code}, {answer.remark}",
                answer.code,
            )
        next_offset = int(answer.fields["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            return next_offset, answer.body
        is_passed_over = answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and self._subscription.is_filtered
        if not is_passed_over:
            self._lose(piece, next_offset, answer.remark)
        # Anyone who answers without moving on has nothing more to give: the range ends behind the queue's end.
        return (next_offset if next_offset > piece.first else piece.end), b""

    def _lose(self, piece: _Piece, next_offset: int, remark: str | None) -> None:
        queue = piece.queue
        what = (
            f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} no longer has offsets {piece.first} to "
            f"{piece.end - 1}: it goes on at {next_offset} ({remark})"
        )
        if self._fails_on_loss:
            raise LostMessages(f"{what}. With failOnDataLoss=false the query goes on without them")
        log.warning("messages lost, passed over: %s", what)


def records_before(records: Buffer, end: int) -> Buffer:
    """The records whose queue offset is below `end`; they lie in the order of their offsets."""
    position, size = 0, len(records)
    while position < size and int.from_bytes(records[position + 20 : position + 28], "big") < end:
        position += int.from_bytes(records[position : position + 4], "big")
    return records[:position]
