"""A broker with the gRPC port beside it, and what clients of RocketMQ 5 say."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolide.broker.broker import Broker, serve
from bolide.broker.config import read_config as read_broker_config
from bolide.clock import Clock
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.proxy import messages as m
from bolide.proxy.config import read_config
from bolide.proxy.server import Proxy, serve_beside
from bolide.testing.clusters import SMALL_FILES
from tests.proxy.peer import Peer, framed

BROKER = "broker-a"
TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Transaction": "TRANSACTION"}
BROKER_SETTINGS = {
    **SMALL_FILES,
    "brokerName": BROKER,
    "bindAddress": "127.0.0.1",
    "listenPort": "0",
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
}


@dataclass
class Serving:
    """Both, and the port."""

    broker: Broker
    proxy: Proxy
    port: int
    broker_port: int

    def add_topic(self, name: str, kind: str = "NORMAL", queues: int = 4) -> None:
        attributes = {"message.type": kind}
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, attributes=attributes)
        self.broker.state.topics.update(config)

    def add_group(self, name: str, *, is_ordered: bool = False, retries: int = 16) -> None:
        config = GroupConfig(group_name=name, consume_message_orderly=is_ordered, retry_max_times=retries)
        self.broker.state.groups.update(config)


@asynccontextmanager
async def serving(
    root: Path, clock: Clock, broker: Mapping[str, str] | None = None, **settings: str
) -> AsyncIterator[Serving]:
    """A broker and the port, with a topic of each type."""
    config = read_broker_config({**BROKER_SETTINGS, "storePathRootDir": str(root / "store"), **(broker or {})})
    given = {"listenPort": "0", "bindAddress": "127.0.0.1", **settings}
    async with (
        serve(config, clock) as (its_broker, broker_server),
        serve_beside(its_broker, read_config(given)[0], clock) as (proxy, server),
    ):
        served = Serving(its_broker, proxy, server.port, broker_server.port)
        for name, kind in TOPICS.items():
            served.add_topic(name, kind)
        yield served


def resource(name: str) -> m.Resource:
    return m.Resource(name=name)


def message(topic: str, body: bytes = b"hello", **system: Any) -> m.Message:
    """A message as a client sends it; `properties` are the user's."""
    properties = system.pop("properties", {})
    made = m.SystemProperties(
        **{"message_id": f"id-{body[:20].hex()}", "body_encoding": m.Encoding.IDENTITY, "message_type": 1, **system}
    )
    return m.Message(topic=resource(topic), body=body, user_properties=properties, system_properties=made)


async def send(peer: Peer, *messages: m.Message) -> m.SendMessageResponse:
    return await peer.call("SendMessage", m.SendMessageRequest(messages=messages), m.SendMessageResponse)


def receive_request(topic: str, group: str, **given: Any) -> m.ReceiveMessageRequest:
    request = m.ReceiveMessageRequest(
        group=resource(group),
        message_queue=m.MessageQueue(topic=resource(topic), id=given.pop("queue_id", -1), broker=m.Broker(name=BROKER)),
        filter_expression=m.FilterExpression(type=given.pop("filter_type", 1), expression=given.pop("expression", "*")),
        batch_size=given.pop("batch_size", 32),
        **given,
    )
    if not request.auto_renew and not request.HasField("invisible_duration"):
        request.invisible_duration.seconds = 30
    if not request.HasField("long_polling_timeout"):
        request.long_polling_timeout.seconds = 5
    return request


@dataclass
class Received:
    status: m.Status
    messages: list[m.Message]

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(each.body) for each in self.messages]


def read_received(answers: list[m.ReceiveMessageResponse]) -> Received:
    """Status first, the time last, messages between: what clients depend on."""
    kinds = [answer.WhichOneof("content") for answer in answers]
    assert kinds == ["status", *["message"] * (len(kinds) - 2), "delivery_timestamp"]
    return Received(answers[0].status, [answer.message for answer in answers[1:-1]])


async def receive(peer: Peer, topic: str, group: str, **given: Any) -> Received:
    request = receive_request(topic, group, **given)
    return read_received(await peer.stream("ReceiveMessage", request, m.ReceiveMessageResponse))


async def ack(peer: Peer, topic: str, group: str, *received: m.Message) -> m.AckMessageResponse:
    entries = [
        m.AckMessageEntry(
            message_id=each.system_properties.message_id, receipt_handle=each.system_properties.receipt_handle
        )
        for each in received
    ]
    request = m.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries)
    return await peer.call("AckMessage", request, m.AckMessageResponse)


def producer_settings(*topics: str) -> m.Settings:
    return m.Settings(
        client_type=m.ClientType.PRODUCER, publishing=m.Publishing(topics=[resource(name) for name in topics])
    )


def consumer_settings(group: str, *topics: str, expression: str = "*") -> m.Settings:
    wanted = m.FilterExpression(type=m.FilterType.TAG, expression=expression)
    entries = [m.SubscriptionEntry(topic=resource(name), expression=wanted) for name in topics]
    return m.Settings(
        client_type=m.ClientType.PUSH_CONSUMER,
        subscription=m.Subscription(group=resource(group), subscriptions=entries),
    )


@dataclass
class Talk:
    """An open stream of telemetry."""

    peer: Peer
    number: int

    def say(self, command: m.TelemetryCommand) -> None:
        self.peer.send(self.number, framed(command), ends=False)

    @property
    def heard(self) -> list[m.TelemetryCommand]:
        return self.peer.streams[self.number].messages(m.TelemetryCommand)

    async def hear(self, count: int) -> m.TelemetryCommand:
        """The answer of this number, once it is here."""
        reading = self.peer.streams[self.number]
        await self.peer.until(lambda: len(self.heard) >= count or reading.is_over)
        return self.heard[count - 1]


async def tell_settings(peer: Peer, settings: m.Settings) -> Talk:
    """Open the stream, tell who one is, and hear the answer."""
    talk = Talk(peer, peer.begin("Telemetry"))
    talk.say(m.TelemetryCommand(settings=settings))
    answer = await talk.hear(1)
    assert answer.status.code == m.Code.OK
    return talk
