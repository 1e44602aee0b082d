"""What an operator asks and changes of servers that run: settings, status, who may be sent to, who is connected.

A setting of a broker is changed at one broker, or at all of a cluster; name servers know nothing of each other, so what
they are told is told to each of them.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from bolide.admin.reach import Reach
from bolide.client.routes import MASTER_ID
from bolide.errors import ClientError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.settings import read_properties, write_properties

if TYPE_CHECKING:
    from bolide.protocol.bodies.clients import ConnectedProducer
    from bolide.protocol.bodies.consumers import DirectConsumption

_CLEANING = {
    "queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


class Flow(NamedTuple):
    """Messages a second over the last minute, and how many in the last day."""

    rate: float
    day_count: int


class OperatingCalls(Reach):
    """The administrator's operations on servers."""

    async def broker_addresses(self, broker: str | None = None) -> dict[str, str]:
        """Where brokers are, by name (`name` for a master, `name:1` for others); all, or those of a name or address."""
        known = await self.clusters()
        found = {
            data.broker_name if broker_id == MASTER_ID else f"{data.broker_name}:{broker_id}": address
            for data in known.broker_addr_table.values()
            for broker_id, address in sorted(data.broker_addrs.items())
        }
        if broker is None:
            return found
        chosen = {name: address for name, address in found.items() if broker in (name, address)}
        if not chosen:
            names = ", ".join(found) or "none"
            raise ClientError(f"broker {broker} is not known here; there are: {names}", ResponseCode.QUERY_NOT_FOUND)
        return chosen

    async def broker_status(self, address: str) -> dict[str, str]:
        """What a broker tells of itself: disk, rates, uptime, what waits."""
        from bolide.protocol.bodies.routes import KVTable

        answer = await self._ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        return dict(KVTable.decode(answer.body).table)

    async def broker_settings(self, address: str) -> dict[str, str]:
        """All settings of a running broker, by RocketMQ's keys."""
        answer = await self._ask(address, Command(RequestCode.GET_BROKER_CONFIG))
        return read_properties(answer.body.decode())

    async def set_broker(self, address: str, changes: dict[str, str]) -> None:
        """Change settings of a running broker; it says which it does not take."""
        command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=write_properties(changes).encode())
        await self._ask(address, command)

    def namesrv_addresses(self) -> list[str]:
        """The name servers that are asked."""
        return list(self._opened().namesrv.addresses)

    async def namesrv_settings(self, address: str) -> dict[str, str]:
        """All settings of a running name server."""
        answer = await self._ask(address, Command(RequestCode.GET_NAMESRV_CONFIG))
        return read_properties(answer.body.decode())

    async def set_namesrv(self, changes: dict[str, str]) -> list[str]:
        """Change settings of every name server that is named; returns their addresses."""
        command = Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=write_properties(changes).encode())
        return await self._tell_namesrvs(command)

    async def drain_broker(self, name: str) -> dict[str, int]:
        """Let no more messages be sent to a broker; what it holds is still read.

        Returns how many of its topics each name server closed.
        """
        from bolide.protocol.headers.routes import WipeWritePermissionAnswer, WipeWritePermissionRequest

        command = Command(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields=WipeWritePermissionRequest(broker_name=name).encode()
        )
        answers = await self._from_namesrvs(command)
        return {
            address: WipeWritePermissionAnswer.decode(answer.fields).topic_count for address, answer in answers.items()
        }

    async def restore_broker(self, name: str) -> dict[str, int]:
        """Let messages be sent to a broker again; returns how many of its topics each name server opened."""
        from bolide.protocol.headers.routes import AddWritePermissionAnswer, AddWritePermissionRequest

        command = Command(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, fields=AddWritePermissionRequest(broker_name=name).encode()
        )
        answers = await self._from_namesrvs(command)
        return {
            address: AddWritePermissionAnswer.decode(answer.fields).topic_count for address, answer in answers.items()
        }

    async def kv(self, namespace: str) -> dict[str, str]:
        """What the name server keeps in a namespace; nothing where there is none."""
        from bolide.protocol.bodies.routes import KVTable
        from bolide.protocol.headers.routes import GetKvListRequest

        command = Command(RequestCode.GET_KVLIST_BY_NAMESPACE, fields=GetKvListRequest(namespace=namespace).encode())
        answer = await self._opened().namesrv.ask(command)
        return dict(KVTable.decode(answer.body).table) if answer.code == ResponseCode.SUCCESS else {}

    async def put_kv(self, namespace: str, key: str, value: str) -> list[str]:
        """Have every name server keep a value."""
        from bolide.protocol.headers.routes import PutKvRequest

        fields = PutKvRequest(namespace=namespace, key=key, value=value).encode()
        return await self._tell_namesrvs(Command(RequestCode.PUT_KV_CONFIG, fields=fields))

    async def delete_kv(self, namespace: str, key: str) -> list[str]:
        """Have every name server forget a value."""
        from bolide.protocol.headers.routes import DeleteKvRequest

        fields = DeleteKvRequest(namespace=namespace, key=key).encode()
        return await self._tell_namesrvs(Command(RequestCode.DELETE_KV_CONFIG, fields=fields))

    async def _tell_namesrvs(self, command: Command) -> list[str]:
        return list(await self._from_namesrvs(command))

    async def _from_namesrvs(self, command: Command) -> dict[str, Command]:
        return {
            address: await self._ask(address, Command(command.code, fields=dict(command.fields), body=command.body))
            for address in self.namesrv_addresses()
        }

    async def clean_leftovers(self, address: str, what: str) -> None:
        """Have a broker delete now what it would let go of in time: `queues` and `log` files, queues of no `topics`."""
        await self._ask(address, Command(_CLEANING[what]))

    async def flow(self, name: str, key: str) -> Flow:
        """What passed in the last minute and in the last day, by one of RocketMQ's counters, in all brokers."""
        from bolide.protocol.bodies.brokers import BrokerStats
        from bolide.protocol.headers.operating import ViewBrokerStatsRequest

        fields = ViewBrokerStatsRequest(stats_name=name, stats_key=key).encode()
        found = Flow(0.0, 0)
        for address in await self._masters():
            with suppress(ClientError):  # a counter begins with its first message
                answer = await self._ask(address, Command(RequestCode.VIEW_BROKER_STATS_DATA, fields=fields))
                told = BrokerStats.decode(answer.body)
                # The day and the hour are counted in steps: what came in the first one is in the minute alone.
                count = told.stats_day.sum or told.stats_hour.sum or told.stats_minute.sum
                found = Flow(found.rate + told.stats_minute.tps, found.day_count + count)
        return found

    async def producers(self) -> "dict[str, list[ConnectedProducer]]":
        """Everybody who sends, by producer group."""
        from bolide.protocol.bodies.clients import ConnectedProducer, ProducerTable

        found: dict[str, dict[str, ConnectedProducer]] = {}
        for answer in await self._from_masters(Command(RequestCode.GET_ALL_PRODUCER_INFO)):
            for group, members in ProducerTable.decode(answer.body).data.items():
                found.setdefault(group, {}).update({member.client_id: member for member in members})
        return {group: list(members.values()) for group, members in sorted(found.items())}

    async def consume_directly(self, group: str, client_id: str, topic: str, message_id: str) -> "DirectConsumption":
        """Have one member consume one message now, and tell how it went; its offsets stay."""
        from bolide.model.message import parse_offset_id
        from bolide.protocol.bodies.consumers import DirectConsumption
        from bolide.protocol.headers.callbacks import ConsumeDirectlyRequest

        header = ConsumeDirectlyRequest(
            consumer_group=group, client_id=client_id, message_id=message_id, topic=topic or None
        )
        found = parse_offset_id(message_id)
        addresses = [str(found.host)] if found is not None else await self._masters()
        command = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields=header.encode())
        return DirectConsumption.decode((await self._ask(addresses[0], command)).body)

    async def topic_groups(self, topic: str) -> list[str]:
        """The groups that consume a topic."""
        from bolide.protocol.bodies.groups import GroupList
        from bolide.protocol.headers.topics import QueryTopicConsumersRequest

        found: set[str] = set()
        fields = QueryTopicConsumersRequest(topic=topic).encode()
        for answer in await self._from_masters(Command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, fields=fields)):
            found.update(GroupList.decode(answer.body).group_list)
        return sorted(found)
