"""A message as a consumer gets it, with the three verdicts on it.

Verdicts are plain calls: they say what is to happen and return. What must go over the wire to make it so is done by the
consumer, in its own time; a message counts as done only then, so a crash in between delivers it again.

Most handlers look at the body and little else, so a message is its body, its offset and the place of its record in the
answer it came with; the rest is decoded when somebody asks for it. The price: the answer, at most a pull's worth, lives
as long as one of its messages does.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, overload

from bolide.client.consuming.replies import Replies, Replying, reply_to
from bolide.client.sending.durations import delay_s_of
from bolide.client.serializers import JSON, Serializer, value_of
from bolide.errors import ClientError
from bolide.kernel.layout import RecordRow
from bolide.model import properties as names
from bolide.model.message import KEY_SEPARATOR, Message, StoredMessage, body_text
from bolide.model.queue import MessageQueue
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.properties import decode_properties
from bolide.protocol.records import decode_record

# Where a record of `kernel.cut_records` (V1, IPv4) has what is read without the rest of it.
_BORN_AT, _STORED_AT, _FIXED_SIZE = 40, 56, 88


class Verdict(Enum):
    """What the user said of a message."""

    ACK = "ack"
    NACK = "nack"
    DEAD = "dead letter"


_ACK = Verdict.ACK
T = TypeVar("T")


class Settled:
    """What a verdict returns: nothing that could be awaited. Type checkers say so; who has none hears it here."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<settled>"

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            raise ClientError("a verdict is said at once and told later, there is nothing to await: leave `await` out")


SETTLED = Settled()


Decide = Callable[["Received", Verdict, float | None, str | None], None]


class Home(Protocol):
    """The queue a message was read from."""

    queue: MessageQueue
    is_dropped: bool
    is_paused: bool

    @property
    def decide(self) -> Decide: ...

    @property
    def replier(self) -> Replies | None: ...

    @property
    def serializer(self) -> Serializer: ...


