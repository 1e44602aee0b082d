"""How a group gets the messages of a topic: by pulls from queues of its own, or by pops from queues it shares.

Set by request 401 and kept as RocketMQ's config/messageRequestMode.json; where nothing is set, the broker's own
setting counts. The group's retry topic is always pulled: what fails in a pop goes elsewhere (`lanes.py`).
"""

from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import TableWriter
from bolide.errors import Refusal
from bolide.files import read_whole
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.bodies.body import read
from bolide.protocol.bodies.pop import GroupRequestMode, RequestMode, RequestModeTable
from bolide.protocol.codes import ResponseCode

ModeTable = dict[str, dict[str, GroupRequestMode]]


class RequestModes:
    """The table and its file. Built before the broker listens: reading the file blocks."""

    def __init__(self, state: BrokerState, table_writer: TableWriter) -> None:
        self._settings = state.settings
        self._topics = state.topics
        self._groups = state.groups
        self._table_writer = table_writer
        self._path = state.settings.now.directory / "messageRequestMode.json"
        kept = read_whole(self._path, parse_modes, RequestModeTable())
        self.table: ModeTable = kept.message_request_mode_map

    def find(self, group: str, topic: str) -> GroupRequestMode:
        """What was set for the group in the topic, or what counts without."""
        mode = self.table.get(topic, {}).get(group)
        if mode is not None:
            return mode
        config = self._settings.now
        default = RequestMode.PULL if topic.startswith(RETRY_PREFIX) else RequestMode(config.request_mode)
        share_count = config.pop_share_count if default is RequestMode.POP else 0
        return GroupRequestMode(consumer_group=group, mode=default, pop_share_queue_num=share_count, topic=topic)

    def set(self, mode: GroupRequestMode) -> None:
        """Let a group get a topic's messages another way from its next question on."""
        if not mode.topic or not mode.consumer_group:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "a request mode is set for a topic and a group: name both")
        if mode.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.find(mode.topic) is None:
            remark = f"topic {mode.topic!r} is not here; create it or check the spelling"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._groups.find(mode.consumer_group) is None:
            remark = f"there is no subscription group {mode.consumer_group!r}, and it may not be made by itself"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"{remark}; create it")
        self.table[mode.topic] = {**self.table.get(mode.topic, {}), mode.consumer_group: mode}
        self._save()

    def adopt(self, told: RequestModeTable) -> None:
        """A slave has its master's table."""
        if self.table != told.message_request_mode_map:
            self.table = told.message_request_mode_map
            self._save()

    def snapshot(self) -> RequestModeTable:
        return RequestModeTable(message_request_mode_map=self.table.copy())

    def _save(self) -> None:
        self._table_writer.save(self._path, lambda: self.snapshot().encode().decode())


def parse_modes(text: str) -> RequestModeTable:
    """Read a messageRequestMode.json of 5.x or our own; raises ValueError."""
    return read(RequestModeTable, text.encode())
