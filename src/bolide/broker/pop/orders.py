"""Ordered pops: while messages of a queue are out, nobody else of the group gets more of that queue.

An ordered pop gives a batch and leaves the group's offset where it was. Acknowledgements are noted in the batch and
move the offset to the first message that is not done. When the batch's time is over, the next pop starts at that
offset again, and each message says how often it was given before. So there is no checkpoint and no retry topic, and a
message that fails is in the way of those behind it, which is what order means. The same attempt may ask again at once:
its first answer was lost.

Kept as RocketMQ's config/consumerOrderInfo.json, every few seconds and at the stop.
"""

import asyncio
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import msgspec

from bolide.broker.pop.lanes import Lane
from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import TableWriter
from bolide.errors import Refusal
from bolide.files import read_whole
from bolide.protocol.bodies.body import Body, always, read
from bolide.protocol.codes import ResponseCode

_UNUSED_MAX_MS = 24 * 3_600_000
_SCAN_INTERVAL_S = 1.0


class BatchBody(Body, frozen=True, kw_only=True):
    """A batch in the file: the first offset as it is, the others as their distance from it."""

    rocketmq_name = "OrderInfo"

    attempt_id: str | None = msgspec.field(default=None, name="a")
    acked_bits: int = always(0, name="cm")
    invisible_ms: int | None = msgspec.field(default=None, name="i")
    used_ms: int = always(0, name="l")
    offsets: list[int] | None = always([], name="o")
    counts: dict[int, int] | None = msgspec.field(default=None, name="oc")
    visible_ms: dict[int, int] | None = msgspec.field(default=None, name="ot")
    pop_time: int = always(0)


class OrderTable(Body, frozen=True, kw_only=True):
    """The file: `topic@group` → queue → batch."""

    rocketmq_name = "QueueLevelConsumerManager"

    table: dict[str, dict[int, BatchBody]] = always({})


class Batch:
    """Messages of a lane that were given last. Bit i of `acked` is the i-th of them."""

    __slots__ = ("acked", "attempt_id", "counts", "invisible_ms", "offsets", "popped_ms", "used_ms", "visible_ms")

    def __init__(
        self, attempt_id: str | None, popped_ms: int, invisible_ms: int, offsets: Sequence[int], used_ms: int
    ) -> None:
        self.attempt_id = attempt_id
        self.popped_ms = popped_ms
        self.invisible_ms = invisible_ms
        self.offsets = list(offsets)
        self.used_ms = used_ms
        self.acked = 0
        self.counts: dict[int, int] = {}  # how often a message was given before, where it was
        self.visible_ms: dict[int, int] = {}  # where that was changed for one message

    def follow(self, before: "Batch") -> None:
        """Count what was in the batch before this one; the same attempt is not another."""
        if before.attempt_id is not None and before.attempt_id == self.attempt_id:
            self.counts = before.counts
            return
        again = set(before.offsets)
        self.counts = {offset: before.counts.get(offset, 0) + 1 for offset in self.offsets if offset in again}

    def ack(self, offset: int) -> bool:
        """The message is done; false if it is not of this batch."""
        if offset not in self.offsets:
            return False
        self.acked |= 1 << self.offsets.index(offset)
        return True

    @property
    def next_offset(self) -> int:
        """Where the group goes on: the first message that is not done."""
        for i, offset in enumerate(self.offsets):
            if not self.acked >> i & 1:
                return offset
        return self.offsets[-1] + 1

    def free_ms(self) -> int:
        """When the last message that is not done is to be had again; 0 if all are done."""
        due_ms = self.popped_ms + self.invisible_ms
        left = [offset for i, offset in enumerate(self.offsets) if not self.acked >> i & 1]
        return max((self.visible_ms.get(offset, due_ms) for offset in left), default=0)


