"""A message as a consumer gets it, with the three verdicts on it.

Verdicts are plain calls: they say what is to happen and return. What must go over the wire to make it so is done by the
consumer, in its own time; a message counts as done only then, so a crash in between delivers it again.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from bolide.errors import ClientError
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue
from bolide.model.topics import RETRY_PREFIX


class Verdict(Enum):
    """What the user said of a message."""

    ACK = "ack"
    NACK = "nack"
    DEAD = "dead letter"


Decide = Callable[["Received", Verdict, float | None, str | None], None]


class Home(Protocol):
    """The queue a message was read from."""

    queue: MessageQueue
    is_dropped: bool
    is_paused: bool

    @property
    def decide(self) -> Decide: ...


class Received:
    """One message, delivered. `queue` is where it was read; `topic` is where it was sent, also for a retry."""

    __slots__ = ("home", "local_retry_count", "stored", "verdict")

    def __init__(self, stored: StoredMessage, home: Home) -> None:
        self.stored = stored
        self.home = home
        self.verdict: Verdict | None = None
        self.local_retry_count = 0

    def __repr__(self) -> str:
        queue = self.queue
        return f"<Received {self.topic} {queue.broker_name}:{queue.queue_id}@{self.queue_offset} {self.msg_id}>"

    # What it is

    @property
    def queue(self) -> MessageQueue:
        return self.home.queue

    @property
    def topic(self) -> str:
        return self.stored.properties.get(names.RETRY_TOPIC, self.stored.topic) if self.is_retry else self.stored.topic

    @property
    def is_retry(self) -> bool:
        """It failed before and comes again by the group's retry topic."""
        return self.stored.topic.startswith(RETRY_PREFIX)

    @property
    def body(self) -> bytes:
        return self.stored.body

    @property
    def tags(self) -> str | None:
        return self.stored.tags

    @property
    def keys(self) -> list[str]:
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        return self.stored.properties

    @property
    def flag(self) -> int:
        return self.stored.flag

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def msg_id(self) -> str:
        """The producer's id, which survives retries; the broker's where there is none."""
        return self.stored.message_id

    @property
    def offset_id(self) -> str:
        """The broker's id: where this record lies."""
        return self.stored.offset_id

    @property
    def born_at(self) -> int:
        """When it was sent, in milliseconds of the epoch."""
        return self.stored.born_at

    @property
    def stored_at(self) -> int:
        """When the broker stored it, in milliseconds of the epoch."""
        return self.stored.stored_at

    @property
    def attempt(self) -> int:
        """1 at the first delivery, one more at each retry."""
        return 1 + self.stored.reconsume_times + self.local_retry_count

    # What becomes of it

    def ack(self) -> None:
        """Done; it does not come again."""
        self._decide(Verdict.ACK, None, None)

    def nack(self, delay: float | None = None) -> None:
        """Not done: deliver it again, after `delay` seconds or as the broker's retry plan says."""
        self._decide(Verdict.NACK, delay, None)

    def dead_letter(self, reason: str | None = None) -> None:
        """Cannot be done: move it to the group's dead letters, where people look."""
        self._decide(Verdict.DEAD, None, reason)

    def _decide(self, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        if self.verdict is not None:
            raise ClientError(f"message {self.msg_id} has its verdict already: {self.verdict.value}")
        self.verdict = verdict
        self.home.decide(self, verdict, delay_s, reason)
