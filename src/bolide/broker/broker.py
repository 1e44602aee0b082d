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
from pathlib import Path

from bolide import kernel
from bolide.access.signing import signers
from bolide.broker.admin.forwarding import Forwarding
from bolide.broker.admin.groups import GroupCalls
from bolide.broker.admin.offsets import GroupOffsets
from bolide.broker.admin.progress import Progress
from bolide.broker.admin.queries import Queries
from bolide.broker.admin.refusals import refusals
from bolide.broker.admin.resets import Resets
from bolide.broker.admin.status import Status
from bolide.broker.admin.topics import TopicCalls
from bolide.broker.admission import Admission
from bolide.broker.arrivals import Arrivals
from bolide.broker.config import BrokerConfig, shown
from bolide.broker.controlled.controlled import Controlled, join_group
from bolide.broker.controlled.membership import Membership
from bolide.broker.hotpath import HotPath
from bolide.broker.intake import Intake
from bolide.broker.later.delay import Delays
from bolide.broker.later.escape import Escape
from bolide.broker.later.outlet import Outlet
from bolide.broker.later.requests import LaterRequests
from bolide.broker.later.routing import DelayRouter, Timing
from bolide.broker.later.timer_files import TimerFiles
from bolide.broker.later.timers import Timers
from bolide.broker.members.filter_servers import FilterServers
from bolide.broker.members.locks import Locks
from bolide.broker.members.requests import Clients
from bolide.broker.metrics.page import Shown
from bolide.broker.metrics.port import MetricsPort
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.queues import TopicQueues
from bolide.broker.pop.reading import LaneReader
from bolide.broker.pulling.access import PullAccess
from bolide.broker.pulling.filter_budget import FilterBudget
from bolide.broker.pulling.longpoll import ParkedPulls
from bolide.broker.pulling.pull import Pulls
from bolide.broker.registration import ANNOUNCE_LIMIT_S, Registration, own_address, replication_address
from bolide.broker.replication.acting import Acting, Escapes, deliveries
from bolide.broker.replication.catalog import Catalog
from bolide.broker.replication.catalog_copy import CatalogCopy
from bolide.broker.replication.change import Memories, RoleChange, RoleWork
from bolide.broker.replication.following import Following
from bolide.broker.replication.neighbours import Neighbours, check_directory
from bolide.broker.replication.requests import ReplicationRequests
from bolide.broker.replication.safety import SyncMaster
from bolide.broker.replication.tables import SlaveTables
from bolide.broker.role import ASYNC_MASTER, RoleState
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
from bolide.broker.vip import VIP_DISTANCE, VipOwner
from bolide.clock import Clock
from bolide.errors import ConfigError, StoreError
from bolide.ha.config import HaConfig
from bolide.ha.door import Security
from bolide.ha.epochs import FILE_NAME as EPOCH_FILE_NAME
from bolide.ha.epochs import Epochs
from bolide.ha.handshake import HaKey
from bolide.ha.replication import Replication
from bolide.model.host import Host
from bolide.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.protocol.command import Command
from bolide.remoting.address import split_address
from bolide.remoting.changes import set_log_level
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handlers
from bolide.remoting.operators import LOCAL, demand_local
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session
from bolide.store.open import open_store

SAVE_LIMIT_S = 10.0
log = logging.getLogger(__name__)


