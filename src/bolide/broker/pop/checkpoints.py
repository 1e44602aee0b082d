"""The records of the revive topic: what was given away and until when, and what was acknowledged of it.

Both are messages with a tag and a JSON body, as RocketMQ 5.5.0 writes them, so either broker can go on with what the
other has begun. Java stores them through its timer, due when the messages come back; here they are stored at once and
only carry that time along (TIMER_DELIVER_MS), for Java's reader goes by it.

    tag    body                                             stands for
    ck     {"so":100,"d":[0,1,4],"pt":…,"it":60000,…}       offsets 100, 101 and 104, hidden for a minute from pt on
    ack    {"so":100,"ao":101,"pt":…,…}                     101 of them is done
    bAck   {"so":100,"ao":-1,"aol":[100,104],"pt":…,…}      these are

Group, topic, queue, first offset and time of the pop name a checkpoint; acknowledgements repeat them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from bolide.broker.pop.lanes import Lane
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.body import Body, always, read
from bolide.protocol.properties import decode_properties, encode_properties
from bolide.store.record import Draft
from bolide.store.store import Store

CHECKPOINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
# Java has a checkpoint delivered this much before the acknowledgements, which share its due time.
_AHEAD_MS = 1_000
_NO_OFFSET = -1
_NOTHING: dict[str, str] = {}
SUCCESSOR = "BOLIDE_SUCCESSOR"  # of an acknowledgement: what is stored with it, queue:offset:topic:id
_COUNT_MAX = 127  # what a checkpoint of Java can say; nobody pops more than 32


class CheckpointKey(NamedTuple):
    """What names a checkpoint."""

    lane: Lane
    start_offset: int
    popped_ms: int


class CheckpointBody(Body, frozen=True, kw_only=True, gc=False):
    """A checkpoint's JSON. Old ones have no distances: theirs are 0, 1, 2 … as many as `n` says."""

    rocketmq_name = "PopCheckPoint"

    bits: int = always(0, name="bm")
    broker_name: str = always("", name="bn")
    group: str = always("", name="c")
    distances: list[int] | None = always([], name="d")
    invisible_ms: int = always(0, name="it")
    count: int = always(0, name="n")
    popped_ms: int = always(0, name="pt")
    queue_id: int = always(0, name="q")
    revive_time: int = always(0)
    revive_offset: int = always(0, name="ro")
    start_offset: int = always(0, name="so")
    is_suspended: bool = always(False, name="sp")
    topic: str = always("", name="t")


class AckBody(Body, frozen=True, kw_only=True, gc=False):
    """An acknowledgement's JSON; of several with `offsets`, of one with `offset`."""

    rocketmq_name = "BatchAckMsg"

    offset: int = always(_NO_OFFSET, name="ao")
    offsets: list[int] | None = msgspec.field(default=None, name="aol")
    broker_name: str = always("", name="bn")
    group: str = always("", name="c")
    popped_ms: int = always(0, name="pt")
    queue_id: int = always(0, name="q")
    start_offset: int = always(0, name="so")
    topic: str = always("", name="t")


@dataclass(slots=True, eq=False)
class Checkpoint:
    """Messages that are out: until they are due, or until all are acknowledged. Bit i of `left` is still out.

    `origin` is the address they were popped from, empty where nobody knows it.
    """

    key: CheckpointKey
    distances: tuple[int, ...]
    invisible_ms: int
    revive_queue_id: int
    revive_offset: int = _NO_OFFSET
    is_suspended: bool = False
    origin: str = ""
    left: int = field(default=0, init=False)
    due_ms: int = field(default=0, init=False)
    failure_count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.left = (1 << len(self.distances)) - 1
        self.due_ms = self.key.popped_ms + self.invisible_ms

    @property
    def end_offset(self) -> int:
        """The queue offset after the last message."""
        return self.key.start_offset + (self.distances[-1] + 1 if self.distances else 0)

    def has_out(self, offset: int) -> bool:
        """Whether the message at an offset belongs to it and is not settled."""
        return bool(self._bit(offset) & self.left)

    def settle(self, offset: int) -> bool:
        """The message at an offset is not out any more; false if it was not."""
        bit = self._bit(offset)
        if not bit & self.left:
            return False
        self.left &= ~bit
        return True

    def narrow(self) -> None:
        """Forget what is settled."""
        self.distances = tuple(distance for i, distance in enumerate(self.distances) if self.left >> i & 1)
        self.left = (1 << len(self.distances)) - 1

    def _bit(self, offset: int) -> int:
        try:
            return 1 << self.distances.index(offset - self.key.start_offset)
        except ValueError:
            return 0

    def offsets_left(self) -> list[int]:
        start = self.key.start_offset
        return [start + distance for i, distance in enumerate(self.distances) if self.left >> i & 1]


