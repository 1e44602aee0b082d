"""Who is connected: clients by their id, with what they told of themselves.

A client is its id, not a connection: its calls come on any connection, and after a restart of ours before its settings.
So a line to the brokers is made with the first call that needs one. A client that says nothing for two minutes, or says
goodbye, is gone, and brokers see that.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from bolide.clock import Clock
from bolide.errors import BolideError
from bolide.kernel.layout import LANGUAGES
from bolide.protocol.bodies import ConsumeFrom, ConsumerMember, ConsumeType, Heartbeat, MessageModel, Subscription
from bolide.protocol.bodies.clients import ProducerMember
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import UnregisterClientRequest
from bolide.protocol.headers.poptext import PopHandle
from bolide.protocol.popped import ack_command
from bolide.proxy import messages as m
from bolide.proxy.back import Answer, Back, Done, Hear, Line, Pop, SentDone
from bolide.proxy.calls import Call
from bolide.proxy.config import ProxyConfig
from bolide.proxy.statuses import Denied
from bolide.remoting.session import Session

_SCAN_INTERVAL_S = 10.0
_ANSWER_LIMIT_S = 3.0
_ID_LENGTH_MAX = 255
_MATES_SHOWN_MAX = 3
_OTHER = LANGUAGES.index("OTHER")
_LANGUAGES = {name: number for number, name in enumerate(LANGUAGES)} | {"GOLANG": LANGUAGES.index("GO")}
log = logging.getLogger(__name__)


class GrpcClient:
    """One client, as long as it is heard of."""

    __slots__ = (
        *("access_key", "client_id", "language", "line", "origin", "peer", "seen_s", "settings"),
        *("mates", "sign", "stream", "subscriptions", "waiting"),
    )

    def __init__(self, client_id: str, peer: str, language: int) -> None:
        self.client_id = client_id
        self.peer = peer
        self.origin = ""  # the host that its line is for, by the socket
        self.language = language
        self.line: Line | None = None
        self.access_key: str | None = None  # who it proved to be
        self.sign: Callable[[Command], None] | None = None
        self.seen_s = 0.0
        self.settings: m.Settings | None = None
        self.subscriptions: list[Subscription] = []
        self.mates: list[str] = []  # of its group that pull, as was last said
        self.stream: Call | None = None  # of telemetry: commands go there
        self.waiting: dict[str, asyncio.Future[m.TelemetryCommand]] = {}  # by nonce

    @property
    def session(self) -> Session | None:
        """Its connection, where the broker is in this process."""
        return None if self.line is None else self.line.session

    def ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> Callable[[], None]:
        """Ask a broker in its name."""
        assert self.line is not None, "a client that is known has a line"
        if self.sign is not None:
            self.sign(command)
        return self.line.ask(broker, command, timeout_s, done)

    def send(self, broker: str, command: Command, timeout_s: float, done: SentDone) -> None:
        """Send a message in its name."""
        assert self.line is not None, "a client that is known has a line"
        if self.sign is not None:
            self.sign(command)
        self.line.send(broker, command, timeout_s, done)

    def pop(self, broker: str, asked: Pop, timeout_s: float, done: Done) -> Callable[[], None]:
        """Pop messages in its name."""
        assert self.line is not None, "a client that is known has a line"
        if self.sign is None:
            return self.line.pop(broker, asked, timeout_s, done)
        return self.ask(broker, asked.command(), timeout_s, done)

    def ack(self, group: str, topic: str, handle: PopHandle, timeout_s: float, done: Done) -> None:
        """Acknowledge a message in its name."""
        assert self.line is not None, "a client that is known has a line"
        if self.sign is None:
            self.line.ack(group, topic, handle, timeout_s, done)
        else:
            self.ask(handle.broker_name, ack_command(group, topic, handle), timeout_s, done)

    @property
    def group(self) -> str:
        """The consumer group it told of."""
        return self.settings.subscription.group.name if self.settings is not None else ""

    @property
    def is_consumer(self) -> bool:
        return self.settings is not None and self.settings.HasField("subscription")

    @property
    def topics(self) -> list[str]:
        """The topics it sends to."""
        return [] if self.settings is None else [topic.name for topic in self.settings.publishing.topics]

    def heartbeat(self) -> Command:
        """What brokers are told of it."""
        told = Heartbeat(
            client_id=self.client_id,
            producer_data_set=[ProducerMember(group_name=topic) for topic in self.topics],
            consumer_data_set=[self._membership()] if self.is_consumer else [],
        )
        return Command(RequestCode.HEART_BEAT, body=told.encode(), language=self.language)

    def _membership(self) -> ConsumerMember:
        is_pushed = self.settings is not None and self.settings.client_type == m.ClientType.PUSH_CONSUMER
        return ConsumerMember(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY if is_pushed else ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFrom.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=self.subscriptions,
        )

    def goodbye(self) -> list[Command]:
        """What brokers are told when it leaves in good order."""
        groups = [(topic, None) for topic in self.topics] + ([(None, self.group)] if self.group else [])
        return [
            Command(
                RequestCode.UNREGISTER_CLIENT,
                fields=UnregisterClientRequest(
                    client_id=self.client_id, producer_group=producer, consumer_group=consumer
                ).encode(),
            )
            for producer, consumer in groups
        ]


class Clients:
    """All of them."""

    def __init__(self, config: ProxyConfig, clock: Clock, back: Back, hear: Callable[[GrpcClient], Hear]) -> None:
        """`hear` makes of a client who hears what brokers tell it."""
        self._config = config
        self._clock = clock
        self._back = back
        self._hear = hear
        self._by_id: dict[str, GrpcClient] = {}
        self._on_gone: list[Callable[[GrpcClient], None]] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def listen(self, tell: Callable[[GrpcClient], None]) -> None:
        """Have it told who is gone, before brokers are."""
        self._on_gone.append(tell)

    def find(self, client_id: str) -> GrpcClient | None:
        return self._by_id.get(client_id)

    def of(self, call: Call) -> GrpcClient:
        """Whose call it is, from now on a client that is kept; raises Denied without a client id.

        A line is of one address, by which brokers judge what is asked on it: a client that moves has a new one.
        """
        client_id = client_id_of(call)
        client = self._by_id.get(client_id)
        if client is None:
            self._make_room()
            language = _LANGUAGES.get(call.header("x-mq-language").upper(), _OTHER)
            client = self._by_id[client_id] = GrpcClient(client_id, call.carrier.peer, language)
        if client.line is not None and client.origin != call.carrier.origin:
            client.line.close()
        if client.line is None or not client.line.is_open:
            client.peer, client.origin = call.carrier.peer, call.carrier.origin
            client.line = self._back.line(client_id, client.peer, self._hear(client))
            if client.session is not None:
                client.session.origin = client.origin
            self.register(client)
        client.seen_s = self._clock.monotonic_s()
        return client

    def _make_room(self) -> None:
        """Ids cost a stranger nothing: where there are too many, the address with the most of them loses its oldest."""
        if len(self._by_id) < self._config.clients_max:
            return
        origins = Counter(client.origin for client in self._by_id.values())
        (crowded, _), *_ = origins.most_common(1)
        self.leave(next(client for client in self._by_id.values() if client.origin == crowded))

    def register(self, client: GrpcClient) -> None:
        """Tell brokers that it is here, and of which groups."""
        if client.settings is not None:
            for broker in self._back.brokers():
                client.ask(broker, client.heartbeat(), _ANSWER_LIMIT_S, _note)
            self._look_at_mates(client)

    def _look_at_mates(self, client: GrpcClient) -> None:
        """Members that pull and members that pop do not share: both get the messages of the queues that are pulled."""
        mates = []
        if client.is_consumer:
            mates = self._back.pulling_mates(client.group, [each.topic for each in client.subscriptions])
        if mates and mates != client.mates:
            log.warning(
                "group=%s has members that pop (client=%s, by gRPC) and members that pull (%s): a message may go to "
                "one of each; have all pop (mqadmin setConsumeMode -m POP) or give each kind a group of its own",
                *(client.group, client.client_id, ", ".join(mates[:_MATES_SHOWN_MAX])),
            )
        client.mates = mates

    def leave(self, client: GrpcClient) -> None:
        """It said goodbye, or fell silent."""
        if self._by_id.get(client.client_id) is not client:
            return
        for tell in self._on_gone:
            tell(client)
        del self._by_id[client.client_id]
        for broker in self._back.brokers():
            for command in client.goodbye():
                client.ask(broker, command, _ANSWER_LIMIT_S, _note)
        if client.stream is not None and client.stream.is_open:
            client.stream.end()
        if client.line is not None:
            client.line.close()

    async def scan_forever(self) -> None:
        """Look for silent clients every few seconds."""
        while True:
            await asyncio.sleep(_SCAN_INTERVAL_S)
            self.scan()

    def scan(self) -> None:
        silent_since_s = self._clock.monotonic_s() - self._config.silence_max_ms / 1000
        for client in [each for each in self._by_id.values() if each.seen_s < silent_since_s]:
            log.info("client dropped: it was silent client=%s", client.client_id)
            self.leave(client)

    def leave_all(self) -> None:
        for client in list(self._by_id.values()):
            self.leave(client)


def client_id_of(call: Call) -> str:
    """The id of a call's client; raises Denied without one."""
    return _client_id(call.headers.get(b"x-mq-client-id", b""))


@lru_cache(maxsize=1_000)
def _client_id(told: bytes) -> str:
    client_id = told.decode("utf-8", "replace")
    if not client_id.strip() or len(client_id) > _ID_LENGTH_MAX or not client_id.isprintable():
        raise Denied(m.Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing, or no id")
    return client_id


def _note(answer: Answer) -> None:
    if isinstance(answer, BolideError) or answer.code != 0:
        log.info("a broker did not take a heartbeat or a goodbye: %s", answer)
