"""Handlers without a cluster: `async with TestBolideBroker(broker)` calls them as messages are published."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock

from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from bolide.client.consuming.received import Received, Verdict
from bolide.client.consuming.replies import Replies
from bolide.client.sending.receipt import Receipt
from bolide.client.serializers import JSON, Serializer
from bolide.clock import SystemClock
from bolide.faststream.broker import BolideBroker
from bolide.faststream.messages import BolidePublishCommand
from bolide.faststream.producer import BolideProducer
from bolide.faststream.publisher import BolidePublisher
from bolide.faststream.subscriber import BolideSubscriber
from bolide.model import properties as names
from bolide.model.host import Host
from bolide.model.message import Message, StoredMessage
from bolide.model.queue import MessageQueue, PhysicalOffset, QueueOffset

_NOWHERE = Host("127.0.0.1", 0)
_FAKE_BROKER = "in-memory"


@dataclass(slots=True)
class _Home:
    """Where a message lies that was never stored: its verdict is its own and moves nothing."""

    queue: MessageQueue
    is_dropped: bool = False
    is_paused: bool = False
    replier: Replies | None = None
    serializer: Serializer = JSON

    def decide(self, message: Received, verdict: Verdict, delay_s: float | None, reason: str | None) -> None:
        pass


class TestBolideBroker(TestBroker, broker=BolideBroker):  # type: ignore[call-arg]  # mypy does not see its base
    """Publishes to the subscribers of this process and to nobody else; what a handler raises, `publish` raises.

    With `with_real=True` the cluster is used, and the mocks are still there. Tags, delays and retries are the cluster's
    and are left out without it: `bolide.testing.cluster()` has one in 0.1 s.
    """

    def create_publisher_fake_subscriber(
        self, broker: BolideBroker, publisher: BolidePublisher
    ) -> tuple[BolideSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if publisher.topic in subscriber.topics:
                return subscriber, True
        prefix = broker.config.prefix
        topic = publisher.topic.removeprefix(prefix)
        return broker.subscriber(topic, group=f"test-of-{topic}", persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: BolideBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, _InMemory(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: BolideBroker, *args: Any, **kwargs: Any) -> AsyncMock:
        return AsyncMock()


class _InMemory(BolideProducer):
    """Hands each message to one subscriber of every group."""

    def __init__(self, broker: BolideBroker, brokers: tuple[BolideBroker, ...]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = brokers
        self.codec = broker.config.broker_codec or self.codec
        self.serializer = broker.config.fd_config._serializer

    async def publish(self, cmd: BolidePublishCommand) -> Receipt:
        return await self._deliver(cmd, cmd.body)

    async def publish_batch(self, cmd: BolidePublishCommand) -> list[Receipt]:
        return [await self._deliver(cmd, body) for body in cmd.batch_bodies]

    async def request(self, cmd: BolidePublishCommand) -> Message:
        for subscriber in self._listening(cmd.destination):
            response = await subscriber.process_message(await self._received(cmd, cmd.body))
            answer = BolidePublishCommand.from_cmd(response.as_publish_command())
            body, properties = await self.encoded(answer, answer.body)
            return Message(cmd.destination, body, properties=properties)
        raise SubscriberNotFound(f"nobody in this process subscribes to {cmd.destination}")

    async def _deliver(self, cmd: BolidePublishCommand, body: Any) -> Receipt:
        message = await self._received(cmd, body)
        for subscriber in self._listening(cmd.destination):
            await subscriber.process_message(await self._received(cmd, body))
        return Receipt(message.queue, message.queue_offset, message.msg_id, message.offset_id)

    def _listening(self, topic: str) -> Iterator[BolideSubscriber]:
        groups: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            if topic in subscriber.topics and subscriber.group not in groups:
                groups.add(subscriber.group)
                yield subscriber

    async def _received(self, cmd: BolidePublishCommand, value: Any) -> Received:
        body, properties = await self.encoded(cmd, value)
        topic, now_ms = cmd.destination, SystemClock().now_ms()
        sent = Message(topic, body, tags=cmd.tags, keys=cmd.keys, properties=properties)
        stored = StoredMessage(
            topic=topic,
            body=body,
            queue_id=0,
            queue_offset=QueueOffset(0),
            physical_offset=PhysicalOffset(0),
            born_at=now_ms,
            born_host=_NOWHERE,
            stored_at=now_ms,
            store_host=_NOWHERE,
            properties={**sent.properties, names.UNIQUE_KEY: cmd.correlation_id or ""},
        )
        return Received.of(stored, _Home(MessageQueue(topic, _FAKE_BROKER, 0)))


def _subscribers(brokers: tuple[BolideBroker, ...]) -> Iterator[BolideSubscriber]:
    return (subscriber for broker in brokers for subscriber in broker.subscribers)
