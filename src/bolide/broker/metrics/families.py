"""RocketMQ's metrics as they stand on the page of 5.5.0, and ours beside them (prefix `bolide_`).

Names, units and steps are RocketMQ's, odd ones too: a dashboard asks for them by name. A HELP line says where a name
does not say what the number is.
"""

from bolide.broker.metrics.meter import CREATE_MS_BOUNDS, DELAY_S_BOUNDS, FINISH_S_BOUNDS
from bolide.kernel.layout import SIZE_BOUNDS
from bolide.metrics.page import Family
from bolide.store.flush import SYNC_S_BOUNDS

# What came in and went out
MESSAGES_IN = Family("rocketmq_messages_in_total", "counter", "Messages stored by sends and by delay levels.")
THROUGHPUT_IN = Family("rocketmq_throughput_in_total", "counter", "Bytes that those messages take in the log.")
MESSAGE_SIZE = Family(
    "rocketmq_message_size", "histogram", "Bytes in the log of a message, the average of a request.", SIZE_BOUNDS
)
MESSAGES_OUT = Family("rocketmq_messages_out_total", "counter", "Messages in answers to pulls and pops.")
THROUGHPUT_OUT = Family("rocketmq_throughput_out_total", "counter", "Bytes of those messages.")
DEAD_LETTERS = Family("rocketmq_send_to_dlq_messages_total", "counter", "Messages that became dead letters.")
SENT_BACK = Family("bolide_sent_back_messages_total", "counter", "Messages that consumers gave back for a retry.")

# Requests
TOPIC_CREATION = Family(
    "rocketmq_topic_create_execution_time_milliseconds",
    "histogram",
    "How long creating a topic took.",
    CREATE_MS_BOUNDS,
)
GROUP_CREATION = Family(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "histogram",
    "How long creating a consumer group took.",
    CREATE_MS_BOUNDS,
)

# Transactions and what waits
COMMITS = Family("rocketmq_commit_messages_total", "counter", "Half messages that were committed.")
ROLLBACKS = Family("rocketmq_rollback_messages_total", "counter", "Half messages that were rolled back.")
FINISH = Family(
    "rocketmq_finish_message_latency_milliseconds",
    "histogram",
    "From the birth of a half message to its commit, in SECONDS despite the name, as RocketMQ has it.",
    FINISH_S_BOUNDS,
)
HALVES = Family("rocketmq_half_messages", "gauge", "Half messages that are not decided.")
TIMER_IN = Family("rocketmq_timer_enqueue_total", "counter", "Timed messages put on the wheel.")
TIMER_OUT = Family("rocketmq_timer_dequeue_total", "counter", "Timed messages delivered.")
DELAY = Family(
    "rocketmq_delay_message_latency_seconds", "histogram", "How long timed messages are to wait.", DELAY_S_BOUNDS
)
TIMER_IN_LAG = Family("rocketmq_timer_enqueue_lag", "gauge", "Timed messages that are not on the wheel yet.")
TIMER_IN_LATE = Family(
    "rocketmq_timer_enqueue_latency_milliseconds",
    "gauge",
    "Age of the oldest timed message that is not on the wheel yet.",
    is_summable=False,
)
TIMER_OUT_LAG = Family("rocketmq_timer_dequeue_lag", "gauge", "Timed messages on the wheel, due or not.")
TIMER_OUT_LATE = Family(
    "rocketmq_timer_dequeue_latency_milliseconds", "gauge", "By how much delivering is behind.", is_summable=False
)
TIMING = Family("rocketmq_timing_messages", "gauge", "Timed messages that wait, by the topic they are for.")
TIMER_SNAPSHOT = Family(
    "rocketmq_timer_message_snapshot",
    "gauge",
    "Timed messages due within this many seconds, and not within the step before.",
)
DELAYED = Family("bolide_delayed_messages", "gauge", "Messages that wait for a delay level, by level.")
REVIVE_IN = Family(
    "rocketmq_pop_revive_in_message_total",
    "counter",
    "Records of popped messages (CK) and their acknowledgements (ACK).",
)
REVIVED = Family("rocketmq_pop_revive_retry_messages_total", "counter", "Popped messages that came back.")
CHECKPOINTS = Family("bolide_pop_checkpoints", "gauge", "Pops of which not every message is acknowledged.")

# What there is
PERMISSION = Family("rocketmq_broker_permission", "gauge", "brokerPermission: 6 reads and writes, 4 reads, 2 writes.")
TOPICS = Family("rocketmq_topic_number", "gauge", "Topics in the table, RocketMQ's own included.")
GROUPS = Family("rocketmq_consumer_group_number", "gauge", "Consumer groups in the table, RocketMQ's own included.")
PRODUCERS = Family(
    "rocketmq_producer_connections", "gauge", "Connections by producer group: one with two groups is two."
)
CONSUMERS = Family("rocketmq_consumer_connections", "gauge", "Members of consumer groups.")
CONFLICTS = Family("bolide_subscription_conflicts", "gauge", "Wishes in a group that differ from the first member's.")
ROLE = Family("bolide_broker_role", "gauge", "1 for the role this broker has now.")

# The store
STORAGE = Family("rocketmq_storage_size_bytes", "gauge", "Used bytes of the whole partition, as RocketMQ has it.")
STORE_SIZE = Family("bolide_store_size_bytes", "gauge", "Bytes of the log that hold messages.")
FLUSH_BEHIND = Family("rocketmq_storage_flush_behind_bytes", "gauge", "Bytes of the log that a power cut would take.")
DISPATCH_BEHIND = Family(
    "rocketmq_storage_dispatch_behind_bytes", "gauge", "Bytes of the log that no reader finds yet."
)
OLDEST = Family(
    "rocketmq_storage_message_reserve_time_milliseconds", "gauge", "Age of the oldest message.", is_summable=False
)
DISK_USED = Family("bolide_disk_used_ratio", "gauge", "How full the disk of the log is, 0 to 1.", is_summable=False)
DISK_LIMIT = Family(
    "bolide_disk_limit_ratio", "gauge", "From where on the disk takes no more messages, 0 to 1.", is_summable=False
)
FSYNC = Family("bolide_fsync_seconds", "histogram", "How long syncing the log took.", SYNC_S_BOUNDS)
PASSED_OVER = Family("bolide_passed_over_total", "counter", "Records that could not be read and were passed over.")
REPLICA_BEHIND = Family("bolide_replica_behind_bytes", "gauge", "Bytes of the log that a replica does not have yet.")

# How far groups are
_LAG = "of a group in a topic, over the queues here; a group that is offline stays"
LAG = Family("rocketmq_consumer_lag_messages", "gauge", f"Messages behind the committed offset {_LAG}.")
INFLIGHT = Family("rocketmq_consumer_inflight_messages", "gauge", f"Messages pulled and not committed {_LAG}.")
READY = Family("rocketmq_consumer_ready_messages", "gauge", f"Messages not pulled yet {_LAG}.")
LAG_LATENCY = Family(
    "rocketmq_consumer_lag_latency_milliseconds",
    "gauge",
    f"Age of the message at the committed offset, the oldest {_LAG}.",
    is_summable=False,
)
QUEUEING_LATENCY = Family(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "gauge",
    f"Age of the message at the pulled offset, the oldest {_LAG}.",
    is_summable=False,
)
QUEUE_LAG = Family("bolide_queue_lag_messages", "gauge", "Messages behind the committed offset, by queue.")
