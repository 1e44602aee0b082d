"""Ask a cluster and change it, from Python; the command line stands on this.

    async with Admin("127.0.0.1:9876") as admin:
        await admin.create_topic("Orders", queue_count=8)
        for row in await admin.group_progress("orders-cg"):
            print(row.queue, row.behind)

Every operation asks the brokers themselves; the name server only tells where they are. One that a broker refuses raises
`ClientError` with the broker's own words and code. A cluster of Apache RocketMQ is asked in the same way.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import msgspec

from bolide.admin.controllers import ControllerCalls
from bolide.admin.delays import DelayCalls
from bolide.admin.groupsettings import GroupSettings
from bolide.admin.operating import OperatingCalls
from bolide.admin.rights import RightsCalls
from bolide.admin.topics import TopicCalls
from bolide.admin.transactions import TransactionCalls
from bolide.admin.walking import LATEST_MS
from bolide.client.access import failure_of
from bolide.client.config import Credentials, client_config
from bolide.client.instance import Instance, open_instance
from bolide.client.life import Opened
from bolide.clock import Clock, SystemClock
from bolide.errors import AccessRefused, ClientError, ProtocolError, Refusal
from bolide.model.queue import MessageQueue
from bolide.model.topics import (
    RETRY_PREFIX,
    TRACE_TOPIC,
    retry_topic,
)
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.config import ConnectConfig

if TYPE_CHECKING:
    from bolide.admin.backtracking import Move
    from bolide.admin.membership import MemberRow
    from bolide.admin.traces import MessageTrace
    from bolide.model.message import StoredMessage
    from bolide.protocol.bodies.clients import Connection, ConsumerConnections
    from bolide.protocol.bodies.queues import QueueProgress, QueueTimeSpan

READ_WRITE = 6
EVER_MS = (1 << 63) - 1
_SENT_AGAIN_MAX = 32
_TRACES_MAX = 1024
_NOT_FOR_US = "does not tell us"  # where a version would stand
_SYSTEM_PREFIX = "RMQ_SYS_"  # 5.5 keeps topics under it that no list names
_BUILT_IN_GROUPS = frozenset(("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "__MONITOR_CONSUMER"))
_BUILT_IN_PREFIXES = ("CID_ONSAPI_", "CID_ONS-HTTP-PROXY", "CID_RMQ_SYS_", "CID_DefaultHeartBeatSyncerTopic")


class BrokerRow(msgspec.Struct, frozen=True):
    """One broker of the cluster, as it tells of itself; rates are messages a second over the last ten."""

    cluster: str
    name: str
    broker_id: int
    address: str
    version: str
    put_rate: float
    got_rate: float
    is_reachable: bool


class ProgressRow(msgspec.Struct, frozen=True):
    """How far a group has come in one queue."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_ms: int
    client_id: str | None = None
    pull_offset: int = 0

    @property
    def behind(self) -> int:
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        """Handed out and not settled yet."""
        return max(0, self.pull_offset - self.consumer_offset)


def progress_row(queue: MessageQueue, told: "QueueProgress") -> ProgressRow:
    """What a broker says of a queue."""
    return ProgressRow(
        queue, told.broker_offset, told.consumer_offset, told.last_timestamp, pull_offset=told.pull_offset
    )


class GroupRow(msgspec.Struct, frozen=True):
    """One consumer group: who is in it, and how far it is behind."""

    group: str
    member_count: int
    behind: int
    has_conflict: bool = False  # its members do not all want the same
    retry_behind: int = 0  # of it, failed messages that are due again
    dead_count: int = 0


