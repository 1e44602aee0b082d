"""Dead letters: messages a group gave up, kept in %DLQ%group until somebody looks or the log is cleaned.

Reading leaves no trace: nothing is consumed and no offset moves. To send one again is to send its content again, to the
topic it came from, with all that its sender said and none of what brokers and consumers added on its way; it keeps its
id, and says where it was (BOLIDE_RESENT_FROM, BOLIDE_RESENT_ID). Every group of that topic gets it then. Sent to the
retry topic of its own group instead, only that group does.

The dead letter itself stays: logs forget by age. So a second run sends again what the first one sent, unless times,
topics or ids say otherwise.

Consumer and producer are imported when there is something to read or to send: every command has an administrator.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from bolide.admin.walking import TOOLS_GROUP, walk_queue
from bolide.client.config import ClientConfig
from bolide.client.instance import NO_ROUTE
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError
from bolide.model import properties as names
from bolide.model.queue import MessageQueue
from bolide.model.topics import DEAD_LETTER_PREFIX, dead_letter_topic, retry_topic

if TYPE_CHECKING:
    from bolide.client.pulling.puller import PullConsumer
    from bolide.client.sending.producer import Producer
    from bolide.client.sending.receipt import Receipt
    from bolide.model.message import Message, StoredMessage

RESENDING_GROUP = "bolide-dlq"
RESENT_FROM = "BOLIDE_RESENT_FROM"
RESENT_ID = "BOLIDE_RESENT_ID"
EVER_MS = (1 << 63) - 1
_WINDOW_COUNT = 256  # messages under way at once
_FAILURES_SHOWN_MAX = 100
_TURN_S = 0.25
# What the sender itself said under a name of RocketMQ's; everything else of that kind was added on the way.
_SENDERS_NAMES = frozenset((names.KEYS, names.TAGS, names.SHARDING_KEY, names.UNIQUE_KEY, names.INSTANCE_ID))
_ADDED_NAMES = (names.RESERVED_NAMES | {names.TRACE_CONTEXT, RESENT_FROM, RESENT_ID}) - _SENDERS_NAMES


class DeadGroupRow(msgspec.Struct, frozen=True):
    """A group with dead letters; `last_ms` is when the newest died."""

    group: str
    count: int
    last_ms: int


class DeadLetter(msgspec.Struct, frozen=True):
    """One message that its group gave up."""

    group: str
    queue: MessageQueue
    message: "StoredMessage"

    @property
    def id(self) -> str:
        """The id its producer gave, under which it is found everywhere."""
        return self.message.message_id

    @property
    def origin_topic(self) -> str:
        """Where it was sent to; empty where nobody wrote it down."""
        properties = self.message.properties
        return properties.get(names.DEAD_LETTER_ORIGIN_TOPIC) or properties.get(names.RETRY_TOPIC, "")

    @property
    def reason(self) -> str:
        """Why the consumer gave it up, or what it failed with last; empty where it was not told."""
        return self.message.properties.get(names.DEAD_LETTER_REASON, "")

    @property
    def failure_count(self) -> int:
        """How often it failed."""
        return self.message.reconsume_times

    @property
    def died_ms(self) -> int:
        return self.message.stored_at


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant; all, if nothing is said. `ids` are producers' or brokers'."""

    ids: Collection[str] = ()
    topic: str | None = None
    reason: str | None = None
    since_ms: int = 0
    until_ms: int = EVER_MS
    key: str | None = None
    text: str | None = None  # in the body or in a property

    def wants(self, letter: DeadLetter) -> bool:
        """Whether all that was asked for holds of a letter."""
        message = letter.message
        return (
            (not self.ids or letter.id in self.ids or message.offset_id in self.ids)
            and (self.topic is None or letter.origin_topic == self.topic)
            and (self.reason is None or self.reason.lower() in letter.reason.lower())
            and self.since_ms <= letter.died_ms < self.until_ms
            and (self.key is None or self.key in message.keys)
            and (self.text is None or _holds(message, self.text))
        )


