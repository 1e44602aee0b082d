"""What a client and the server agree on: the settings a client tells, with ours laid over them.

Clients depend on the whole of it: a producer that is told another kind of backoff than the exponential one does not
start, one that is told a body size of 0 sends nothing, and consumers want one kind of backoff in any case.
"""

from collections.abc import Iterable

from bolide.errors import ClientError
from bolide.filter.sql import compile_sql
from bolide.filter.tags import parse_tags, tag_hashes
from bolide.protocol.bodies import Subscription
from bolide.protocol.bodies.groups import GroupConfig, GrowingDelays, RetryKind
from bolide.proxy import messages as m
from bolide.proxy.checks import topic_name
from bolide.proxy.config import ProxyConfig
from bolide.proxy.receiving import attempts_max
from bolide.proxy.statuses import Denied
from bolide.proxy.translation import set_millis

_S, _M, _H = 1_000, 60_000, 3_600_000
_LISTED_MS = [_S, 5 * _S, 10 * _S, 30 * _S, *(n * _M for n in range(1, 11)), 20 * _M, 30 * _M, _H, 2 * _H]


def for_producer(told: m.Settings, config: ProxyConfig) -> m.Settings:
    """The answer to a producer."""
    settings = _copied(told)
    backoff = settings.backoff_policy
    backoff.Clear()
    backoff.max_attempts = config.send_attempts
    set_millis(backoff.exponential_backoff.initial, config.send_backoff_ms)
    set_millis(backoff.exponential_backoff.max, config.send_backoff_max_ms)
    backoff.exponential_backoff.multiplier = config.send_backoff_factor
    settings.publishing.max_body_size = config.body_size_max or (1 << 31) - 1
    settings.publishing.validate_message_type = config.checks_types
    return settings


def for_consumer(told: m.Settings, group: GroupConfig, config: ProxyConfig) -> m.Settings:
    """The answer to a consumer, by the configuration of its group."""
    settings = _copied(told)
    subscription, backoff = settings.subscription, settings.backoff_policy
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = config.receive_count
    set_millis(subscription.long_polling_timeout, config.polling_max_ms)
    backoff.Clear()
    backoff.max_attempts = attempts_max(group)
    policy = group.group_retry_policy
    if policy.type is RetryKind.EXPONENTIAL:
        growing = policy.exponential_retry_policy or GrowingDelays()
        set_millis(backoff.exponential_backoff.initial, growing.initial)
        set_millis(backoff.exponential_backoff.max, growing.max)
        backoff.exponential_backoff.multiplier = growing.multiplier
        return settings
    listed = policy.customized_retry_policy
    for delay_ms in listed.next if listed is not None and listed.next else _LISTED_MS:
        set_millis(backoff.customized_backoff.next.add(), delay_ms)
    return settings


def _copied(told: m.Settings) -> m.Settings:
    settings = m.Settings()
    settings.CopyFrom(told)
    settings.metric.Clear()
    settings.metric.on = False
    return settings


def subscriptions_of(entries: Iterable[m.SubscriptionEntry], version_ms: int) -> list[Subscription]:
    """What a consumer wants, as brokers are told; raises Denied for an expression that is none."""
    return [_subscription(entry, version_ms) for entry in entries]


def _subscription(entry: m.SubscriptionEntry, version_ms: int) -> Subscription:
    topic, expression = topic_name(entry.topic), entry.expression.expression or "*"
    try:
        if entry.expression.type == m.FilterType.SQL:
            compile_sql(expression)
            return Subscription(topic=topic, sub_string=expression, expression_type="SQL92", sub_version=version_ms)
        tags = parse_tags(expression)
    except (ValueError, ClientError) as problem:
        raise Denied(m.Code.ILLEGAL_FILTER_EXPRESSION, f"subscription of {topic}: {problem}") from None
    return Subscription(
        topic=topic,
        sub_string=expression,
        tags_set=list(tags or ()),
        code_set=sorted(tag_hashes(tags) or ()),
        sub_version=version_ms,
    )
