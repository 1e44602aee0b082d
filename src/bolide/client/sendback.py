"""A message that could not be consumed goes back: to its broker, which will deliver it again later or put it aside.

Three ways, each when the one before fails: the broker that stored it takes it back (request 36); it is sent anew to the
group's retry topic; it stays here and is handed out again after a pause. The last keeps it unsettled, so that a crash
cannot lose it.
"""

import logging

from bolide.client.instance import Instance
from bolide.client.outgoing import SendRules, send_command, to_queue
from bolide.client.received import Received
from bolide.client.selection import Selection
from bolide.errors import BolideError, ClientError
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.topics import retry_topic
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import SendBackRequest

DEAD_LEVEL = -1
BROKER_DECIDES = 0
# RocketMQ's levels in seconds; a delay that is asked for becomes the first level that is not shorter.
LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_FIRST_RETRY_LEVEL = 3
_TIMEOUT_S = 5.0
log = logging.getLogger(__name__)


def delay_level(delay_s: float | None) -> int:
    """The level for a delay; without one the broker goes by how often the message has failed."""
    if delay_s is None:
        return BROKER_DECIDES
    for level, level_s in enumerate(LEVELS_S, 1):
        if delay_s <= level_s:
            return level
    return len(LEVELS_S)


class SendBack:
    """What a group's member does with failed messages."""

    def __init__(self, instance: Instance, group: str, retry_count_max: int | None) -> None:
        self._instance = instance
        self._group = group
        self._retry_count_max = retry_count_max
        self._selection = Selection(instance.chance)

    async def send(self, message: Received, level: int) -> bool:
        """True when the broker has it; false when it must be kept here."""
        try:
            await self._to_broker(message, level)
            return True
        except BolideError as problem:
            log.debug("message not taken back id=%s problem=%s", message.msg_id, problem)
        try:
            await self._to_retry_topic(message, level)
            return True
        except BolideError as problem:
            log.warning("message neither taken back nor sent anew id=%s problem=%s", message.msg_id, problem)
            return False

    async def _to_broker(self, message: Received, level: int) -> None:
        stored = message.stored
        header = SendBackRequest(
            physical_offset=stored.physical_offset,
            group=self._group,
            delay_level=level,
            origin_message_id=stored.message_id,
            origin_topic=stored.topic,
            reconsume_times_max=self._retry_count_max,
        )
        address = await self._instance.found_address(message.queue.topic, message.queue.broker_name)
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields=header.encode())
        await self._instance.ask(address, command, _TIMEOUT_S)

    async def _to_retry_topic(self, message: Received, level: int) -> None:
        stored, topic = message.stored, retry_topic(self._group)
        retry_level = level if level != BROKER_DECIDES else _FIRST_RETRY_LEVEL + stored.reconsume_times
        if level == DEAD_LEVEL:
            raise ClientError("only a broker puts a message among the dead letters")
        properties = {
            **stored.properties,
            names.RETRY_TOPIC: message.topic,
            names.ORIGIN_MESSAGE_ID: stored.properties.get(names.ORIGIN_MESSAGE_ID, stored.offset_id),
            names.RECONSUME_TIMES: str(stored.reconsume_times + 1),
            names.DELAY: str(retry_level),
        }
        if self._retry_count_max is not None:
            properties[names.RECONSUME_TIMES_MAX] = str(self._retry_count_max)
        route = await self._instance.route(topic)
        if not route.publish:
            raise ClientError(f"{topic} has no queue that takes messages")
        queue = self._selection.choose(topic, route.publish, self._instance.clock.monotonic_s())
        retried = Message(topic, stored.body, properties=properties, flag=stored.flag)
        command = send_command(retried, SendRules(group=self._group), self._instance.clock.now_ms())
        command.fields["j"] = str(stored.reconsume_times + 1)
        if self._retry_count_max is not None:
            command.fields["l"] = str(self._retry_count_max)
        address = await self._instance.found_address(topic, queue.broker_name)
        await self._instance.ask(address, to_queue(command, queue), _TIMEOUT_S)
