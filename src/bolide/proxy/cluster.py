"""Any cluster behind the gRPC face: what Apache calls cluster mode.

Each client has its own connections to the brokers, under its own id: so brokers count it as a member, and ask it about
its transactions, as they would a remoting client. Routes, types and groups are asked for and kept for some seconds.

A pop cannot be taken back over the wire: one whose client has left is answered all the same, and who hears the answer
gives the messages back.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from bolide.access.signing import signers
from bolide.client.nameservers import NameServers
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError
from bolide.protocol.bodies import Clusters
from bolide.protocol.bodies import TopicRoute as ClusterRoute
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.groups import GetGroupConfigRequest
from bolide.protocol.headers.topics import GetTopicConfigRequest
from bolide.proxy.back import NORMAL, BrokerQueues, Done, Hear, SentDone, TopicRoute
from bolide.proxy.config import ProxyConfig
from bolide.remoting.client import Client
from bolide.remoting.owner import Reply, Request

_ASK_LIMIT_S = 3.0
_GOODBYE_LIMIT_S = 3.0
_KEPT_MAX = 20_000
_CALLBACKS = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
)
Start = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
V = TypeVar("V")
log = logging.getLogger(__name__)


class _Kept(Generic[V]):
    """Answers that are good for some seconds; one that is being asked for is asked for once."""

    def __init__(self, fresh_s: float, clock: Clock, ask: Callable[[str], Coroutine[Any, Any, V]]) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._ask = ask
        self._kept: dict[str, tuple[float, V]] = {}
        self._asking: dict[str, asyncio.Future[V]] = {}

    def get(self, name: str) -> V | None:
        found = self._kept.get(name)
        return None if found is None else found[1]

    def prepare(self, name: str) -> Awaitable[object] | None:
        """What to wait for until it is at hand; None if it is."""
        found = self._kept.get(name)
        is_fresh = found is not None and self._clock.monotonic_s() - found[0] < self._fresh_s
        # That there is none is no answer to keep: it may be made any moment.
        return None if is_fresh and found is not None and found[1] is not None else self._fetch(name)

    async def _fetch(self, name: str) -> None:
        asking = self._asking.get(name)
        if asking is not None:
            await asyncio.shield(asking)
            return
        asking = self._asking[name] = asyncio.get_running_loop().create_future()
        try:
            value = await self._ask(name)
        except BaseException as problem:
            asking.set_exception(problem)
            asking.exception()  # nobody else may wait for it
            raise
        else:
            if len(self._kept) >= _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept.pop(name, None)
            self._kept[name] = (self._clock.monotonic_s(), value)
            asking.set_result(value)
        finally:
            del self._asking[name]


class ClusterLine:
    """One client's connections."""

    def __init__(self, back: "ClusterBack", hear: Hear) -> None:
        self._back = back
        self._hear = hear
        access = back.config.access
        # With access control here each client signs in its own name (`signatures.py`), else all in that of the proxy.
        hooks = () if access.is_on else signers(access)
        self._client = Client(
            back.config.connect, back.clock, hooks=hooks, handlers=dict.fromkeys(_CALLBACKS, self._told)
        )
        self._opened = asyncio.Event()
        self._closed = asyncio.Event()
        self._asking: set[asyncio.Task[None]] = set()
        back.start(self._keep(), "proxy.line")

    @property
    def session(self) -> None:
        return None

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set()

    def ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> Callable[[], None]:
        address = self._back.addresses.get(broker)
        # Without a task, for thousands may wait. A goodbye has one: the line is closed when it is answered.
        is_goodbye = command.code == RequestCode.UNREGISTER_CLIENT
        if address is not None and not is_goodbye and self._client.submit(address, command, timeout_s, done):
            return _nothing
        task = self._back.start(self._ask(broker, command, timeout_s, done), f"proxy.ask.{command.code}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return _nothing

    def send(self, broker: str, command: Command, timeout_s: float, done: SentDone) -> None:
        self.ask(broker, command, timeout_s, done)

    def close(self) -> None:
        self._closed.set()

    async def _keep(self) -> None:
        async with self._client:
            self._opened.set()
            await self._closed.wait()
            if self._asking:  # the goodbyes among them
                await asyncio.wait(self._asking, timeout=_GOODBYE_LIMIT_S)

    async def _ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> None:
        try:
            address = await self._back.address(broker)
            await self._opened.wait()
            answer: Command | BolideError = await self._client.request(address, command, timeout_s)
        except BolideError as problem:
            answer = problem
        done(answer)

    def _told(self, request: Request) -> Reply | Awaitable[Reply]:
        broker = self._back.name_at(request.session.peer)
        return self._hear(broker, request.command)


class ClusterBack:
    """What name servers and brokers of a cluster say. `start` runs something that nobody waits for."""

    def __init__(self, config: ProxyConfig, clock: Clock, client: Client, start: Start) -> None:
        self.config = config
        self.clock = clock
        self.start = start
        self.addresses: dict[str, str] = {}  # of masters, by broker name
        self._client = client
        addresses = [each.strip() for each in config.namesrv.split(";") if each.strip()]
        self._name_servers = NameServers(client, addresses, _ASK_LIMIT_S, random.Random())
        self._routes: _Kept[TopicRoute | None] = _Kept(config.route_fresh_s, clock, self._ask_route)
        self._groups: _Kept[GroupConfig] = _Kept(config.group_fresh_s, clock, self._ask_group)

    def prepare(self, topic: str | None, group: str | None) -> Awaitable[None] | None:
        of_topic = self._routes.prepare(topic) if topic else None
        of_group = self._groups.prepare(group) if group else None
        waiting = [each for each in (of_topic, of_group) if each is not None]
        return _all(waiting) if waiting else None

    def route(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    def group(self, name: str) -> GroupConfig | None:
        return self._groups.get(name)

    def brokers(self) -> list[str]:
        return list(self.addresses)

    def line(self, client_id: str, peer: str, hear: Hear) -> ClusterLine:
        return ClusterLine(self, hear)

    async def address(self, broker: str) -> str:
        """Where a broker's master is; raises ClientError."""
        if broker not in self.addresses:
            await self._learn()
        if broker not in self.addresses:
            raise ClientError(f"broker {broker!r} is not known here")
        return self.addresses[broker]

    async def _learn(self) -> None:
        """All masters, from a name server: clients of ours may come with what they knew before we did."""
        answer = await self._name_servers.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        for data in Clusters.decode(answer.body).broker_addr_table.values():
            if 0 in data.broker_addrs:
                self.addresses[data.broker_name] = data.broker_addrs[0]

    def name_at(self, address: str) -> str:
        """The broker at an address."""
        return next((name for name, each in self.addresses.items() if each == address), "")

    async def _ask_route(self, topic: str) -> TopicRoute | None:
        found = await self._name_servers.route(topic)
        if found is None:
            return None
        for data in found.broker_datas:
            if 0 in data.broker_addrs:
                self.addresses[data.broker_name] = data.broker_addrs[0]
        masters = {data.broker_name for data in found.broker_datas if 0 in data.broker_addrs}
        queues = tuple(
            BrokerQueues(each.broker_name, 0, each.read_queue_nums, each.write_queue_nums, each.perm)
            for each in found.queue_datas
            if each.broker_name in masters
        )
        return TopicRoute(topic, await self._kind(topic, found), queues)

    async def _kind(self, topic: str, route: ClusterRoute) -> str:
        """The type of a topic, as one of its brokers knows it; 4.9 knows none."""
        command = Command(RequestCode.GET_TOPIC_CONFIG, fields=GetTopicConfigRequest(topic=topic).encode())
        for data in route.broker_datas:
            if 0 not in data.broker_addrs:
                continue
            try:
                answer = await self._client.request(data.broker_addrs[0], command, _ASK_LIMIT_S)
            except ClientError as problem:
                log.warning("the type of a topic is not known topic=%s broker=%s: %s", topic, data.broker_name, problem)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return TopicConfig.decode(answer.body).attributes.get("message.type", NORMAL)
        return NORMAL

    async def _ask_group(self, name: str) -> GroupConfig:
        """A group as one of the brokers knows it; one that none knows is made when its consumer comes."""
        command = Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, fields=GetGroupConfigRequest(group=name).encode())
        if not self.addresses:
            await self._learn()
        for address in self.addresses.values():
            try:
                answer = await self._client.request(address, command, _ASK_LIMIT_S)
            except ClientError as problem:
                log.warning("a group is not known group=%s address=%s: %s", name, address, problem)
                continue
            if answer.code == ResponseCode.SUCCESS and answer.body:
                return GroupConfig.decode(answer.body)
        return GroupConfig(group_name=name)


async def _all(waiting: list[Awaitable[object]]) -> None:
    for each in waiting:
        await each


def _nothing() -> None:
    return None
