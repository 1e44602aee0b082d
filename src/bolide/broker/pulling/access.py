"""Who may pull what, and what of it is wanted: the checks of a pull, in RocketMQ's order.

Pulls of one group for one topic are all alike, so what was found for one is remembered (a lane) until a topic, a group,
the settings or the subscription changes.

A group's filter comes with its heartbeats, and a pull that knows a newer one than we do is turned away (25, 28):
filtered by the older, it would pass over messages it wants. A pull may also bring its own expression along.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.config import BrokerConfig
from bolide.broker.pulling.filter_budget import MessageFilter, RetrySieve
from bolide.broker.state import BrokerState
from bolide.broker.tables.filters import Filters, GroupFilter
from bolide.broker.tables.groups import BUILT_IN_GROUPS, READ_BIT
from bolide.broker.tables.topics import PERM_READ
from bolide.errors import Refusal
from bolide.filter.tags import is_tag_type, parse_tags, tag_hashes
from bolide.filter.tokens import SqlError
from bolide.model.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from bolide.protocol.bodies import ConsumeType, GroupConfig, MessageModel, Subscription, TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers import PullMessageRequest
from bolide.remoting.handlers import Handler
from bolide.store.read import Sieve

COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4
_LANES_MAX = 10_000
_SIEVES_MAX = 256  # of them; each keeps what its expression was compiled to
_EXPRESSION_LENGTH_MAX = 256
# What one pull may ask for: entries are looked at on the loop, and a frame of 16 MiB ends a connection.
_COUNT_MAX = 8_000
_SIZE_MAX = 15 << 20


class Pull(NamedTuple):
    """What a pull asks for. `expression` and its type count only with SUBSCRIPTION_FLAG."""

    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    size_max: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    version: int
    expression: str | None
    expression_type: str | None

    @property
    def limits(self) -> tuple[int, int]:
        """How many messages and how many bytes of them it may get at most."""
        return min(self.count_max, _COUNT_MAX), self.size_max if 0 < self.size_max < _SIZE_MAX else _SIZE_MAX


class Allowed(NamedTuple):
    """A pull that passed the checks: what it wants, and what it is about."""

    wanted: MessageFilter
    topic: TopicConfig
    group: GroupConfig
    is_special: bool  # its answers say more than those of others, or are not chosen by tags


class _Lane(NamedTuple):
    """What was found of a group that pulls a topic again and again, and what it was found from."""

    allowed: Allowed
    config: BrokerConfig
    subscription: Subscription
    model: MessageModel
    filter: GroupFilter | None


class PullAccess:
    """Lets pulls through or refuses them."""

    def __init__(self, state: BrokerState, filters: Filters) -> None:
        self._topics = state.topics
        self._groups = state.groups
        self._members = state.members
        self._store = state.store
        self._settings = state.settings
        self._filters = filters
        self._lanes: dict[tuple[str, str], _Lane] = {}
        # The same for pulls that bring their expression along: by group, topic, expression and its type.
        self._asked: dict[tuple[str, str, str | None, str | None], tuple[Allowed, BrokerConfig]] = {}
        self._sieve_count = 0  # of those that filter by more than tags
        state.topics.listen(self._forget_lanes)
        state.groups.listen(self._forget_lanes)

    def compiling(self, handler: Handler) -> Handler:
        """The handler of pulls, which may bring expressions that have to be compiled first."""
        return self._filters.expressions.serving(handler)

    def check(self, pull: Pull) -> Allowed:
        """All checks; those that cannot have changed since the group's last pull are not made again."""
        if pull.sys_flag & SUBSCRIPTION_FLAG:
            known = self._asked.get((pull.group, pull.topic, pull.expression, pull.expression_type))
            is_same = known is not None and known[1] is self._settings.now
            if known is None or not is_same or not 0 <= pull.queue_id < known[0].topic.read_queue_nums:
                return self._judge(pull)
            return known[0]
        lane = self._lanes.get((pull.group, pull.topic))
        if lane is None or not self._is_in(lane, pull):
            return self._judge(pull)
        return lane.allowed

    def _is_in(self, lane: _Lane, pull: Pull) -> bool:
        # Changes of topics and groups have cleared the lanes, so these are all that is left to compare.
        members = self._members.consumers(pull.group)
        return (
            members is not None
            and members.subscriptions.get(pull.topic) is lane.subscription
            and members.model is lane.model
            and pull.version <= lane.subscription.sub_version
            and (lane.filter is None or self._is_current(lane.filter, pull))
            and 0 <= pull.queue_id < lane.allowed.topic.read_queue_nums
            and self._settings.now is lane.config
        )

    def _is_current(self, known: GroupFilter, pull: Pull) -> bool:
        kept = self._filters.get(pull.topic, pull.group)
        return kept is known and pull.version <= known.client_version

    def _forget_lanes(self, names: list[str]) -> None:
        self._lanes.clear()
        self._asked.clear()
        self._sieve_count = 0

    def _judge(self, pull: Pull) -> Allowed:
        config = self._settings.now
        if not config.permission & PERM_READ:
            raise _forbidden(f"this broker, {config.name}, may not be read: brokerPermission is {config.permission}")
        group = self._groups.find(pull.group)
        if group is None:
            remark = f"there is no subscription group {pull.group!r}, and it may not be made by itself; create it"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise _forbidden(f"group {pull.group!r} may not consume: its consumeEnable is false")
        topic = self._topics.find(pull.topic)
        if topic is None:
            remark = f"topic {pull.topic!r} is not here; create it or check the spelling"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            raise _forbidden(f"topic {pull.topic!r} may not be read: its permission is {topic.perm}")
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            remark = f"queue {pull.queue_id} of {pull.topic!r} is not there: it has {topic.read_queue_nums} to read"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        wanted, subscription, model, kept = self._wanted(pull, group)
        if self._groups.is_forbidden(pull.group, pull.topic, READ_BIT):
            raise _forbidden(f"group {pull.group!r} may not read topic {pull.topic!r}: an administrator forbade it")
        is_special = bool(config.reads_from_slave or topic.topic_sys_flag or group.group_sys_flag or wanted.sieve)
        allowed = Allowed(wanted, topic, group, is_special)
        if not config.refuses_pulls:
            self._remember(pull, allowed, subscription, model, kept)
        return allowed

    def _remember(
        self,
        pull: Pull,
        allowed: Allowed,
        subscription: Subscription | None,
        model: MessageModel,
        kept: GroupFilter | None,
    ) -> None:
        """The next pull of its kind need not be judged; what is remembered has a bound, in number and in size."""
        if len(self._lanes) + len(self._asked) >= _LANES_MAX or self._sieve_count >= _SIEVES_MAX:
            self._forget_lanes([])
        config = self._settings.now
        if subscription is not None:
            self._lanes[pull.group, pull.topic] = _Lane(allowed, config, subscription, model, kept)
        elif len(pull.expression or "") <= _EXPRESSION_LENGTH_MAX:
            self._sieve_count += allowed.wanted.sieve is not None
            self._asked[pull.group, pull.topic, pull.expression, pull.expression_type] = allowed, config

    def _wanted(
        self, pull: Pull, group: GroupConfig
    ) -> tuple[MessageFilter, Subscription | None, MessageModel, GroupFilter | None]:
        """What to filter by, and whose it is if it came with a heartbeat."""
        members = self._members.consumers(pull.group)
        is_active = members is None or members.consume_type is ConsumeType.CONSUME_ACTIVELY
        if is_active and self._settings.now.refuses_pulls and not _is_system(pull.group):
            raise _forbidden("pull consumers are refused here: rejectPullConsumerEnable is true")
        if pull.sys_flag & SUBSCRIPTION_FLAG:
            return self._asked_for(pull), None, MessageModel.CLUSTERING, None
        if members is None:
            remark = f"group {pull.group!r} has no member here; a heartbeat must come first"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if members.model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise _forbidden(f"group {pull.group!r} may not broadcast: its consumeBroadcastEnable is false")
        subscription = members.subscriptions.get(pull.topic)
        if subscription is None:
            remark = f"group {pull.group!r} did not subscribe to {pull.topic!r}; its last heartbeat names other topics"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < pull.version:
            remark = (
                f"the subscription of {pull.group!r} to {pull.topic!r} has version {subscription.sub_version} here and "
                f"{pull.version} in the pull; a heartbeat with the newer one must come first"
            )
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        if is_tag_type(subscription.expression_type) or subscription.class_filter_mode:
            tags = _parsed(lambda: subscription_filter(subscription))
            return MessageFilter(tags), subscription, members.model, None
        kept = self._kept_filter(pull)
        self._check_sieves(subscription.expression_type)
        assert kept.predicate is not None
        return self._sieved(pull, kept.predicate), subscription, members.model, kept

    def _asked_for(self, pull: Pull) -> MessageFilter:
        """What a pull wants that brings its expression along."""
        if is_tag_type(pull.expression_type):
            return MessageFilter(_parsed(lambda: tag_hashes(parse_tags(pull.expression))))
        try:
            predicate = self._filters.expressions.compiled(pull.expression, pull.expression_type)
        except SqlError as problem:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the subscription: {problem}") from None
        self._check_sieves(pull.expression_type)
        return self._sieved(pull, predicate)

    def _kept_filter(self, pull: Pull) -> GroupFilter:
        kept = self._filters.get(pull.topic, pull.group)
        if kept is None or kept.predicate is None:
            remark = (
                f"no filter of {pull.group!r} for {pull.topic!r} is here: its expression does not compile, or its "
                "heartbeat has not come yet"
            )
            raise Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if kept.client_version < pull.version:
            remark = (
                f"the filter of {pull.group!r} for {pull.topic!r} has version {kept.client_version} here and "
                f"{pull.version} in the pull; a heartbeat with the newer one must come first"
            )
            raise Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        return kept

    def _sieved(self, pull: Pull, predicate: Sieve) -> MessageFilter:
        sieve = predicate
        if self._settings.now.filters_retries and pull.topic.startswith(RETRY_PREFIX):
            sieve = RetrySieve(self._filters, pull.group)
        return MessageFilter(None, sieve, functools.partial(self._store.any_passes, sieve=sieve))

    def _check_sieves(self, expression_type: str | None) -> None:
        if not self._settings.now.has_property_filter:
            remark = (
                f"this broker does not filter by {expression_type}: set enablePropertyFilter=true, or subscribe by tags"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


def read_pull(header: PullMessageRequest) -> Pull:
    """What a request's fields ask for."""
    return Pull(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.message_count_max,
        header.answer_size_max or 0,
        header.sys_flag,
        header.commit_offset,
        header.suspend_timeout_ms,
        header.subscription_version,
        header.subscription,
        header.expression_type,
    )


def subscription_filter(subscription: Subscription) -> frozenset[int] | None:
    """The tag hashes of a subscription that came with a heartbeat.

    Its tags are hashed here too: the Go client hashes other characters than ASCII in another way than Java. A group in
    class filter mode gets everything, for its filter stands between us and the consumer.
    """
    tags = parse_tags(subscription.sub_string)
    if tags is None or subscription.class_filter_mode:
        return None
    return frozenset(subscription.code_set) | (tag_hashes(tags) or frozenset())


def _parsed(parse: Callable[[], frozenset[int] | None]) -> frozenset[int] | None:
    try:
        return parse()
    except ValueError as problem:
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the subscription: {problem}") from None


def _is_system(group: str) -> bool:
    return group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def _forbidden(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)