class Broker:
    """The owner of all connections: sends and pulls a read at a time, everything else one by one."""

    def __init__(
        self,
        state: BrokerState,
        table_writer: TableWriter,
        client: Client,
        file_thread: Executor,
        replication: Replication,
    ) -> None:
        """`client` asks and tells other servers, `file_thread` owns the small files, `replication` copies the log."""
        settings, config, clock, store = state.settings, state.settings.now, state.clock, state.store
        self.state = state
        self.table_writer = table_writer
        self.admission = Admission(state, client, file_thread)
        self.filters = Filters(settings, table_writer, clock)
        self.filter_budget = FilterBudget(clock)
        self.filter_servers = FilterServers(settings, clock)
        self.locks = Locks(clock, config.lock_life_ms / 1000, config.directory, table_writer)
        self.parked = ParkedPulls(settings, clock)
        self.registration = Registration(state, client, file_thread, self.filter_servers)
        timer_files = _timer_files_of(state, table_writer) if config.store.timer_enabled else None
        timing = None if timer_files is None else Timing(settings, clock, timer_files.load_at)
        self.intake = intake = Intake(state, DelayRouter(config.store.delay_levels, timing))
        escape = Escape(state, client, queues := TopicQueues(state, client))
        outlet = Outlet(state, intake, escape)
        self.delays = Delays(state, outlet, table_writer)
        self.timers = None if timer_files is None else Timers(state, outlet, timer_files)
        reader = LaneReader(state, self.filters, self.filter_budget)
        self.pop = Pop(state, intake, table_writer, reader, queues)
        self.transactions = Transactions(state, intake)
        self.staged_batches = StagedBatches(state, intake, table_writer)
        self.master_work = RoleWork(state, _master_works(self))
        memories = Memories(self.delays, self.timers, self.pop, self.transactions, self.staged_batches)
        self.replication = replication
        self.catalog = Catalog(state, table_writer)
        self.catalog_copy = CatalogCopy(state, client, table_writer, self.pop.modes)
        self.slave_tables = SlaveTables(state, client, self.delays, self.timers, self.catalog_copy)
        self.following = Following(state, client, replication)
        self.change = RoleChange(state, memories, self.master_work, replication, self.following)
        self.neighbours = Neighbours(state, client)
        self.escapes = Escapes(state, memories, escape)
        self.acting = Acting(state, self.registration, self.escapes, lambda: replication.following.is_connected)
        self.registration.listen(self.following.heard)
        self.replication_requests = ReplicationRequests(
            state, replication, self.following, self.pop.modes, self.catalog
        )
        if not config.replication.is_controlled:
            state.safety.plug(SyncMaster(settings, state.role, store, replication.acks))
        self._handlers, self._hot_path = self._processors(file_thread)
        self.meter = state.meter
        works = self.delays, self.timers, self.pop, self.transactions
        self.metrics_port = MetricsPort(Shown(state, *works, replication))
        self.handle_turn = self.admission.guarded(self._hot_path.handle_turn)
        self.arrivals = self._hearing()
        state.members.listen(self.filters.heard, self.filters.left)
        state.offsets.listen(self.parked.on_reset)
        state.offsets.listen(self.pop.on_reset)

    def _hearing(self) -> Arrivals:
        """Who hears of messages that came."""
        of_topics = {SCHEDULE_TOPIC: self.delays.on_arrival}
        if self.timers is not None:
            of_topics[TIMER_TOPIC] = self.timers.on_arrival
        any_topic = self.parked.on_arrival, self.pop.on_arrival
        return Arrivals(self.state, any_topic, of_topics, self.slave_tables.on_arrival)

    def _processors(self, file_thread: Executor) -> tuple[Handlers, HotPath]:
        """Who answers what, one by one and a read at a time."""
        state, intake = self.state, self.intake
        open_topics = OpenTopics(state.topics, state.settings, self.catalog, self.registration.announced)
        sends = Sends(state, intake, open_topics, self.locks)
        access, is_master_here = PullAccess(state, self.filters), self.following.is_master_here
        pulls = Pulls(state, access, self.parked, self.filter_budget, is_master_here)
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
            TopicCalls(state, self.catalog, self.registration.announced),
            GroupCalls(state, self.catalog),
            self.replication_requests,
            self.acting,
            self.admission,
        )
        tables = [part.handlers() for part in parts]
        gate = demand_local if state.settings.now.admin_from == LOCAL else None
        door = None if self.admission.door is None else self.admission.door.enter
        handlers = Handlers(*tables, refusals(code for table in tables for code in table), gate=gate, door=door)
        return handlers, HotPath(state, intake, open_topics, pulls, self.transactions.outcomes)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def on_answer(self, request: Request, answer: Command) -> None:
        if self.meter is not None:
            self.meter.answered(request, answer.code)

    def closed(self, session: Session, why: str) -> None:
        self._hot_path.left(session)
        if self.admission.door is not None:
            self.admission.door.left(session)
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
    if config.log_level:
        set_log_level(config.log_level)
    log.info("broker starts name=%s kernel=%s %s", config.name, kernel.NAME, _changed_settings(config))
    if config.ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(config.ignored)))
    with ThreadPoolExecutor(1, thread_name_prefix="broker.files") as file_thread:
        check_directory(config)
        had_queues = topics_before(config)
        async with open_store(config.store, clock, is_controlled=config.replication.is_controlled) as store:
            table_writer = TableWriter(file_thread, store.mishaps)
            state = BrokerState.open(config, store, table_writer, clock)
            client = Client(config.connect, clock, hooks=signers(config.access))
            role = state.role.now
            if role.is_leading and not config.replication.is_controlled:  # a slave hears of topics after messages
                remove_deleted_topics(store, state.topics, had_queues)
            state.role.become(replace(role, is_fenced=True))  # until what a master must know is loaded
            membership = join_group(state, client) if config.replication.is_controlled else None
            async with _replicating(state, membership) as replication:
                broker = Broker(state, table_writer, client, file_thread, replication)
                controlled = None if membership is None else Controlled(state, membership, replication, broker.change)
                async with _running(broker, role, client, clock) as server, _controlled(broker, controlled, server):
                    yield broker, server
    log.info("broker stopped name=%s", config.name)


