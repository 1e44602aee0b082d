"""The one table: which request asks for which right on what. For brokers, name servers and controllers alike.

RocketMQ 5.5 asks nothing for a code that nobody annotated, and so lets every user change settings or read any topic.
Here a code without a row is for administrators, and a test walks all codes. Where a request names a record by its
place, the topic is that of the record, whatever the header says.

Fields are read with the headers that the handlers read (`protocol/headers/table.py`), so both see the same names.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from bolide.access.resources import Action, Kind, Need
from bolide.errors import Refusal
from bolide.model.message import parse_offset_id
from bolide.model.topics import RETRY_PREFIX, is_waiting_topic, reply_topic
from bolide.protocol.bodies import (
    AssignmentRequest,
    BatchAcks,
    GroupConfig,
    GroupConfigList,
    GroupRequestMode,
    Heartbeat,
    LockRequest,
    TopicConfigList,
)
from bolide.protocol.bodies.body import Body, decode_breathing
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.header import Header
from bolide.protocol.headers.table import header_of
from bolide.protocol.properties import parse_properties
from bolide.protocol.staging import MARK_TOPIC, STAGE_TOPIC, TARGET_TOPIC

BODY_SIZE_MAX = 256 * 1024  # the client of a thousand groups sends less
OBJECTS_MAX = 4_000  # and has fewer; each is made and its names are looked at while everybody waits
MILD_STEPS_MAX = 5_000  # a few hundredths of a second
_PUB, _SUB, _GET = Action.PUB, Action.SUB, Action.GET
_CREATE, _UPDATE, _DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

B = TypeVar("B", bound=Body)

# The topic a record at a place of the log is for; None where no record begins.
TopicAt = Callable[[int], str | None]


class Asked(NamedTuple):
    """A request, as the rows see it."""

    command: Command
    header: Header | None
    cluster: str
    topic_at: TopicAt


# None is for administrators alone; no needs at all is for every user.
Needs = Sequence[Need] | None
Row = Callable[[Asked], Needs]


def needs_of(command: Command, cluster: str, topic_at: TopicAt) -> Needs:
    """What a request asks for; raises Refusal where its header or body cannot be read."""
    row = ROWS.get(command.code)
    if row is None:
        return None
    if len(command.body) > BODY_SIZE_MAX and command.code in _READ_BODIES:
        remark = f"a body of {len(command.body)} bytes, at most {BODY_SIZE_MAX} are read of who is no administrator"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    if command.code in _READ_BODIES and (count := command.body.count(b"{")) > OBJECTS_MAX:
        remark = f"a body with {count} objects, at most {OBJECTS_MAX} are read of who is no administrator"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    kinds = header_of(command.code)
    header = None if kinds.request is None else kinds.request.decode(command.fields, short=kinds.is_short)
    needs = row(Asked(command, header, cluster, topic_at))
    # A right on `Topic:*` or on a prefix is no right on the messages of a topic that is denied, while they wait.
    return None if needs is not None and any(map(_is_about_what_waits, needs)) else needs


def _is_about_what_waits(need: Need) -> bool:
    if need.kind is not Kind.TOPIC:
        return False
    # Anyone who stages may publish; to look at what is staged, and by whom, is another thing.
    is_staged = need.name in (STAGE_TOPIC, MARK_TOPIC) and need.actions != {_PUB}
    return is_staged or is_waiting_topic(need.name)


def of_topic(name: str, *actions: Action) -> Need:
    """A right on a topic; a retry topic is its group's, and sending to it is a consumer's Sub."""
    if name.startswith(RETRY_PREFIX):
        return of_group(name, *(_SUB if action is _PUB else action for action in actions))
    return Need(Kind.TOPIC, name, frozenset(actions))


def of_group(name: str, *actions: Action) -> Need:
    return Need(Kind.GROUP, name.removeprefix(RETRY_PREFIX).partition("+")[0], frozenset(actions))


def _anyone(asked: Asked) -> Needs:
    return ()


def _cluster(action: Action) -> Row:
    def row(asked: Asked) -> Needs:
        return (Need(Kind.CLUSTER, asked.cluster, frozenset((action,))),)

    return row


def _topic(*actions: Action) -> Row:
    return _fields(("topic", of_topic, actions))


def _group(attribute: str, *actions: Action) -> Row:
    return _fields((attribute, of_group, actions))


def _both(attribute: str, *actions: Action) -> Row:
    return _fields((attribute, of_group, actions), ("topic", of_topic, actions))


def _fields(*wanted: tuple[str, Callable[..., Need], tuple[Action, ...]]) -> Row:
    """Rights on what fields of the header name; if one is missing, the request is for administrators."""

    def row(asked: Asked) -> Needs:
        names = [getattr(asked.header, attribute) for attribute, _, _ in wanted]
        if not all(names):
            return None
        return [need(name, *actions) for name, (_, need, actions) in zip(names, wanted, strict=True)]

    return row


def _named(asked: Asked, attribute: str) -> str:
    return getattr(asked.header, attribute) or ""


def _body(asked: Asked, kind: type[B]) -> B:
    """The body, read at once and while everybody waits: of one that is no strict JSON, which takes long, not much."""
    steps = iter(range(MILD_STEPS_MAX))

    def breathe() -> None:
        if next(steps, None) is None:
            remark = f"a body of {len(asked.command.body)} bytes that is no strict JSON is not read to its end"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    return decode_breathing(kind, asked.command.body, breathe)


def _record(asked: Asked, place: int, *actions: Action) -> list[Need]:
    """A right on the topic of a record; where none is, there is nothing to protect, and its handler says so."""
    topic = asked.topic_at(place)
    return [] if topic is None else [of_topic(topic, *actions)]


def _send(asked: Asked) -> Needs:
    topic = _named(asked, "topic")
    if topic != STAGE_TOPIC:
        return (of_topic(topic, _PUB),)
    # What is staged will be published to the topic that its properties name; in a batch each message has its own.
    if asked.command.code == Code.SEND_BATCH_MESSAGE or getattr(asked.header, "is_batch", False):
        return None
    target = parse_properties(_named(asked, "properties")).get(TARGET_TOPIC)
    return None if target is None else (of_topic(target, _PUB),)


def _reply(asked: Asked) -> Needs:
    """A reply goes to the client that waits for it; what is stored of it lies in the topic for replies."""
    return () if _named(asked, "topic") == reply_topic(asked.cluster) else _send(asked)


def _publish_staged(asked: Asked) -> Needs:
    return (of_topic(STAGE_TOPIC, _PUB),)


def _view(asked: Asked) -> Needs:
    return _record(asked, getattr(asked.header, "physical_offset", -1), _GET)


def _end_transaction(asked: Asked) -> Needs:
    return _record(asked, getattr(asked.header, "physical_offset", -1), _PUB)


def _send_back(asked: Asked) -> Needs:
    """The message is stored again for the group, so its sender must be allowed to read it in the first place."""
    record = _record(asked, getattr(asked.header, "physical_offset", -1), _SUB)
    return [of_group(_named(asked, "group"), _SUB), *record]


def _consume_directly(asked: Asked) -> Needs:
    return [of_group(_named(asked, "consumer_group"), _SUB), *_record_of_id(asked, _SUB)]


def _resume_check(asked: Asked) -> Needs:
    return _record_of_id(asked, _UPDATE) or None


def _record_of_id(asked: Asked, action: Action) -> list[Need]:
    place = parse_offset_id(_named(asked, "message_id"))
    return [] if place is None else _record(asked, place.physical_offset, action)


def _heartbeat(asked: Asked) -> Needs:
    consumers = _body(asked, Heartbeat).consumer_data_set
    topics = {each.topic for consumer in consumers for each in consumer.subscription_data_set}
    groups = {consumer.group_name: of_group(consumer.group_name, _SUB) for consumer in consumers}
    return [*groups.values(), *(of_topic(topic, _SUB) for topic in sorted(topics))]


def _unregister(asked: Asked) -> Needs:
    group = _named(asked, "consumer_group")
    return (of_group(group, _SUB),) if group else ()


def _lock(asked: Asked) -> Needs:
    body = _body(asked, LockRequest)
    return _consumed(body.consumer_group, (queue.topic for queue in body.mq_set))


def _batch_ack(asked: Asked) -> Needs:
    acks = _body(asked, BatchAcks).acks if asked.command.body else []
    groups = {ack.consumer_group for ack in acks}
    return [of_group(group, _SUB) for group in sorted(groups)] + [
        of_topic(topic, _SUB) for topic in sorted({ack.topic for ack in acks})
    ]


def _assignment(asked: Asked) -> Needs:
    body = _body(asked, AssignmentRequest)
    return _consumed(body.consumer_group, (body.topic,))


def _consumed(group: str, topics: Iterable[str]) -> Needs:
    return [of_group(group, _SUB), *(of_topic(topic, _SUB) for topic in sorted(set(topics)))]


def _request_mode(asked: Asked) -> Needs:
    return (of_group(_body(asked, GroupRequestMode).consumer_group, _UPDATE),)


def _topics_made(asked: Asked) -> Needs:
    made = _body(asked, TopicConfigList).topic_config_list
    return [of_topic(config.topic_name, _CREATE) for config in made] or None


def _group_made(asked: Asked) -> Needs:
    return (of_group(_body(asked, GroupConfig).group_name, _CREATE),)


def _groups_made(asked: Asked) -> Needs:
    made = _body(asked, GroupConfigList).group_config_list
    return [of_group(config.group_name, _CREATE) for config in made] or None


def _progress(asked: Asked) -> Needs:
    """Of a group, in one topic or in all that it reads."""
    topic = _named(asked, "topic")
    return [of_group(_named(asked, "consumer_group"), _GET), *([of_topic(topic, _GET)] if topic else [])]


def _subscription(asked: Asked) -> Needs:
    topic = _named(asked, "topic")
    return [of_group(_named(asked, "group"), _GET), *([of_topic(topic, _GET)] if topic else [])]


def _correction(asked: Asked) -> Needs:
    others = [group for group in _named(asked, "filter_groups").split(",") if group]
    groups = [of_group(group, _GET) for group in (_named(asked, "compare_group"), *others)]
    return [*groups, of_topic(_named(asked, "topic"), _GET)]


def _clone(asked: Asked) -> Needs:
    topic = _named(asked, "topic")
    groups = [of_group(_named(asked, name), _UPDATE) for name in ("source_group", "destination_group")]
    return [*groups, *([of_topic(topic, _UPDATE)] if topic else [])]


_LOOK, _CHANGE = _cluster(_GET), _cluster(_UPDATE)
_OFFSETS = _topic(_GET, _SUB, _PUB)  # RocketMQ asks for Get alone, and consumers cannot start without it
_POP = _both("consumer_group", _SUB)
ROWS: dict[int, Row] = {
    # every user; what is in the first two is looked at
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregister,
    Code.CHECK_CLIENT_CONFIG: _anyone,
    Code.GET_ROUTEINFO_BY_TOPIC: _anyone,
    Code.GET_BROKER_CLUSTER_INFO: _anyone,
    Code.SEND_REPLY_MESSAGE: _reply,
    Code.SEND_REPLY_MESSAGE_V2: _reply,
    # producers
    Code.SEND_MESSAGE: _send,
    Code.SEND_MESSAGE_V2: _send,
    Code.SEND_BATCH_MESSAGE: _send,
    Code.RECALL_MESSAGE: _topic(_PUB),
    Code.END_TRANSACTION: _end_transaction,
    Code.PUBLISH_STAGED: _publish_staged,
    # consumers
    Code.PULL_MESSAGE: _POP,
    Code.LITE_PULL_MESSAGE: _POP,
    Code.POP_MESSAGE: _POP,
    Code.ACK_MESSAGE: _POP,
    Code.PEEK_MESSAGE: _POP,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    Code.NOTIFICATION: _POP,
    Code.BATCH_ACK_MESSAGE: _batch_ack,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.GET_CONSUMER_LIST_BY_GROUP: _group("consumer_group", _SUB, _GET),
    Code.QUERY_CONSUMER_OFFSET: _both("consumer_group", _SUB, _GET),
    Code.UPDATE_CONSUMER_OFFSET: _both("consumer_group", _SUB, _UPDATE),
    Code.QUERY_MESSAGE: _topic(_SUB, _GET),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _OFFSETS,
    Code.GET_MAX_OFFSET: _OFFSETS,
    Code.GET_MIN_OFFSET: _OFFSETS,
    Code.GET_EARLIEST_MSG_STORETIME: _OFFSETS,
    Code.VIEW_MESSAGE_BY_ID: _view,
    # topics
    Code.UPDATE_AND_CREATE_TOPIC: _topic(_CREATE),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _topics_made,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: _topic(_CREATE),
    Code.DELETE_TOPIC_IN_BROKER: _topic(_DELETE),
    Code.GET_TOPIC_STATS_INFO: _topic(_GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _topic(_GET),
    Code.GET_TOPIC_CONFIG: _topic(_GET),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _topic(_GET),
    Code.RESUME_CHECK_HALF_MESSAGE: _resume_check,
    # groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_made,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups_made,
    Code.DELETE_SUBSCRIPTIONGROUP: _group("group", _DELETE),
    Code.GET_CONSUMER_CONNECTION_LIST: _group("consumer_group", _GET),
    Code.GET_CONSUMER_RUNNING_INFO: _group("consumer_group", _GET),
    Code.QUERY_TOPICS_BY_CONSUMER: _group("group", _GET),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _group("group", _GET),
    Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
    # groups and topics
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _both("group", _UPDATE),
    Code.GET_CONSUME_STATS: _progress,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _both("group", _GET),
    Code.QUERY_CONSUME_TIME_SPAN: _both("group", _GET),
    Code.QUERY_CONSUME_QUEUE: _both("consumer_group", _GET),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _subscription,
    Code.POLLING_INFO: _both("consumer_group", _GET),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _both("group", _UPDATE),
    Code.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    Code.QUERY_CORRECTION_OFFSET: _correction,
    Code.CLONE_GROUP_OFFSET: _clone,
    # the broker: looked at
    **dict.fromkeys(
        (
            Code.GET_ALL_TOPIC_CONFIG,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            Code.GET_BROKER_CONFIG,
            Code.GET_BROKER_RUNTIME_INFO,
            Code.GET_ALL_CONSUMER_OFFSET,
            Code.GET_ALL_DELAY_OFFSET,
            Code.GET_TIMER_CHECK_POINT,
            Code.GET_TIMER_METRICS,
            Code.GET_PRODUCER_CONNECTION_LIST,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Code.VIEW_BROKER_STATS_DATA,
            Code.GET_BROKER_CONSUME_STATS,
            Code.GET_ALL_PRODUCER_INFO,
            Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
            Code.GET_ALL_MESSAGE_REQUEST_MODE,
            Code.GET_BROKER_HA_STATUS,
            Code.GET_BROKER_EPOCH_CACHE,
            Code.AUTH_GET_USER,
            Code.AUTH_LIST_USER,
            Code.AUTH_GET_ACL,
            Code.AUTH_LIST_ACL,
        ),
        _LOOK,
    ),
    # the broker: changed
    **dict.fromkeys(
        (
            Code.UPDATE_BROKER_CONFIG,
            Code.CLEAN_EXPIRED_CONSUMEQUEUE,
            Code.CLEAN_UNUSED_TOPIC,
            Code.DELETE_EXPIRED_COMMITLOG,
            Code.REGISTER_FILTER_SERVER,
            Code.NOTIFY_MIN_BROKER_ID_CHANGE,
            Code.NOTIFY_BROKER_ROLE_CHANGED,
            Code.EXCHANGE_BROKER_HA_INFO,
            Code.RESET_MASTER_FLUSH_OFFSET,
            Code.ADD_BROKER,
            Code.REMOVE_BROKER,
            Code.AUTH_CREATE_USER,
            Code.AUTH_UPDATE_USER,
            Code.AUTH_DELETE_USER,
            Code.AUTH_CREATE_ACL,
            Code.AUTH_UPDATE_ACL,
            Code.AUTH_DELETE_ACL,
        ),
        _CHANGE,
    ),
    # name servers
    **dict.fromkeys(
        (
            Code.GET_KV_CONFIG,
            Code.GET_KVLIST_BY_NAMESPACE,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            Code.GET_TOPICS_BY_CLUSTER,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            Code.GET_UNIT_TOPIC_LIST,
            Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
            Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            Code.GET_NAMESRV_CONFIG,
            Code.GET_BROKER_MEMBER_GROUP,
            Code.QUERY_DATA_VERSION,
        ),
        _LOOK,
    ),
    **dict.fromkeys(
        (
            Code.PUT_KV_CONFIG,
            Code.DELETE_KV_CONFIG,
            Code.UPDATE_NAMESRV_CONFIG,
            Code.WIPE_WRITE_PERM_OF_BROKER,
            Code.ADD_WRITE_PERM_OF_BROKER,
            Code.DELETE_TOPIC_IN_NAMESRV,
            Code.REGISTER_TOPIC_IN_NAMESRV,
            Code.REGISTER_BROKER,
            Code.UNREGISTER_BROKER,
            Code.BROKER_HEARTBEAT,
        ),
        _CHANGE,
    ),
    # controllers
    **dict.fromkeys(
        (
            Code.CONTROLLER_GET_METADATA_INFO,
            Code.CONTROLLER_GET_REPLICA_INFO,
            Code.CONTROLLER_GET_SYNC_STATE_DATA,
            Code.CONTROLLER_GET_NEXT_BROKER_ID,
            Code.GET_CONTROLLER_CONFIG,
        ),
        _LOOK,
    ),
    **dict.fromkeys(
        (
            Code.CONTROLLER_ALTER_SYNC_STATE_SET,
            Code.CONTROLLER_ELECT_MASTER,
            Code.CONTROLLER_REGISTER_BROKER,
            Code.CONTROLLER_APPLY_BROKER_ID,
            Code.UPDATE_CONTROLLER_CONFIG,
            Code.CLEAN_BROKER_DATA,
        ),
        _CHANGE,
    ),
}
# Served, and for administrators alone: the accounts of 4.x, and users for slaves.
FOR_ADMINISTRATORS = frozenset(
    (
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        Code.GET_SEALED_USERS,
    )
)
_READ_BODIES = frozenset(
    (
        Code.HEART_BEAT,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.BATCH_ACK_MESSAGE,
        Code.QUERY_ASSIGNMENT,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    )
)
