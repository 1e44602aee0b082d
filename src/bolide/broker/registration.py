"""This broker at its name servers: each knows that we live and which topics we have.

One task for each name server, so that none waits for another: all topics at the start and every 30 s, which is the
heartbeat too; after a change only the topics it touched, at once. Changes that come while a registration is under way,
or within a moment after it, leave together in the next, so ten thousand new topics are a hundred small requests and
not ten thousand large ones. A name server that does not answer is named in one warning and tried again soon; when its
connection ends it has forgotten us, so it hears everything again as soon as it is back.

The address we tell is one that was just seen to work: our own end of the connection to that name server, unless the
operator named another (`own_address`). What we are goes with it: a master is number 0, a slave learns from the answer
where its master is, and asks more often as long as there is none. A fenced broker is known to nobody: it takes its
leave, and comes back with its next role. A topic that was deleted cannot be told this way; who deletes it tells the
name servers itself, as RocketMQ's tools do.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import msgspec

from bolide import kernel
from bolide.broker.config import BrokerConfig
from bolide.broker.members.filter_servers import FilterServers
from bolide.broker.role import RoleState
from bolide.broker.state import BrokerState
from bolide.broker.tables.topics import PERM_READ_WRITE
from bolide.errors import BolideError, ClientError, ConnectionLost, Refusal
from bolide.protocol.bodies import topics as bodies
from bolide.protocol.bodies.registration import encode_registration
from bolide.protocol.bodies.routes import BrokerMembersAnswer, DataVersion, KVTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import VERSION, Command
from bolide.protocol.headers.registration import (
    BrokerHeartbeatRequest,
    GetBrokerMembersRequest,
    QueryDataVersionAnswer,
    QueryDataVersionRequest,
    RegisterBrokerAnswer,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)
from bolide.remoting.address import split_address
from bolide.remoting.client import Client
from bolide.remoting.session import Session

# The next registration of changed topics waits this long after the one before, and takes along what came meanwhile.
SPACING_S = 0.01
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 10.0
UNREGISTER_LIMIT_S = 3.0
SEARCH_EVERY_S = 3.0  # of a slave that knows no master
ANNOUNCE_LIMIT_S = 3.0
# This many topics are written in a fraction of a millisecond; more go to a thread.
SMALL_COUNT = 200
# Half of what a frame may hold. Beyond it, some 50,000 topics, the body is compressed whether asked for or not.
PLAIN_SIZE_MAX = 8 * 1024 * 1024
# 4.9.4. The compressed form of 5.x is not read by name servers of 4.9, the one of 4.9 by all; the version says which.
COMPRESSED_VERSION = 401
_EVERYWHERE = ("", "0.0.0.0", "::")
log = logging.getLogger(__name__)

Body = tuple[bytes, bool]  # as it is sent, and whether it is compressed


class Desk:
    """What one name server was told."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.woken = asyncio.Event()
        self.touched: dict[str, None] = {}
        self.session: Session | None = None
        self.own_address = ""
        self.told_id = 0
        self.is_known = False  # it has all our topics, apart from those in `touched`
        self.heard_counter = -1
        self.failure_count = 0
        self.due_s = 0.0  # when all topics are told next
        # Counted and not set: a wish that comes while an answer is awaited is still there when it has come.
        self.wish_count = 0
        self.met_count = 0  # of the wishes, those that the last registration of all topics met

    def wish(self) -> None:
        """Everything is to be told now; what is under way may have been written before the reason came."""
        self.wish_count += 1
        self.woken.set()

    def is_due(self, now_s: float) -> bool:
        """Whether all topics are to be told; a name server that failed is tried again when its pause is over."""
        return now_s >= self.due_s or (self.failure_count == 0 and self.met_count != self.wish_count)

    def has_heard(self, counter: int) -> bool:
        """A name server that does not answer is not waited for."""
        return self.heard_counter >= counter or self.failure_count > 0