class Admin(
    Opened, RightsCalls, ControllerCalls, DelayCalls, OperatingCalls, TopicCalls, TransactionCalls, GroupSettings
):
    """An administrator of one cluster. Open while its `async with` block runs.

    A broker that does not answer fails what needs it. With `partial` the others' part is given, and `silent` has the
    brokers that are missing in it.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        timeout_s: float = 5.0,
        partial: bool = False,
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used."""
        super().__init__()
        self._is_partial = partial
        self._config = client_config(namesrv, credentials=credentials, connect=connect)
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._instance: Instance | None = None

    async def start(self) -> None:
        """Be ready to ask; `async with` does it."""
        self._instance = await self._stack.enter_async_context(open_instance(self._config, self._clock))

    async def close(self) -> None:
        """End all connections."""
        self._instance = None
        await self._stack.aclose()

    # The cluster

    async def brokers(self) -> list[BrokerRow]:
        """All brokers with what they tell of themselves; one that does not answer is listed too."""
        return [row for row, _ in await self.broker_statuses()]

    async def broker_statuses(self) -> list[tuple[BrokerRow, dict[str, str]]]:
        """The same, each with all it told: nothing from one that does not answer."""
        known = await self.clusters()
        rows = [
            self._broker_row(data.cluster, data.broker_name, broker_id, address)
            for data in known.broker_addr_table.values()
            for broker_id, address in data.broker_addrs.items()
        ]
        return sorted(await asyncio.gather(*rows), key=lambda pair: (pair[0].cluster, pair[0].name, pair[0].broker_id))

    async def _broker_row(
        self, cluster: str, name: str, broker_id: int, address: str
    ) -> tuple[BrokerRow, dict[str, str]]:
        try:
            told = await self.broker_status(address)
        except ClientError as problem:
            why = _NOT_FOR_US if isinstance(problem, AccessRefused) else ""
            return BrokerRow(cluster, name, broker_id, address, why, 0.0, 0.0, is_reachable=False), {}
        row = BrokerRow(
            cluster,
            name,
            broker_id,
            address,
            told.get("brokerVersionDesc", ""),
            _first_rate(told.get("putTps", "")),
            _first_rate(told.get("getTransferredTps", told.get("getTransferedTps", ""))),
            is_reachable=True,
        )
        return row, told

    # Messages

    async def messages_by_key(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = EVER_MS
    ) -> "list[StoredMessage]":
        """The messages of a topic that were sent with a key, oldest first; times are those of storing."""
        found = await self._query(topic, key, count_max, begin_ms, end_ms, is_unique_key=False)
        # Brokers compare hashes, and two keys may share one.
        return [message for message in found if key in message.keys]

    async def messages_by_id(self, topic: str, msg_id: str) -> "list[StoredMessage]":
        """The messages with an id that a producer gave: one, or several if it was sent again."""
        found = await self._query(topic, msg_id, _SENT_AGAIN_MAX, 0, EVER_MS, is_unique_key=True)
        return [message for message in found if message.message_id == msg_id]

    async def message_at(self, offset_id: str) -> "StoredMessage":
        """The message under an id that a broker gave (`Receipt.offset_id`), which says where it lies."""
        from bolide.model.message import parse_offset_id
        from bolide.protocol.headers.consume import ViewMessageRequest
        from bolide.protocol.records import decode_record, inflate

        place = parse_offset_id(offset_id)
        if place is None:
            raise ClientError(
                f"{offset_id!r} is no id that a broker gave; one that a producer gave is found by messages_by_id"
            )
        fields = ViewMessageRequest(physical_offset=place.physical_offset).encode()
        answer = await self._ask(str(place.host), Command(RequestCode.VIEW_MESSAGE_BY_ID, fields=fields))
        return inflate(decode_record(answer.body))

    async def message_fates(self, message: "StoredMessage") -> dict[str, str]:
        """What each group that consumes its topic did with a message, by how far the group is in its queue."""
        from bolide.admin.membership import fate

        addresses = {address: name for name, address in (await self._masters_by_name()).items()}
        broker = addresses.get(str(message.store_host))
        fates: dict[str, str] = {}
        for group in await self.topic_groups(message.topic):
            members, progress = await self.members(group), await self.group_progress(group)
            place = (message.topic, message.queue_id)
            rows = [
                row
                for row in progress
                if (row.queue.topic, row.queue.queue_id) == place and broker in (None, row.queue.broker_name)
            ]
            is_passed = any(row.consumer_offset > message.queue_offset for row in rows)
            fates[group] = fate(message, members, is_passed=is_passed)
        return fates

    async def trace(
        self, wanted: str, topic: str = TRACE_TOPIC, *, begin_ms: int = 0, end_ms: int = EVER_MS
    ) -> "list[MessageTrace]":
        """What producers and consumers with `trace=True` told of a message: by its id, the broker's id, or a key."""
        from bolide.admin.traces import Told, is_about, traces
        from bolide.model.message import parse_offset_id
        from bolide.protocol.trace import parse_trace

        keys = dict.fromkeys([wanted])
        if parse_offset_id(wanted) is not None:
            with suppress(ClientError, ProtocolError):  # it may be a producer's id all the same, or be gone
                keys[(await self.message_at(wanted)).message_id] = None
        found: list[Told] = []
        for key in keys:
            span = {"count_max": _TRACES_MAX, "begin_ms": begin_ms, "end_ms": end_ms}
            for message in await self.messages_by_key(topic, key, **span):
                records = parse_trace(message.body, is_strict=False)
                found += [Told(message.born_host.ip, record) for record in records if is_about(record, key)]
        return traces(found)

    async def _query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, is_unique_key: bool
    ) -> "list[StoredMessage]":
        from bolide.model.message import StoredMessage
        from bolide.protocol.headers.consume import QueryMessageRequest
        from bolide.protocol.records import decode_records, inflate

        header = QueryMessageRequest(
            topic=topic,
            key=key,
            message_count_max=count_max,
            begin_ms=begin_ms,
            end_ms=end_ms,
            is_unique_key=is_unique_key,
        )
        found: list[StoredMessage] = []
        for data in (await self.route(topic)).broker_datas:
            address = data.broker_addrs[min(data.broker_addrs)]
            command = Command(RequestCode.QUERY_MESSAGE, fields=header.encode())
            answer = await self._opened().request(address, command, self._timeout_s)
            if answer.code == ResponseCode.SUCCESS:
                found += [inflate(message) for message in decode_records(answer.body)]
            elif answer.code != ResponseCode.QUERY_NOT_FOUND:
                raise failure_of(answer)
        return sorted((message for message in found if message.topic == topic), key=lambda message: message.stored_at)

    # Groups

    async def groups(self) -> list[str]:
        """The names of all consumer groups; without those that RocketMQ keeps for itself."""
        from bolide.protocol.bodies.groups import GroupTable

        found: set[str] = set()
        for answer in await self._from_masters(Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)):
            found.update(GroupTable.decode(answer.body).subscription_group_table)
        return sorted(group for group in found if not _is_built_in(group))

    async def group_rows(self) -> list[GroupRow]:
        """All consumer groups with their members and how far they are behind."""
        rows = []
        dead = {row.group: row.count for row in await self.dead_letter_groups()}
        for group in await self.groups():
            progress = await self.group_progress(group)
            members = await self.members(group)
            row = GroupRow(
                group=group,
                member_count=0 if members is None else len(members.connection_set),
                behind=sum(row.behind for row in progress),
                has_conflict=members is not None and bool(members.bolide_conflicts),
                retry_behind=sum(row.behind for row in progress if row.queue.topic.startswith(RETRY_PREFIX)),
                dead_count=dead.get(group, 0),
            )
            rows.append(row)
        return rows

    async def members(self, group: str) -> "ConsumerConnections | None":
        """Who is in a group; None when nobody is."""
        from bolide.protocol.bodies.clients import ConsumerConnections
        from bolide.protocol.headers.groups import GetConsumerConnectionsRequest

        fields = GetConsumerConnectionsRequest(consumer_group=group).encode()
        for name, address in (await self._masters_by_name()).items():
            command = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields=fields)
            answer = await self._noting(name, address, self._opened().request(address, command, self._timeout_s))
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                return ConsumerConnections.decode(answer.body)
        return None

    async def member_rows(self, group: str) -> "list[MemberRow]":
        """Who is in a group and what each wants, as each tells itself; and whether that is what its mates want."""
        from bolide.admin.membership import with_differences

        members = await self.members(group)
        if members is None:
            return []
        return with_differences(await self._asked_members(group, members.connection_set))

    async def _asked_members(self, group: str, connections: "list[Connection]") -> "list[MemberRow]":
        addresses = await self._masters()
        return list(await asyncio.gather(*(self._member(group, each, addresses) for each in connections)))

    async def _member(self, group: str, connection: "Connection", addresses: list[str]) -> "MemberRow":
        from bolide.admin.membership import member_row
        from bolide.protocol.bodies.consumers import RunningConsumer
        from bolide.protocol.headers.callbacks import GetConsumerStateRequest

        header = GetConsumerStateRequest(consumer_group=group, client_id=connection.client_id)
        told: RunningConsumer | None = None
        for address in addresses:
            with suppress(ClientError, Refusal):
                command = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields=header.encode())
                told = RunningConsumer.decode((await self._ask(address, command)).body)
                break
        return member_row(connection, told)

    async def group_progress(self, group: str) -> list[ProgressRow]:
        """How far a group has come in every queue it has read."""
        from bolide.protocol.bodies.queues import ConsumeStats
        from bolide.protocol.headers.groups import GetConsumeStatsRequest

        fields = GetConsumeStatsRequest(consumer_group=group).encode()
        rows = [
            progress_row(queue, told)
            for answer in await self._from_masters(Command(RequestCode.GET_CONSUME_STATS, fields=fields))
            for queue, told in ConsumeStats.decode(answer.body).offset_table.items()
        ]
        return sorted(rows, key=lambda row: row.queue)

    async def consume_rate(self, group: str) -> float:
        """Messages a second that a group was given over the last minute."""
        from bolide.protocol.bodies.queues import ConsumeStats
        from bolide.protocol.headers.groups import GetConsumeStatsRequest

        fields = GetConsumeStatsRequest(consumer_group=group).encode()
        answers = await self._from_masters(Command(RequestCode.GET_CONSUME_STATS, fields=fields))
        return sum(ConsumeStats.decode(answer.body).consume_tps for answer in answers)

    async def all_progress(self) -> dict[str, list[ProgressRow]]:
        """How far every group has come, with one call to each master: what asks group after group takes minutes."""
        from bolide.protocol.bodies.queues import ConsumeStatsList
        from bolide.protocol.headers.groups import GetBrokerConsumeStatsRequest

        fields = GetBrokerConsumeStatsRequest(is_ordered=False).encode()
        found: dict[str, list[ProgressRow]] = {}
        for answer in await self._from_masters(Command(RequestCode.GET_BROKER_CONSUME_STATS, fields=fields)):
            for listed in ConsumeStatsList.decode(answer.body).consume_stats_list:
                for group, stats in listed.items():
                    rows = found.setdefault(group, [])
                    rows += [progress_row(queue, told) for each in stats for queue, told in each.offset_table.items()]
            await asyncio.sleep(0)  # thousands of groups take their time: others may go on between two brokers
        return {group: rows for group, rows in sorted(found.items()) if not _is_built_in(group)}

    async def time_spans(self, group: str, topic: str) -> "dict[MessageQueue, QueueTimeSpan]":
        """When the oldest and newest messages of each queue were stored, and how long a group's first unread waits."""
        from bolide.protocol.bodies.queues import TimeSpans
        from bolide.protocol.headers.topics import QueryConsumeTimeSpanRequest

        fields = QueryConsumeTimeSpanRequest(topic=topic, group=group).encode()
        return {
            MessageQueue(topic, span.message_queue.broker_name, span.message_queue.queue_id): span
            for answer in await self._from_masters(Command(RequestCode.QUERY_CONSUME_TIME_SPAN, fields=fields))
            for span in TimeSpans.decode(answer.body).consume_time_span_set
        }

    async def plan_reset(
        self,
        group: str,
        topic: str,
        time_ms: int = LATEST_MS,
        *,
        offset: int | None = None,
        queue: MessageQueue | None = None,
    ) -> "list[Move]":
        """What `reset_group` would do, queue by queue; nothing is changed."""
        from bolide.admin.backtracking import Target, planned

        return await planned(self._opened(), group, topic, Target(time_ms, offset, queue))

    async def reset_group(
        self,
        group: str,
        topic: str,
        time_ms: int = LATEST_MS,
        *,
        offset: int | None = None,
        queue: MessageQueue | None = None,
    ) -> dict[MessageQueue, int]:
        """Have a group go on at a time (in ms of the epoch; -1 skips to the newest), whether its members run or not.

        With `offset` it goes on there instead, or at the nearest a queue still has; with `queue` only that one moves.
        """
        from bolide.admin.backtracking import Target, reset

        target = Target(time_ms, offset, queue)
        moves = await reset(self._opened(), group, topic, target, self._timeout_s)
        return {move.queue: move.after for move in moves}

    async def skip_backlog(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group pass over all it has not consumed yet."""
        return await self.reset_group(group, topic, LATEST_MS)

    async def clone_group(self, source: str, destination: str, topic: str | None = None) -> None:
        """Let a group be where another is, in one topic or in all that one has read.

        Members of the destination would go on where they are and undo it, so there must be none.
        """
        from bolide.admin.backtracking import clone

        if await self.members(destination) is not None:
            raise ClientError(f"group {destination} has members online, who would undo it: stop them first")
        await clone(self._opened(), await self._masters(), source, destination, topic, self._timeout_s)

    async def delete_group(self, group: str, *, with_offsets: bool = True) -> None:
        """Delete a group on every master, with its retry topic."""
        from bolide.protocol.headers.groups import DeleteGroupRequest

        header = DeleteGroupRequest(group=group, is_offset_removed=with_offsets)
        for address in await self._masters():
            await self._ask(address, Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields=header.encode()))
        if await self._opened().namesrv.route(retry_topic(group)) is not None:
            await self.delete_topic(retry_topic(group))


def _first_rate(text: str) -> float:
    """`10.5 9.8 9.9`: over ten seconds, a minute, ten minutes."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return 0.0


def _is_built_in(group: str) -> bool:
    return group in _BUILT_IN_GROUPS or group.startswith(_BUILT_IN_PREFIXES)
