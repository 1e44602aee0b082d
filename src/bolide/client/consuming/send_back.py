"""A message that could not be consumed goes back: to its broker, which will deliver it again later or put it aside.

Three ways, each when the one before fails: the broker that stored it takes it back (request 36); it is sent again to
the group's retry topic; it stays here and is handed out again after a pause. The last keeps it unsettled, so that a
crash cannot lose it. A dead letter with a reason goes the second way first, for a record can bring it along, and
request 36 can to our own brokers only. RocketMQ's limit of retries does the rest: sent with a limit of 0, it has failed
too often.

A delay that is asked for travels twice: as RocketMQ's level, and in milliseconds for brokers that can keep to it.
"""

import logging
import math
from typing import NamedTuple

from bolide.client.consuming.received import Received
from bolide.client.instance import Instance
from bolide.client.sending.message import SendRules, send_command, to_queue
from bolide.client.sending.selection import Selection
from bolide.errors import BolideError, ClientError
from bolide.model import properties as names
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.model.topics import retry_topic
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import DELAY_FIELD, REASON_FIELD, SendBackRequest

DEAD_LEVEL = -1
BROKER_DECIDES = 0
# RocketMQ's levels in seconds; a delay that is asked for becomes the first level that is not shorter.
LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_FIRST_RETRY_LEVEL = 3
_TIMEOUT_S = 5.0
_REASON_LENGTH_MAX = 1000
_LEFT_OUT = frozenset((names.TRANSACTION_PREPARED, names.DELAY, names.REAL_TOPIC, names.REAL_QUEUE_ID))
log = logging.getLogger(__name__)


def delay_level(delay_s: float | None) -> int:
    """The level for a delay; without one the broker goes by how often the message has failed."""
    if delay_s is None:
        return BROKER_DECIDES
    for level, level_s in enumerate(LEVELS_S, 1):
        if delay_s <= level_s:
            return level
    return len(LEVELS_S)


class Failure(NamedTuple):
    """When a message that failed is wanted again (None: the broker decides), why it failed, and if it is given up."""

    delay_s: float | None
    reason: str
    is_dead: bool

    @property
    def level(self) -> int:
        return DEAD_LEVEL if self.is_dead else delay_level(self.delay_s)


class SendBack:
    """What a group's member does with failed messages."""

    def __init__(self, instance: Instance, group: str, retry_count_max: int | None) -> None:
        self._instance = instance
        self._group = group
        self._retry_count_max = retry_count_max
        self._selection = Selection(instance.chance)

    async def send(self, message: Received, failure: Failure) -> bool:
        """True when the broker has it; false when it must be kept here."""
        ways = [self._to_broker, self._to_retry_topic]
        if failure.reason and failure.is_dead:
            ways.reverse()  # only a message that is sent again can bring its reason along to any broker
        for way in ways:
            try:
                await way(message, failure)
                return True
            except BolideError as problem:
                log.debug("message not taken back id=%s problem=%s", message.msg_id, problem)
                last = problem
        log.warning("message neither taken back nor sent again id=%s problem=%s", message.msg_id, last)
        return False

    async def _to_broker(self, message: Received, failure: Failure) -> None:
        stored = message.stored
        header = SendBackRequest(
            physical_offset=stored.physical_offset,
            group=self._group,
            delay_level=failure.level,
            origin_message_id=stored.message_id,
            origin_topic=stored.topic,
            reconsume_times_max=self._retry_count_max,
        )
        fields = header.encode()
        if failure.reason:
            fields[REASON_FIELD] = failure.reason[:_REASON_LENGTH_MAX]
        if failure.delay_s is not None:
            fields[DELAY_FIELD] = str(math.ceil(round(failure.delay_s * 1000, 3)))
        address = await self._instance.found_address(message.queue.topic, message.queue.broker_name)
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields)
        await self._instance.ask(address, command, _TIMEOUT_S)

    async def _to_retry_topic(self, message: Received, failure: Failure) -> None:
        topic, stored = retry_topic(self._group), message.stored
        retried = Message(topic, stored.body, properties=_sent_anew(message, failure), flag=stored.flag)
        command = send_command(retried, SendRules(group=self._group), stored.born_at)
        command.fields["j"] = str(stored.reconsume_times + 1)
        # A broker puts what failed more often than its limit among the dead letters.
        limit = 0 if failure.is_dead else self._retry_count_max
        if limit is not None:
            command.fields["l"] = str(limit)
        queue = await self._retry_queue(topic, message.queue.broker_name)
        address = await self._instance.found_address(topic, queue.broker_name)
        await self._instance.ask(address, to_queue(command, queue), _TIMEOUT_S)

    async def _retry_queue(self, topic: str, broker_name: str) -> MessageQueue:
        """One of the broker that has the message, else of any."""
        route = await self._instance.route(topic)
        if not route.publish:
            raise ClientError(f"{topic} has no queue that takes messages")
        near = tuple(queue for queue in route.publish if queue.broker_name == broker_name)
        return self._selection.choose(topic, near or route.publish, self._instance.clock.monotonic_s())


def _sent_anew(message: Received, failure: Failure) -> dict[str, str]:
    """The properties of a failed message that is sent once more: what belonged to its first sending is left out."""
    stored = message.stored
    properties = {name: value for name, value in stored.properties.items() if name not in _LEFT_OUT}
    properties[names.RETRY_TOPIC] = message.topic
    properties.setdefault(names.ORIGIN_MESSAGE_ID, stored.offset_id)
    if failure.is_dead:
        if failure.reason:
            properties[names.DEAD_LETTER_REASON] = "".join(
                character if character.isprintable() else " " for character in failure.reason[:_REASON_LENGTH_MAX]
            )
    else:
        level = failure.level
        properties[names.DELAY] = str(level if level != BROKER_DECIDES else _FIRST_RETRY_LEVEL + stored.reconsume_times)
    return properties
