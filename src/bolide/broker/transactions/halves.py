"""What a half message is, and what it becomes: plain functions on properties and records.

A half message lies in one queue of a topic that no consumer reads, with its real topic and queue in two properties. It
never changes there. A commit stores it again where it belongs, without those two and with the offset of its half; being
asked about stores it again at the end of the half queue, with one more check counted; being given up stores it again in
the discard topic. What its old place stands for is noted elsewhere (`ended.py`, `operations.py`).
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from bolide import kernel
from bolide.broker.later.routing import Destination
from bolide.errors import CorruptRecord
from bolide.kernel.layout import RECORD_TAIL
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.names import topic_problem
from bolide.model.queue import QueueKey
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC
from bolide.protocol import sysflags
from bolide.protocol.properties import decode_properties, encode_properties
from bolide.store.record import Draft

HALF_QUEUE_ID = 0
HALVES = QueueKey(HALF_TOPIC, HALF_QUEUE_ID)
CHECK_GROUP = "CID_RMQ_SYS_TRANS"  # its progress is how far half and op queue are settled

_PLACE = (b"REAL_TOPIC\x01", b"REAL_QID\x01")
_HEAD = struct.Struct(">iiqqiq")  # from byte 12 on: queue id, flag, queue offset, physical offset, system flag, born
_RECORD_SIZE_MIN = 91
_COPY_NAMES = (names.PREPARED_QUEUE_OFFSET.encode(), names.TRANSACTION_CHECK_TIMES.encode())


def is_half(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a send is the first half of a transaction.

    Clients before 4.6.1 leave the mark on a committed message that they send back for a retry.
    """
    if properties.get(names.TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and properties.get(names.DELAY, "0") not in ("0", "-1"))


