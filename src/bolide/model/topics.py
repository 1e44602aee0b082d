"""The topics RocketMQ keeps for itself, and the names it derives from groups and clusters."""

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_EXHAUSTED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"
TIMER_TOPIC = "rmq_sys_wheel_timer"
MARK_TOPIC = "rmq_sys_BOLIDE_MARK"  # which batches are published

# Queues of a topic in one broker: what brokers keep, name servers tell and clients make objects of. RocketMQ knows no
# limit and would try; its largest own topic has 1,024.
QUEUE_COUNT_MAX = 65_536

SYSTEM_PREFIX = "rmq_sys_"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"  # with the cluster's name: what is popped and not settled
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
LIGHT_QUEUE_PREFIX = "%LMQ%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

# A client's send to one of these is refused; RocketMQ takes those to the timer, and anyone who sends them says in their
# properties where the broker is to store them.
CLOSED_TOPICS = frozenset(
    [
        *(SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_EXHAUSTED_TOPIC),
        *(SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, TIMER_TOPIC, MARK_TOPIC),
    ]
)
_WAITING_TOPICS = frozenset((SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_EXHAUSTED_TOPIC, TIMER_TOPIC))
# Nobody creates one of these by name; those named after the cluster and the broker join them at run time.
SYSTEM_TOPICS = CLOSED_TOPICS | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}


def is_closed_topic(topic: str) -> bool:
    """Whether clients may not send there. By a record of what was popped they could move a group past its messages."""
    return topic in CLOSED_TOPICS or topic.startswith(REVIVE_PREFIX)


def is_waiting_topic(topic: str) -> bool:
    """Whether messages of any topic wait there, or what is known of them, until they are due, settled or decided."""
    return topic in _WAITING_TOPICS or topic.startswith(REVIVE_PREFIX)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"
