"""Where a group begins in a queue of which it has no progress yet."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bolide.errors import ClientError
from bolide.model.queue import MessageQueue
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.bodies.clients import ConsumeFrom
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command

if TYPE_CHECKING:
    from bolide.client.instance import Instance


@dataclass(frozen=True, slots=True)
class StartFrom:
    """The newest message, the oldest, or those from a time on."""

    where: ConsumeFrom
    time_ms: int = 0

    @classmethod
    def newest(cls) -> Self:
        """Only messages that come after the group has begun. RocketMQ's default.

        A broker that still has a queue's first message answers 0 for a group it does not know, whatever is asked here:
        on a young topic a new group gets everything.
        """
        return cls(ConsumeFrom.CONSUME_FROM_LAST_OFFSET)

    @classmethod
    def oldest(cls) -> Self:
        """Everything the brokers still have."""
        return cls(ConsumeFrom.CONSUME_FROM_FIRST_OFFSET)

    @classmethod
    def time(cls, time_ms: int) -> Self:
        """What was stored at that time, in milliseconds of the epoch, or later.

        Brokers before 5.0 answer 0 on a young topic here too.
        """
        return cls(ConsumeFrom.CONSUME_FROM_TIMESTAMP, time_ms)

    @property
    def is_time(self) -> bool:
        """A time was asked for."""
        return self.where is ConsumeFrom.CONSUME_FROM_TIMESTAMP


def chosen_start(given: object) -> StartFrom:
    """Where a user wants to begin, the newest where nothing was said."""
    if not isinstance(given, StartFrom | None):
        forms = "StartFrom.oldest(), StartFrom.newest() or StartFrom.time(milliseconds)"
        raise ClientError(f"start_from is a {type(given).__name__}, {given!r:.40}: give {forms}")
    return given or StartFrom.newest()


async def start_offset(instance: "Instance", queue: MessageQueue, start: StartFrom) -> int:
    """The offset to begin at; a retry topic is read from its beginning, for what lies there was already promised."""
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start.where is ConsumeFrom.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if start.where is ConsumeFrom.CONSUME_FROM_TIMESTAMP and not is_retry:
        return await offset_at(instance, queue, start.time_ms)
    if start.where is ConsumeFrom.CONSUME_FROM_LAST_OFFSET and is_retry:
        return 0
    return await max_offset(instance, queue)


async def offset_at(instance: "Instance", queue: MessageQueue, time_ms: int) -> int:
    """The offset of the first message that was stored at a time or later."""
    from bolide.protocol.headers.consume import SearchOffsetRequest

    header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=time_ms)
    return await _ask(instance, queue, Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields=header.encode()))


async def min_offset(instance: "Instance", queue: MessageQueue) -> int:
    """The oldest offset a queue still has."""
    from bolide.protocol.headers.consume import GetMinOffsetRequest

    header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    return await _ask(instance, queue, Command(RequestCode.GET_MIN_OFFSET, fields=header.encode()))


async def max_offset(instance: "Instance", queue: MessageQueue) -> int:
    """The offset the next message of a queue will get."""
    from bolide.protocol.headers.consume import GetMaxOffsetRequest

    header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    return await _ask(instance, queue, Command(RequestCode.GET_MAX_OFFSET, fields=header.encode()))


async def _ask(instance: "Instance", queue: MessageQueue, command: Command) -> int:
    from bolide.protocol.headers.consume import OffsetAnswer

    address = await instance.found_address(queue.topic, queue.broker_name)
    return OffsetAnswer.decode((await instance.ask(address, command)).fields).offset
