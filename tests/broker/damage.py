"""Bits that flip in a store's files while a broker works on them."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from bolide.errors import CorruptRecord
from bolide.model.queue import QueueKey
from bolide.store.record import decode
from bolide.store.store import Store


def flip(store: Store, physical_offset: int, bit: int = 0) -> None:
    """Turn one bit of the log round, on disk and so in every map of it."""
    segment = store.commitlog.segments.find(physical_offset)
    assert segment is not None
    fd = os.open(segment.path, os.O_RDWR)
    try:
        at = physical_offset - segment.base
        (byte,) = os.pread(fd, 1, at)
        os.pwrite(fd, bytes([byte ^ 1 << bit]), at)
    finally:
        os.close(fd)


def place_of(store: Store, topic: str, queue_offset: int, queue_id: int = 0) -> tuple[int, int]:
    """Where a record lies, and its size."""
    queue = store.queue(QueueKey(topic, queue_id))
    assert queue is not None
    place, size, _ = queue.entry(queue_offset)
    return place, size


def flip_each(store: Store, topic: str, queue_offsets: list[int], queue_id: int = 0) -> Iterator[tuple[int, int]]:
    """Damage records, each in another byte and bit, from the first byte on, spread over all of it."""
    for number, queue_offset in enumerate(queue_offsets):
        place, size = place_of(store, topic, queue_offset, queue_id)
        at = number * size // len(queue_offsets)
        flip(store, place + at, number % 8)
        yield queue_offset, at


def readable(store: Store, is_meant: Callable[[str], bool]) -> list[bytes]:
    """The bodies that can be read in all topics that are meant: damage to a record's head is carried along."""
    bodies: list[bytes] = []
    for topic, queue_id in store.dispatch.queues:
        key, offset = QueueKey(topic, queue_id), 0
        while is_meant(topic) and offset < store.max_offset(key):
            with suppress(CorruptRecord):
                bodies += [decode(view).body for view in store.read(key, offset, 1).views]
            offset += 1
    return bodies