def _holds(message: "StoredMessage", text: str) -> bool:
    return text.encode() in message.body or any(text in value for value in message.properties.values())


class Resent(msgspec.Struct):
    """How a resending went. In a dry run `sent_count` is how many would be sent."""

    examined_count: int = 0
    sent_count: int = 0
    failed_count: int = 0
    failures: dict[str, str] = msgspec.field(default_factory=dict)  # id → why, the first hundred

    def fail(self, letter_id: str, problem: object) -> None:
        self.failed_count += 1
        if len(self.failures) < _FAILURES_SHOWN_MAX:
            self.failures[letter_id] = str(problem)


def group_of(topic: str) -> str | None:
    """The group whose dead letters a topic holds; None if it is no such topic."""
    return topic.removeprefix(DEAD_LETTER_PREFIX) if topic.startswith(DEAD_LETTER_PREFIX) else None


async def walk(consumer: "PullConsumer", group: str, wanted: DeadLetterFilter) -> AsyncIterator[DeadLetter]:
    """The dead letters of a group, queue by queue, oldest first; up to those that are there now."""
    topic = dead_letter_topic(group)
    for queue in await _queues(consumer, topic):
        start = await consumer.offset_at(queue, wanted.since_ms) if wanted.since_ms > 0 else 0
        async for message in walk_queue(consumer, queue, start):
            letter = DeadLetter(group, queue, message)
            if wanted.wants(letter):
                yield letter


async def _queues(consumer: "PullConsumer", topic: str) -> list[MessageQueue]:
    try:
        return await consumer.queues(topic)
    except ClientError as problem:
        if problem.code != NO_ROUTE:
            raise
        return []  # the topic comes with the first dead letter


def reborn(letter: DeadLetter, *, is_for_group: bool) -> "Message":
    """The message as it is sent again; raises ClientError where nobody knows its topic."""
    from bolide.model.message import Message

    origin = letter.origin_topic
    if not origin:
        raise ClientError(f"dead letter {letter.id} does not say which topic it came from")
    stored = letter.message
    properties = {name: value for name, value in stored.properties.items() if name not in _ADDED_NAMES}
    properties |= {RESENT_FROM: stored.topic, RESENT_ID: stored.offset_id}
    if is_for_group:
        properties[names.RETRY_TOPIC] = origin
    topic = retry_topic(letter.group) if is_for_group else origin
    return Message(topic, stored.body, properties=properties, flag=stored.flag)


async def resend(
    letters: AsyncIterator[DeadLetter],
    producer: "Producer",
    *,
    is_dry: bool,
    is_for_group: bool,
    on_progress: Callable[[Resent], None],
    rate_max: float | None = None,
    on_sent: Callable[[str], None] = lambda _: None,
) -> Resent:
    """Send them all again, some hundred at a time; one that cannot be sent stops nothing.

    With `rate_max` no more than so many a second; `on_sent` hears the broker's id of each letter that was.
    """
    told = Resent()
    under_way: dict[str, asyncio.Future[Receipt]] = {}
    window = _WINDOW_COUNT if rate_max is None else max(1, min(_WINDOW_COUNT, int(rate_max * _TURN_S)))
    async for letter in letters:
        told.examined_count += 1
        try:
            message = reborn(letter, is_for_group=is_for_group)
            if is_dry:
                told.sent_count += 1
            else:
                shard = message.properties.get(names.SHARDING_KEY)
                under_way[letter.message.offset_id] = await producer.submit(message, shard=shard)
        except BolideError as problem:
            told.fail(letter.id, problem)
        if len(under_way) >= window:
            await _settle(under_way, told, on_sent)
            on_progress(told)
            if rate_max is not None:
                await asyncio.sleep(window / rate_max)
    await _settle(under_way, told, on_sent)
    on_progress(told)
    return told


