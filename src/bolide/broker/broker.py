"""The broker: wiring, background tasks, and the order in which it all stops. Nothing is decided here.

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
from bolide.broker.config import BrokerConfig, shown
from bolide.broker.hotpath import HotPath
from bolide.broker.intake import Intake
from bolide.broker.later.delay import Delays
from bolide.broker.later.requests import LaterRequests
from bolide.broker.later.routing import DelayRouter, Timing
from bolide.broker.later.timer_files import TimerFiles
from bolide.broker.later.timers import Timers
from bolide.broker.members.filter_servers import FilterServers
from bolide.broker.members.locks import Locks
from bolide.broker.members.requests import Clients
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.queues import TopicQueues
from bolide.broker.pop.reading import LaneReader
from bolide.broker.pulling.access import PullAccess
from bolide.broker.pulling.filter_budget import FilterBudget
from bolide.broker.pulling.longpoll import ParkedPulls
from bolide.broker.pulling.pull import Pulls
from bolide.broker.registration import ANNOUNCE_LIMIT_S, Registration, own_address
from bolide.broker.sending.replies import Replies
from bolide.broker.sending.send import Sends
from bolide.broker.sending.send_back import SendBacks
from bolide.broker.sending.staged_batches import StagedBatches
from bolide.broker.state import BrokerState
from bolide.broker.tables.deleted_topics import remove_deleted_topics, topics_before
from bolide.broker.tables.filters import Filters
from bolide.broker.tables.open_topics import OpenTopics
from bolide.broker.tables.table_files import TableWriter
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
from bolide.remoting.session import Owner, Reply, Request, Session
from bolide.store.dispatch import Arrival
from bolide.store.open import open_store

VIP_DISTANCE = 2  # the second port of a broker lies so far below its first
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

    def __init__(self, state: BrokerState, table_writer: TableWriter, client: Client, file_thread: Executor) -> None:
        """`client` asks and tells name servers, `file_thread` owns the small files."""
        settings, config, clock, store = state.settings, state.settings.now, state.clock, state.store
        self.state = state
        self.table_writer = table_writer
        self.filters = Filters(settings, table_writer, clock)
        self.filter_budget = FilterBudget(clock)
        self.filter_servers = FilterServers(settings, clock)
        self.locks = Locks(clock, config.lock_life_ms / 1000, config.directory, table_writer)
        self.parked = ParkedPulls(settings, clock)
        self.registration = Registration(state, client, file_thread, self.filter_servers)
        timer_files = TimerFiles(config.store, store, table_writer, clock) if config.store.timer_enabled else None
        timing = None if timer_files is None else Timing(settings, clock, timer_files.load_at)
        self.intake = intake = Intake(state, DelayRouter(config.store.delay_levels, timing))
        self.delays = Delays(state, intake, table_writer)
        self.timers = None if timer_files is None else Timers(state, intake, timer_files)
        reader = LaneReader(state, self.filters, self.filter_budget)
        self.pop = Pop(state, intake, table_writer, reader, TopicQueues(state, client))
        self.transactions = Transactions(state, intake)
        self.staged_batches = StagedBatches(state, intake, table_writer)
        self._handlers, self._hot_path = self._processors(file_thread)
        self.handle_turn = self._hot_path.handle_turn
        self._hearers = [self.parked.on_arrival, self.pop.on_arrival, self.delays.on_arrival]
        self._hearers += [self.timers.on_arrival] if self.timers is not None else []
        store.listen(self._arrived)
        state.members.listen(self.filters.heard, self.filters.left)
        state.offsets.listen(self.parked.on_reset)
        state.offsets.listen(self.pop.on_reset)

    def _processors(self, file_thread: Executor) -> tuple[Handlers, HotPath]:
        """Who answers what, one by one and a read at a time."""
        state, intake, table_writer = self.state, self.intake, self.table_writer
        open_topics = OpenTopics(state.topics, state.settings, table_writer, self.registration.announced)
        sends = Sends(state, intake, open_topics, self.locks)
        pulls = Pulls(state, PullAccess(state, self.filters), self.parked, self.filter_budget)
        parts = (
            sends,
            SendBacks(state, intake, open_topics),
            LaterRequests(state, intake, self.delays, self.timers),
            Replies(state, intake, sends),
            self.transactions,
            self.filter_servers,
            self.staged_batches,
            pulls,
            Queries(state),
            GroupOffsets(state),
            Progress(state),
            Resets(state),
            self.pop,
            Clients(state, self.locks, self.filters),
            Forwarding(state),
            Status(state, file_thread, self.timers),
            TopicCalls(state, table_writer, self.registration.announced),
            GroupCalls(state, table_writer),
        )
        tables = [part.handlers() for part in parts]
        gate = demand_local if state.settings.now.admin_from == LOCAL else None
        handlers = Handlers(*tables, refusals(code for table in tables for code in table), gate=gate)
        return handlers, HotPath(state, intake, open_topics, pulls, self.transactions.outcomes)

    def _arrived(self, arrival: Arrival) -> None:
        """The message is stored, and its sender is to hear that: a hearer keeps its troubles to itself."""
        self.state.store.mishaps.tell_all("broker.arrivals", self._hearers, arrival)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def closed(self, session: Session, why: str) -> None:
        self._hot_path.left(session)
        self.parked.left(session)
        self.pop.left(session)
        self.state.members.disconnected(session)
        self.filter_servers.left(session)

    def be_found_at(self, address: str, ips: Mapping[str, str]) -> None:
        """Records say where they are kept, and clients look there: it must be the address that name servers tell.

        A record has room for a number only; `ips` has it for the names that an operator gave.
        """
        host, port = split_address(address)
        self.state.store.be_found_at(Host(ips.get(host, host), port).packed())


@asynccontextmanager
async def serve(config: BrokerConfig, clock: Clock) -> AsyncIterator[tuple[Broker, Server]]:
    """A broker that takes and gives messages as long as the block lasts."""
    log.info("broker starts name=%s kernel=%s %s", config.name, kernel.NAME, _changed_settings(config))
    if config.ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(config.ignored)))
    with ThreadPoolExecutor(1, thread_name_prefix="broker.files") as file_thread:
        had_queues = topics_before(config)
        async with open_store(config.store, clock) as store:
            table_writer = TableWriter(file_thread, store.mishaps)
            state, client = BrokerState.open(config, store, table_writer, clock), Client(config.connect, clock)
            remove_deleted_topics(store, state.topics, had_queues)
            broker = Broker(state, table_writer, client, file_thread)
            await broker.pop.load()
            await broker.transactions.load()
            await broker.staged_batches.load()
            async with (
                _timer_files(broker.timers),
                _background(broker),
                client,
                listen(config.listen, broker, clock) as server,
                _second_port(broker, server, clock),
                _registered(broker, server),
            ):
                yield broker, server
    log.info("broker stopped name=%s", config.name)


@asynccontextmanager
async def _background(broker: Broker) -> AsyncIterator[None]:
    """The periodic work; at the end every table is written once more."""
    async with asyncio.TaskGroup() as group:
        lasting = broker.state.store.mishaps.lasting
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
                        await broker.state.offsets.stop()
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
        "broker.members": broker.state.members.scan_forever,
        "broker.notices": broker.state.members.notices.tell_forever,
        "broker.longpoll": broker.parked.check_forever,
        "broker.stats": broker.state.stats.sample_forever,
        "broker.pop.revivals": broker.pop.revive_forever,
        "broker.pop.orders": broker.pop.release_forever,
        "broker.transactions": broker.transactions.run_forever,
        "broker.locks": broker.locks.save_forever,
        "broker.filters": broker.filters.save_forever,
        "broker.filter_servers": broker.filter_servers.scan_forever,
        "broker.offsets": partial(broker.state.offsets.save_forever, lambda: _save_every_s(broker)),
        "broker.delays": broker.delays.deliver_forever,
        "broker.delayed": partial(broker.delays.save_forever, lambda: _save_delays_every_s(broker)),
    }
    if broker.timers is not None:
        works |= {"broker.timers": broker.timers.run_forever, "broker.timercheck": broker.timers.save_forever}
    return works


def _save_every_s(broker: Broker) -> float:
    return broker.state.settings.now.offset_save_interval_ms / 1000


def _save_delays_every_s(broker: Broker) -> float:
    return max(broker.state.settings.now.store.delay_save_interval_ms, 100) / 1000


@asynccontextmanager
async def _registered(broker: Broker, server: Server) -> AsyncIterator[None]:
    """Known to the name servers; one that cannot be reached delays the start by a moment and stops nothing."""
    config = broker.state.settings.now
    find = _address_finder(config, server)
    ips = {host: await _ip_of(host) for host in (config.advertised_host, config.listen.host) if host}
    broker.be_found_at(find("127.0.0.1"), ips)  # until a connection to a name server shows where we are

    def found(host: str) -> str:
        address = find(host)
        broker.be_found_at(address, ips)
        return address

    registration, lasting = broker.registration, broker.state.store.mishaps.lasting
    async with asyncio.TaskGroup() as group:
        task = group.create_task(registration.run_forever(found), name="broker.registration")
        start = partial(broker.filter_servers.start_forever, server.port)
        starting = group.create_task(lasting("broker.filter_servers.start", start), name="broker.filter_servers.start")
        await registration.told(ANNOUNCE_LIMIT_S)
        try:
            yield
        finally:
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
            listening = replace(broker.state.settings.now.listen, port=port)
            await stack.enter_async_context(listen(listening, _VipOwner(broker), clock, server.shared))
        except ConfigError as problem:
            log.warning("no VIP port: %s; clients that use it (before 4.5, or vipChannelEnabled) cannot send", problem)
        yield


class _VipOwner(Owner):
    """Serves what the broker serves but for what waits: that belongs to the first port."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        code = request.command.code
        if code in _WAITING_CODES:
            remark = f"request {code} is not served on this port, but on the one {VIP_DISTANCE} above it"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return self._broker.serve(request)

    def closed(self, session: Session, why: str) -> None:
        self._broker.closed(session, why)


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
    """What was set to another value than the default, and the port in any case."""
    defaults = shown(BrokerConfig())
    texts = shown(config)
    return " ".join(
        f"{key}={texts[key]}" for key in sorted(texts) if texts[key] != defaults.get(key) or key == "listenPort"
    )
