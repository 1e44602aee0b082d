"""The names of message properties that RocketMQ gives a meaning.

Everything that is not body, flag or a number travels in one map of text, so a misspelt name is lost without a sound;
nobody writes one of these as a literal. The names on the right are the wire's, those on the left are ours where theirs
say too little. How the map becomes bytes is in `protocol/properties.py`.
"""

# the user's
KEYS = "KEYS"  # index keys, one space between two
TAGS = "TAGS"
SHARDING_KEY = "__SHARDINGKEY"

# the producer's
UNIQUE_KEY = "UNIQ_KEY"  # the id the client gave; indexed like a key
WAIT = "WAIT"  # "false": answer before the message is flushed and replicated
DELAY = "DELAY"  # level 1 to 18; gone at delivery
PRODUCER_GROUP = "PGROUP"
TRANSACTION_PREPARED = "TRAN_MSG"
TRANSACTION_ID = "__transactionId__"
CHECK_IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID = "INSTANCE_ID"
TIMER_DELAY_S = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_AT = "TIMER_DELIVER_MS"
TIMED_NAMES = (TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_AT)  # one of them makes a timed message
START_DELIVER_AT = "__STARTDELIVERTIME"
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"

# the broker's
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
DEAD_LETTER_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
DEAD_LETTER_REASON = "DLQ_REASON"  # our own: why a consumer gave it up, in its words
REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
TRACE_CONTEXT = "TRACE_CONTEXT"
CLUSTER = "CLUSTER"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
INNER_COUNT = "INNER_NUM"
INNER_BASE = "INNER_BASE"
TIMER_OUT_AT = "TIMER_OUT_MS"
TIMER_ENQUEUED_AT = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUED_AT = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
RECORD_CRC = "__CRC32#"

# the consumer's: filled in at delivery, mostly never stored
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
CONSUME_STARTED_AT = "CONSUME_START_TIME"
RECONSUME_TIMES = "RECONSUME_TIME"
RECONSUME_TIMES_MAX = "MAX_RECONSUME_TIMES"
POP_HANDLE = "POP_CK"
POP_HANDLE_OFFSET = "POP_CK_OFFSET"
FIRST_POP_AT = "1ST_POP_TIME"
TOPIC_SYS_FLAG = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
GROUP_SYS_FLAG = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"

# request and reply
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
REPLY_TIMEOUT_MS = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
ARRIVED_AT = "ARRIVE_TIME"
REPLY_PUSHED_AT = "PUSH_REPLY_TIME"

# the 5.x proxy's
BORN_HOST = "__BORNHOST"
BORN_AT = "BORN_TIMESTAMP"

# kept by older releases; nothing here reads them
_RETIRED_NAMES = {
    "BUYER_ID",
    "CORRECTION_FLAG",
    "DUP_INFO",
    "EXTEND_UNIQ_INFO",
    "MQ2_FLAG",
    "TRANSFER_FLAG",
}
# Java lets a user set these like any property of his own, and some are only set that way.
_OPEN_NAMES = {
    CHECK_IMMUNITY_S,
    GROUP_SYS_FLAG,
    INNER_BASE,
    INNER_COUNT,
    MULTI_DISPATCH,
    SHARDING_KEY,
    START_DELIVER_AT,
    TOPIC_SYS_FLAG,
    TRACE_CONTEXT,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
}
_NAMES_ABOVE = {value for name, value in globals().items() if name.isupper() and isinstance(value, str)}
# A property of the user's own may not have one of these names.
RESERVED_NAMES = frozenset(_NAMES_ABOVE - _OPEN_NAMES | _RETIRED_NAMES)
