"""Popped messages on the wire: reading the answer to a pop, and the requests that settle what it brought.

A message nobody acknowledged is stored again in a topic of the group and the topic it came from. RocketMQ has spelt
that topic's name in two ways; which of them a message came from is part of its handle (`TopicMark`).

    v1   %RETRY%group_topic     the default, and ambiguous where names hold underscores
    v2   %RETRY%group+topic     with enableRetryTopicV2; `+` stands in no name
"""

from dataclasses import replace
from typing import NamedTuple

from bolide.errors import ProtocolError, Refusal
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.queue import PhysicalOffset
from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import SendBackRequest
from bolide.protocol.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeAnswer,
    ChangeInvisibleTimeRequest,
    PopMessageAnswer,
)
from bolide.protocol.headers.poptext import (
    OrderedItem,
    PopHandle,
    PoppedQueue,
    TopicMark,
    build_handle,
    parse_handle,
    parse_order_counts,
    parse_popped,
    parse_start_offsets,
)
from bolide.protocol.records import decode_records

_TO_DEAD_LETTERS = -1


class PoppedMessage(NamedTuple):
    """A message that is out, and the handle it is settled with; `reconsume_times` counts earlier deliveries."""

    handle: PopHandle
    message: StoredMessage


def retry_topic_v1(group: str, topic: str) -> str:
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(group: str, topic: str) -> str:
    return f"{RETRY_PREFIX}{group}+{topic}"


def mark_of(topic: str) -> TopicMark:
    """Which kind of topic this is, as Java tells it from the name alone."""
    if not topic.startswith(RETRY_PREFIX):
        return TopicMark.NORMAL
    return TopicMark.RETRY_V2 if "+" in topic else TopicMark.RETRY_V1


def marked_topic(group: str, topic: str, mark: TopicMark) -> str:
    """The topic a mark stands for."""
    if mark is TopicMark.NORMAL:
        return topic
    return retry_topic_v2(group, topic) if mark is TopicMark.RETRY_V2 else retry_topic_v1(group, topic)


def read_popped(answer: Command, broker_name: str) -> list[PoppedMessage]:
    """The messages of a pop, each with its handle."""
    told = PopMessageAnswer.decode(answer.fields)
    popped = parse_popped(told.start_offsets or "", told.message_offsets or "")
    try:
        records = decode_records(answer.body)
    except ProtocolError as problem:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the broker's messages cannot be read: {problem}") from problem
    counts = parse_order_counts(told.order_counts or "")
    found = []
    for record in records:
        text = record.properties.get(names.POP_HANDLE)
        mark = mark_of(record.topic)
        if text:
            handle = parse_handle(text)
        else:
            handle = PopHandle(
                start_offset=popped[PoppedQueue(mark, record.queue_id)].start,
                popped_ms=told.popped_ms,
                invisible_ms=told.invisible_ms,
                revive_queue_id=told.revive_queue_id,
                mark=mark,
                broker_name=broker_name,
                queue_id=record.queue_id,
                queue_offset=record.queue_offset,
            )
        times = counts.get(OrderedItem(mark, record.queue_id, record.queue_offset), record.reconsume_times)
        if times != record.reconsume_times:
            record = replace(record, reconsume_times=times)
        found.append(PoppedMessage(handle, record))
    return found


def handle_heads(told: PopMessageAnswer, broker_name: str) -> dict[int, bytes]:
    """The handles of what a pop brought of its topic itself, by queue: as far as they are the same for all messages."""
    tail = f"{told.popped_ms} {told.invisible_ms} {told.revive_queue_id} {TopicMark.NORMAL:d} {broker_name}"
    return {
        queue.queue_id: f"{start} {tail}".encode()
        for queue, start in parse_start_offsets(told.start_offsets or "").items()
        if queue.mark is TopicMark.NORMAL
    }


def ack_command(group: str, topic: str, handle: PopHandle) -> Command:
    """The message is done."""
    header = AckMessageRequest(
        consumer_group=group,
        topic=marked_topic(group, topic, handle.mark),
        queue_id=handle.queue_id,
        handle=build_handle(handle),
        offset=handle.queue_offset,
    )
    return Command(RequestCode.ACK_MESSAGE, fields=header.encode())


def change_command(
    group: str, topic: str, handle: PopHandle, invisible_ms: int, *, is_suspended: bool = False
) -> Command:
    """The message is hidden for so long from now on."""
    header = ChangeInvisibleTimeRequest(
        consumer_group=group,
        topic=marked_topic(group, topic, handle.mark),
        queue_id=handle.queue_id,
        handle=build_handle(handle),
        offset=handle.queue_offset,
        invisible_ms=invisible_ms,
        is_suspended=is_suspended,
    )
    return Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields=header.encode())


def changed_handle(handle: PopHandle, answer: Command) -> PopHandle:
    """The handle after the message was hidden for another while; the one before is worthless.

    It has a check point of its own then, which starts at the message.
    """
    told = ChangeInvisibleTimeAnswer.decode(answer.fields)
    return replace(
        handle,
        start_offset=handle.queue_offset,
        popped_ms=told.popped_ms,
        invisible_ms=told.invisible_ms,
        revive_queue_id=told.revive_queue_id,
    )


def bury_command(group: str, topic: str, handle: PopHandle, physical_offset: int) -> Command:
    """The message becomes a dead letter; it is acknowledged after that."""
    header = SendBackRequest(
        physical_offset=PhysicalOffset(physical_offset),
        group=group,
        delay_level=_TO_DEAD_LETTERS,
        origin_topic=marked_topic(group, topic, handle.mark),
        reconsume_times_max=0,
    )
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields=header.encode())
