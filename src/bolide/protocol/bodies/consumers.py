"""What a running consumer tells when it is asked (307, 309).

| here | RocketMQ |
|---|---|
| `RunningConsumer` | ConsumerRunningInfo |
| `QueueAtWork`, `PopQueueAtWork` | ProcessQueueInfo, PopProcessQueueInfo |
| `ConsumeRates` | ConsumeStatus |
| `DirectConsumption`, `ConsumeResult` | ConsumeMessageDirectlyResult, CMResult |
"""

from enum import StrEnum

from bolide.protocol.bodies.body import Body, QueueText, always
from bolide.protocol.bodies.clients import Subscription
from bolide.protocol.bodies.queues import Rates


class QueueAtWork(Body, frozen=True, kw_only=True, gc=False):
    """What a consumer has taken from a queue and not settled."""

    rocketmq_name = "ProcessQueueInfo"

    cached_msg_count: int = always(0)
    cached_msg_max_offset: int = always(0)
    cached_msg_min_offset: int = always(0)
    cached_msg_size_in_mib: int = always(0, name="cachedMsgSizeInMiB")
    commit_offset: int = always(0)
    is_dropped: bool = always(False, name="droped")
    last_consume_timestamp: int = always(0)
    last_lock_timestamp: int = always(0)
    last_pull_timestamp: int = always(0)
    locked: bool = always(False)
    transaction_msg_count: int = always(0)
    transaction_msg_max_offset: int = always(0)
    transaction_msg_min_offset: int = always(0)
    try_unlock_times: int = always(0)


class PopQueueAtWork(Body, frozen=True, kw_only=True, gc=False):
    """The same for a queue that is popped."""

    rocketmq_name = "PopProcessQueueInfo"

    is_dropped: bool = always(False, name="droped")
    last_pop_timestamp: int = always(0)
    wait_ack_count: int = always(0)


class ConsumeRates(Rates, frozen=True, kw_only=True, gc=False):
    """How fast a consumer takes and settles messages of a topic; times in ms."""

    rocketmq_name = "ConsumeStatus"

    consume_failed_msgs: int = always(0)
    consume_failed_tps: float = always(0.0, name="consumeFailedTPS")
    consume_ok_tps: float = always(0.0, name="consumeOKTPS")
    consume_rt: float = always(0.0, name="consumeRT")
    pull_rt: float = always(0.0, name="pullRT")
    pull_tps: float = always(0.0, name="pullTPS")


class RunningConsumer(Body, frozen=True, kw_only=True):
    """Everything about a running consumer.

    Tools need the properties PROP_CONSUME_TYPE and PROP_CONSUMER_START_TIMESTAMP. 4.9 has no mq_pop_table and
    user_consumer_info.
    """

    rocketmq_name = "ConsumerRunningInfo"

    jstack: str | None = None
    mq_pop_table: dict[QueueText, PopQueueAtWork] = always({})
    mq_table: dict[QueueText, QueueAtWork] = always({})
    properties: dict[str, str] = always({})
    status_table: dict[str, ConsumeRates] = always({})
    subscription_set: list[Subscription] = always([])
    user_consumer_info: dict[str, str] = always({})


class ConsumeResult(StrEnum):
    """How the consumer's own code took a message. In the order of Java's ordinals."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class DirectConsumption(Body, frozen=True, kw_only=True):
    """What came of a message that was given to one consumer by hand."""

    rocketmq_name = "ConsumeMessageDirectlyResult"

    auto_commit: bool = always(True)
    consume_result: ConsumeResult | None = None
    order: bool = always(False)
    remark: str | None = None
    spent_time_mills: int = always(0)