@asynccontextmanager
async def _running(broker: Broker, role: RoleState, client: Client, clock: Clock) -> AsyncIterator[Server]:
    async with (
        _timer_files(broker.timers),
        broker.master_work,
        broker.escapes.work,
        _background(broker),
        client,
        _in_role(broker, role),
        listen(broker.state.settings.now.listen, broker, clock) as server,
        _slave_port(broker, role),
        _second_port(broker, server, clock),
        _registered(broker, server),
        broker.metrics_port.serving(),
    ):
        yield server


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
            broker.filters.save()
            broker.locks.save()
            broker.state.safety.stop()
            try:
                async with asyncio.timeout(SAVE_LIMIT_S):
                    await broker.transactions.save()
                    await broker.delays.stop()
                    with suppress(StoreError):  # the log is not durable: the older file stays
                        await broker.state.offsets.stop()
                    if broker.timers is not None:
                        await broker.timers.stop()
                    await broker.table_writer.flush()
            finally:
                for task in tasks:
                    task.cancel()


def _timer_files_of(state: BrokerState, table_writer: TableWriter) -> TimerFiles:
    kept = partial(state.safety.kept, state.store)
    return TimerFiles(state.settings.now.store, state.store, table_writer, state.clock, kept)


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
        "broker.locks": broker.locks.save_forever,
        "broker.filters": broker.filters.save_forever,
        "broker.filter_servers": broker.filter_servers.scan_forever,
        "broker.offsets": partial(broker.state.offsets.save_forever, lambda: _save_every_s(broker)),
        "broker.slave_tables": broker.slave_tables.run_forever,
        "broker.slave_catalog": broker.catalog_copy.follow_forever,
        "broker.following": broker.following.run_forever,
        "broker.delayed": partial(broker.delays.save_forever, lambda: _save_delays_every_s(broker)),
    }
    if broker.state.settings.now.replication.stands_in:
        works["broker.acting"] = broker.acting.run_forever
    if broker.admission.door is not None:
        works["broker.access"] = broker.admission.door.refresh_forever
    if broker.admission.user_copy is not None:
        works["broker.users"] = broker.admission.user_copy.run_forever
    return works


def _master_works(broker: Broker) -> dict[str, Callable[[], Awaitable[None]]]:
    """What runs as long as the broker is a master."""
    return {
        "broker.pop.revivals": broker.pop.revive_forever,
        "broker.pop.orders": broker.pop.release_forever,
        "broker.transactions": broker.transactions.run_forever,
        **deliveries(broker.delays, broker.timers),
    }


