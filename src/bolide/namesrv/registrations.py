"""Requests that change the tables: brokers that come, live and go, and operators who change their topics.

Rule: requests that change the tables are carried out one after another (`change_queue.py`). A small registration is
read and applied at once. A large one (ten thousand topics are more than a megabyte) is read in a thread and compared
in slices, with look-ups answered in between, and then applied in one turn. A connection that ends or a scan does not
wait for a turn: it changes the tables at once, and the plan under way is made again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

import msgspec

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.namesrv.absence import Departures
from bolide.namesrv.change_queue import ChangeQueue
from bolide.namesrv.config import LiveConfig
from bolide.namesrv.entries import (
    HEARTBEAT_TIMEOUT_MS,
    Announcement,
    Cause,
    Departure,
    Enrolled,
    MinIdNotice,
    Plan,
    QueueRow,
)
from bolide.namesrv.kv import ORDER_TOPIC_CONFIG, KvConfig
from bolide.namesrv.routes import RouteTables
from bolide.namesrv.shares import BROKER_SIZE, BROKERS_BY_CONNECTION_MAX, TOPICS_MAX, make_room, peer_of
from bolide.protocol.bodies.registration import decode_registration
from bolide.protocol.bodies.routes import DataVersion, KVTable, QueueRoute, TopicRoute
from bolide.protocol.bodies.topics import TopicConfig, TopicTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.registration import (
    BrokerHeartbeatRequest,
    QueryDataVersionAnswer,
    QueryDataVersionRequest,
    RegisterBrokerAnswer,
    RegisterBrokerRequest,
    RegisterTopicRequest,
    UnregisterBrokerRequest,
)
from bolide.protocol.headers.routes import (
    AddWritePermissionAnswer,
    AddWritePermissionRequest,
    DeleteTopicInNamesrvRequest,
    WipeWritePermissionAnswer,
    WipeWritePermissionRequest,
)
from bolide.remoting.handlers import bounded_body
from bolide.remoting.session import Request, Session
from bolide.remoting.slack import let_go

# Strict JSON up to this size is read at once: some 100 topics, a fraction of a millisecond. The rest goes to a thread.
SMALL_BODY_SIZE = 16 * 1024
VERSION_SIZE_MAX = 4 * 1024
TOPIC_SIZE_MAX = 64 * 1024
TOPICS_A_SLICE = 500
NAME_LENGTH_MAX = 255
FILTER_SERVERS_MAX = 256
# What only fastjson takes is read in Python, a second for each megabyte; ten thousand topics are one.
ODD_BODY_SIZE_MAX = 2 * 1024 * 1024
HEARTBEAT_TIMEOUT_MS_MAX = 86_400_000
_PLANS_MAX = 5
_TRIM_AFTER_S = 1.0
_ZONE_NAME = "__ZONE_NAME"
_FILTER_LIST_VERSION = 37  # brokers before 3.0.11 send no filter servers, which is not the same as none
INT32_MAX = 0x7FFF_FFFF
INT64_MAX = (1 << 63) - 1
_SKIPPING = msgspec.json.Decoder(msgspec.Raw)
log = logging.getLogger(__name__)

Answer = Command | Awaitable[Command]


class Registrations:
    """The one hand that changes the tables."""

    def __init__(
        self,
        tables: RouteTables,
        departures: Departures,
        kv: KvConfig,
        settings: LiveConfig,
        clock: Clock,
        file_thread: Executor,
        notify: Callable[[MinIdNotice], None],
    ) -> None:
        self._tables = tables
        self._departures = departures
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._file_thread = file_thread
        self._notify = notify
        self._is_trim_due = False
        self.changes = ChangeQueue()

    def handlers(self) -> dict[int, Callable[[Request], Answer]]:
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.compare_version,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write,
        }

    # Brokers

    def register(self, request: Request) -> Answer:
        """103: a broker is here, with these topics; every 30 seconds, so this is its heartbeat too."""
        header = RegisterBrokerRequest.decode(request.command.fields)
        size = len(request.command.body)
        # Heard now: a broker must not expire because its registration queues behind somebody's large one.
        self._tables.hear(header.cluster_name, header.broker_address, self._now_ms())
        # What is folded into a compressed body nobody knows before it is read, and neither is strict JSON.
        if size > SMALL_BODY_SIZE or header.is_compressed or not is_strict_json(request.command.body):
            return self.changes.run(lambda: self._register_large(request, header), size, is_long=True)
        return self.changes.run(lambda: self._register_small(request, header), size)

    def _register_small(self, request: Request, header: RegisterBrokerRequest) -> Command:
        announcement = announced(request, header)
        _check_present(request)
        plan = self._planned(announcement)
        plan.compare(len(announcement.topics))
        return self._apply(request, plan)

    async def _register_large(self, request: Request, header: RegisterBrokerRequest) -> Command:
        loop = asyncio.get_running_loop()
        announcement = await loop.run_in_executor(self._file_thread, announced, request, header)
        plan = self._planned(announcement)
        for _ in range(_PLANS_MAX):
            is_left = True
            while is_left:
                is_left = plan.compare(TOPICS_A_SLICE)
                await asyncio.sleep(0)
            if plan.revision == self._tables.revision:
                break
            plan = self._planned(announcement)
        else:
            plan.compare(len(announcement.topics))  # brokers leave faster than we compare: better late than never
        _check_present(request)
        return self._apply(request, plan)

    def _planned(self, announcement: Announcement) -> Plan:
        return self._tables.plan(announcement, drops_missing=self._settings.now.drops_missing_topics)

    def _apply(self, request: Request, plan: Plan) -> Command:
        """Carry out a compared plan, if there is room for what it adds."""
        announcement = plan.announcement
        if self._made_room(request.session, plan):
            plan = self._planned(announcement)
            plan.compare(len(announcement.topics))
        return self._enrolled(request, announcement, self._tables.apply(plan, self._now_ms()))

    def _made_room(self, session: Session, plan: Plan) -> bool:
        """Whether others had to leave; raises Refusal when it is this one that has too much."""
        tables, announcement, size_max = self._tables, plan.announcement, self._settings.now.registrations_size_max
        topic_count = plan.added_count + len(tables.queues.get(announcement.name, ()))
        if plan.added_count and topic_count > TOPICS_MAX:
            text = (
                f"broker {announcement.name!r} would have {topic_count} topics here; a broker has at most {TOPICS_MAX}"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, text)
        is_new = announcement.key not in tables.live
        if is_new and tables.carried_count(session) >= BROKERS_BY_CONNECTION_MAX:
            text = f"this connection has registered {BROKERS_BY_CONNECTION_MAX} brokers, which is the most it may"
            raise Refusal(ResponseCode.SYSTEM_ERROR, text)
        added = plan.added_size + announcement.mappings_size + is_new * BROKER_SIZE
        if not added or tables.size + added <= size_max // 2:
            return False
        sizes: dict[str, int] = {}
        for connection, size in tables.holdings().items():
            peer = peer_of(connection.origin if isinstance(connection, Session) else "")
            sizes[peer] = sizes.get(peer, 0) + size
        leaving = set(make_room(sizes, peer_of(session.origin), added, size_max))
        for connection in list(tables.holdings()) if leaving else ():
            if isinstance(connection, Session) and peer_of(connection.origin) in leaving:
                log.warning("connection closed: peer=%s its brokers take more than their share", connection.peer)
                self.disconnected(connection)
                connection.close("its brokers take more than their share of the memory")
        return bool(leaving)

    def _enrolled(self, request: Request, announcement: Announcement, enrolled: Enrolled) -> Command:
        self._log_enrolled(request, announcement, enrolled)
        if not enrolled.is_ignored:
            self._departures.forget(announcement.name)
        self._tell(enrolled.notice)
        answer = RegisterBrokerAnswer(
            ha_address=enrolled.ha_address or None, master_address=enrolled.master_address or None
        )
        order_topics = self._kv.namespace(ORDER_TOPIC_CONFIG) if self._settings.now.returns_order_topics else None
        body = b"" if order_topics is None else KVTable(table=dict(order_topics)).encode()
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode(), body=body)

    def _log_enrolled(self, request: Request, announcement: Announcement, enrolled: Enrolled) -> None:
        if enrolled.is_ignored:
            log.warning(
                "registration ignored: id is held by another address of a higher state name=%s id=%d address=%s",
                announcement.name,
                announcement.broker_id,
                announcement.address,
            )
            return
        is_news = enrolled.is_new or enrolled.written_count or enrolled.removed_count
        log.log(
            logging.INFO if is_news else logging.DEBUG,
            "broker registered name=%s id=%d address=%s cluster=%s new=%s topics=%d written=%d removed=%d size=%d",
            announcement.name,
            announcement.broker_id,
            announcement.address,
            announcement.cluster,
            enrolled.is_new,
            len(announcement.topics),
            enrolled.written_count,
            enrolled.removed_count,
            len(request.command.body),
        )

    def unregister(self, request: Request) -> Answer:
        """104: a broker is leaving."""
        header = UnregisterBrokerRequest.decode(request.command.fields)

        def leave() -> Command:
            departure = self._tables.unregister(
                header.cluster_name, header.broker_name, header.broker_address, self._now_ms()
            )
            if departure is not None:
                self._departed(departure)
            return request.command.answer(ResponseCode.SUCCESS)

        return self.changes.run(leave)

    def heartbeat(self, request: Request) -> Command:
        """904: a broker of 5.x is still here."""
        header = BrokerHeartbeatRequest.decode(request.command.fields)
        self._tables.hear(header.cluster_name, header.broker_address, self._now_ms())
        return request.command.answer(ResponseCode.SUCCESS)

    def compare_version(self, request: Request) -> Command:
        """322: is a full registration needed?"""
        header = QueryDataVersionRequest.decode(request.command.fields)
        body = bounded_body(request, VERSION_SIZE_MAX)
        asked = DataVersion.decode(body) if body else None
        known = self._tables.version_of(header.cluster_name, header.broker_address)
        self._tables.hear(header.cluster_name, header.broker_address, self._now_ms())
        answer = QueryDataVersionAnswer(is_changed=known is None or known != asked)
        body = b"" if known is None else known.encode()
        return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode(), body=body)

    def disconnected(self, session: Session) -> None:
        """A connection ended: all brokers it registered are gone."""
        for departure in self._tables.disconnect(session, self._now_ms()):
            self._departed(departure)

    def scan(self) -> int:
        """Remove the brokers that were silent for too long and close their connections; says how many."""
        departures = self._tables.expire(self._now_ms())
        for departure in departures:
            self._departed(departure)
            if isinstance(departure.connection, Session):
                departure.connection.close("its broker sent no heartbeat")
        return len(departures)

    def _departed(self, departure: Departure) -> None:
        log.log(
            logging.INFO if departure.cause is Cause.UNREGISTERED else logging.WARNING,
            "broker gone name=%s address=%s cluster=%s cause=%s silent=%dms topics=%d",
            departure.name,
            departure.address,
            departure.cluster,
            departure.cause.name.lower(),
            departure.silent_ms,
            len(departure.rows),
        )
        if departure.name not in self._tables.brokers:
            self._departures.remember(departure)
        if len(departure.rows) > TOPICS_A_SLICE and not self._is_trim_due:
            self._is_trim_due = True  # later, when nobody holds them any more, and once for many that leave together
            asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)
        self._tell(departure.notice)

    def _trim(self) -> None:
        self._is_trim_due = False
        with contextlib.suppress(RuntimeError):  # the server has stopped
            self._file_thread.submit(let_go)

    def _tell(self, notice: MinIdNotice | None) -> None:
        if notice is not None and self._settings.now.notifies_min_id:
            self._notify(notice)

    # Operators

    def register_topic(self, request: Request) -> Answer:
        """217: one topic without the rest; told of a broker we do not know, RocketMQ too says nothing."""
        header = RegisterTopicRequest.decode(request.command.fields)
        _check_name("topic", header.topic)
        route = TopicRoute.decode(bounded_body(request, TOPIC_SIZE_MAX))
        rows = {row.broker_name: row_of(row) for row in route.queue_datas}
        if not all(map(_is_within_count, rows.values())):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"a topic has at most {QUEUE_COUNT_MAX} queues in one broker")

        def merge() -> Command:
            if not self._tables.register_topic(header.topic, rows):
                names = [name[:NAME_LENGTH_MAX] for name in list(rows)[:10]]
                log.warning("topic not registered topic=%r brokers=%r", header.topic, names)
            return request.command.answer(ResponseCode.SUCCESS)

        return self.changes.run(merge)

    def delete_topic(self, request: Request) -> Answer:
        """216: forget a topic; a broker that still has it brings it back."""
        header = DeleteTopicInNamesrvRequest.decode(request.command.fields)

        def delete() -> Command:
            self._tables.delete_topic(header.topic, header.cluster_name or None)
            log.info("topic deleted topic=%.300r cluster=%.300r", header.topic, header.cluster_name or "all")
            return request.command.answer(ResponseCode.SUCCESS)

        return self.changes.run(delete)

    def wipe_write(self, request: Request) -> Answer:
        """205: let no more messages be sent to a broker."""
        name = WipeWritePermissionRequest.decode(request.command.fields).broker_name

        def wipe() -> Command:
            count = self._tables.wipe_write(name)
            log.info("write permission wiped name=%.300r topics=%d", name, count)
            answer = WipeWritePermissionAnswer(topic_count=count)
            return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())

        return self.changes.run(wipe)

    def add_write(self, request: Request) -> Answer:
        """327: let messages be sent to it again."""
        name = AddWritePermissionRequest.decode(request.command.fields).broker_name

        def add() -> Command:
            count = self._tables.add_write(name)
            log.info("write permission added name=%.300r topics=%d", name, count)
            answer = AddWritePermissionAnswer(topic_count=count)
            return request.command.answer(ResponseCode.SUCCESS, fields=answer.encode())

        return self.changes.run(add)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _check_present(request: Request) -> None:
    """A broker whose connection is gone must not be registered: nobody would notice that it is not there."""
    if not request.session.is_open:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "the connection ended before the registration was carried out")


def announced(request: Request, header: RegisterBrokerRequest) -> Announcement:
    """What a registration says, read from header and body; raises Refusal. Pure, so a thread may run it."""
    command = request.command
    for key, name in (
        ("brokerName", header.broker_name),
        ("brokerAddr", header.broker_address),
        ("clusterName", header.cluster_name),
        ("haServerAddr", header.ha_address or "-"),
        (_ZONE_NAME, command.fields.get(_ZONE_NAME) or "-"),
    ):
        _check_name(key, name)
    if not 0 <= header.broker_id <= INT64_MAX:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"brokerId must be 0 to {INT64_MAX}, not {header.broker_id}")
    if header.body_crc32 and header.body_crc32 != kernel.body_crc(command.body):
        raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match: the body is not the one that was sent")
    size = len(command.body)
    if size > ODD_BODY_SIZE_MAX and not command.body.startswith(b"\x78") and not is_strict_json(command.body):
        text = f"a body of {size} bytes that is no strict JSON; it may have {ODD_BODY_SIZE_MAX}, or be compressed"
        raise Refusal(ResponseCode.SYSTEM_ERROR, text)
    registration = decode_registration(command.body, header.is_compressed, command.version)
    table = registration.topics
    filter_servers = registration.filter_server_list if command.version >= _FILTER_LIST_VERSION else None
    _check_filter_servers(filter_servers or [])
    timeout_ms = header.heartbeat_timeout_ms
    return Announcement(
        cluster=header.cluster_name,
        name=header.broker_name,
        address=header.broker_address,
        broker_id=header.broker_id,
        ha_address=header.ha_address,
        version=table.data_version,
        topics=_topics_of(table, header.broker_name),
        connection=request.session,
        filter_servers=filter_servers,
        acting_master=header.is_acting_master_enabled,
        zone=command.fields.get(_ZONE_NAME) or None,
        timeout_ms=HEARTBEAT_TIMEOUT_MS if timeout_ms is None else min(timeout_ms, HEARTBEAT_TIMEOUT_MS_MAX),
        mappings=table.topic_queue_mapping_info_map or {},
    )


def _topics_of(table: TopicTable, broker_name: str) -> dict[str, QueueRow]:
    """The topics a broker has. One with more queues than anybody could use costs itself, and not the whole broker."""
    told = table.topic_config_table
    if len(told) > TOPICS_MAX:
        text = f"broker {broker_name!r} has {len(told)} topics; a broker has at most {TOPICS_MAX} here"
        raise Refusal(ResponseCode.SYSTEM_ERROR, text)
    topics: dict[str, QueueRow] = {}
    for name, topic in told.items():
        name = topic.topic_name or name
        if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
            _check_name("topicName", name)
        topics[name] = row_of(topic)
    beyond = [name for name, row in topics.items() if not _is_within_count(row)]
    if beyond:
        log.warning(
            "topics left out: more than %d queues broker=%s count=%d first=%s",
            *(QUEUE_COUNT_MAX, broker_name, len(beyond), beyond[0]),
        )
    for name in beyond:
        del topics[name]
    return topics


def _is_within_count(row: QueueRow) -> bool:
    return row.read_count <= QUEUE_COUNT_MAX and row.write_count <= QUEUE_COUNT_MAX


def _check_filter_servers(addresses: list[str]) -> None:
    if len(addresses) > FILTER_SERVERS_MAX:
        text = f"{len(addresses)} filter servers; a broker has at most {FILTER_SERVERS_MAX}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, text)
    for address in addresses:
        _check_name("filterServerList", address)


def _check_name(key: str, name: str) -> None:
    """Names go into every route, log and remark of this server, so they have to be ones that people can read."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        text = f"{key} must be 1 to {NAME_LENGTH_MAX} printable characters, not {len(name)}: {name[:40]!r}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, text)


def row_of(told: QueueRoute | TopicConfig) -> QueueRow:
    """What a broker tells of a topic; a number no client could hold would cost all of them the whole route."""
    row = QueueRow(told.read_queue_nums, told.write_queue_nums, told.perm, told.topic_sys_flag)
    if not (0 <= row.read_count <= INT32_MAX and 0 <= row.write_count <= INT32_MAX and 0 <= row.perm <= INT32_MAX):
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"queue counts and permissions fit 32 bits and are not negative: {row}"
        )
    if not -INT32_MAX <= row.flags <= INT32_MAX:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"a topic's flags fit 32 bits: {row}")
    return row


def is_strict_json(body: bytes) -> bool:
    """Whether the quick reader will do: what fastjson alone takes is read a hundred times slower."""
    if b'"$ref"' in body:
        return False
    try:
        _SKIPPING.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
