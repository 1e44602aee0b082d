"""What a request may name beyond being well-formed: what is here, what clients may write to, which queues there are.

Whether a text can be a name at all is settled when header and body are read (`model/names.py`). Anyone who goes on to
keep something under a name, to count it or to write there, asks here first, so that nothing grows beyond what the
broker has, and nothing comes by a detour to where a send could not go.
"""

from bolide.broker.tables.groups import Groups
from bolide.broker.tables.topics import Topics
from bolide.errors import Refusal
from bolide.model.names import shown
from bolide.model.queue import QueueKey
from bolide.model.topics import is_closed_topic
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.store.store import Store

OFFSET_MAX = (1 << 63) - 1


class Places:
    """Asks the tables and the store; every answer that is no raises Refusal."""

    def __init__(self, topics: Topics, groups: Groups | None, store: Store) -> None:
        """Without groups, for callers that deal with topics alone."""
        self._topics = topics
        self._groups = groups
        self._store = store

    def topic(self, topic: str) -> TopicConfig:
        """A topic that is here."""
        return known_topic(self._topics, topic)

    def group(self, group: str) -> GroupConfig:
        """A group that is here."""
        assert self._groups is not None
        return known_group(self._groups, group)

    def has_queue(self, config: TopicConfig, queue_id: int) -> bool:
        """Whether the topic has the queue, or had it before it shrank."""
        if 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return True
        return self._store.queue(QueueKey(config.topic_name, queue_id)) is not None

    def check_progress(self, group: str, topic: str, queue_id: int, offset: int, *, has_been: bool) -> None:
        """How far a group has come, to be kept: the group, the topic and the queue are here, and it is an offset.

        A queue the topic had before it shrank may still be worked off, `has_been`: where the group has an offset.
        """
        self.group(group)
        config = self.topic(topic)
        if not has_been and not self.has_queue(config, queue_id):
            count = max(config.read_queue_nums, config.write_queue_nums)
            remark = f"queue {queue_id} of topic {topic!r} is not here: it has {count}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 <= offset <= OFFSET_MAX:
            remark = f"offset {offset} is no place in a queue: those are 0 to {OFFSET_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)

    def check_target(self, topic: str, queue_id: int) -> TopicConfig:
        """Where a message is to lie that was kept elsewhere meanwhile: a topic that clients may send to, and a queue
        of it. Whether it may be written to just now is not asked: the message was taken when it was."""
        if is_closed_topic(topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {shown(topic)} is the broker's own; send to another")
        config = self.topic(topic)
        if not self.has_queue(config, queue_id):
            remark = f"queue {queue_id} of topic {topic!r} is not here: it has {config.write_queue_nums} to write"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return config


def known_topic(topics: Topics, topic: str) -> TopicConfig:
    """The topic; raises Refusal if it is not here."""
    config = topics.find(topic)
    if config is None:
        remark = f"topic {topic!r} is not here; create it or check the spelling"
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    return config


def known_group(groups: Groups, group: str) -> GroupConfig:
    """The group; raises Refusal if it is not here."""
    config = groups.get(group)
    if config is None:
        raise unknown_group(group)
    return config


def unknown_group(group: str) -> Refusal:
    remark = f"subscription group {group!r} is not here; create it or check the spelling"
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