def _replicating(state: BrokerState, membership: Membership | None) -> Replication:
    """The port for slaves; a broker whose master is elected keeps the epochs of its log."""
    config, store = state.settings.now, state.store
    ha_config, pair = _ha_config(config), config.access.inner_pair if config.access.is_on else None
    key = None if pair is None else HaKey(name=pair.access_key, secret=pair.secret_key)
    security = Security(listen=config.listen, connect=config.connect, is_guarded=config.access.is_on, key=key)
    if membership is None:
        return Replication(store, ha_config, state.clock, security=security)
    epochs = Epochs(Path(ha_config.epoch_path or store.config.root / EPOCH_FILE_NAME))
    return Replication(store, ha_config, state.clock, epochs, lambda: membership.replica_id, security)


@asynccontextmanager
async def _controlled(broker: Broker, controlled: Controlled | None, server: Server) -> AsyncIterator[None]:
    """A member of its group, if the role is a controller's to give."""
    if controlled is None:
        yield
        return
    find = _address_finder(broker.state.settings.now, server)

    def found(host: str) -> str:
        address = find(host)
        ha_address = replication_address(broker.state.settings.now, address, broker.replication.port)
        broker.following.be_found_at(address, ha_address)
        return address

    broker.state.safety.plug(controlled.leadership)
    broker.replication_requests.plug(controlled.handlers())
    lasting = broker.state.store.mishaps.lasting
    async with asyncio.TaskGroup() as group:
        work = partial(controlled.run_forever, found)
        task = group.create_task(lasting("broker.controlled", work), name="broker.controlled")
        try:
            yield
        finally:
            task.cancel()


def _ha_config(config: BrokerConfig) -> HaConfig:
    """Slaves copy at haListenPort, or one above the broker's; a broker on any free port has another free one."""
    port = config.listen.port
    return replace(config.ha, port=config.ha.port or (port + 1 if port else 0))


@asynccontextmanager
async def _in_role(broker: Broker, role: RoleState) -> AsyncIterator[None]:
    """Be what the settings say, before anybody is served."""
    if broker.state.settings.now.replication.is_controlled:
        await broker.change.fence()  # until a controller says
    else:
        told = await broker.neighbours.look(role)
        if role.is_leading:
            await broker.change.to_master(
                role, lambda end: broker.neighbours.bring_home(told, broker.delays, broker.timers)
            )
        else:
            await broker.change.to_slave(role)
    yield


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
        broker.following.be_found_at(address, replication_address(config, address, broker.replication.port))
        return address

    registration, lasting = broker.registration, broker.state.store.mishaps.lasting
    async with asyncio.TaskGroup() as group:
        task = group.create_task(registration.run_forever(found, broker.replication.port), name="broker.registration")
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
async def _slave_port(broker: Broker, role: RoleState) -> AsyncIterator[None]:
    """Where slaves copy from. A master that lives without slaves lives without it too, unless it was asked for."""
    config = broker.state.settings.now
    try:
        await broker.replication.listen()
    except ConfigError as problem:
        if config.ha.port or config.replication.is_controlled or role.kind is not ASYNC_MASTER:
            raise
        log.warning("no port for slaves: %s; no slave can follow, haListenPort chooses another port", problem)
    yield


@asynccontextmanager
async def _second_port(broker: Broker, server: Server, clock: Clock) -> AsyncIterator[None]:
    """The VIP port, two below the first: clients before 4.5 send to it, and slaves ask at it."""
    port = server.port - VIP_DISTANCE
    async with AsyncExitStack() as stack:
        try:
            listening = replace(broker.state.settings.now.listen, port=port)
            await stack.enter_async_context(listen(listening, VipOwner(broker), clock, server.shared))
        except ConfigError as problem:
            log.warning("no VIP port: %s; clients that use it (before 4.5, or vipChannelEnabled) cannot send", problem)
        yield


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
