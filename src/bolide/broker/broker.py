"""The broker: wiring, pillars, and the order in which it all stops. Nothing is decided here.

The nesting of `serve` is the order of the shutdown, read from the inside out: name servers are told first, so that
clients go elsewhere; the ports close and running answers finish; periodic work ends; tables are written a last time;
the store closes, everything durable. Periodic work outlives what it meets (`store/mishaps.py`): one bad record costs a
message, and never the broker.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from bolide import kernel
from bolide.broker.admin.forwarding import Forwarding
from bolide.broker.admin.groups import GroupCalls
from bolide.broker.admin.offsets import GroupOffsets
from bolide.broker.admin.progress import Progress
from bolide.broker.admin.queries import Queries
from bolide.broker.admin.refusals import refusals
from bolide.broker.admin.resets import Resets
from bolide.broker.admin.status import Status
from bolide.broker.admin.topics import TopicCalls
from bolide.broker.config import BrokerConfig, LiveConfig, shown
from bolide.broker.hotpath import HotPath
from bolide.broker.later.delay import Delays
from bolide.broker.later.requests import LaterRequests
from bolide.broker.later.routing import DelayRouter, Timing
from bolide.broker.later.timers import Timers
from bolide.broker.members.filter_servers import FilterServers
from bolide.broker.members.locks import Locks
from bolide.broker.members.members import Members
from bolide.broker.members.requests import Clients
from bolide.broker.pop.pop import Pop
from bolide.broker.pulling.access import PullAccess
from bolide.broker.pulling.filter_budget import FilterBudget
from bolide.broker.pulling.longpoll import ParkedPulls
from bolide.broker.pulling.pull import Pulls
from bolide.broker.registration import Registration, own_address
from bolide.broker.sending.replies import Replies
from bolide.broker.sending.send import Sends
from bolide.broker.sending.send_back import SendBacks
from bolide.broker.sending.staged_batches import StagedBatches
from bolide.broker.stats import Stats
from bolide.broker.tables.deleted_topics import remove_deleted_topics, topics_before
from bolide.broker.tables.filters import Filters
from bolide.broker.tables.groups import Groups
from bolide.broker.tables.offsets import Offsets
from bolide.broker.tables.table_files import TableWriter
from bolide.broker.tables.topics import Topics
from bolide.broker.transactions.transactions import Transactions
from bolide.clock import Clock
from bolide.errors import ConfigError, Refusal, StoreError
from bolide.model.host import Host
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.address import split_address
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handlers
from bolide.remoting.operators import LOCAL, demand_local
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session
from bolide.store.dispatch import Arrival
from bolide.store.open import open_store
from bolide.store.store import Store

VIP_DISTANCE = 2  # the second port of a broker lies so far below its first
REGISTRATION_LIMIT_S = 3.0
SAVE_LIMIT_S = 10.0
_WAITING_CODES = frozenset(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    )
)
log = logging.getLogger(__name__)


class Broker:
    """The owner of all connections: sends and pulls a read at a time, everything else one by one."""

    def __init__(
        self, config: BrokerConfig, store: Store, table_writer: TableWriter, clock: Clock, aside: Executor
    ) -> None:
        self.settings = LiveConfig(config)
        self.store = store
        self.table_writer = table_writer
        self.stats = Stats(clock)
        self.topics = Topics(self.settings, table_writer, clock)
        self.groups = Groups(self.settings, table_writer, clock)
        self.stats.is_topic = self.topics.table.__contains__
        self.stats.is_group = self.groups.table.__contains__
        self.offsets = Offsets(config.directory, table_writer, clock, store.durable)
        self.members = Members(self.settings, self.groups, self.topics, clock)
        self.filters = Filters(self.settings, table_writer, clock)
        self.members.on_subscribed.append(self.filters.heard)
        self.members.on_empty.append(self.filters.left)
        filter_budget = FilterBudget(clock)
        self.filter_servers = FilterServers(self.settings, clock)
        self.locks = Locks(clock, config.lock_life_ms / 1000, config.directory, table_writer)
        self.parked = ParkedPulls(self.settings, clock)
        self.registration: Registration | None = None  # while name servers are told
        self.delays = Delays(config.directory, store, self.stats, table_writer, clock)
        self.timers = (
            Timers(self.settings, store, self.stats, table_writer, clock) if config.store.timer_enabled else None
        )
        timing = None if self.timers is None else Timing(self.settings, clock, self.timers.load_at)
        router = DelayRouter(config.store.delay_levels, timing)
        self.pop = Pop(
            self.settings,
            store,
            self.topics,
            self.groups,
            self.offsets,
            self.members,
            table_writer,
            self.stats,
            clock,
            self.filters,
            filter_budget,
        )
        self.transactions = Transactions(
            self.settings, store, self.topics, self.offsets, self.members, router, self.stats, clock
        )
        self.staged_batches = StagedBatches(store, self.topics, router, self.settings, self.stats, table_writer, clock)
        self._serve_with(router, filter_budget, clock, aside)
        self._hearers = [self.parked.on_arrival, self.pop.on_arrival, self.delays.on_arrival]
        self._hearers += [self.timers.on_arrival] if self.timers is not None else []
        store.listen(self._arrived)
        self.offsets.on_reset += [self.parked.on_reset, self.pop.on_reset]

    def _serve_with(self, router: DelayRouter, filter_budget: FilterBudget, clock: Clock, aside: Executor) -> None:
        """The processors, and who of them answers what."""
        store, table_writer = self.store, self.table_writer
        sends = Sends(
            self.topics, self.groups, store, self.settings, self.stats, clock, table_writer, router, self.locks
        )
        sends.open_topics.announced = self.announced
        taking = (self.topics, self.groups, store, self.settings, self.stats, clock, sends.open_topics, router)
        send_backs = SendBacks(*taking)
        access = PullAccess(self.topics, self.groups, self.members, store, self.settings, self.filters)
        pulls = Pulls(access, self.offsets, store, self.parked, self.settings, self.stats, clock, filter_budget)
        clients = Clients(self.settings, self.members, self.locks, self.topics, self.groups, self.filters)
        consuming = (self.offsets, self.members, self.topics, self.groups, store)
        group_offsets = GroupOffsets(*consuming)
        progress = Progress(self.settings, *consuming, self.stats, clock)
        resets = Resets(self.settings, *consuming)
        forwarding = Forwarding(self.settings, self.members, self.topics, self.groups, store)
        status = Status(self.settings, self.topics, self.stats, store, clock, aside, self.timers)
        topic_calls = TopicCalls(
            self.topics, self.offsets, store, self.settings, self.stats, table_writer, announced=self.announced
        )
        group_calls = GroupCalls(self.groups, self.topics, self.offsets, self.stats, table_writer)
        queries = Queries(store, self.members, clock)
        waits = LaterRequests(self.settings, store, self.topics, router, self.delays, self.timers, self.stats, clock)
        reading = (pulls, queries, group_offsets, progress, resets)
        replies = Replies(sends, self.members, store, self.settings, self.stats, clock)
        parts = (
            sends,
            send_backs,
            waits,
            replies,
            self.transactions,
            self.filter_servers,
            self.staged_batches,
            *reading,
            self.pop,
            clients,
            forwarding,
            status,
            topic_calls,
            group_calls,
        )
        tables = [part.handlers() for part in parts]
        gate = demand_local if self.settings.now.admin_from == LOCAL else None
        self._handlers = Handlers(*tables, refusals(code for table in tables for code in table), gate=gate)
        ends = self.transactions.outcomes
        self._hot_path = HotPath(sends, store, self.settings, self.stats, clock, behind=pulls.take, ends=ends)
        self.take = self._hot_path.take

    def _arrived(self, arrival: Arrival) -> None:
        """The message is stored, and its sender is to hear that: whoever is told of it keeps its troubles to itself."""
        self.store.mishaps.tell_all("broker.arrivals", self._hearers, arrival)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def closed(self, session: Session, why: str) -> None:
        self._hot_path.left(session)
        self.parked.left(session)
        self.pop.left(session)
        self.members.disconnected(session)
        self.filter_servers.left(session)

    async def announced(self) -> None:
        """Wait a moment until the name servers know the topics as they are now."""
        if self.registration is not None:
            await self.registration.told(REGISTRATION_LIMIT_S)

    def be_found_at(self, address: str, ips: Mapping[str, str]) -> None:
        """Records say where they are kept, and clients look there: it must be the address that name servers tell.

        A record has room for a number only; `ips` has it for the names that an operator gave.
        """
        host, port = split_address(address)
        self.store.store_host = Host(ips.get(host, host), port).packed()


@asynccontextmanager
async def serve(config: BrokerConfig, clock: Clock) -> AsyncIterator[tuple[Broker, Server]]:
    """A broker that takes and gives messages as long as the block lasts."""
    log.info("broker starts name=%s kernel=%s %s", config.name, kernel.NAME, _changed_settings(config))
    if config.ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(config.ignored)))
    with ThreadPoolExecutor(1, thread_name_prefix="broker.files") as aside:
        had_queues = topics_before(config)
        async with open_store(config.store, clock) as store:
            table_writer = TableWriter(aside, store.mishaps)
            broker = Broker(config, store, table_writer, clock, aside)
            remove_deleted_topics(store, broker.topics, had_queues)
            await broker.pop.load()
            await broker.transactions.load()
            await broker.staged_batches.load()
            async with (
                _timer_files(broker.timers),
                _pillars(broker),
                Client(config.connect, clock) as client,
                listen(config.listen, broker, clock) as server,
                _second_port(broker, server, clock),
                _registered(broker, client, server, aside, clock),
            ):
                yield broker, server
    log.info("broker stopped name=%s", config.name)


@asynccontextmanager
async def _pillars(broker: Broker) -> AsyncIterator[None]:
    """The periodic work; at the end every table is written once more."""
    async with asyncio.TaskGroup() as group:
        lasting = broker.store.mishaps.lasting
        tasks = [group.create_task(lasting(name, work), name=name) for name, work in _periodic(broker).items()]
        try:
            yield
        finally:
            broker.pop.save()
            broker.transactions.save()
            broker.filters.save()
            broker.locks.save()
            try:
                async with asyncio.timeout(SAVE_LIMIT_S):
                    await broker.delays.stop()
                    with suppress(StoreError):  # the log is not durable: the older file stays
                        await broker.offsets.stop()
                    if broker.timers is not None:
                        await broker.timers.stop()
                    await broker.table_writer.flush()
            finally:
                for task in tasks:
                    task.cancel()


@asynccontextmanager
async def _timer_files(timers: Timers | None) -> AsyncIterator[None]:
    """Let go of them when nobody files or delivers any more."""
    try:
        yield
    finally:
        if timers is not None:
            timers.close()


def _periodic(broker: Broker) -> dict[str, Callable[[], Awaitable[None]]]:
    """What runs as long as the broker does. None of it ends the broker: what fails is late, and begins again."""
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "broker.tables": broker.table_writer.run_forever,
        "broker.members": broker.members.scan_forever,
        "broker.notices": broker.members.notices.tell_forever,
        "broker.longpoll": broker.parked.check_forever,
        "broker.stats": broker.stats.sample_forever,
        "broker.pop.revivals": broker.pop.revive_forever,
        "broker.pop.orders": broker.pop.release_forever,
        "broker.transactions": broker.transactions.run_forever,
        "broker.locks": broker.locks.save_forever,
        "broker.filters": broker.filters.save_forever,
        "broker.filter_servers": broker.filter_servers.scan_forever,
        "broker.offsets": partial(broker.offsets.save_forever, lambda: _save_every_s(broker)),
        "broker.delays": broker.delays.deliver_forever,
        "broker.delayed": partial(broker.delays.save_forever, lambda: _save_delays_every_s(broker)),
    }
    if broker.timers is not None:
        works |= {"broker.timers": broker.timers.run_forever, "broker.timercheck": broker.timers.save_forever}
    return works


def _save_every_s(broker: Broker) -> float:
    return broker.settings.now.offset_save_interval_ms / 1000


def _save_delays_every_s(broker: Broker) -> float:
    return max(broker.settings.now.store.delay_save_interval_ms, 100) / 1000


@asynccontextmanager
async def _registered(
    broker: Broker, client: Client, server: Server, aside: ThreadPoolExecutor, clock: Clock
) -> AsyncIterator[None]:
    """Known to the name servers; one that cannot be reached delays the start by a moment and stops nothing."""
    config = broker.settings.now
    find = _address_finder(config, server)
    ips = {host: await _ip_of(host) for host in (config.advertised_host, config.listen.host) if host}
    broker.be_found_at(find("127.0.0.1"), ips)  # until a connection to a name server shows where we are

    def found(host: str) -> str:
        address = find(host)
        broker.be_found_at(address, ips)
        return address

    broker.pop.queues.client = client
    filter_servers = broker.filter_servers
    told = filter_servers.addresses
    lasting = broker.store.mishaps.lasting
    registration = Registration(broker.settings, broker.topics, client, clock, aside, found, told, lasting)
    filter_servers.on_change = registration.tell_again
    async with asyncio.TaskGroup() as group:
        task = group.create_task(registration.run_forever(), name="broker.registration")
        start = partial(filter_servers.start_forever, server.port)
        starting = group.create_task(lasting("broker.filter_servers.start", start), name="broker.filter_servers.start")
        await registration.told(REGISTRATION_LIMIT_S)
        broker.registration = registration
        try:
            yield
        finally:
            broker.registration = None
            filter_servers.on_change = lambda: None
            starting.cancel()
            task.cancel()
            await asyncio.wait([task])
            await registration.unregister()


@asynccontextmanager
async def _second_port(broker: Broker, server: Server, clock: Clock) -> AsyncIterator[None]:
    """The VIP port, two below the first: clients before 4.5 send to it, and slaves ask at it."""
    port = server.port - VIP_DISTANCE
    async with AsyncExitStack() as stack:
        try:
            listening = replace(broker.settings.now.listen, port=port)
            await stack.enter_async_context(listen(listening, _VipOwner(broker), clock, server.shared))
        except ConfigError as problem:
            log.warning("no VIP port: %s; clients that use it (before 4.5, or vipChannelEnabled) cannot send", problem)
        yield


class _VipOwner:
    """Serves what the broker serves but for what waits: that belongs to the first port."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.closed = broker.closed

    def take(self, session: Session, stream: memoryview, bounds: list[int]) -> tuple[bytes, list[int]]:
        return b"", bounds

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        code = request.command.code
        if code in _WAITING_CODES:
            remark = f"request {code} is not served on this port, but on the one {VIP_DISTANCE} above it"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return self._broker.serve(request)


def _address_finder(config: BrokerConfig, server: Server) -> Callable[[str], str]:
    """Where others find us, from our end of a connection."""
    advertised = f"{config.advertised_host}:{config.advertised_port}" if config.advertised_port else ""
    return own_address(config, server.port, advertised)


async def _ip_of(host: str) -> str:
    """The numeric address of a host, IPv4 where it has one."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise ConfigError("brokerIP1", host, f"has no address: {problem.strerror or problem}") from problem
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


def _changed_settings(config: BrokerConfig) -> str:
    """What was set otherwise than by default, and the port in any case."""
    defaults = shown(BrokerConfig())
    texts = shown(config)
    return " ".join(
        f"{key}={texts[key]}" for key in sorted(texts) if texts[key] != defaults.get(key) or key == "listenPort"
    )
