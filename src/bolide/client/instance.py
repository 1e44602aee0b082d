"""What all producers and consumers of one client id share: connections, routes, heartbeats.

RocketMQ's MQClientInstance. By default each producer and consumer has one of its own; those that are given the same
instance name share it, and then a broker sees one client. The first user opens it, the last one closes it.

Routes are kept until a better one comes: a name server that is gone costs nobody a message. They are asked for again
every 30 s, and when somebody needs a topic or a broker that is not in them.
"""

import asyncio
import itertools
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bolide.client.access import check_access, failure_of
from bolide.client.config import ClientConfig
from bolide.client.nameservers import NameServers
from bolide.client.outages import Outages
from bolide.client.routes import MASTER_ID, Route, route_of, route_to_create
from bolide.client.tally import count_request
from bolide.clock import Clock
from bolide.errors import AccessRefused, BolideError, ClientError, ConnectError
from bolide.model.topics import AUTO_CREATE_TOPIC
from bolide.protocol.bodies.clients import Heartbeat, ProducerMember
from bolide.protocol.bodies.routes import Clusters
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client, Handler
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.session import Session

if TYPE_CHECKING:
    from bolide.client.callbacks import AskedProducer
    from bolide.client.consuming.replies import Replies
    from bolide.client.members import ConsumingMember, Member
    from bolide.client.signing import Signing
    from bolide.model.message import Message

BROKER_NOT_IN_ROUTE = 10003
NO_ROUTE = 10005
GO_AWAY = 1500  # a broker of 5.2 and later that is about to end: come again on another connection
_DOUBT_SPACING_S = 0.25
_ASK_AGAIN_S = 1.0
_REACH_PAUSE_S = 0.05
_FIRST_HEARTBEAT_S = 1.0
_REFUSED_GROUP_FIELD = "bolideRefusedGroup"
log = logging.getLogger(__name__)
_numbers = itertools.count()
_open: dict[tuple[int, str], "Instance"] = {}


class NoBroker(ClientError):
    """No broker is registered at all."""


