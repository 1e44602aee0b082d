"""POP consumer to broker: take messages for a while, acknowledge, keep for longer. Packed texts: `poptext.py`."""

from bolide.model.names import GroupName, Label, Text, TopicName
from bolide.model.queue import QueueOffset
from bolide.protocol.headers.header import Header, Int32, Int64, RequestHeader, header, wire


@header
class PopMessageRequest(RequestHeader):
    """Messages of a queue (-1: of any), hidden from others for a while. A new group starts at min (0) or max (1)."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    message_count_max: Int32 = wire("maxMsgNums")
    invisible_ms: Int64 = wire("invisibleTime")
    poll_ms: Int64 = wire("pollTime")
    born_ms: Int64 = wire("bornTime")
    init_mode: Int32 = wire("initMode")
    expression_type: Label | None = wire("expType", default=None)
    expression: Text | None = wire("exp", default=None)
    is_ordered: bool = wire("order", default=False)
    attempt_id: Label | None = wire("attemptId", default=None)


@header
class PopMessageAnswer(Header):
    """What was taken, also the answer to a peek. The last three are the packed texts of `poptext.py`."""

    popped_ms: Int64 = wire("popTime")
    invisible_ms: Int64 = wire("invisibleTime")
    revive_queue_id: Int32 = wire("reviveQid")
    remaining_count: Int64 = wire("restNum")
    start_offsets: Text | None = wire("startOffsetInfo", default=None)
    message_offsets: Text | None = wire("msgOffsetInfo", default=None)
    order_counts: Text | None = wire("orderCountInfo", default=None)


@header
class AckMessageRequest(RequestHeader):
    """A popped message is done. `handle` is its POP_CK."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    handle: Text = wire("extraInfo")
    offset: QueueOffset = wire("offset")
    lite_topic: Label | None = wire("liteTopic", default=None)


@header
class ChangeInvisibleTimeRequest(RequestHeader):
    """A popped message is not done, but not to be given to others for another while."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    handle: Text = wire("extraInfo")
    offset: QueueOffset = wire("offset")
    invisible_ms: Int64 = wire("invisibleTime")
    lite_topic: Label | None = wire("liteTopic", default=None)
    is_suspended: bool = wire("suspend", default=False)


@header
class ChangeInvisibleTimeAnswer(Header):
    """What its new handle is made of."""

    popped_ms: Int64 = wire("popTime")
    invisible_ms: Int64 = wire("invisibleTime")
    revive_queue_id: Int32 = wire("reviveQid")


@header
class NotificationRequest(RequestHeader):
    """Tell me when there is something to pop; asked by proxies."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    poll_ms: Int64 = wire("pollTime")
    born_ms: Int64 = wire("bornTime")
    is_ordered: bool = wire("order", default=False)
    attempt_id: Label | None = wire("attemptId", default=None)
    expression_type: Label | None = wire("expType", default=None)
    expression: Text | None = wire("exp", default=None)


@header
class NotificationAnswer(Header):
    """There is, or there is not, or too many are asking."""

    has_message: bool = wire("hasMsg")
    is_polling_full: bool = wire("pollingFull", default=False)


@header
class PollingCountRequest(RequestHeader):
    """How many wait at a queue."""

    consumer_group: GroupName = wire("consumerGroup")
    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")


@header
class PollingCountAnswer(Header):
    """That many."""

    polling_count: Int32 = wire("pollingNum")


@header
class PeekMessageRequest(RequestHeader):
    """Messages to look at, without taking them."""

    topic: TopicName = wire("topic")
    queue_id: Int32 = wire("queueId")
    message_count_max: Int32 = wire("maxMsgNums")
    consumer_group: GroupName = wire("consumerGroup")
