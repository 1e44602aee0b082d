"""Which requests clients make, which only look, and which change or destroy what belongs to everybody.

One table for all servers. A client sends, consumes and tells how far it is; its calls change nothing but its own. Who
looks changes nothing at all. What is left operates: settings, topics, groups, offsets of others, routes, brokers. Rule:
a code without a row operates, so that a new one is not open to everybody because nobody thought of it.
"""

from enum import Enum, auto

from bolide.protocol.codes import RequestCode


class Kind(Enum):
    """What a request is for."""

    CLIENT = auto()
    LOOK = auto()
    OPERATE = auto()


_CLIENT = (
    # producers
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.PUBLISH_STAGED,
    # consumers
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.QUERY_ASSIGNMENT,
    # both
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
)
_LOOK = (
    # at a broker
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.EXCHANGE_BROKER_HA_INFO,  # a slave asks; what is told in it is believed of its master only
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,  # a hint to ask the controller, which changes nothing by itself
    # at a name server
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.QUERY_DATA_VERSION,
    # at a controller
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.GET_CONTROLLER_CONFIG,
)
_OPERATE = (
    # at a broker
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.REGISTER_FILTER_SERVER,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    # at a name server
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.BROKER_HEARTBEAT,
    # at a controller
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.CLEAN_BROKER_DATA,
)
KINDS: dict[int, Kind] = {
    int(code): kind
    for kind, codes in ((Kind.CLIENT, _CLIENT), (Kind.LOOK, _LOOK), (Kind.OPERATE, _OPERATE))
    for code in codes
}


def kind_of(code: int) -> Kind:
    """What a request is for."""
    return KINDS.get(code, Kind.OPERATE)