class Registration:
    """Tells all name servers in `namesrvAddr`."""

    def __init__(
        self, state: BrokerState, client: Client, file_thread: Executor, filter_servers: FilterServers
    ) -> None:
        self._settings = state.settings
        self._role = state.role
        self._topics = state.topics
        self._clock = state.clock
        self._client = client
        self._file_thread = file_thread
        self._filter_servers = filter_servers
        self._lasting = state.store.mishaps.lasting
        self._own_address: Callable[[str], str] = str
        self._ha_port: int | None = None
        self._on_answer: list[Callable[[str | None, str | None, str], None]] = []
        self._is_running = False
        self._desks = [Desk(namesrv) for namesrv in name_servers(state.settings.now.namesrv)]
        self._whole: tuple[object, asyncio.Future[Body]] | None = None
        self._progress = asyncio.Event()
        state.topics.listen(self._touch)
        filter_servers.listen(self.tell_again)
        state.role.listen(self._follow_role)

    def listen(self, tell: Callable[[str | None, str | None, str], None]) -> None:
        """Have it told with every answer: where the master is, where its log is to be had, and our own address."""
        self._on_answer.append(tell)

    async def run_forever(self, own_address: Callable[[str], str], ha_port: int | None = None) -> None:
        """Keep every name server informed, until cancelled; `own_address` makes ours from our end of a connection.

        Without a port for slaves none is told where to copy from.
        """
        self._own_address, self._ha_port, self._is_running = own_address, ha_port, True
        try:
            async with asyncio.TaskGroup() as group:
                for desk in self._desks:
                    name = f"registration.{desk.namesrv}"
                    group.create_task(self._lasting(name, partial(self._keep, desk)), name=name)
        finally:
            self._is_running = False

    async def announced(self) -> None:
        """Wait a moment until the name servers know the topics as they are now, where they are told at all."""
        if self._is_running:
            await self.told(ANNOUNCE_LIMIT_S)

    async def told(self, timeout_s: float) -> bool:
        """Wait until the name servers that answer know the topics as they are now; false when the time ran out."""
        counter = self._topics.version.counter
        if self._role.now.is_fenced:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                while not all(desk.has_heard(counter) for desk in self._desks):
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def unregister(self) -> None:
        """Take leave of the name servers that know us; called when `run_forever` has ended."""
        async with asyncio.TaskGroup() as group:
            for desk in self._desks:
                if desk.is_known:
                    group.create_task(self._leave(desk), name=f"registration.leave.{desk.namesrv}")

    @property
    def known_at(self) -> list[Desk]:
        """The name servers that know us."""
        return [desk for desk in self._desks if desk.is_known]

    def tell_again(self) -> None:
        """Something other than topics changed: let every name server hear everything now."""
        for desk in self._desks:
            desk.wish()

    def _follow_role(self, old: RoleState, new: RoleState) -> None:
        """Another role is told at once; where a slave's master is, name servers need not hear."""
        if replace(old, master_address="") != replace(new, master_address=""):
            self.tell_again()

    def _touch(self, topics: list[str]) -> None:
        for desk in self._desks:
            desk.touched.update(dict.fromkeys(topics))
            desk.woken.set()

    async def _keep(self, desk: Desk) -> None:
        while True:
            try:
                if not self._role.now.is_fenced:
                    await self._meet(desk)
                elif desk.is_known:
                    desk.is_known = False
                    await self._leave(desk)
            except (BolideError, ValueError) as problem:  # what it answers may be anything
                self._note_failure(desk, problem)
            self._progress.set()
            self._progress = asyncio.Event()
            await asyncio.sleep(SPACING_S)
            await self._pause(desk)

    async def _pause(self, desk: Desk) -> None:
        """Until everything is due, or something changed at a name server that knows the rest."""
        while self._is_idle(desk):
            desk.woken.clear()
            left_s = None if self._role.now.is_fenced else desk.due_s - self._clock.monotonic_s()
            try:
                async with asyncio.timeout(left_s):
                    await desk.woken.wait()
            except TimeoutError:
                return

    def _is_idle(self, desk: Desk) -> bool:
        if self._role.now.is_fenced:
            return not desk.is_known
        return not (desk.is_known and desk.touched) and not desk.is_due(self._clock.monotonic_s())

    async def _meet(self, desk: Desk) -> None:
        started_s = self._clock.monotonic_s()
        await self._connect(desk)
        if desk.is_known and desk.touched:
            await self._tell_touched(desk)
        if desk.is_known and not desk.is_due(started_s):
            return
        wish_count = desk.wish_count
        if not desk.is_known or wish_count != desk.met_count or await self._is_news(desk):
            await self._tell_all(desk)
        desk.met_count = wish_count
        is_lost = not self._role.is_leading and not self._role.now.master_address
        desk.due_s = started_s + (SEARCH_EVERY_S if is_lost else self._settings.now.register_every_s)

    async def _connect(self, desk: Desk) -> None:
        session = await self._client.session(desk.namesrv, self._timeout_s)
        if session is not desk.session:
            desk.session = session
            desk.is_known = False  # what it knew went with the connection before
            desk.own_address = self._own_address(split_address(session.local)[0])
            session.when_gone(lambda: self._note_loss(desk, session))

    @property
    def _timeout_s(self) -> float:
        return self._settings.now.register_timeout_ms / 1000

    async def _tell_all(self, desk: Desk) -> None:
        version = self._topics.version
        desk.touched.clear()
        body, is_compressed = await self._whole_body()
        answer = await self._send(desk, body, is_compressed)
        if not desk.is_known:
            log.info("registered namesrv=%s address=%s size=%d", desk.namesrv, desk.own_address, len(body))
        self._note_success(desk, version)
        self._follow_order(answer.body)

    async def _tell_touched(self, desk: Desk) -> None:
        table, version = self._topics.table, self._topics.version
        touched = {topic: config for topic in desk.touched if (config := table.get(topic)) is not None}
        desk.touched.clear()
        if touched:
            body, is_compressed = await self._body(bodies.TopicTable(data_version=version, topic_config_table=touched))
            await self._send(desk, body, is_compressed)
        self._note_success(desk, version)

    async def _send(self, desk: Desk, body: bytes, is_compressed: bool) -> Command:
        config = self._settings.now
        header = RegisterBrokerRequest(
            broker_name=config.name,
            broker_address=desk.own_address,
            cluster_name=config.cluster,
            ha_address=replication_address(config, desk.own_address, self._ha_port),
            broker_id=self._role.now.broker_id,
            heartbeat_timeout_ms=config.replication.silence_max_ms if config.replication.stands_in else None,
            is_acting_master_enabled=config.replication.stands_in,
            is_compressed=is_compressed,
            body_crc32=kernel.body_crc(body),
        )
        version = COMPRESSED_VERSION if is_compressed else VERSION
        command = Command(RequestCode.REGISTER_BROKER, fields=header.encode(), body=body, version=version)
        desk.told_id = header.broker_id
        answer = await self._ask(desk, command, self._timeout_s)
        told = RegisterBrokerAnswer.decode(answer.fields)
        for tell in self._on_answer:
            tell(told.master_address, told.ha_address, desk.own_address)
        return answer

    async def _is_news(self, desk: Desk) -> bool:
        """With forceRegister=false a name server is first asked whether it needs to hear everything again."""
        return self._settings.now.registers_always or await self._compare(desk)

    async def beat(self, desk: Desk, timeout_s: float) -> None:
        """Tell a name server that we live: as every release of it understands, or as 5.x does."""
        config = self._settings.now
        if config.replication.beats_as_before:
            await self._compare(desk, timeout_s)
            return
        header = BrokerHeartbeatRequest(
            cluster_name=config.cluster, broker_address=desk.own_address, broker_name=config.name
        )
        await self._ask(desk, Command(RequestCode.BROKER_HEARTBEAT, fields=header.encode()), timeout_s)

    async def members(self, desk: Desk, timeout_s: float) -> dict[int, str]:
        """Who lives under our name, as one name server has it: id → address."""
        config = self._settings.now
        header = GetBrokerMembersRequest(cluster_name=config.cluster, broker_name=config.name)
        command = Command(RequestCode.GET_BROKER_MEMBER_GROUP, fields=header.encode())
        answer = await self._ask(desk, command, timeout_s)
        group = BrokerMembersAnswer.decode(answer.body).broker_member_group
        return {} if group is None else dict(group.broker_addrs)

    async def _compare(self, desk: Desk, timeout_s: float | None = None) -> bool:
        """322: whether a name server lacks something; it notes that we live, too."""
        config = self._settings.now
        header = QueryDataVersionRequest(
            broker_name=config.name,
            broker_address=desk.own_address,
            cluster_name=config.cluster,
            broker_id=self._role.now.broker_id,
        )
        body = self._topics.version.encode()
        command = Command(RequestCode.QUERY_DATA_VERSION, fields=header.encode(), body=body)
        answer = await self._ask(desk, command, timeout_s or self._timeout_s)
        return QueryDataVersionAnswer.decode(answer.fields).is_changed

    async def _leave(self, desk: Desk) -> None:
        config = self._settings.now
        header = UnregisterBrokerRequest(
            broker_name=config.name,
            broker_address=desk.own_address,
            cluster_name=config.cluster,
            broker_id=desk.told_id,
        )
        command = Command(RequestCode.UNREGISTER_BROKER, fields=header.encode())
        try:
            await self._ask(desk, command, UNREGISTER_LIMIT_S)
            log.info("unregistered namesrv=%s address=%s", desk.namesrv, desk.own_address)
        except (ClientError, Refusal) as problem:
            log.warning("not unregistered namesrv=%s problem=%s", desk.namesrv, problem)

    async def _ask(self, desk: Desk, command: Command, timeout_s: float) -> Command:
        answer = await self._client.request(desk.namesrv, command, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise ClientError(f"it answered {answer.code}: {answer.remark}", answer.code)
        return answer

    # How it went

    def _note_success(self, desk: Desk, version: DataVersion) -> None:
        if desk.session is None or not desk.session.is_open:
            raise ConnectionLost("the connection ended with the answer")
        desk.is_known = True
        desk.failure_count = 0
        desk.heard_counter = version.counter

    def _note_failure(self, desk: Desk, problem: Exception) -> None:
        level = logging.DEBUG if desk.failure_count else logging.WARNING  # once is enough for an operator
        log.log(level, "name server not told, trying on namesrv=%s problem=%s", desk.namesrv, problem)
        desk.is_known = False
        desk.failure_count += 1
        desk.due_s = self._clock.monotonic_s() + min(RETRY_FIRST_S * 2.0 ** (desk.failure_count - 1), RETRY_MAX_S)

    def _note_loss(self, desk: Desk, session: Session) -> None:
        """The name server forgets us with the connection: tell it everything as soon as there is another."""
        if desk.session is session and desk.is_known:
            desk.is_known = False
            desk.wish()

    def _follow_order(self, body: bytes) -> None:
        """Topics that the name server's operators declared as ordered are so here too."""
        if not body:
            return
        table = self._topics.table
        named = (table.get(topic) for topic in KVTable.decode(body).table)
        self._topics.update_all(
            msgspec.structs.replace(config, order=True) for config in named if config is not None and not config.order
        )

    # The body

    async def _whole_body(self) -> Body:
        """The registration of all topics as they are now; made once for all name servers, and kept for the next."""
        config = self._settings.now
        filter_servers = self._filter_servers.addresses()
        key = (self._topics.version, config.permission, config.register_compressed, filter_servers)
        if self._whole is None or self._whole[0] != key:
            self._whole = (
                key,
                asyncio.get_running_loop().run_in_executor(
                    self._file_thread,
                    encoded,
                    self._topics.snapshot(),
                    config.permission,
                    config.register_compressed,
                    filter_servers,
                ),
            )
        return await asyncio.shield(self._whole[1])

    async def _body(self, table: bodies.TopicTable) -> Body:
        config = self._settings.now
        if len(table.topic_config_table) <= SMALL_COUNT:
            return encoded(table, config.permission, False, self._filter_servers.addresses())
        return await asyncio.get_running_loop().run_in_executor(
            self._file_thread,
            encoded,
            table,
            config.permission,
            config.register_compressed,
            self._filter_servers.addresses(),
        )


def encoded(table: bodies.TopicTable, permission: int, is_compressed: bool, filter_servers: Sequence[str] = ()) -> Body:
    """The body of a registration; no topic is told to allow what the broker does not."""
    if permission & PERM_READ_WRITE != PERM_READ_WRITE:
        masked = {
            topic: msgspec.structs.replace(config, perm=config.perm & permission)
            for topic, config in table.topic_config_table.items()
        }
        table = msgspec.structs.replace(table, topic_config_table=masked)
    registration = bodies.Registration(topic_config_serialize_wrapper=table, filter_server_list=list(filter_servers))
    if not is_compressed:
        body = encode_registration(registration, False, VERSION)
        if len(body) <= PLAIN_SIZE_MAX:
            return body, False
    return encode_registration(registration, True, COMPRESSED_VERSION), True


def name_servers(addresses: str) -> list[str]:
    """`host:port` separated by semicolons, each once; raises ConfigError for one that is none."""
    named = dict.fromkeys(address.strip() for address in addresses.split(";") if address.strip())
    for address in named:
        split_address(address)
    return list(named)


def own_address(config: BrokerConfig, port: int, advertised: str = "") -> Callable[[str], str]:
    """Where others find us, from our end of a connection that works.

    `advertised` (host:port) wins, then brokerIP1. A broker that listens on one address only is found there.
    """
    if advertised:
        return lambda host: advertised
    listens_on = config.listen.host if config.listen.host not in _EVERYWHERE else ""
    named = config.advertised_host or listens_on
    return lambda host: f"{named or host}:{port}"


def replication_address(config: BrokerConfig, address: str, ha_port: int | None) -> str:
    """Where slaves copy from; empty where none can."""
    return "" if ha_port is None else f"{config.ha_host or split_address(address)[0]}:{ha_port}"