class ReviveLog:
    """Writes the records of one broker."""

    def __init__(self, topic: str, broker_name: str, store: Store) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self._store = store

    def checkpoint(self, checkpoint: Checkpoint, now_ms: int) -> Draft:
        """The record of a checkpoint."""
        (lane, start_offset, popped_ms), invisible_ms = checkpoint.key, checkpoint.invisible_ms
        body = CheckpointBody(
            broker_name=self.broker_name,
            group=lane.group,
            distances=list(checkpoint.distances),
            invisible_ms=invisible_ms,
            count=len(checkpoint.distances),
            popped_ms=popped_ms,
            queue_id=lane.queue_id,
            revive_time=popped_ms + invisible_ms,
            start_offset=start_offset,
            is_suspended=checkpoint.is_suspended,
            topic=lane.topic,
        )
        deliver_ms = popped_ms + invisible_ms - _AHEAD_MS
        unique_key = self._unique_key(checkpoint.key, start_offset, CHECKPOINT_TAG)
        return self._draft(body.encode(), CHECKPOINT_TAG, unique_key, checkpoint.revive_queue_id, deliver_ms, now_ms)

    def ack(self, checkpoint: Checkpoint, offset: int, now_ms: int, successor: Draft | None = None) -> Draft:
        """The record that says one message is done; with a successor, because that is stored with it."""
        body = self._ack_body(checkpoint, offset, None)
        return self._ack_draft(checkpoint, body, offset, ACK_TAG, now_ms, self._named(successor))

    def batch_ack(self, checkpoint: Checkpoint, offsets: Sequence[int], now_ms: int) -> Draft:
        """The record that says several are."""
        body = self._ack_body(checkpoint, _NO_OFFSET, list(offsets))
        return self._ack_draft(checkpoint, body, _NO_OFFSET, BATCH_ACK_TAG, now_ms)

    def _ack_body(self, checkpoint: Checkpoint, offset: int, offsets: list[int] | None) -> AckBody:
        lane, start_offset, popped_ms = checkpoint.key
        return AckBody(
            offset=offset,
            offsets=offsets,
            broker_name=self.broker_name,
            group=lane.group,
            popped_ms=popped_ms,
            queue_id=lane.queue_id,
            start_offset=start_offset,
            topic=lane.topic,
        )

    def _named(self, successor: Draft | None) -> dict[str, str]:
        """Where a draft will lie that is appended next, as a property."""
        if successor is None:
            return {}
        key = QueueKey(successor.topic, successor.queue_id)
        unique_id = decode_properties(successor.properties).get(names.UNIQUE_KEY, "")
        return {SUCCESSOR: f"{key.queue_id}:{self._store.next_offset(key)}:{key.topic}:{unique_id}"}

    def _ack_draft(
        self, checkpoint: Checkpoint, body: AckBody, offset: int, tag: str, now_ms: int, more: dict[str, str] = _NOTHING
    ) -> Draft:
        deliver_ms = checkpoint.key.popped_ms + checkpoint.invisible_ms
        unique_key = self._unique_key(checkpoint.key, offset, ACK_TAG)
        return self._draft(body.encode(), tag, unique_key, checkpoint.revive_queue_id, deliver_ms, now_ms, more)

    def _unique_key(self, key: CheckpointKey, offset: int, tag: str) -> str:
        lane = key.lane
        return f"{lane.topic}@{lane.queue_id}@{offset}@{lane.group}@{key.popped_ms}@{self.broker_name}@{tag}"

    def _draft(
        self,
        body: bytes,
        tag: str,
        unique_key: str,
        revive_queue_id: int,
        deliver_ms: int,
        now_ms: int,
        more: dict[str, str] = _NOTHING,
    ) -> Draft:
        properties = encode_properties(
            {names.TAGS: tag, names.UNIQUE_KEY: unique_key, names.TIMER_DELIVER_AT: str(deliver_ms), **more}
        )
        return Draft(self.topic, revive_queue_id, body, properties, 0, 0, now_ms, self._store.store_host)


def read_checkpoint(record: StoredMessage) -> Checkpoint | None:
    """The checkpoint in a record with its tag, None if it names no topic or group; raises ValueError."""
    body = read(CheckpointBody, record.body)
    if not body.topic or not body.group:
        return None
    if max(body.count, len(body.distances or ())) > _COUNT_MAX:
        raise ValueError(f"a checkpoint of {body.count} messages, at most {_COUNT_MAX} are popped at once")
    key = CheckpointKey(Lane(body.group, body.topic, body.queue_id), body.start_offset, body.popped_ms)
    distances = tuple(body.distances or range(body.count))
    return Checkpoint(
        key, distances, body.invisible_ms, record.queue_id, record.queue_offset, is_suspended=body.is_suspended
    )


def read_ack(record: StoredMessage) -> tuple[CheckpointKey, list[int]]:
    """What a record with one of the other two tags says is done, and of which checkpoint; raises ValueError."""
    body = read(AckBody, record.body)
    key = CheckpointKey(Lane(body.group, body.topic, body.queue_id), body.start_offset, body.popped_ms)
    return key, [body.offset] if body.offsets is None else body.offsets


def read_successor(record: StoredMessage) -> tuple[QueueKey, int, str] | None:
    """The message that was stored together with an acknowledgement, as its queue, offset and id; None if none was."""
    text = record.properties.get(SUCCESSOR)
    if text is None:
        return None
    queue_id, offset, topic, unique_id = text.split(":", 3)
    return QueueKey(topic, int(queue_id)), int(offset), unique_id
