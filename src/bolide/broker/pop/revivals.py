"""What is out, and its coming back: every message popped is acknowledged, or given again after its invisible time.

The truth is in the revive topic (`checkpoints.py`); this is its memory: checkpoints that are not settled, by key, and
their due times in a heap. RocketMQ has a timer wheel deliver the records when they are due and matches them then. We
match at once: an acknowledgement settles its checkpoint as it is stored, and a scan once a second stores again what is
due. That costs memory for what is out, hence the bounds: beyond them nothing more is popped.

After a start the memory is read back from the topic, from where all before is settled; that offset is kept as the one
of the group CID_RMQ_SYS_REVIVE_GROUP and means, as in Java, the last record that is settled, not the next to read. One
message that is put off for hours would keep it back, and a start would read the records of hours: a checkpoint that
fell far behind is therefore written once more, with what is left of it.

The rule: a message and the word that settles it are stored in one append, so a kill comes before both or after both. A
power cut may take any page of what was not synced, and leave the word without the message. So the word names it
(`read_successor`), and counts at a start only if the message is there.

A slave that acts for its master (`replication/acting.py`) stores nothing. It has another master that has the topic
store what is due, in the retry topic of the group there. The word that settles it is the offset of the group above,
which the master that returns asks for; what is settled behind one that is not comes once more then.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import takewhile

from bolide.broker.intake import Intake
from bolide.broker.later.escape import Escape
from bolide.broker.pop.checkpoints import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    REVIVE_GROUP,
    Checkpoint,
    CheckpointKey,
    ReviveLog,
    read_ack,
    read_checkpoint,
    read_successor,
)
from bolide.broker.pop.lanes import Lane, origin_of, retry_topic_for
from bolide.broker.pop.retries import retry_draft
from bolide.broker.pop.shares import Shares
from bolide.broker.state import BrokerState
from bolide.broker.tables.topics import revive_topic
from bolide.errors import Refusal
from bolide.model.message import StoredMessage
from bolide.model.queue import QueueKey
from bolide.model.topics import dead_letter_topic
from bolide.protocol.codes import ResponseCode
from bolide.store.record import decode

_SLICE_COUNT = 64  # records read or messages revived before others have a turn
_READ_COUNT = 32
_FAILURE_PAUSE_FIRST_MS = 10_000
_FAILURE_PAUSE_MAX_MS = 3_600_000
_STORE_PAUSE_MS = 1_000  # of a store that takes nothing from anybody: a full disk is cleared, replicas come back
_STALE_MIN = 1_000
# Records a start reads in each revive queue at the least before anything is written again, and how many times as many
# as there are checkpoints: writing them must not be what pushes them back.
_BEHIND_MIN = 5_000
_BEHIND_FACTOR = 4
_TASK = "pop.revivals"
log = logging.getLogger(__name__)


class _GroupOut:
    """What a group has out: how many checkpoints, and its lanes, one value each for there may be many checkpoints."""

    __slots__ = ("count", "lanes")

    def __init__(self) -> None:
        self.count = 0
        self.lanes: dict[Lane, Lane] = {}


class Revivals:
    """All checkpoints of this broker that are not settled."""

    def __init__(self, state: BrokerState, intake: Intake) -> None:
        self._intake = intake
        self._settings = state.settings
        self._store = state.store
        self._stats = state.stats
        self._topics = state.topics
        self._groups = state.groups
        self._offsets = state.offsets
        self._clock = state.clock
        self._meter = state.meter
        config = state.settings.now
        self._log = ReviveLog(revive_topic(config.cluster), config.name, state.store)
        self._queue_count = state.topics.ensure(self._log.topic, config.revive_queue_count).read_queue_nums
        self._number = 0
        self._next_queue_id = 0
        self.forget()

    def forget(self) -> None:
        """Nothing is known to be out."""
        # By revive queue, each in the order of its records: the first one not settled is the first in its dict.
        self._out: dict[int, dict[CheckpointKey, Checkpoint]] = {}
        self._due: list[tuple[int, int, Checkpoint]] = []
        self._groups_out: dict[str, _GroupOut] = {}
        self._shares = Shares()

    # What the processors call. Each returns up to where the log must be safe: where nothing is left to settle, what
    # settled it may lie anywhere before its end.

    def choose_queue(self) -> int:
        """The revive queue for the next pop, in turn."""
        self._next_queue_id = (self._next_queue_id + 1) % self._queue_count
        return self._next_queue_id

    @property
    def out_count(self) -> int:
        """Checkpoints that are not settled."""
        return self._shares.total

    def has_room(self, group: str, origin: str = "") -> bool:
        """Whether the group may have more messages out, popped from an address."""
        return self._shares.has_room(group, origin)

    def free_time(self, revive_queue_id: int, starts: Iterable[tuple[Lane, int]], now_ms: int) -> int:
        """A time for a pop that starts there: now, or the next at which it has a name of its own."""
        out, starts = self._out.get(revive_queue_id, {}), list(starts)
        while any(CheckpointKey(lane, start, now_ms) in out for lane, start in starts):
            now_ms += 1
        return now_ms

    def give(self, checkpoints: Sequence[Checkpoint]) -> int:
        """Messages go out."""
        now_ms = self._clock.now_ms()
        appended = self._intake.append_own([self._log.checkpoint(each, now_ms) for each in checkpoints])
        for checkpoint, revive_offset in zip(checkpoints, appended.queue_offsets, strict=True):
            checkpoint.revive_offset = revive_offset
            self._add(checkpoint)
            self._count(checkpoint, "CK")
        return appended.end

    def _count(self, checkpoint: Checkpoint, kind: str) -> None:
        """A record for the revive topic, as RocketMQ's metrics tell it."""
        if self._meter is not None:
            lane = checkpoint.key.lane
            self._meter.put_revive(lane.group, origin_of(lane.group, lane.topic), kind)

    def ack(self, revive_queue_id: int, key: CheckpointKey, offset: int) -> int:
        """A message is done. One that is not out any more came back already, or was acknowledged before."""
        checkpoint = self._find(revive_queue_id, key)
        if checkpoint is None or not checkpoint.has_out(offset):
            return self._store.log_end
        end = self._intake.append_own([self._log.ack(checkpoint, offset, self._clock.now_ms())]).end
        self._settle(checkpoint, [offset])
        self._count(checkpoint, "ACK")
        return end

    def ack_turn(self, acks: Iterable[tuple[int, CheckpointKey, int]]) -> None:
        """Messages of any checkpoints are done, each as if it came alone, and one append has them all."""
        known: dict[tuple[CheckpointKey, int, int], Checkpoint] = {}  # the same may be acknowledged twice in a turn
        for revive_queue_id, key, offset in acks:
            checkpoint = self._find(revive_queue_id, key)
            if checkpoint is not None and checkpoint.has_out(offset):
                known[key, revive_queue_id, offset] = checkpoint
        if not known:
            return
        now_ms = self._clock.now_ms()
        self._intake.append_own(
            [self._log.ack(checkpoint, offset, now_ms) for (_, _, offset), checkpoint in known.items()]
        )
        for (_, _, offset), checkpoint in known.items():
            self._settle(checkpoint, [offset])
            self._count(checkpoint, "ACK")

    def ack_many(self, revive_queue_id: int, key: CheckpointKey, offsets: Iterable[int]) -> int:
        """Messages of one checkpoint are done; those that are not out are passed over."""
        checkpoint = self._find(revive_queue_id, key)
        known = [offset for offset in offsets if checkpoint.has_out(offset)] if checkpoint is not None else []
        if checkpoint is None or not known:
            return self._store.log_end
        end = self._intake.append_own([self._log.batch_ack(checkpoint, known, self._clock.now_ms())]).end
        self._settle(checkpoint, known)
        self._count(checkpoint, "ACK")
        return end

    def change(
        self, revive_queue_id: int, key: CheckpointKey, offset: int, invisible_ms: int, is_suspended: bool
    ) -> tuple[int, int]:
        """A message stays out for another while, from now on; returns its new time of popping too."""
        old = self._find(revive_queue_id, key)
        if old is None or not old.has_out(offset):
            remark = (
                f"the message at {offset} of {key.lane.topic} is not out any more: it was acknowledged or came back"
            )
            raise Refusal(ResponseCode.NO_MESSAGE, remark)
        if old.left & (old.left - 1) and not self.has_room(key.lane.group, old.origin):
            # Of a checkpoint with several messages this makes one more.
            remark = f"too many messages of {key.lane.group} are out and not acknowledged"
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
        now_ms = self._clock.now_ms()
        lane = old.key.lane
        popped_ms = self.free_time(revive_queue_id, [(lane, offset)], now_ms)
        new_key = CheckpointKey(lane, offset, popped_ms)
        new = Checkpoint(new_key, (0,), invisible_ms, revive_queue_id, is_suspended=is_suspended, origin=old.origin)
        successor = self._log.checkpoint(new, now_ms)
        appended = self._intake.append_own([successor, self._log.ack(old, offset, now_ms, successor)])
        new.revive_offset = appended.queue_offsets[0]
        self._add(new)
        self._settle(old, [offset])
        self._count(new, "CK")
        self._count(old, "ACK")
        return popped_ms, appended.end

    # The memory

    def _find(self, revive_queue_id: int, key: CheckpointKey) -> Checkpoint | None:
        return self._out.get(revive_queue_id, {}).get(key)

    def _add(self, checkpoint: Checkpoint) -> None:
        key = checkpoint.key
        group = self._groups_out.setdefault(key.lane.group, _GroupOut())
        group.count += 1
        self._shares.add(key.lane.group, checkpoint.origin)
        lane = group.lanes.setdefault(key.lane, key.lane)
        checkpoint.key = key = CheckpointKey(lane, key.start_offset, key.popped_ms)
        self._out.setdefault(checkpoint.revive_queue_id, {})[key] = checkpoint
        self._schedule(checkpoint)

    def _schedule(self, checkpoint: Checkpoint) -> None:
        self._number += 1
        heappush(self._due, (checkpoint.due_ms, self._number, checkpoint))
        if len(self._due) > 2 * self.out_count + _STALE_MIN:
            self._due = [each for each in self._due if each[2].left]
            heapify(self._due)

    def _settle(self, checkpoint: Checkpoint, offsets: Iterable[int]) -> None:
        for offset in offsets:
            checkpoint.settle(offset)
        if not checkpoint.left:
            self._drop(checkpoint)

    def _drop(self, checkpoint: Checkpoint) -> None:
        checkpoint.left = 0
        del self._out[checkpoint.revive_queue_id][checkpoint.key]
        name = checkpoint.key.lane.group
        self._shares.remove(name, checkpoint.origin)
        group = self._groups_out[name]
        group.count -= 1
        if not group.count:
            del self._groups_out[name]

    # Coming back

    async def run_forever(self, escape: Escape | None = None) -> None:
        """Store again what is due, and note how far the topic is settled, until cancelled; a slave has it escape."""
        while True:
            await asyncio.sleep(self._settings.now.revive_interval_ms / 1000)
            await self.revive_due(escape)
            if escape is None:
                await self._catch_up()
            self.note_settled()

    async def revive_due(self, escape: Escape | None = None) -> None:
        """Store again what is due now."""
        count = 0
        while self._due and self._due[0][0] <= self._clock.now_ms():
            _, _, checkpoint = heappop(self._due)
            if not checkpoint.left:
                continue
            if not await self._revive(checkpoint, escape):
                return
            count += len(checkpoint.distances)
            if count >= _SLICE_COUNT:
                count = 0
                await asyncio.sleep(0)

    async def _revive(self, checkpoint: Checkpoint, escape: Escape | None) -> bool:
        """Returns false when the store takes nothing now: what else is due waits for the next scan.

        A slave drops nothing: what it does not know yet its master may.
        """
        lane = checkpoint.key.lane
        if escape is None and not self._is_known(lane):
            log.warning("popped messages dropped: topic or group are gone lane=%s", lane)
            self._drop(checkpoint)
            return True
        refused: Refusal | None = None
        for offset in checkpoint.offsets_left():
            try:
                with self._store.mishaps.passing_over(_TASK, partial(_name_of, lane, offset)):
                    message = self._read(lane, offset)
                    if message is not None and escape is not None:
                        await self._escape(checkpoint, message, escape)
                    elif message is not None:
                        self._give_again(checkpoint, message)
                checkpoint.settle(offset)
            except Refusal as refusal:
                refused = refusal
                if refusal.code != ResponseCode.MESSAGE_ILLEGAL:  # one that cannot be stored is in nobody's way
                    break
        if refused is None:
            self._drop(checkpoint)
            return True
        self._put_off(checkpoint, refused)
        return escape is not None or refused.code == ResponseCode.MESSAGE_ILLEGAL

    def _is_known(self, lane: Lane) -> bool:
        topic = self._topics.find(origin_of(lane.group, lane.topic))
        return topic is not None and self._groups.find(lane.group) is not None

    def _put_off(self, checkpoint: Checkpoint, refusal: Refusal) -> None:
        pause_ms = _STORE_PAUSE_MS
        if refusal.code == ResponseCode.MESSAGE_ILLEGAL:
            pause_ms = min(_FAILURE_PAUSE_FIRST_MS << checkpoint.failure_count, _FAILURE_PAUSE_MAX_MS)
        level = logging.DEBUG if checkpoint.failure_count else logging.ERROR
        lane, problem = checkpoint.key.lane, refusal.remark
        log.log(level, "not revived, again in %d s lane=%s problem=%s", pause_ms // 1000, lane, problem)
        checkpoint.failure_count = min(checkpoint.failure_count + 1, 20)
        checkpoint.due_ms = self._clock.now_ms() + pause_ms
        self._schedule(checkpoint)

    def _read(self, lane: Lane, offset: int) -> StoredMessage | None:
        """The message itself; None if it is not in the log any more."""
        slices = self._store.read(QueueKey(lane.topic, lane.queue_id), offset, 1)
        for view in slices.views:
            message = decode(view)
            if message.queue_offset == offset:
                return message
        log.info("not revived: the message is gone lane=%s offset=%d", lane, offset)
        return None

    def _give_again(self, checkpoint: Checkpoint, message: StoredMessage) -> None:
        group = checkpoint.key.lane.group
        if self._is_given_up(checkpoint, message):
            topic = dead_letter_topic(group)
            self._topics.ensure(topic, 1)
        else:
            topic = retry_topic_for(group, checkpoint.key.lane.topic, self._settings.now.makes_retry_topics_v2)
            self._topics.ensure(topic, 1)
            if self._offsets.get(group, topic, 0) is None:
                self._offsets.put(group, topic, 0, 0)  # so that the group's progress shows what failed
        successor = retry_draft(message, checkpoint, topic, self._store.store_host)
        ack = self._log.ack(checkpoint, message.queue_offset, self._clock.now_ms(), successor)
        self._intake.append_own([successor, ack])
        origin = origin_of(group, checkpoint.key.lane.topic)
        if topic == dead_letter_topic(group):
            self._stats.died(group, origin)
        elif self._meter is not None:
            self._meter.revive(group, origin)

    async def _escape(self, checkpoint: Checkpoint, message: StoredMessage, escape: Escape) -> None:
        """Have another master give it again; one that failed too often dies there, when it has failed once more."""
        lane = checkpoint.key.lane
        topic = retry_topic_for(lane.group, lane.topic, self._settings.now.makes_retry_topics_v2)
        draft = retry_draft(message, checkpoint, topic, self._store.store_host)
        await escape.send(draft, found_by=origin_of(lane.group, lane.topic))

    def _is_given_up(self, checkpoint: Checkpoint, message: StoredMessage) -> bool:
        """It failed once more than the group retries. RocketMQ's proxy sorts such messages out when it pops them."""
        config = self._groups.get(checkpoint.key.lane.group)
        if config is None or checkpoint.is_suspended:
            return False
        return message.reconsume_times >= config.retry_max_times

    # Before a start and after

    async def _catch_up(self) -> None:
        """Write checkpoints once more that are far behind the end of their queue."""
        for queue_id, out in list(self._out.items()):
            old = self._fallen_behind(queue_id, out)
            for at in range(0, len(old), _SLICE_COUNT):
                if not self._write_again([out[key] for key in old[at : at + _SLICE_COUNT] if key in out]):
                    return
                await asyncio.sleep(0)

    def _fallen_behind(self, queue_id: int, out: dict[CheckpointKey, Checkpoint]) -> list[CheckpointKey]:
        queue = self._store.queue(QueueKey(self._log.topic, queue_id))
        end = queue.next_offset if queue is not None else 0
        limit = end - max(_BEHIND_MIN, _BEHIND_FACTOR * len(out))
        return [each.key for each in takewhile(lambda each: each.revive_offset < limit, out.values())]

    def _write_again(self, checkpoints: Sequence[Checkpoint]) -> bool:
        """Returns false if the store takes nothing now."""
        if not checkpoints:
            return True
        now_ms = self._clock.now_ms()
        for checkpoint in checkpoints:
            checkpoint.narrow()
        try:
            appended = self._intake.append_own([self._log.checkpoint(each, now_ms) for each in checkpoints])
        except Refusal as refusal:
            log.debug("checkpoints not written again problem=%s", refusal.remark)
            return False
        for checkpoint, revive_offset in zip(checkpoints, appended.queue_offsets, strict=True):
            checkpoint.revive_offset = revive_offset
            out = self._out[checkpoint.revive_queue_id]
            del out[checkpoint.key]
            out[checkpoint.key] = checkpoint  # in the order of the records
        return True

    def note_settled(self) -> None:
        """Let the group's offset follow: a start need not read what is settled."""
        for queue_id in range(self._queue_count):
            queue = self._store.queue(QueueKey(self._log.topic, queue_id))
            if queue is None:
                continue
            first = next(iter(self._out.get(queue_id, {}).values()), None)
            settled = (queue.next_offset if first is None else first.revive_offset) - 1
            if settled >= 0 and settled != self._offsets.get(REVIVE_GROUP, self._log.topic, queue_id):
                self._offsets.put(REVIVE_GROUP, self._log.topic, queue_id, settled)

    async def load(self) -> None:
        """Read back what is out. Offsets of groups follow what was popped since their file was written."""
        self.forget()
        saved_ms = self._offsets.written_ms
        for key in [key for key in self._store.queue_keys if key.topic == self._log.topic]:
            self._queue_count = max(self._queue_count, key.queue_id + 1)
            settled = self._offsets.get(REVIVE_GROUP, key.topic, key.queue_id)
            lane = Lane("", key.topic, key.queue_id)
            for slices in self._store.walk(key, 0 if settled is None else settled + 1, count_max=_READ_COUNT):
                for view in slices.views:
                    with self._store.mishaps.passing_over(_TASK, partial(_name_of, lane, slices.next_offset)):
                        self._take_in(decode(view), saved_ms)
                await asyncio.sleep(0)
        if self.out_count:
            log.info("popped messages are out checkpoints=%d", self.out_count)

    def _take_in(self, record: StoredMessage, saved_ms: int) -> None:
        if record.tags == CHECKPOINT_TAG:
            checkpoint = read_checkpoint(record)
            if checkpoint is not None and checkpoint.distances:
                known = self._find(record.queue_id, checkpoint.key)
                if known is not None:
                    self._drop(known)  # the same pop, written once more
                self._add(checkpoint)
                if record.stored_at >= saved_ms:
                    self._follow(checkpoint)
        elif record.tags in (ACK_TAG, BATCH_ACK_TAG):
            key, offsets = read_ack(record)
            acked = self._find(record.queue_id, key)
            if acked is not None and self._has_successor(record):
                self._settle(acked, offsets)

    def _has_successor(self, record: StoredMessage) -> bool:
        """Whether what an acknowledgement was stored with is there. They lie in one segment, and expire together."""
        successor = read_successor(record)
        if successor is None:
            return True
        key, offset, unique_id = successor
        found = [decode(view) for view in self._store.read(key, offset, 1).views]
        return any(each.queue_offset == offset and (each.unique_id or "") == unique_id for each in found)

    def _follow(self, checkpoint: Checkpoint) -> None:
        """The group's offset was not written any more: what its checkpoint has is not to be popped twice.

        Never beyond the end of the queue, whatever the record says: what is stored there later would be jumped over.
        """
        group, topic, queue_id = checkpoint.key.lane
        offset = min(checkpoint.end_offset, self._store.max_offset(QueueKey(topic, queue_id)))
        if (self._offsets.get(group, topic, queue_id) or 0) < offset:
            self._offsets.put(group, topic, queue_id, offset)


def _name_of(lane: Lane, offset: int) -> str:
    """What is passed over, for the log."""
    return f"{lane.topic} queue={lane.queue_id} offset={offset} group={lane.group}"