class Instance:
    """Made by `open_instance`."""

    def __init__(self, config: ClientConfig, client_id: str, clock: Clock) -> None:
        self.config = config
        self.client_id = client_id
        self.clock = clock
        self.chance = random.Random()
        self.process_id = os.getpid()
        self.producers: dict[str, Member] = {}
        self.consumers: dict[str, ConsumingMember] = {}
        self.deciders: dict[str, AskedProducer] = {}
        self.replies: dict[str, asyncio.Future[Message]] = {}  # by number, for those who asked by a message
        self.asked_topics: set[str] = set()
        self.refusals: dict[str, tuple[str, ClientError]] = {}  # groups that a broker does not take us into
        self.denials: dict[str, AccessRefused] = {}  # brokers that do not take who we are, by address
        self._repliers: dict[str, Replies] = {}
        self.errands = IsolatedTasks()
        self.outages = Outages(clock)
        self._hooks = _signing(config)
        self._handlers: dict[int, Handler] = {}  # of what brokers ask of members
        self.client = Client(config.connect, clock, hooks=self._hooks, handlers=self._handlers)
        self.namesrv = NameServers(self.client, config.namesrv, config.request_timeout_s, self.chance)
        self.user_count = 0
        self.host: asyncio.Task[None] | None = None
        self.is_ready = asyncio.Event()
        self.is_over = asyncio.Event()
        self._routes: dict[str, Route] = {}
        self.known_route: Callable[[str], Route | None] = self._routes.get  # the route at hand, without asking
        self._brokers: dict[str, Mapping[int, str]] = {}
        self._refreshing: dict[str, asyncio.Future[None]] = {}
        self._doubted_s: dict[str, float] = {}
        self._told: dict[str, Session] = {}
        self._reaching: dict[str, asyncio.Task[None]] = {}
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeats_begun = 0
        self._heartbeats_done = 0  # the number of the last that came to its end

    def check_process(self, who: str) -> None:
        """Raise in a fork: it has the memory of its parent, and none of its connections."""
        if self.process_id != os.getpid():
            raise ClientError(
                f"{who} was opened in process {self.process_id} and does not work in a fork of it; "
                "open one in each process"
            )

    # Routes

    async def route(self, topic: str, create_queue_count: int | None = None) -> Route:
        """The route at hand, or the name server's. With a queue count, a topic that is not there yet gets the route of
        the default topic, whose brokers will make it.
        """
        known = self._routes.get(topic)
        if known is not None and (known.publish or create_queue_count is None):
            return known
        await self.refresh(topic, create_queue_count)
        found = self._routes.get(topic)
        if found is None:
            raise await self._no_route(topic, is_for_sending=create_queue_count is not None)
        return found

    async def doubt(self, topic: str) -> None:
        """A broker could not be reached: it may have moved. Asks four times a second at most, and may fail."""
        now_s = self.clock.monotonic_s()
        if now_s - self._doubted_s.get(topic, -_DOUBT_SPACING_S) < _DOUBT_SPACING_S:
            return
        self._doubted_s[topic] = now_s
        try:
            await self.refresh(topic)
        except BolideError as problem:
            log.debug("route not refreshed topic=%s problem=%s", topic, problem)

    async def refresh(self, topic: str, create_queue_count: int | None = None) -> None:
        """Ask where a topic is. Who asks while another does waits for his answer."""
        while (running := self._refreshing.get(topic)) is not None:
            await asyncio.shield(running)
            if create_queue_count is None or topic in self._routes:
                return  # otherwise the other one asked for less than we do
        done = self._refreshing[topic] = asyncio.get_running_loop().create_future()
        try:
            await self._ask_route(topic, create_queue_count)
        finally:
            del self._refreshing[topic]
            done.set_result(None)

    async def _ask_route(self, topic: str, create_queue_count: int | None) -> None:
        answer = await self.namesrv.route(topic)
        if answer is not None:
            self._put_route(route_of(topic, answer))
        elif create_queue_count is not None and topic not in self._routes:
            default = await self.namesrv.route(AUTO_CREATE_TOPIC)
            if default is not None:
                self._put_route(route_to_create(topic, default, create_queue_count))

    def _put_route(self, route: Route) -> None:
        before = self._routes.get(route.topic)
        self._brokers |= route.addresses  # the newest word on where a broker is, whichever topic brought it
        if before == route:
            return
        self._routes[route.topic] = route
        if before is not None and before.addresses != route.addresses:
            # A master that is new asks us about transactions and shares queues only if it knows us.
            self.errands.start(self.heartbeat(), name="client.heartbeat.moved")
        for name in before.addresses if before is not None else ():
            if not any(name in other.addresses for other in self._routes.values()):
                self._brokers.pop(name, None)
        log.debug("route changed topic=%s queues=%d", route.topic, len(route.publish))
        if route.left_out:
            names = ", ".join(name[:80] for name in route.left_out[:3])
            log.warning(
                "brokers left out of a route topic=%s: %s claim more queues than there can be", route.topic, names
            )
        for member in (*self.producers.values(), *self.consumers.values()):
            member.route_changed(route.topic)

    async def _no_route(self, topic: str, *, is_for_sending: bool) -> ClientError:
        asked = ", ".join(self.namesrv.addresses)
        if not await self.namesrv.has_brokers():
            import shlex

            pasted = shlex.quote(";".join(self.namesrv.addresses))
            return NoBroker(
                f"topic {topic} has no route: no broker is registered at {asked}; `bolide broker -n {pasted}` starts "
                "one, and one that runs may have been given another name server",
                NO_ROUTE,
            )
        advice = (
            f"no broker there creates topics by itself: create it with `bolide topic create {topic}`"
            if is_for_sending
            else f"create it with `bolide topic create {topic}`, or send a first message"
        )
        said = await self.namesrv.absence(topic)
        cause = said.removeprefix(f"no route for topic {topic!r}: ")
        if cause == said:  # Apache's name server knows no cause
            cause = f"{said}; {advice}"
        elif "create it with" in cause:  # our advice in place of its command, which is for RocketMQ's tools
            cause = f"{cause.partition(';')[0]}; {advice}"
        return ClientError(f"topic {topic} has no route at {asked}: {cause}", NO_ROUTE)

    # Brokers

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, is_exact: bool = True) -> str | None:
        """Where a broker is; without `is_exact` any address under its name will do when that id is not there."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        if broker_id in addresses:
            return addresses[broker_id]
        return None if is_exact else addresses[min(addresses)]

    async def found_address(self, topic: str, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """The same, asking for the route once when it is not known."""
        found = self.address(broker_name, broker_id, is_exact=False)
        if found is None:
            await self.refresh(topic)
            found = self.address(broker_name, broker_id, is_exact=False)
        if found is None:
            raise ClientError(f"broker {broker_name} is not in the route of {topic}", BROKER_NOT_IN_ROUTE)
        return found

    @property
    def has_met_brokers(self) -> bool:
        """Some broker was reached before: what is not there now may be on its way back."""
        return bool(self._told)

    def unreachable(self, broker_name: str, address: str, problem: ConnectError) -> ConnectError:
        """The same with what it means: a broker that was there has gone, or one never was where it is said to be."""
        found = str(problem).partition("; next attempt in")[0]
        if address in self._told:
            return ConnectError(
                f"broker {broker_name} was reached before and is not there now: {found}; it may be on its way back, "
                "or has stopped (`bolide cluster` shows who runs)"
            )
        return ConnectError(
            f"broker {broker_name} cannot be reached at the address it gave to the name server: {found}; if it runs, "
            "let it give one that is reached from here (brokerIP1, `bolide up --host`)"
        )

    async def wait_for(self, address: str, limit_s: float) -> None:
        """Wait until a broker takes connections, so long at most; all who wait share the attempts."""
        task = self._reaching.get(address)
        if task is None:
            task = self.errands.start(self._reach(address), name=f"client.reach.{address}")
            self._reaching[address] = task
            task.add_done_callback(lambda _: self._reaching.pop(address, None))
        await asyncio.wait((task,), timeout=limit_s)

    async def _reach(self, address: str) -> None:
        until_s = self.clock.monotonic_s() + _ASK_AGAIN_S
        while self.clock.monotonic_s() < until_s and not self.is_over.is_set():
            self.client.hasten(address)
            try:
                await self.client.session(address, _ASK_AGAIN_S)
                return
            except ConnectError:
                await asyncio.sleep(_REACH_PAUSE_S)

    async def ask(self, address: str, command: Command, timeout_s: float | None = None) -> Command:
        """A broker's answer to a request that must succeed."""
        answer = await self.request(address, command, timeout_s or self.config.request_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)
        return answer

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        """A broker's answer, whatever it is; one that sends us away is asked once more on a new connection."""
        count_request()
        answer = await self.client.request(address, command, timeout_s)
        if answer.code != GO_AWAY:
            return answer
        self.client.close(address, "the broker sent us away")
        return await self.client.request(address, command, timeout_s)

    def sign(self, address: str, command: Command) -> None:
        """What is done to each request before it leaves, for one that does not leave through `client`."""
        for hook in self._hooks:
            hook.before(address, command)

    # Membership

    async def heartbeat(self) -> None:
        """Tell every broker of our routes who we are; one that is silent holds up no other.

        One that began while we waited for our turn has told for us: hundreds of first sends at once need two.
        """
        if not self.producers and not self.consumers:
            return
        known = self._heartbeats_begun
        async with self._heartbeat_lock:
            if self._heartbeats_done > known:
                return
            self._heartbeats_begun += 1
            addresses = list(self._heartbeat_addresses())
            for address in self._told.keys() - addresses:
                del self._told[address]
                self.outages.forget(address)
            await asyncio.gather(*(self._beat(address) for address in addresses))
            self._heartbeats_done = self._heartbeats_begun

    async def introduce(self, address: str) -> None:
        """Have a broker know us on the connection there is now: what it knows of members ends with a connection."""
        session = await self.client.session(address, self.config.request_timeout_s)
        if self._told.get(address) is not session:
            await self._beat(address)

    async def check_access(self) -> None:
        """Fail now if a broker does not take our credentials, instead of at every send and pull to come."""
        if self.config.credentials is not None:
            await check_access(self._masters, self.greet)

    async def _masters(self) -> list[str]:
        answer = await self.namesrv.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer, who="name server")
        known = Clusters.decode(answer.body).broker_addr_table.values()
        return [broker.broker_addrs[MASTER_ID] for broker in known if MASTER_ID in broker.broker_addrs]

    async def greet(self, address: str) -> None:
        """Tell a broker who we are; one that does not take us raises AccessRefused."""
        answer = await self.request(address, self._heartbeat(), self.config.request_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer)

    def _heartbeat(self) -> Command:
        body = Heartbeat(
            client_id=self.client_id,
            producer_data_set=[ProducerMember(group_name=group) for group in sorted(self.producers)],
            consumer_data_set=[self.consumers[group].heartbeat() for group in sorted(self.consumers)],
        )
        return Command(RequestCode.HEART_BEAT, body=body.encode())

    def _heartbeat_addresses(self) -> Iterable[str]:
        """Masters; slaves too once there is a consumer, for it may be sent to read there."""
        found: dict[str, None] = {}
        for route in self._routes.values():
            for addresses in route.addresses.values():
                for broker_id, address in addresses.items():
                    if broker_id == MASTER_ID or self.consumers:
                        found[address] = None
        return found

    def _be_askable(self) -> None:
        """Answer what brokers ask of those they know. An administrator is known to none, and does without."""
        if not self._handlers:
            from bolide.client.callbacks import Callbacks
            from bolide.client.consuming.replies import ReplyBox

            callbacks = Callbacks(self.consumers, self.deciders, ReplyBox(self.replies, self.clock.now_ms))
            self._handlers.update(callbacks.handlers())

    async def _beat(self, address: str) -> None:
        self._be_askable()
        try:
            self._told[address] = await self.client.session(address, self.config.request_timeout_s)
            answer = await self.request(address, self._heartbeat(), self.config.request_timeout_s)
            self._note_refusal(address, answer)
            self.denials.pop(address, None)
        except BolideError as problem:
            if isinstance(problem, AccessRefused):
                self.denials[address] = problem
            names = (name for name, places in self._brokers.items() if address in places.values())
            self.outages.failed(address, f"broker {next(names, '')} at {address}", problem)
        else:
            self.outages.worked(address)

    def _note_refusal(self, address: str, answer: Command) -> None:
        """A broker of ours that wants members to agree names the group that we may not be in; others only fail."""
        if answer.code == ResponseCode.SUCCESS:
            self.refusals = {group: found for group, found in self.refusals.items() if found[0] != address}
            return
        problem = failure_of(answer)
        group = answer.fields.get(_REFUSED_GROUP_FIELD)
        if group is None:
            raise problem
        if group not in self.refusals:
            log.error("not taken as a member group=%s broker=%s: %s", group, address, problem)
        self.refusals[group] = address, problem

    def replier(self, group: str) -> "Replies":
        """Sends what a consumer of a group replies to requests."""
        found = self._repliers.get(group)
        if found is None:
            from ipaddress import ip_address

            from bolide.client.consuming.replies import Replies
            from bolide.protocol.ids import UniqueIds

            ip = ip_address(self.client_id.partition("@")[0]).packed
            ids = UniqueIds(ip, self.process_id, id(self) ^ id(group), self.clock)
            found = self._repliers[group] = Replies(self, group, ids)
        return found

    async def leave(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell every broker that a group has one member less; those that do not answer will notice by themselves."""
        if consumer_group is not None and consumer_group in self._repliers:
            await self._repliers.pop(consumer_group).flush()
        from bolide.protocol.headers.consume import UnregisterClientRequest

        header = UnregisterClientRequest(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        commands = [
            self._farewell(address, Command(RequestCode.UNREGISTER_CLIENT, fields=header.encode()))
            for address in self._heartbeat_addresses()
        ]
        await asyncio.gather(*commands)

    async def _farewell(self, address: str, command: Command) -> None:
        try:
            await self.ask(address, command)
        except BolideError as problem:
            log.debug("unregistering failed broker=%s problem=%s", address, problem)

    # Time

    async def live(self) -> None:
        """Keep connections and timers until the last user has gone."""
        async with self.client, self.errands, asyncio.TaskGroup() as timers:
            tasks = [
                timers.create_task(self.refresh_forever(), name="client.routes"),
                timers.create_task(self.beat_forever(), name="client.heartbeat"),
            ]
            self.is_ready.set()
            await self.is_over.wait()
            for task in tasks:
                task.cancel()

    async def refresh_forever(self) -> None:
        """Ask for the routes of all topics in use again and again."""
        while True:
            await asyncio.sleep(self.config.route_interval_s)
            members = (*self.producers.values(), *self.consumers.values())
            for topic in dict.fromkeys(topic for member in members for topic in member.topics()):
                try:
                    await self.refresh(topic)
                except BolideError as problem:
                    self.outages.failed("routes", "asking for routes (the old ones stay)", problem)
                else:
                    self.outages.worked("routes")

    async def beat_forever(self) -> None:
        """Tell brokers that we live."""
        await asyncio.sleep(_FIRST_HEARTBEAT_S)
        while True:
            await self.heartbeat()
            await asyncio.sleep(self.config.heartbeat_interval_s)


def _signing(config: ClientConfig) -> "list[Signing]":
    if config.credentials is None:
        return []
    from bolide.client.signing import Signing  # most clusters have no users, and their clients nothing to sign

    return [Signing(config.credentials)]


def client_id_of(config: ClientConfig) -> str:
    """`ip@instance[@unit]`; without a name each call gives another, so that two members are two."""
    name = config.instance_name or f"{os.getpid()}#{next(_numbers)}"
    unit = f"@{config.unit_name}" if config.unit_name else ""
    return f"{own_ip()}@{name}{unit}"


def own_ip() -> str:
    """An address of this machine that others may know it by; no packet leaves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@asynccontextmanager
async def open_instance(config: ClientConfig, clock: Clock) -> AsyncIterator[Instance]:
    """The instance of a client id, shared by all in this loop that are given the same name; the last one ends it."""
    loop = asyncio.get_running_loop()
    key = (id(loop), client_id_of(config))
    instance = _open.get(key)
    if instance is None:
        instance = _open[key] = Instance(config, key[1], clock)
    instance.user_count += 1
    try:
        if instance.host is None:
            # Anyone who comes first may leave before others: the instance is hosted by a task of its own, which the
            # last one awaits.
            instance.host = loop.create_task(instance.live(), name=f"client.{instance.client_id}")
        await instance.is_ready.wait()
        yield instance
    finally:
        instance.user_count -= 1
        if not instance.user_count:
            del _open[key]
            instance.is_over.set()
            if instance.host is not None:
                await instance.host