async def _settle(
    under_way: dict[str, "asyncio.Future[Receipt]"], told: Resent, on_sent: Callable[[str], None]
) -> None:
    results = await asyncio.gather(*under_way.values(), return_exceptions=True)
    for letter_id, result in zip(under_way, results, strict=True):
        if isinstance(result, BolideError):
            told.fail(letter_id, result)
        elif isinstance(result, BaseException):
            raise result
        else:
            told.sent_count += 1
            on_sent(letter_id)
    under_way.clear()


def as_row(letter: DeadLetter) -> Mapping[str, object]:
    """A dead letter as JSON shows it, with its whole content; bytes that are no text as hex."""
    stored = letter.message
    try:
        body: dict[str, object] = {"body": stored.body.decode()}
    except UnicodeDecodeError:
        body = {"body_hex": stored.body.hex()}
    return {
        "group": letter.group,
        "id": letter.id,
        "topic": letter.origin_topic,
        "reason": letter.reason,
        "failures": letter.failure_count,
        "born_at": stored.born_at,
        "died_at": letter.died_ms,
        "tags": stored.tags,
        "keys": stored.keys,
        **body,
        "properties": dict(stored.properties),
        "broker": letter.queue.broker_name,
        "queue": letter.queue.queue_id,
        "offset": stored.queue_offset,
        "offset_id": stored.offset_id,
    }


class DeadLetterCalls(ABC):
    """The administrator's operations on dead letters."""

    _config: ClientConfig
    _clock: Clock

    @abstractmethod
    async def topics(self, *, with_system: bool = False) -> list[str]:
        """The names of all topics."""

    @abstractmethod
    async def _spans(self, topic: str) -> list[tuple[int, int, int]]:
        """For each queue of a topic its first offset, its end, and when something was last stored."""

    async def dead_letter_groups(self) -> list[DeadGroupRow]:
        """The groups that have dead letters, with how many."""
        rows = []
        for topic in await self.topics(with_system=True):
            group = group_of(topic)
            if group is None:
                continue
            spans = await self._spans(topic)
            count = sum(end - first for first, end, _ in spans)
            if count:
                rows.append(DeadGroupRow(group, count, max(last_ms for _, _, last_ms in spans)))
        return rows

    async def dead_letters(self, group: str, wanted: DeadLetterFilter | None = None) -> AsyncIterator[DeadLetter]:
        """The dead letters of a group that are there now, oldest first; nothing is consumed by looking."""
        async with self.puller(TOOLS_GROUP) as consumer:
            async for letter in walk(consumer, group, wanted or DeadLetterFilter()):
                yield letter

    async def resend_dead_letters(
        self,
        group: str,
        wanted: DeadLetterFilter | None = None,
        *,
        is_dry: bool = False,
        is_for_group: bool = False,
        on_progress: Callable[[Resent], None] = lambda _: None,
        rate_max: float | None = None,
        on_sent: Callable[[str], None] = lambda _: None,
    ) -> Resent:
        """Send dead letters to the topics they came from, or with `is_for_group` to their own group alone."""
        async with self.producer(RESENDING_GROUP) as producer:
            letters = self.dead_letters(group, wanted)
            return await resend(
                letters,
                producer,
                is_dry=is_dry,
                is_for_group=is_for_group,
                on_progress=on_progress,
                rate_max=rate_max,
                on_sent=on_sent,
            )

    def puller(self, group: str) -> "PullConsumer":
        """Reads queues of the same cluster in the same name; used with `async with`."""
        from bolide.client.pulling.puller import PullConsumer

        return PullConsumer(group, **self._same())

    def producer(self, group: str) -> "Producer":
        """Sends to the same cluster in the same name; used with `async with`."""
        from bolide.client.sending.producer import Producer

        return Producer(group, **self._same())

    def _same(self) -> dict[str, Any]:
        """What a client of the same cluster is made with."""
        config = self._config
        return {
            "namesrv": ";".join(config.namesrv),
            "credentials": config.credentials,
            "connect": config.connect,
            "clock": self._clock,
        }
