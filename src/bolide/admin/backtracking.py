"""Moving consumer groups: back to a time to consume again, ahead over a backlog, or to where another group is.

The brokers do it (222), for members that run and for groups that nobody is in; running members hear of it at once. A
broker that leaves it to the members alone (4.9, or `useServerSideResetOffset=false`) refuses while nobody is online;
then the offsets are found and written here, as RocketMQ's own tool does.

What a move would do is told before it is done (`planned`): from where to where, queue by queue.
"""

from collections.abc import Iterable

import msgspec

from bolide.admin.walking import LATEST_MS
from bolide.client.access import failure_of
from bolide.client.consuming.start_from import max_offset, min_offset, offset_at
from bolide.client.instance import Instance
from bolide.client.routes import MASTER_ID
from bolide.errors import ClientError
from bolide.model.queue import MessageQueue, QueueOffset
from bolide.protocol.bodies.queues import ResetOffsets
from bolide.protocol.bodies.routes import KVTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import ResetOffsetRequest
from bolide.protocol.headers.groups import CloneGroupOffsetRequest

_OLD_VERSIONS = ("V3", "V4")  # they go by the time alone, and do not see that one queue and an offset were named


class Target(msgspec.Struct, frozen=True):
    """Where a group is to go on: at a time (ms of the epoch, -1 for the end), or at an offset of one or all queues."""

    time_ms: int = LATEST_MS
    offset: int | None = None
    queue: MessageQueue | None = None


class Move(msgspec.Struct, frozen=True):
    """One queue of a group's: where it was (None: nowhere yet) and where it goes on."""

    queue: MessageQueue
    before: int | None
    after: int

    @property
    def distance(self) -> int:
        """How many messages will come again (negative) or be passed over."""
        return self.after - (self.before or 0)


async def planned(instance: Instance, group: str, topic: str, target: Target) -> list[Move]:
    """What a reset would do; nothing is changed."""
    from bolide.client.consuming.positions import BrokerPositions

    positions = BrokerPositions(instance, group, is_zero_if_young=False)
    return [
        Move(queue, await positions.read(queue), await _offset(instance, queue, target))
        for queue in await _queues(instance, topic, target)
    ]


async def reset(instance: Instance, group: str, topic: str, target: Target, timeout_s: float) -> list[Move]:
    """Have a group go on elsewhere; returns what was moved."""
    moves = await planned(instance, group, topic, target)
    if target.offset is None and target.queue is None:
        return await _by_time(instance, group, topic, target, moves, timeout_s)
    moved = []
    for move in moves:
        address = await instance.found_address(topic, move.queue.broker_name)
        header = ResetOffsetRequest(
            topic=topic,
            group=group,
            timestamp_ms=LATEST_MS,
            is_forced=True,
            queue_id=move.queue.queue_id,
            offset=QueueOffset(move.after),
        )
        if await _is_old(instance, address, timeout_s):
            await _write_if_stopped(instance, group, [move], address, timeout_s)
            moved.append(move)
        else:
            moved += await _asked(instance, address, header, [move], timeout_s)
    return moved


async def _by_time(
    instance: Instance, group: str, topic: str, target: Target, moves: list[Move], timeout_s: float
) -> list[Move]:
    header = ResetOffsetRequest(topic=topic, group=group, timestamp_ms=target.time_ms, is_forced=True)
    moved = []
    for name in dict.fromkeys(move.queue.broker_name for move in moves):
        address = instance.address(name, MASTER_ID)
        if address is not None:
            there = [move for move in moves if move.queue.broker_name == name]
            moved += await _asked(instance, address, header, there, timeout_s)
    return moved


async def _asked(
    instance: Instance, address: str, header: ResetOffsetRequest, moves: list[Move], timeout_s: float
) -> list[Move]:
    """What a broker did of these moves; if it left them to members and there are none, they are done here."""
    command = Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields=header.encode())
    answer = await instance.request(address, command, timeout_s)
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        await _write(instance, header.group, moves)
        return moves
    if answer.code != ResponseCode.SUCCESS:
        raise failure_of(answer)
    told = ResetOffsets.decode(answer.body).offset_table if answer.body else {}
    before = {move.queue: move.before for move in moves}
    return [Move(queue, before.get(queue), offset) for queue, offset in sorted(told.items())]


async def _write_if_stopped(instance: Instance, group: str, moves: list[Move], address: str, timeout_s: float) -> None:
    command = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields={"consumerGroup": group})
    if (await instance.request(address, command, timeout_s)).code == ResponseCode.SUCCESS:
        raise ClientError(
            f"the broker at {address} is of RocketMQ 4 and moves running groups by time only: "
            f"stop the members of {group} first, or give a time"
        )
    await _write(instance, group, moves)


async def _write(instance: Instance, group: str, moves: Iterable[Move]) -> None:
    from bolide.client.consuming.positions import BrokerPositions

    positions = BrokerPositions(instance, group)
    for move in moves:
        await positions.tell(move.queue, move.after)


async def _is_old(instance: Instance, address: str, timeout_s: float) -> bool:
    answer = await instance.ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_s)
    return KVTable.decode(answer.body).table.get("brokerVersionDesc", "").startswith(_OLD_VERSIONS)


async def _queues(instance: Instance, topic: str, target: Target) -> list[MessageQueue]:
    await instance.refresh(topic)
    route = await instance.route(topic)
    if target.queue is None:
        return sorted(queue for queue in route.subscribe if instance.address(queue.broker_name, MASTER_ID))
    if target.queue not in route.subscribe:
        raise ClientError(f"{target.queue} is no queue of {topic}; `bolide topic show {topic}` lists them")
    return [target.queue]


async def _offset(instance: Instance, queue: MessageQueue, target: Target) -> int:
    if target.offset is not None:
        low, high = await min_offset(instance, queue), await max_offset(instance, queue)
        return min(max(target.offset, low), high)
    if target.time_ms < 0:
        return await max_offset(instance, queue)
    return max(await offset_at(instance, queue, target.time_ms), 0)


async def clone(
    instance: Instance, addresses: Iterable[str], source: str, destination: str, topic: str | None, timeout_s: float
) -> None:
    """Let a group be where another is, in one topic or in all; the members of neither are told."""
    header = CloneGroupOffsetRequest(source_group=source, destination_group=destination, topic=topic, is_offline=True)
    for address in addresses:
        await instance.ask(address, Command(RequestCode.CLONE_GROUP_OFFSET, fields=header.encode()), timeout_s)
