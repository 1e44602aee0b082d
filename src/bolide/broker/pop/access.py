"""Who may pop what: the checks that all POP calls share, in RocketMQ's order."""

from bolide.broker.pop.lanes import Lane
from bolide.broker.state import BrokerState
from bolide.broker.tables.groups import READ_BIT
from bolide.broker.tables.places import known_group
from bolide.broker.tables.topics import PERM_READ
from bolide.errors import Refusal
from bolide.model.queue import QueueKey
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode


class Access:
    """Refuses what the settings, the topic or the group do not allow."""

    def __init__(self, state: BrokerState) -> None:
        self._settings = state.settings
        self._topics = state.topics
        self._groups = state.groups
        self._store = state.store

    def check_readable(self) -> None:
        if not self._settings.now.permission & PERM_READ:
            raise Refusal(ResponseCode.NO_PERMISSION, "this broker may not be read: brokerPermission has no 4 in it")

    def check_lane(self, lane: Lane) -> TopicConfig:
        """The topic, if the group may pop it."""
        config = self._topic(lane.topic)
        if not config.perm & PERM_READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{lane.topic}] may not be read: perm {config.perm}")
        if lane.queue_id >= config.read_queue_nums:
            raise Refusal(ResponseCode.INVALID_PARAMETER, _illegal_queue(lane, config))
        group = self._groups.find(lane.group)
        if group is None:
            remark = f"subscription group [{lane.group}] does not exist; create it with updateSubGroup"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {lane.group}")
        if self._groups.is_forbidden(lane.group, lane.topic, READ_BIT):
            raise Refusal(ResponseCode.NO_PERMISSION, f"the group {lane.group} is forbidden to read {lane.topic}")
        return config

    def check_message(self, lane: Lane, offset: int, *, may_be_next: bool) -> None:
        """A message that was popped must lie in its queue; `may_be_next`: or just behind its end, as Java takes it."""
        first, end = self.span(lane)
        if not first <= offset < end + may_be_next:
            remark = f"offset is illegal, key:{lane.topic}@{lane.queue_id}, commit:{offset}, store:{first}~{end}"
            raise Refusal(ResponseCode.NO_MESSAGE, remark)

    def span(self, lane: Lane) -> tuple[int, int]:
        """From where to where the queue reaches in which something was popped: topic, queue and group must be here."""
        config = self._topic(lane.topic)
        if not 0 <= lane.queue_id < config.read_queue_nums:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(lane, config))
        known_group(self._groups, lane.group)
        queue = self._store.queue(QueueKey(lane.topic, lane.queue_id))
        return (queue.min_offset, queue.next_offset) if queue is not None else (0, 0)

    def _topic(self, topic: str) -> TopicConfig:
        config = self._topics.find(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        return config


def _illegal_queue(lane: Lane, config: TopicConfig) -> str:
    counted = f"topicConfig.readQueueNums:[{config.read_queue_nums}]"
    return f"queueId[{lane.queue_id}] is illegal, topic:[{lane.topic}] {counted}"
