"""Consumer groups as a broker keeps them.

| here | RocketMQ |
|---|---|
| `GroupConfig`, `GroupTable` | SubscriptionGroupConfig, SubscriptionGroupWrapper |
| `GroupConfigList` | SubscriptionGroupList |
| `RetryPolicy`, `ListedDelays`, `GrowingDelays` | GroupRetryPolicy, CustomizedRetryPolicy, ExponentialRetryPolicy |
| `RetryKind` | GroupRetryPolicyType |
| `ConfiguredSubscription` | SimpleSubscriptionData |
| `GroupForbidden`, `GroupList` | the same |
"""

from enum import StrEnum

from bolide.model.names import GroupName, Key, Label, Text, TopicName
from bolide.protocol.bodies.body import Body, always
from bolide.protocol.bodies.routes import DataVersion


class RetryKind(StrEnum):
    """Which of the two policies holds."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ListedDelays(Body, frozen=True, kw_only=True):
    """The delay before each retry in ms; the last one holds for all that follow."""

    rocketmq_name = "CustomizedRetryPolicy"

    next: list[int] = always([])


class GrowingDelays(Body, frozen=True, kw_only=True, gc=False):
    """A delay in ms that grows from retry to retry."""

    rocketmq_name = "ExponentialRetryPolicy"

    initial: int = always(5_000)
    max: int = always(7_200_000)
    multiplier: int = always(2)


class RetryPolicy(Body, frozen=True, kw_only=True):
    """How long a message waits for its next try."""

    rocketmq_name = "GroupRetryPolicy"

    customized_retry_policy: ListedDelays | None = None
    exponential_retry_policy: GrowingDelays | None = None
    type: RetryKind = always(RetryKind.CUSTOMIZED)


class ConfiguredSubscription(Body, frozen=True, kw_only=True, gc=False):
    """A subscription that was set at the broker and not by a member."""

    rocketmq_name = "SimpleSubscriptionData"

    expression: Text = always("")
    expression_type: Label = always("TAG")
    topic: TopicName = always("")
    version: int = always(0)


class GroupConfig(Body, frozen=True, kw_only=True):
    """What a group may do and how its failures are retried.

    4.9 has no attributes, consume_message_orderly, consume_timeout_minute, group_retry_policy and group_sys_flag.
    """

    rocketmq_name = "SubscriptionGroupConfig"
    is_request = True

    attributes: dict[Key, Text] = always({})
    broker_id: int = always(0)
    consume_broadcast_enable: bool = always(True)
    consume_enable: bool = always(True)
    consume_from_min_enable: bool = always(True)
    consume_message_orderly: bool = always(False)
    consume_timeout_minute: int = always(15)
    group_name: GroupName = always("")
    group_retry_policy: RetryPolicy = always(RetryPolicy())
    group_sys_flag: int = always(0)
    notify_consumer_ids_changed_enable: bool = always(True)
    retry_max_times: int = always(16)
    retry_queue_nums: int = always(1)
    subscription_data_set: list[ConfiguredSubscription] | None = None
    which_broker_when_consume_slowly: int = always(1)


class GroupTable(Body, frozen=True, kw_only=True):
    """All groups of a broker; the forbidden table is group → topic → bits (4.9 has none)."""

    rocketmq_name = "SubscriptionGroupWrapper"

    data_version: DataVersion = always(DataVersion())
    forbidden_table: dict[str, dict[str, int]] = always({})
    subscription_group_table: dict[str, GroupConfig] = always({})


class GroupConfigList(Body, frozen=True, kw_only=True):
    """Groups to create or change together."""

    rocketmq_name = "SubscriptionGroupList"
    is_request = True

    group_config_list: list[GroupConfig] = always([])


class GroupForbidden(Body, frozen=True, kw_only=True, gc=False):
    """Whether a group may read a topic."""

    rocketmq_name = "GroupForbidden"

    group: str = always("")
    readable: bool | None = None
    topic: str = always("")


class GroupList(Body, frozen=True, kw_only=True):
    """Names of groups."""

    rocketmq_name = "GroupList"

    group_list: list[str] = always([])
