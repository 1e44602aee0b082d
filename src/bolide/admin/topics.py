"""Topics: which there are, what is in them; making, changing and deleting them.

Making and changing are two operations: who wants a topic with eight queues and finds one with four has met somebody
else's, and a change of its queues hides messages or moves shards.
"""

from typing import TYPE_CHECKING

import msgspec

from bolide.admin.reach import Reach
from bolide.errors import ClientError, ConnectError
from bolide.model.names import topic_problem
from bolide.model.queue import MessageQueue
from bolide.model.texts import counted
from bolide.model.topics import AUTO_CREATE_TOPIC, DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command

if TYPE_CHECKING:
    from bolide.protocol.bodies.routes import TopicRoute
    from bolide.protocol.bodies.topics import TopicConfig

READ_WRITE = 6
_SYSTEM_PREFIX = "RMQ_SYS_"  # 5.5 keeps topics under it that no list names
_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


class TopicQueueRow(msgspec.Struct, frozen=True):
    """One queue of a topic: what it holds."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int

    @property
    def message_count(self) -> int:
        return self.max_offset - self.min_offset


class TopicShape(msgspec.Struct, frozen=True):
    """How a topic is laid out on a broker: queues to write to and to read from, and what may be done."""

    write_queue_count: int = 8
    read_queue_count: int = 8
    permission: int = READ_WRITE

    def __str__(self) -> str:
        if self.write_queue_count == self.read_queue_count:
            queues = f"{self.write_queue_count} queue{'s' if self.write_queue_count != 1 else ''}"
        else:
            queues = f"{self.write_queue_count} queues to write and {self.read_queue_count} to read"
        closed = {0: ", closed", 2: ", write only", 4: ", read only"}
        return queues + closed.get(self.permission & READ_WRITE, "")


class TopicCalls(Reach):
    """The administrator's operations on topics."""

    async def topics(self, *, with_system: bool = False) -> list[str]:
        """The names of all topics; without those that RocketMQ keeps for itself, unless asked for."""
        from bolide.protocol.bodies.routes import TopicList

        answer = await self._namesrv(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        names = sorted(TopicList.decode(answer.body).topic_list)
        if with_system:
            return names
        known = await self.clusters()
        own = {*known.cluster_addr_table, *known.broker_addr_table}
        own |= {f"{cluster}_REPLY_TOPIC" for cluster in known.cluster_addr_table}
        hidden = (*_OF_GROUPS, _SYSTEM_PREFIX)
        return [name for name in names if not is_system_topic(name) and name not in own and not name.startswith(hidden)]

    async def topic_shapes(self, topic: str) -> dict[str, TopicShape]:
        """How a topic is laid out, by the name of the broker; nothing if no broker that is known has it."""
        route = await self._opened().namesrv.route(topic)
        return {
            data.broker_name: TopicShape(data.write_queue_nums, data.read_queue_nums, data.perm)
            for data in (route.queue_datas if route is not None else ())
        }

    async def create_topic(
        self,
        topic: str,
        queue_count: int = 8,
        *,
        read_queue_count: int | None = None,
        permission: int = READ_WRITE,
        cluster: str | None = None,
        broker: str | None = None,
        message_type: str | None = None,
    ) -> list[str]:
        """Create a topic on every master of a cluster (of all, if none is named); returns their addresses.

        One that is there already is left as it is: with the same queues that is well, with others it is an error.
        `broker` is the name or the address of the only one to have it. The message type (NORMAL, FIFO, DELAY,
        TRANSACTION or MIXED) says which messages clients of 5.x may send.
        """
        if problem := topic_problem(topic):
            raise ClientError(problem)
        if topic.startswith(_OF_GROUPS):
            raise ClientError(f"topic {topic} belongs to a group, and brokers make it when the group needs it")
        wanted = TopicShape(queue_count, read_queue_count if read_queue_count is not None else queue_count, permission)
        masters = await self._chosen_masters(cluster, broker)
        if not masters:
            raise ClientError(f"there is no broker {broker} to make topic {topic} on")
        there = {name: shape for name, shape in (await self.topic_shapes(topic)).items() if name in masters}
        others = {name: shape for name, shape in there.items() if shape != wanted}
        if others:
            found = ", ".join(f"{shape} on {name}" for name, shape in others.items())
            remark = f"topic {topic} exists with {found}; nothing was changed: `bolide topic set {topic}` changes it"
            raise ClientError(f"{remark}, set_topic from Python")
        attributes = None if message_type is None else f"+message.type={message_type}"
        absent = [address for name, address in masters.items() if name not in there or attributes is not None]
        await self._shape(topic, wanted, absent, attributes)
        return list(masters.values())

    async def _chosen_masters(self, cluster: str | None, broker: str | None) -> dict[str, str]:
        """The masters of a cluster, or the one of this name or address."""
        masters = await self._masters_by_name(cluster)
        return {name: address for name, address in masters.items() if broker in (None, name, address)}

    async def set_topic(
        self,
        topic: str,
        *,
        queue_count: int | None = None,
        read_queue_count: int | None = None,
        permission: int | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        create: bool = False,
    ) -> dict[str, TopicShape]:
        """Change a topic on the brokers that have it; what is not given stays. Returns how it is now, by broker.

        Fewer queues hide what lies in those that go, and another number moves shards to other queues. `broker` is the
        name or the address of the only one to change; with `create` those that do not have the topic make it.
        """
        masters = await self._chosen_masters(cluster, broker)
        there = {name: shape for name, shape in (await self.topic_shapes(topic)).items() if name in masters}
        if create and not topic.startswith(_OF_GROUPS):
            there |= {name: TopicShape() for name in masters if name not in there}
        if not there:
            raise await self._absence(topic)
        now: dict[str, TopicShape] = {}
        for name, shape in there.items():
            write_count = queue_count if queue_count is not None else shape.write_queue_count
            # Queues are read and written alike unless somebody says otherwise.
            read_count = read_queue_count if read_queue_count is not None else queue_count
            now[name] = TopicShape(
                write_count,
                read_count if read_count is not None else shape.read_queue_count,
                permission if permission is not None else shape.permission,
            )
            await self._shape(topic, now[name], [masters[name]])
        return now

    async def _shape(self, topic: str, shape: TopicShape, addresses: list[str], attributes: str | None = None) -> None:
        from bolide.protocol.headers.topics import UpdateTopicRequest

        header = UpdateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_count=shape.read_queue_count,
            write_queue_count=shape.write_queue_count,
            permission=shape.permission,
            filter_type="SINGLE_TAG",
            sys_flag=0,
            is_ordered=False,
            attributes=attributes,
        )
        for address in addresses:
            await self._ask(address, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=header.encode()))

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic on every broker that has it, and then at the name servers."""
        from bolide.protocol.headers.routes import DeleteTopicInNamesrvRequest
        from bolide.protocol.headers.topics import DeleteTopicRequest

        route = await self.route(topic)
        header = DeleteTopicRequest(topic=topic)
        for data in route.broker_datas:
            for address in data.broker_addrs.values():
                await self._ask(address, Command(RequestCode.DELETE_TOPIC_IN_BROKER, fields=header.encode()))
        fields = DeleteTopicInNamesrvRequest(topic=topic).encode()
        for address in self._opened().namesrv.addresses:
            await self._ask(address, Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields=fields))

    async def route(self, topic: str) -> "TopicRoute":
        """Where a topic is."""
        found = await self._opened().namesrv.route(topic)
        if found is None:
            raise await self._absence(topic)
        return found

    async def _absence(self, topic: str) -> ClientError:
        """A broker that is down may have it, and then it does exist."""
        await self.clusters()
        if self.silent:
            left = "; ".join(map(str, self.silent.values()))
            return ConnectError(
                f"topic {topic} is on no broker that runs: {left}; start it again, or `bolide topic create {topic}`",
                ResponseCode.TOPIC_NOT_EXIST,
            )
        remark = f"topic {topic} does not exist; `bolide topic list` shows those that do"
        return ClientError(remark, ResponseCode.TOPIC_NOT_EXIST)

    async def topic_queues(self, topic: str) -> list[TopicQueueRow]:
        """Every queue of a topic with what it holds."""
        from bolide.protocol.bodies.queues import TopicStats
        from bolide.protocol.headers.topics import GetTopicStatsRequest

        route = await self.route(topic)
        addresses = {data.broker_name: data.broker_addrs[min(data.broker_addrs)] for data in route.broker_datas}
        command = Command(RequestCode.GET_TOPIC_STATS_INFO, fields=GetTopicStatsRequest(topic=topic).encode())
        rows = [
            TopicQueueRow(queue, span.min_offset, span.max_offset, span.last_update_timestamp)
            for answer in await self._from_each(addresses, command)
            for queue, span in TopicStats.decode(answer.body).offset_table.items()
        ]
        await self.clusters()  # and who had a part of it and left
        return sorted(rows, key=lambda row: row.queue)

    async def topic_configs(self) -> "dict[str, dict[str, TopicConfig]]":
        """What every topic is set to, by its name and then by the name of the broker: one call to each master."""
        from bolide.protocol.bodies.topics import TopicConfig, TopicTable

        found: dict[str, dict[str, TopicConfig]] = {}
        for name, address in (await self._masters_by_name()).items():
            asking = self._ask(address, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
            answer = await self._noting(name, address, asking)
            if answer is not None:
                for topic, config in TopicTable.decode(answer.body).topic_config_table.items():
                    found.setdefault(topic, {})[name] = config
        return found

    async def queues_at(self, address: str, topic: str) -> list[TopicQueueRow]:
        """The queues of a topic on one broker with what they hold; none where the topic is not there."""
        from bolide.protocol.bodies.queues import TopicStats
        from bolide.protocol.headers.topics import GetTopicStatsRequest

        command = Command(RequestCode.GET_TOPIC_STATS_INFO, fields=GetTopicStatsRequest(topic=topic).encode())
        try:
            told = TopicStats.decode((await self._ask(address, command)).body).offset_table
        except ClientError as problem:
            if problem.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return []
        rows = (
            TopicQueueRow(queue, each.min_offset, each.max_offset, each.last_update_timestamp)
            for queue, each in told.items()
        )
        return sorted(rows, key=lambda row: row.queue)

    async def _spans(self, topic: str) -> list[tuple[int, int, int]]:
        return [(row.min_offset, row.max_offset, row.last_update_ms) for row in await self.topic_queues(topic)]


async def shape_consequences(admin: TopicCalls, topic: str, queues: int | None, read_queues: int | None) -> list[str]:
    """What a change of queues does to the messages there are and to those that come, in sentences."""
    rows = await admin.topic_queues(topic)
    shapes = await admin.topic_shapes(topic)
    read_count = read_queues if read_queues is not None else queues
    hidden = [row for row in rows if read_count is not None and row.queue.queue_id >= read_count and row.message_count]
    lines = [f"topic {topic} has {shape} on {broker} now" for broker, shape in shapes.items()]
    lines += [
        f"out of sight from then on: {counted(row.message_count, 'message')} in queue {row.queue.queue_id} of "
        f"{row.queue.broker_name}, kept on disk, and shown again with more read queues"
        for row in hidden
    ]
    if queues is not None and any(shape.write_queue_count != queues for shape in shapes.values()):
        lines.append("messages of one shard go to another queue from then on, so their order is lost once")
    return lines
