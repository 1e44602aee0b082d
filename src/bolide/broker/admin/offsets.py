"""Requests about how far groups have come: asking, committing, copying, comparing.

A commit is believed, be it backwards: members know best. It is refused for a group, a topic or a queue that is not
here, so that the table cannot grow beyond what the broker has.
"""

from bolide.broker.state import BrokerState
from bolide.broker.tables.places import Places, unknown_group
from bolide.errors import Refusal
from bolide.model.queue import QueueKey, QueueOffset
from bolide.protocol.bodies import ConsumerOffsets, CorrectionOffsets, GroupList, TopicList
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import OffsetAnswer, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from bolide.protocol.headers.groups import (
    CloneGroupOffsetRequest,
    QueryCorrectionOffsetRequest,
    QueryTopicsByConsumerRequest,
)
from bolide.protocol.headers.topics import QueryTopicConsumersRequest
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request

_BEYOND_ALL = (1 << 63) - 1


class GroupOffsets:
    """The offsets of groups, as consumers and administrators ask and tell."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._offsets = state.offsets
        self._members = state.members
        self._topics = state.topics
        self._groups = state.groups
        self._store = state.store
        self._places = Places(state.topics, state.groups, state.store)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_CORRECTION_OFFSET: self.corrections,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
        }

    def query(self, request: Request) -> Command:
        """14: where a group goes on in a queue."""
        header = QueryConsumerOffsetRequest.decode(request.command.fields)
        offset = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset is None and header.is_zero_if_absent is not False and self._is_young(header.topic, header.queue_id):
            offset = 0
        if offset is None:
            remark = (
                f"group {header.consumer_group!r} has no offset in queue {header.queue_id} of topic {header.topic!r}: "
                "it begins by its own rule"
            )
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.command.answer(ResponseCode.SUCCESS, fields=OffsetAnswer(offset=QueueOffset(offset)).encode())

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the first message of a queue is still at hand; a new group then begins with it, whatever its rule."""
        queue = self._store.queue(QueueKey(topic, queue_id))
        if queue is None or queue.min_offset > 0 or queue.next_offset == 0:
            return False
        physical_offset, _, _ = queue.entry(0)
        return physical_offset >= self._store.log_start and not self._store.is_far(physical_offset)

    def update(self, request: Request) -> Command:
        """15: how far a group has come in a queue."""
        header = UpdateConsumerOffsetRequest.decode(request.command.fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        has_been = self._offsets.get(group, topic, queue_id) is not None
        self._places.check_progress(group, topic, queue_id, header.commit_offset, has_been=has_been)
        if self._offsets.has_reset(group, topic, queue_id):
            if self._members.consumers(group) is None:
                # Nobody is in the group who could commit where he was: this is an administrator who moves it on.
                self._offsets.reset(group, topic, queue_id, header.commit_offset)
                return request.command.answer(ResponseCode.SUCCESS)
            remark = "not noted: the offset was reset, and the next pull will say to where"
            return request.command.answer(ResponseCode.SUCCESS, remark=remark)
        self._offsets.put(group, topic, queue_id, header.commit_offset)
        return request.command.answer(ResponseCode.SUCCESS)

    async def all(self, request: Request) -> Command:
        """43: everything, for a slave. A master tells it when no change of masters can take back what it speaks of.

        A pop moves its group on because of a checkpoint in the log. A slave that had the offset, and whose log is cut
        before the checkpoint, would pass the messages over when it leads.
        """
        body = ConsumerOffsets(data_version=self._offsets.version, offset_table=self._offsets.table).encode()
        if not self._state.is_slave and not await self._state.safety.kept(self._store):
            raise Refusal(ResponseCode.SYSTEM_BUSY, "the log that the offsets speak of is not with all replicas yet")
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def groups_of_topic(self, request: Request) -> Command:
        """300: the groups that subscribe to a topic now, or have an offset in it."""
        topic = QueryTopicConsumersRequest.decode(request.command.fields).topic
        online = [group.name for group in self._members.consumer_groups.values() if topic in group.subscriptions]
        names = dict.fromkeys(online + self._offsets.groups_of(topic))
        return request.command.answer(ResponseCode.SUCCESS, body=GroupList(group_list=list(names)).encode())

    def topics_of_group(self, request: Request) -> Command:
        """343: the topics in which a group has an offset."""
        group = QueryTopicsByConsumerRequest.decode(request.command.fields).group
        body = TopicList(broker_addr=request.session.local, topic_list=self._offsets.topics_of(group)).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def corrections(self, request: Request) -> Command:
        """308: the least offset of all groups in each queue, or the largest number where one group is behind that."""
        header = QueryCorrectionOffsetRequest.decode(request.command.fields)
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.queues_of(group, header.topic).items():
                queue = self._store.queue(QueueKey(header.topic, queue_id))
                if offset >= (queue.min_offset if queue is not None else 0):
                    least[queue_id] = min(offset, least.get(queue_id, _BEYOND_ALL))
        for queue_id, offset in self._offsets.queues_of(header.compare_group, header.topic).items():
            if least.get(queue_id, _BEYOND_ALL) > offset:
                least[queue_id] = _BEYOND_ALL
        return request.command.answer(ResponseCode.SUCCESS, body=CorrectionOffsets(correction_offsets=least).encode())

    async def clone(self, request: Request) -> Command:
        """314: let one group be where another is."""
        header = CloneGroupOffsetRequest.decode(request.command.fields)
        if self._groups.find(header.destination_group) is None:
            raise unknown_group(header.destination_group)
        source = self._members.consumers(header.source_group)
        for topic in [header.topic] if header.topic else self._offsets.topics_of(header.source_group):
            is_left = source is not None and source.subscriptions and topic not in source.subscriptions
            if self._topics.find(topic) is not None and (header.is_offline or not is_left):
                self._offsets.clone(header.source_group, header.destination_group, topic)
        await self._offsets.kept()
        return request.command.answer(ResponseCode.SUCCESS)