class Received:
    """One message, delivered. `queue` is where it was read; `topic` is where it was sent, also for a retry."""

    __slots__ = (
        "_position",
        "_properties",
        "_source",
        "_stored",
        "body",
        "home",
        "local_retry_count",
        "queue_offset",
        "verdict",
    )

    def __init__(self, home: Home, row: RecordRow, source: bytes) -> None:
        """`source` is the answer that holds the record of `row`."""
        self.home = home
        self._position, self.queue_offset, self.body = row
        self._source = source
        self._stored: StoredMessage | None = None
        self._properties: Mapping[str, str] | None = None
        self.verdict: Verdict | None = None
        self.local_retry_count = 0

    @classmethod
    def of(cls, stored: StoredMessage, home: Home) -> "Received":
        """A message that was decoded already."""
        message = cls(home, (0, stored.queue_offset, stored.body), b"")
        message._stored, message._properties = stored, stored.properties
        return message

    @property
    def stored(self) -> StoredMessage:
        """All that its record says."""
        if self._stored is None:
            self._stored = decode_record(self._source, self._position)
        return self._stored

    def __repr__(self) -> str:
        queue = self.queue
        place = f"{queue.broker_name}:{queue.queue_id}@{self.queue_offset}"
        tags = f" [{self.tags}]" if self.tags else ""
        again = f" attempt {self.attempt}" if self.attempt > 1 else ""
        settled = f" {self.verdict.value}" if self.verdict else ""
        return f"<Received {self.topic}{tags} {body_text(self.body)} {place} {self.msg_id}{again}{settled}>"

    # What it is

    @property
    def queue(self) -> MessageQueue:
        return self.home.queue

    @property
    def topic(self) -> str:
        stored = self.stored
        return stored.properties.get(names.RETRY_TOPIC, stored.topic) if self.is_retry else stored.topic

    @property
    def is_retry(self) -> bool:
        """It failed before and comes again by the group's retry topic."""
        return self.stored.topic.startswith(RETRY_PREFIX)

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(names.KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def properties(self) -> Mapping[str, str]:
        if self._properties is None:
            topic_at = self._position + _FIXED_SIZE + len(self.body)
            text_at = topic_at + 1 + self._source[topic_at] + 2
            size = int.from_bytes(self._source[text_at - 2 : text_at], "big")
            self._properties = decode_properties(self._source[text_at : text_at + size])
        return self._properties

    @property
    def flag(self) -> int:
        return self.stored.flag

    @property
    def msg_id(self) -> str:
        """The producer's id, which survives retries; the broker's where there is none."""
        return self.properties.get(names.UNIQUE_KEY) or self.stored.message_id

    @property
    def offset_id(self) -> str:
        """The broker's id: where this record lies."""
        return self.stored.offset_id

    @property
    def born_at(self) -> int:
        """When it was sent, in milliseconds of the epoch."""
        return self._number(_BORN_AT) if self._stored is None else self._stored.born_at

    @property
    def stored_at(self) -> int:
        """When the broker stored it, in milliseconds of the epoch."""
        return self._number(_STORED_AT) if self._stored is None else self._stored.stored_at

    def _number(self, place: int) -> int:
        at = self._position + place
        return int.from_bytes(self._source[at : at + 8], "big", signed=True)

    @property
    def attempt(self) -> int:
        """1 at the first delivery, one more at each retry."""
        return 1 + self.stored.reconsume_times + self.local_retry_count

    @property
    def retry_times(self) -> int:
        """How often the broker gave it again."""
        return self.stored.reconsume_times

    # Its body as a value

    @overload
    def json(self, kind: type[T]) -> T: ...

    @overload
    def json(self, kind: Any = Any) -> Any: ...

    def json(self, kind: Any = Any) -> Any:
        """The body read as JSON, of this type if one is given: dataclasses and msgspec's are made and checked."""
        return value_of(self.body, kind, JSON, f"message {self.msg_id}")

    @overload
    def value(self, kind: type[T]) -> T: ...

    @overload
    def value(self, kind: Any = Any) -> Any: ...

    def value(self, kind: Any = Any) -> Any:
        """The same by the consumer's serializer, which is JSON unless it was made with another."""
        return value_of(self.body, kind, self.home.serializer, f"message {self.msg_id}")

    # Answering it

    @property
    def is_request(self) -> bool:
        """Anyone who sent it waits for a reply."""
        return names.REPLY_TO_CLIENT in self.properties and names.CORRELATION_ID in self.properties

    def reply(
        self,
        body: bytes | Message,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Replying:
        """Send a reply to anyone who sent this request. Goes on at once; await what it returns, or ask its `result()`,
        to learn whether the requester has it. It is no verdict: settle the message as any other.
        """
        message = reply_to(self.properties, body, tags=tags, keys=keys, more=properties)
        replier = self.home.replier
        if replier is None:
            raise ClientError("a message that was pulled by hand, or given by an administrator, cannot be replied to")
        return replier.send(message, self.queue.broker_name)

    # What becomes of it

    def ack(self) -> "Settled":
        """Done; it does not come again. Nothing is awaited: it is told in the consumer's own time."""
        if self.verdict is None:  # nearly every message comes here: no further call than is needed
            self.verdict = _ACK
            self.home.decide(self, _ACK, None, None)
            return SETTLED
        return self._decide(_ACK, None, None)

    def nack(self, delay: float | timedelta | None = None, reason: str | None = None) -> "Settled":
        """Not done: deliver it again, after `delay` seconds or as the broker's retry plan says.

        A Bolide broker keeps to the delay; RocketMQ's takes the first of its levels that is not shorter (1 s to 2 h).
        `reason` is kept if this was the last attempt.
        """
        return self._decide(Verdict.NACK, None if delay is None else delay_s_of(delay), reason)

    def dead_letter(self, reason: str | None = None) -> "Settled":
        """Cannot be done: move it to the group's dead letters, where people look; `reason` goes with it."""
        return self._decide(Verdict.DEAD, None, reason)

    def _decide(self, verdict: Verdict, delay_s: float | None, reason: str | None) -> "Settled":
        if self.verdict is not None:
            raise ClientError(f"message {self.msg_id} has its verdict already: {self.verdict.value}")
        self.verdict = verdict
        self.home.decide(self, verdict, delay_s, reason)
        return SETTLED