def prepared(topic: str, queue_id: int, properties: Mapping[str, str], unique_id: str) -> Destination:
    """Where a half message waits, and what it says of the place where it belongs."""
    real = {names.TRANSACTION_ID: unique_id, names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
    return Destination(HALF_TOPIC, HALF_QUEUE_ID, {**properties, **real})


class Half(NamedTuple):
    """A record of the half queue, not decoded further than a commit needs."""

    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int
    body: memoryview
    encoded_properties: bytes
    properties: dict[str, str]


class Trace(NamedTuple):
    """What tells a record of the half queue from others, without its body."""

    queue_offset: int
    born_ms: int
    encoded_properties: bytes


def read_trace(record: memoryview) -> Trace:
    """For many records at once: the body is not checked, and properties are for anyone who needs them."""
    if len(record) < _RECORD_SIZE_MIN:
        raise CorruptRecord(f"{len(record)} bytes of the log are no half message")
    _, _, queue_offset, _, sys_flag, born_ms = _HEAD.unpack_from(record, 12)
    body_at = _tail_at(sys_flag) + RECORD_TAIL.size
    topic_at = body_at + int.from_bytes(record[body_at - 4 : body_at], "big")
    if topic_at >= len(record):
        raise CorruptRecord(f"the half message with queue offset {queue_offset} ends in its body")
    return Trace(queue_offset, born_ms, bytes(record[topic_at + 1 + record[topic_at] + 2 :]))


def may_be_copy(trace: Trace) -> bool:
    """False if it is none for sure; cheap."""
    return any(name in trace.encoded_properties for name in _COPY_NAMES)


def _tail_at(sys_flag: int) -> int:
    store_ms_at = 48 + (20 if sys_flag & sysflags.BORN_HOST_IPV6 else 8)
    return store_ms_at + 8 + (20 if sys_flag & sysflags.STORE_HOST_IPV6 else 8)


def read_half(record: memoryview) -> Half | None:
    """The half message in a whole record of the log; None if it is another topic's. Raises CorruptRecord."""
    _, flag, queue_offset, physical_offset, sys_flag, born_ms = _HEAD.unpack_from(record, 12)
    store_ms_at = 48 + (20 if sys_flag & sysflags.BORN_HOST_IPV6 else 8)
    tail_at = _tail_at(sys_flag)
    reconsume_times, _, body_size = RECORD_TAIL.unpack_from(record, tail_at)
    body_at = tail_at + RECORD_TAIL.size
    topic_at = body_at + body_size + 1
    properties_at = topic_at + len(HALF_TOPIC) + 2
    if record[topic_at : properties_at - 2] != HALF_TOPIC.encode() or record[topic_at - 1] != len(HALF_TOPIC):
        return None
    body = record[body_at : body_at + body_size]
    if kernel.body_crc(body) != int.from_bytes(record[8:12], "big"):
        raise CorruptRecord(f"the body of the half message at {physical_offset} is not what was stored")
    encoded = bytes(record[properties_at:])
    return Half(
        queue_offset,
        physical_offset,
        flag,
        sys_flag,
        born_ms,
        bytes(record[48:store_ms_at]),
        reconsume_times,
        body,
        encoded,
        decode_properties(encoded),
    )


def real_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Topic and queue the message is for; None where it does not say, or names what cannot be a topic."""
    topic, queue_id = properties.get(names.REAL_TOPIC, ""), properties.get(names.REAL_QUEUE_ID, "")
    is_place = topic_problem(topic) is None and queue_id.isdecimal() and len(queue_id) < 10
    return (topic, int(queue_id)) if is_place else None


def committed(half: Half, destination: Destination) -> Draft:
    """The message as its consumers get it, or as it has to wait; then it says where it belongs once more."""
    is_there = destination.properties is half.properties
    return Draft(
        destination.topic,
        destination.queue_id,
        half.body,
        without_place(half.encoded_properties) if is_there else encode_properties(destination.properties),
        half.flag,
        sysflags.with_transaction(half.sys_flag, sysflags.COMMITTED),
        half.born_ms,
        half.born_host,
        half.reconsume_times,
        half.physical_offset,
    )


def again(half: StoredMessage, **changes: str) -> Draft:
    """A copy for the end of the half queue, with some properties changed."""
    return _copy(half, HALF_TOPIC, {**half.properties, **changes})


def discarded(half: StoredMessage) -> Draft:
    """A copy for the topic of those that were given up."""
    return _copy(half, CHECK_EXHAUSTED_TOPIC, half.properties)


def prepared_again(half: StoredMessage) -> Draft:
    """A copy as its producer sent it, for another broker; raises CorruptRecord where it does not say for what topic."""
    place = real_place(half.properties)
    if place is None:
        raise CorruptRecord(f"the half message with queue offset {half.queue_offset} names no topic")
    return _copy(half, place[0], half.properties, place[1])


def _copy(half: StoredMessage, topic: str, properties: Mapping[str, str], queue_id: int = HALF_QUEUE_ID) -> Draft:
    return Draft(
        topic,
        queue_id,
        half.body,
        encode_properties(properties),
        half.flag,
        sysflags.with_transaction(half.sys_flag, 0),
        half.born_at,
        half.born_host.packed(),
        half.reconsume_times,
    )


def check_count(properties: Mapping[str, str]) -> int:
    """How often somebody was asked about it; what is no number counts as Java counts it."""
    text = properties.get(names.TRANSACTION_CHECK_TIMES, "0")
    try:
        return int(text)
    except ValueError:
        return -1


def immunity_ms(properties: Mapping[str, str], default_ms: int) -> int | None:
    """How long the message's own wish keeps it from being asked about; None without one."""
    text = properties.get(names.CHECK_IMMUNITY_S)
    if not text:
        return None
    is_number = text.isdecimal() and len(text) < 10
    return max(int(text) * 1000, default_ms) if is_number else default_ms


def without_place(properties: bytes) -> bytes:
    """The properties of a message that has come where it belongs: RocketMQ 5.5 stores no more where that is."""
    return b"\x02".join(pair for pair in properties.split(b"\x02") if not pair.startswith(_PLACE))
