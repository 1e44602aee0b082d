"""A request of every code, whole enough that its header and body can be read; how one is signed, and users."""

from bolide.access.policies import merged
from bolide.access.resources import Need
from bolide.access.sources import Users
from bolide.access.users import User, UserTable
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies import (
    AssignmentRequest,
    ConsumerMember,
    GroupConfig,
    GroupConfigList,
    GroupRequestMode,
    Heartbeat,
    LockRequest,
    QueueName,
    Subscription,
    TopicConfig,
    TopicConfigList,
)
from bolide.protocol.bodies.access import AclEntry, AclPolicy
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.table import header_of
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, sign
from tests.broker.replication.replicas import Life
from tests.broker.whole import Whole

TOPIC, GROUP, CLUSTER = "T", "g", "C1"
ROOT, ROOT_SECRET = "root", "planted-root-secret"
INNER_SECRET = "planted-inner-secret"
PLAIN_SECRET, ABLE_SECRET = "planted-plain-secret", "planted-able-secret"
SECRETS = (ROOT_SECRET, INNER_SECRET, PLAIN_SECRET, ABLE_SECRET)
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "bolideAccessCluster": CLUSTER,
    "initAuthenticationUser": f'{{"username":"{ROOT}","password":"{ROOT_SECRET}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"inner","secretKey":"{INNER_SECRET}"}}',
}
_TEXTS = {
    "topic": TOPIC,
    "consumer_group": GROUP,
    "group": GROUP,
    "producer_group": GROUP,
    "source_group": GROUP,
    "destination_group": GROUP,
    "compare_group": GROUP,
    "filter_type": "SINGLE_TAG",
    "username": "bob",
    "subject": "User:bob",
    "read_queue_count": "4",
    "write_queue_count": "4",
    "permission": "6",
    "message_count_max": "1",
    "properties": "UNIQ_KEY\x01k\x02",  # without any the fast path leaves a send to others
}
_QUEUE = QueueName.of(MessageQueue(TOPIC, "broker-a", 0))
_MEMBER = ConsumerMember(group_name=GROUP, subscription_data_set=[Subscription(topic=TOPIC, sub_string="*")])
_BODIES = {
    RequestCode.HEART_BEAT: Heartbeat(client_id="c", consumer_data_set=[_MEMBER]).encode(),
    RequestCode.LOCK_BATCH_MQ: LockRequest(client_id="c", consumer_group=GROUP, mq_set=[_QUEUE]).encode(),
    RequestCode.UNLOCK_BATCH_MQ: LockRequest(client_id="c", consumer_group=GROUP, mq_set=[_QUEUE]).encode(),
    RequestCode.QUERY_ASSIGNMENT: AssignmentRequest(client_id="c", consumer_group=GROUP, topic=TOPIC).encode(),
    RequestCode.SET_MESSAGE_REQUEST_MODE: GroupRequestMode(consumer_group=GROUP, topic=TOPIC).encode(),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: TopicConfigList(
        topic_config_list=[TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)]
    ).encode(),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: GroupConfig(group_name=GROUP).encode(),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: GroupConfigList(
        group_config_list=[GroupConfig(group_name=GROUP)]
    ).encode(),
    RequestCode.BATCH_ACK_MESSAGE: b'{"acks":[{"c":"g","t":"T","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"AQ=="}]}',
    RequestCode.PUBLISH_STAGED: b'{"query":"q","batch":0}',
    RequestCode.AUTH_CREATE_USER: b"{}",
    RequestCode.AUTH_UPDATE_USER: b"{}",
    RequestCode.AUTH_CREATE_ACL: b"{}",
    RequestCode.AUTH_UPDATE_ACL: b"{}",
}


def request_of(code: RequestCode) -> Command:
    """A request whose header and body can be read."""
    kinds = header_of(code)
    fields: dict[str, str] = {}
    for field in () if kinds.request is None else kinds.request.wire_fields:
        if field.is_required or field.name in ("topic", "consumer_group", "username", "subject", "properties"):
            text = _TEXTS.get(field.name, "0")
            fields |= dict.fromkeys(field.keys_in(kinds.is_short), text)
    return Command(code, fields=fields, body=_BODIES.get(code, b""))


def signed(command: Command, name: str, secret: str) -> Command:
    """The same request, signed."""
    command.fields[ACCESS_KEY] = name
    command.fields.pop(SIGNATURE, None)
    command.fields[SIGNATURE] = sign(command.fields, command.body, secret)
    return command


def users_of(running: Whole | Life) -> Users:
    """The users of a broker."""
    door = running.broker.admission.door
    assert door is not None
    assert isinstance(door._source, Users)
    return door._source


def give(users: Users, name: str, secret: str, needs: list[Need]) -> None:
    """Make a user with these rights and no other: of each the first action that would do."""
    entries: dict[str, set[str]] = {}
    for need in needs:
        entries.setdefault(str(need), set()).add(min(need.actions))
    rows = [AclEntry(actions=sorted(actions), decision="Allow", resource=name) for name, actions in entries.items()]
    policies = merged({}, [AclPolicy(entries=rows, policy_type="Custom")]) if rows else {}
    table = users.table
    users.table = UserTable({**table.users, name: User(name, secret)}, {**table.policies, name: policies})
    users.version += 1
