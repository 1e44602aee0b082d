"""Which queue, and where in it. Three positions that never mix; mypy sees the first two."""

from dataclasses import dataclass
from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)  # a byte in the commit log
QueueOffset = NewType("QueueOffset", int)  # an entry in a consume queue
# The third, `position`, is a byte in some buffer and a plain int.


@dataclass(frozen=True, slots=True, order=True)
class QueueKey:
    """One queue of a topic within one broker."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic anywhere in a cluster, in the order by which every Java client sorts before sharing."""

    topic: str
    broker_name: str
    queue_id: int