class Orders:
    """The last batch of every lane that is popped in order. Built before the broker listens: reading blocks."""

    def __init__(self, state: BrokerState, table_writer: TableWriter) -> None:
        self._settings = state.settings
        self._topics = state.topics
        self._groups = state.groups
        self._table_writer = table_writer
        self._clock = state.clock
        self._path = state.settings.now.directory / "consumerOrderInfo.json"
        self._is_changed = False
        self._releases: list[tuple[int, Lane]] = []
        self._batches = _batches(read_whole(self._path, parse_orders, OrderTable()))
        for lane, batch in self._batches.items():
            self._expect_release(lane, batch)

    def is_blocked(self, lane: Lane, attempt_id: str | None) -> bool:
        """Whether messages of the lane are out, for others than this attempt."""
        batch = self._batches.get(lane)
        if batch is None or (batch.attempt_id is not None and batch.attempt_id == attempt_id):
            return False
        return self._clock.now_ms() < batch.free_ms()

    def give(
        self, lane: Lane, attempt_id: str | None, popped_ms: int, invisible_ms: int, offsets: Sequence[int]
    ) -> dict[int, int]:
        """Messages go out; returns how often each was out before, where it was."""
        batch = Batch(attempt_id, popped_ms, invisible_ms, offsets, self._clock.now_ms())
        before = self._batches.get(lane)
        if before is not None:
            batch.follow(before)
        self._batches[lane] = batch
        self._changed(lane, batch)
        return batch.counts

    def ack(self, lane: Lane, offset: int, popped_ms: int) -> int | None:
        """A message is done; returns where the group goes on, None if the message is out once more since."""
        batch = self._batches.get(lane)
        if batch is None:
            return offset + 1
        if batch.popped_ms != popped_ms:
            return None
        if not batch.ack(offset):
            remark = f"offset {offset} is not among those that are out of {lane.topic}@{lane.queue_id}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        self._changed(lane, batch)
        return batch.next_offset

    def change(self, lane: Lane, offset: int, popped_ms: int, visible_ms: int) -> None:
        """A message is to be had again at another time."""
        batch = self._batches.get(lane)
        if batch is not None and batch.popped_ms == popped_ms and offset in batch.offsets:
            batch.visible_ms[offset] = visible_ms
            self._changed(lane, batch)

    def clear(self, lane: Lane) -> None:
        """The group was put elsewhere: what is out does not count."""
        if self._batches.pop(lane, None) is not None:
            self._is_changed = True

    def _changed(self, lane: Lane, batch: Batch) -> None:
        self._is_changed = True
        self._expect_release(lane, batch)

    def _expect_release(self, lane: Lane, batch: Batch) -> None:
        if free_ms := batch.free_ms():
            heappush(self._releases, (free_ms, lane))

    # Over time

    async def run_forever(self, wake: Callable[[Lane], None]) -> None:
        """Tell of lanes whose time is over, and have the file follow, until cancelled."""
        saved_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(_SCAN_INTERVAL_S)
            for lane in self.released():
                wake(lane)
            if self._clock.monotonic_s() - saved_s >= self._settings.now.offset_save_interval_ms / 1000:
                saved_s = self._clock.monotonic_s()
                self.save()

    def released(self) -> list[Lane]:
        """The lanes that were blocked and are not any more."""
        now_ms = self._clock.now_ms()
        lanes = []
        while self._releases and self._releases[0][0] <= now_ms:
            _, lane = heappop(self._releases)
            batch = self._batches.get(lane)
            if batch is not None and batch.free_ms() <= now_ms:
                lanes.append(lane)
        return lanes

    def save(self) -> None:
        """Have the file written, if anything changed."""
        if self._is_changed:
            self._is_changed = False
            self._forget_unused()
            self._table_writer.save(self._path, lambda: _table(self._batches).encode().decode())

    def _forget_unused(self) -> None:
        oldest_ms = self._clock.now_ms() - _UNUSED_MAX_MS
        for lane, batch in list(self._batches.items()):
            topic = self._topics.find(lane.topic)
            is_known = topic is not None and self._groups.get(lane.group) is not None
            if batch.used_ms < oldest_ms or not is_known:
                del self._batches[lane]


def parse_orders(text: str) -> OrderTable:
    """Read a consumerOrderInfo.json of 5.x or our own; raises ValueError."""
    return read(OrderTable, text.encode())


def _batches(table: OrderTable) -> dict[Lane, Batch]:
    batches = {}
    for key, queues in table.table.items():
        topic, _, group = key.partition("@")
        for queue_id, body in queues.items():
            if not body.offsets:
                continue
            first = body.offsets[0]
            offsets = [first, *(first + distance for distance in body.offsets[1:])]
            batch = Batch(body.attempt_id, body.pop_time, body.invisible_ms or 0, offsets, body.used_ms)
            batch.acked = body.acked_bits
            batch.counts = dict(body.counts or {})
            batch.visible_ms = dict(body.visible_ms or {})
            batches[Lane(group, topic, queue_id)] = batch
    return batches


def _table(batches: dict[Lane, Batch]) -> OrderTable:
    table: dict[str, dict[int, BatchBody]] = {}
    for lane, batch in batches.items():
        first = batch.offsets[0]
        table.setdefault(f"{lane.topic}@{lane.group}", {})[lane.queue_id] = BatchBody(
            attempt_id=batch.attempt_id,
            acked_bits=batch.acked,
            invisible_ms=batch.invisible_ms,
            used_ms=batch.used_ms,
            offsets=[first, *(offset - first for offset in batch.offsets[1:])],
            counts=batch.counts or None,
            visible_ms=batch.visible_ms or None,
            pop_time=batch.popped_ms,
        )
    return OrderTable(table=table)
