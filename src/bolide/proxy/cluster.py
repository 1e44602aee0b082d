"""Any cluster behind the gRPC face: what Apache calls cluster mode.

Each client has its own connections to the brokers, under its own id: so brokers count it as a member, and ask it about
its transactions, as they would a remoting client. Routes, types and groups are asked for and kept for some seconds.

A broker that hangs up or does not lead any more is looked for again: a message waits for its group's next master within
its time limit, as it does in our own client.

A pop cannot be taken back over the wire: one whose client has left is answered all the same, and who hears the answer
gives the messages back.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from bolide.access.signing import signers
from bolide.client.nameservers import NameServers
from bolide.client.routes import MASTER_ID
from bolide.client.sending.failures import is_without_lead
from bolide.clock import Clock
from bolide.errors import BolideError, ClientError, NoAnswer
from bolide.protocol.bodies import TopicRoute as ClusterRoute
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.groups import GetGroupConfigRequest
from bolide.protocol.headers.poptext import PopHandle
from bolide.protocol.headers.topics import GetTopicConfigRequest
from bolide.protocol.popped import ack_command
from bolide.proxy.back import NORMAL, Answer, BrokerQueues, Done, Hear, Pop, SentDone, TopicRoute
from bolide.proxy.config import ProxyConfig
from bolide.proxy.masters import LOOK_INTERVAL_S, Masters
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
        self._doubted_s = -math.inf
        self._asking: dict[str, asyncio.Future[V]] = {}

    def get(self, name: str) -> V | None:
        found = self._kept.get(name)
        return None if found is None else found[1]

    def prepare(self, name: str) -> Awaitable[object] | None:
        """What to wait for until it is at hand; None if it is."""
        found = self._kept.get(name)
        fresh_since_s = max(self._clock.monotonic_s() - self._fresh_s, self._doubted_s)
        is_fresh = found is not None and found[0] > fresh_since_s
        # That there is none is no answer to keep: it may be made any moment.
        return None if is_fresh and found is not None and found[1] is not None else self._fetch(name)

    def doubt(self) -> None:
        """Something moved: what was told before is asked for again, and good until then."""
        self._doubted_s = self._clock.monotonic_s()

    async def _fetch(self, name: str) -> None:
        asking = self._asking.get(name)
        if asking is not None:
            await asyncio.shield(asking)
            return
        asking = self._asking[name] = asyncio.get_running_loop().create_future()
        asked_s = self._clock.monotonic_s()
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
            self._kept[name] = (asked_s, value)
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
        address = self._back.masters.addresses.get(broker)
        # Without a task, for thousands may wait. A goodbye has one: the line is closed when it is answered.
        is_goodbye = command.code == RequestCode.UNREGISTER_CLIENT
        if address is not None and not is_goodbye:
            told = partial(self._hear_answer, broker, address, done)
            if self._client.submit(address, command, timeout_s, told):
                return _nothing
        self._start(self._ask(broker, command, timeout_s, done), command)
        return _nothing

    def _hear_answer(self, broker: str, address: str, done: Done, answer: Command | ClientError) -> None:
        if isinstance(answer, NoAnswer):
            self._back.doubt(broker, address)
        done(answer)

    def send(self, broker: str, command: Command, timeout_s: float, done: SentDone) -> None:
        deadline_s = self._back.clock.monotonic_s() + timeout_s

        def settle(answer: Answer) -> None:
            if _is_astray(answer):
                self._start(self._send_again(broker, command, deadline_s, answer, done), command)
            else:
                done(answer)

        self.ask(broker, command, timeout_s, settle)

    async def _send_again(
        self, broker: str, command: Command, deadline_s: float, answer: Answer, done: SentDone
    ) -> None:
        """Look for the master until it takes the message, or the time is over."""
        clock = self._back.clock
        while _is_astray(answer) and clock.monotonic_s() + LOOK_INTERVAL_S < deadline_s:
            await asyncio.sleep(LOOK_INTERVAL_S)
            self._back.doubt(broker, self._back.masters.addresses.get(broker, ""))
            answer = await self._answer(broker, command, deadline_s - clock.monotonic_s())
        done(answer)

    def _start(self, work: Coroutine[Any, Any, None], command: Command) -> None:
        task = self._back.start(work, f"proxy.ask.{command.code}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def pop(self, broker: str, asked: Pop, timeout_s: float, done: Done) -> Callable[[], None]:
        return self.ask(broker, asked.command(), timeout_s, done)

    def ack(self, group: str, topic: str, handle: PopHandle, timeout_s: float, done: Done) -> None:
        self.ask(handle.broker_name, ack_command(group, topic, handle), timeout_s, done)

    def close(self) -> None:
        self._closed.set()

    async def _keep(self) -> None:
        async with self._client:
            self._opened.set()
            await self._closed.wait()
            if self._asking:  # the goodbyes among them
                await asyncio.wait(self._asking, timeout=_GOODBYE_LIMIT_S)

    async def _ask(self, broker: str, command: Command, timeout_s: float, done: Done) -> None:
        done(await self._answer(broker, command, timeout_s))

    async def _answer(self, broker: str, command: Command, timeout_s: float) -> Answer:
        masters = self._back.masters
        address = ""
        try:
            address = await masters.find(broker, timeout_s)
            await self._opened.wait()
            return await self._client.request(address, command, timeout_s)
        except NoAnswer as problem:
            self._back.doubt(broker, address)
            return problem
        except BolideError as problem:
            return problem

    def _told(self, request: Request) -> Reply | Awaitable[Reply]:
        broker = self._back.masters.name_at(request.session.peer)
        return self._hear(broker, request.command)


class ClusterBack:
    """What name servers and brokers of a cluster say. `start` runs something that nobody waits for."""

    def __init__(self, config: ProxyConfig, clock: Clock, client: Client, start: Start) -> None:
        self.config = config
        self.clock = clock
        self.start = start
        self._client = client
        addresses = [each.strip() for each in config.namesrv.split(";") if each.strip()]
        self._name_servers = NameServers(client, addresses, _ASK_LIMIT_S, random.Random())
        self.masters = Masters(self._name_servers, clock)
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
        return list(self.masters.addresses)

    def pulling_mates(self, group: str, topics: Iterable[str]) -> list[str]:
        return []  # the brokers know; nobody asks them for this

    def line(self, client_id: str, peer: str, hear: Hear) -> ClusterLine:
        return ClusterLine(self, hear)

    def doubt(self, broker: str, address: str) -> None:
        """A master was not reached, or says that it is none: name servers may know another by now."""
        if self.masters.forget(broker, address):
            self._routes.doubt()

    async def _ask_route(self, topic: str) -> TopicRoute | None:
        found = await self._name_servers.route(topic)
        if found is None:
            return None
        for data in found.broker_datas:
            self.masters.learn(data)
        masters = {data.broker_name for data in found.broker_datas if MASTER_ID in data.broker_addrs}
        # Where nobody leads at the moment, somebody will: a message waits for that rather than being refused.
        leading = masters or {data.broker_name for data in found.broker_datas}
        queues = tuple(
            BrokerQueues(each.broker_name, 0, each.read_queue_nums, each.write_queue_nums, each.perm)
            for each in found.queue_datas
            if each.broker_name in leading
        )
        return TopicRoute(topic, await self._kind(topic, found), queues)

    async def _kind(self, topic: str, route: ClusterRoute) -> str:
        """The type of a topic, as one of its brokers knows it; 4.9 knows none."""
        command = Command(RequestCode.GET_TOPIC_CONFIG, fields=GetTopicConfigRequest(topic=topic).encode())
        for data in route.broker_datas:
            if MASTER_ID not in data.broker_addrs:
                continue
            try:
                answer = await self._client.request(data.broker_addrs[MASTER_ID], command, _ASK_LIMIT_S)
            except ClientError as problem:
                log.warning("the type of a topic is not known topic=%s broker=%s: %s", topic, data.broker_name, problem)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return TopicConfig.decode(answer.body).attributes.get("message.type", NORMAL)
        return NORMAL

    async def _ask_group(self, name: str) -> GroupConfig:
        """A group as one of the brokers knows it; one that none knows is made when its consumer comes."""
        command = Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, fields=GetGroupConfigRequest(group=name).encode())
        if not self.masters.addresses:
            await self.masters.look()
        for address in list(self.masters.addresses.values()):
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


def _is_astray(answer: Answer) -> bool:
    """Whether a message found nobody who leads, or lost the one it had reached."""
    if isinstance(answer, Command):
        return is_without_lead(ClientError(answer.remark or "", answer.code))
    return isinstance(answer, NoAnswer)


def _nothing() -> None:
    return None
