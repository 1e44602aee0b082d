"""Every request nobody here answers, refused with what is missing.

Code 3 with a sentence is worth an hour of somebody's time: a client that took the broker's port for a name server's
hears so, and a tool for RocketMQ's access control hears that there is none. A processor that takes a code over needs to
do nothing here.
"""

from collections.abc import Iterable

from bolide.errors import Refusal
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request

_NAME_SERVER = "this is a broker; a name server answers this (its port is usually 9876)"
_CLIENT = "brokers ask this of clients; a broker does not answer it"
_NO_FLUSH_OFFSET = "a slave does not keep how far its master has flushed: it copies what its master has"
_NO_ACCESS_CONTROL = (
    "this access control is off here: set authenticationEnabled=true for users and policies (3001 to 3010), "
    "or aclEnable=true for accounts (50 to 54)"
)
_NO_CONTROLLER = "there is no controller here, and no master is elected"
_NO_LITE = "lite topics are not kept here"
_NO_ROCKSDB = "nothing is kept in RocksDB here"
_NO_COLD_LIMIT = "reads of old messages are not throttled here, so there is nothing to set"
_RESERVED = "RocketMQ reserves this number and answers it nowhere"

_REASONS: dict[str, tuple[RequestCode, ...]] = {
    _NAME_SERVER: (
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    ),
    _CLIENT: (
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
    ),
    _NO_FLUSH_OFFSET: (RequestCode.RESET_MASTER_FLUSH_OFFSET,),
    _NO_ACCESS_CONTROL: (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.GET_SEALED_USERS,
        *(code for code in RequestCode if 3001 <= code <= 3010),
    ),
    _NO_CONTROLLER: tuple(code for code in RequestCode if 1001 <= code <= 1018),
    _NO_LITE: tuple(
        code for code in RequestCode if 200070 <= code <= 200079 and code != RequestCode.NOTIFY_UNSUBSCRIBE_LITE
    ),
    _NO_ROCKSDB: (RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    _NO_COLD_LIMIT: (
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    "timed messages are kept on the timer wheel alone, so there is no engine to switch": (
        RequestCode.SWITCH_TIMER_ENGINE,
    ),
    "popped messages are not rolled back: they come again when their time is up": (RequestCode.POP_ROLLBACK,),
    "static topics are not here: queues stay with their broker": (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,),
    "this is one broker and no container: start a process for each": (
        RequestCode.ADD_BROKER,
        RequestCode.REMOVE_BROKER,
    ),
    "a filter server takes filters (`bolide filtersrv`), a broker does not": (
        RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
    ),
    _RESERVED: (
        RequestCode.QUERY_BROKER_OFFSET,
        RequestCode.GET_TOPIC_CONFIG_LIST,
        RequestCode.GET_TOPIC_NAME_LIST,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.GET_CLIENT_CONFIG,
        *(code for code in RequestCode if 209 <= code <= 214),
    ),
}
REASONS: dict[int, str] = {int(code): reason for reason, codes in _REASONS.items() for code in codes}


def refusals(answered: Iterable[int]) -> dict[int, Handler]:
    """A refusing handler for each code with a reason that nobody answers."""
    return dict.fromkeys(REASONS.keys() - set(answered), _refuse)


def _refuse(request: Request) -> Command:
    code = RequestCode(request.command.code)
    remark = f"request type {code.value} ({code.name}) not supported: {REASONS[code]}"
    raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
