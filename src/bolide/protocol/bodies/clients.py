"""What clients tell of themselves, and what a broker tells about its clients.

| here | RocketMQ |
|---|---|
| `Heartbeat`, `ConsumerMember`, `ProducerMember` | HeartbeatData, ConsumerData, ProducerData |
| `Subscription` | SubscriptionData |
| `ConsumeType`, `MessageModel`, `ConsumeFrom` | ConsumeType, MessageModel, ConsumeFromWhere |
| `ClientCheck` | CheckClientRequestBody |
| `ConsumerList` | GetConsumerListByGroupResponseBody |
| `Connection`, `ProducerConnections`, `ConsumerConnections` | Connection, ProducerConnection, ConsumerConnection |
| `ConnectedProducer`, `ProducerTable` | ProducerInfo, ProducerTableInfo |
| `GroupSubscription` | QuerySubscriptionResponseBody |

The C++ client leaves empty lists out, sends enums as ordinals and subVersion as text; `Body` reads all of that. An enum
is None when a peer names a value that is not known here.
"""

from enum import StrEnum

from bolide.model.names import ClientId, GroupName, Label, Text, TopicName
from bolide.protocol.bodies.body import Body, always


class ConsumeType(StrEnum):
    """How messages come to a consumer: it asks, it is given, or it pops them. In the order of Java's ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each member gets every message, or the members share them. In the order of Java's ordinals."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFrom(StrEnum):
    """Where a new group begins. In the order of Java's ordinals; the middle three are long out of use."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Subscription(Body, frozen=True, kw_only=True):
    """Which messages of a topic a group wants. `code_set` are Java's hashes of the tags in `tags_set`."""

    rocketmq_name = "SubscriptionData"

    class_filter_mode: bool = always(False)
    code_set: list[int] = always([])
    expression_type: Label = always("TAG")
    sub_string: Text = always("")
    sub_version: int = always(0)
    tags_set: list[Text] = always([])
    topic: TopicName = always("")


class ConsumerMember(Body, frozen=True, kw_only=True):
    """One group this client consumes for."""

    rocketmq_name = "ConsumerData"

    consume_from_where: ConsumeFrom | None = None
    consume_type: ConsumeType | None = None
    group_name: GroupName = always("")
    message_model: MessageModel | None = None
    subscription_data_set: list[Subscription] = always([])
    unit_mode: bool = always(False)


class ProducerMember(Body, frozen=True, kw_only=True, gc=False):
    """One group this client produces for."""

    rocketmq_name = "ProducerData"

    group_name: GroupName = always("")


class Heartbeat(Body, frozen=True, kw_only=True):
    """Which groups a client is a member of. 4.9 has no heartbeat_fingerprint and without_sub."""

    rocketmq_name = "HeartbeatData"
    is_request = True

    client_id: ClientId = always("", name="clientID")
    consumer_data_set: list[ConsumerMember] = always([])
    heartbeat_fingerprint: int = always(0)
    producer_data_set: list[ProducerMember] = always([])
    without_sub: bool = always(False)


class ClientCheck(Body, frozen=True, kw_only=True):
    """A subscription a consumer wants checked before it starts."""

    rocketmq_name = "CheckClientRequestBody"
    is_request = True

    client_id: ClientId = always("")
    group: GroupName = always("")
    subscription_data: Subscription | None = None


class ConsumerList(Body, frozen=True, kw_only=True):
    """The client ids of a group's members."""

    rocketmq_name = "GetConsumerListByGroupResponseBody"

    consumer_id_list: list[str] = always([])


class Connection(Body, frozen=True, kw_only=True, gc=False):
    """One client as the broker sees it."""

    rocketmq_name = "Connection"

    client_addr: str = always("")
    client_id: str = always("")
    language: str = always("OTHER")
    version: int = always(0)


class ProducerConnections(Body, frozen=True, kw_only=True):
    """The connected members of a producer group."""

    rocketmq_name = "ProducerConnection"

    connection_set: list[Connection] = always([])


class SubscriptionConflict(Body, frozen=True, kw_only=True, gc=False):
    """Two members of a group that do not want the same. Our own; Java's tools pass over it."""

    rocketmq_name = "SubscriptionConflict"

    client_id: str = always("")
    mate_id: str = always("")
    text: str = always("")


class ConsumerConnections(Body, frozen=True, kw_only=True):
    """The connected members of a consumer group. The enums are always said: RocketMQ's tools cannot do without."""

    rocketmq_name = "ConsumerConnection"

    bolide_conflicts: list[SubscriptionConflict] | None = None  # our own, and only where there are some
    connection_set: list[Connection] = always([])
    consume_from_where: ConsumeFrom = always(ConsumeFrom.CONSUME_FROM_LAST_OFFSET)
    consume_type: ConsumeType = always(ConsumeType.CONSUME_PASSIVELY)
    message_model: MessageModel = always(MessageModel.CLUSTERING)
    subscription_table: dict[str, Subscription] = always({})


class ConnectedProducer(Body, frozen=True, kw_only=True, gc=False):
    """One member of a producer group."""

    rocketmq_name = "ProducerInfo"

    client_id: str = always("")
    language: str = always("OTHER")
    last_update_timestamp: int = always(0)
    remote_ip: str = always("", name="remoteIP")
    version: int = always(0)


class ProducerTable(Body, frozen=True, kw_only=True):
    """All producer groups of a broker."""

    rocketmq_name = "ProducerTableInfo"

    data: dict[str, list[ConnectedProducer]] = always({})


class GroupSubscription(Body, frozen=True, kw_only=True):
    """What a group wants of one topic."""

    rocketmq_name = "QuerySubscriptionResponseBody"

    group: str = always("")
    subscription_data: Subscription | None = None
    topic: str = always("")
