"""Putting a group elsewhere: back to a time, to the end, or to an offset (222).

As in 5.x the broker does it: the new offset replaces the stored one, what members commit meanwhile is not heard, and
the next pull of each queue is told where to go on; one that is parked is told at once. Members that are online are told
besides (220), because those of a broadcasting group keep their offsets themselves. With
`useServerSideResetOffset=false` it is as in 4.9: the members alone do it, so some must be online.
"""

import asyncio
import logging
from collections.abc import Callable

from bolide.broker.state import BrokerState
from bolide.broker.tables.places import known_group, known_topic
from bolide.errors import Refusal
from bolide.kernel.layout import LANGUAGES
from bolide.model.queue import MessageQueue, QueueKey, QueueOffset
from bolide.protocol.bodies import ConsumeType, ResetOffsets, ResetOffsetsForC, TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.protocol.headers.callbacks import ResetOffsetRequest
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request

_CPP = LANGUAGES.index("CPP")
_SEARCHES_A_TURN = 16
_MEMBERS_A_TURN = 128
log = logging.getLogger(__name__)


class Resets:
    """Carries resets out."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._settings = state.settings
        self._offsets = state.offsets
        self._members = state.members
        self._topics = state.topics
        self._groups = state.groups
        self._store = state.store

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset}

    async def reset(self, request: Request) -> Command:
        """222: consume again from a time on, or skip to it."""
        header = ResetOffsetRequest.decode(request.command.fields)
        config = known_topic(self._topics, header.topic)
        is_ours = self._settings.now.resets_at_server
        wanted = await (self._checked(header, config) if is_ours else self._agreed(header, config))
        name = self._settings.now.name
        table = ResetOffsets(
            offset_table={MessageQueue(header.topic, name, queue_id): offset for queue_id, offset in wanted.items()}
        )
        if is_ours:
            for queue_id, offset in wanted.items():
                self._offsets.reset(header.group, header.topic, queue_id, offset)
        told_count = await self._tell(header, table)
        if is_ours:
            await self._offsets.kept()
        if not told_count and not is_ours:
            remark = f"no member of group {header.group!r} is online: start one, or set useServerSideResetOffset=true"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        log.info(
            "offsets reset group=%s topic=%s time=%d queues=%d members=%d peer=%s",
            *(header.group, header.topic, header.timestamp_ms, len(wanted), told_count, request.session.peer),
        )
        return request.command.answer(ResponseCode.SUCCESS, body=table.encode())

    async def _checked(self, header: ResetOffsetRequest, config: TopicConfig) -> dict[int, int]:
        """Where each queue goes by 5.x's rules: one queue or all readable ones, whatever the group had."""
        if self._state.is_slave:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "a slave does not reset offsets: ask its master")
        known_group(self._groups, header.group)
        queue = self._store.queue(QueueKey(header.topic, header.queue_id))
        if header.offset >= 0 and (queue is not None or 0 <= header.queue_id < config.read_queue_nums):
            low, high = (queue.min_offset, queue.next_offset) if queue is not None else (0, 0)
            if not low <= header.offset <= high + 1:
                remark = f"offset {header.offset} is not in queue {header.queue_id}, which has {low} to {high}"
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            return {header.queue_id: header.offset}
        count = config.read_queue_nums
        if header.queue_id >= count or not count:
            remark = f"queue {header.queue_id} of topic {header.topic!r} is not here: {count} can be read"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        queue_ids = range(count) if header.queue_id < 0 else range(header.queue_id, header.queue_id + 1)
        return await self._found(header, queue_ids, lambda queue_id, offset: offset)

    async def _agreed(self, header: ResetOffsetRequest, config: TopicConfig) -> dict[int, int]:
        """Where each queue goes by 4.9's rules: without force only back, and only where the group has been."""
        been = self._offsets.queues_of(header.group, header.topic)
        missing = [queue_id for queue_id in range(config.write_queue_nums) if queue_id not in been]
        if missing:
            remark = f"group {header.group!r} has no offset in queue {missing[0]} of topic {header.topic!r}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return await self._found(
            header,
            range(config.write_queue_nums),
            lambda queue_id, offset: offset if header.is_forced else min(offset, been[queue_id]),
        )

    async def _found(
        self, header: ResetOffsetRequest, queue_ids: range, choose: Callable[[int, int], int]
    ) -> dict[int, int]:
        found = {}
        for queue_id in queue_ids:
            found[queue_id] = choose(queue_id, self._offset_at(QueueKey(header.topic, queue_id), header.timestamp_ms))
            if len(found) % _SEARCHES_A_TURN == 0:
                await asyncio.sleep(0)
        return found

    def _offset_at(self, key: QueueKey, time_ms: int) -> QueueOffset:
        queue = self._store.queue(key)
        if time_ms < 0:
            return QueueOffset(queue.next_offset if queue is not None else 0)
        return QueueOffset(self._store.offset_at(key, time_ms))

    async def _tell(self, header: ResetOffsetRequest, table: ResetOffsets) -> int:
        """Tell every member; returns how many that were. A group that pops takes all from the broker anyway."""
        group = self._members.consumers(header.group)
        if group is None or group.consume_type is ConsumeType.CONSUME_POP:
            return 0
        fields = header.encode()
        body, body_for_c = table.encode(), ResetOffsetsForC.of(table).encode()
        members = list(group.channels.items())
        for i, (session, member) in enumerate(members, start=1):
            told = body_for_c if member.language == _CPP else body
            session.send(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, flag=ONEWAY_FLAG, fields=fields, body=told))
            if i % _MEMBERS_A_TURN == 0:
                await asyncio.sleep(0)
        return len(members)
