"""What a consumer asks for, as brokers want to hear it, and the second look at what they send.

A broker compares hashes of tags, and two tags may share one: the tag itself is compared here. What an SQL92 expression
lets through is decided by the broker alone, so it is asked before the start whether it will (`check_sql`).
"""

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bolide.client.instance import Instance
from bolide.errors import ClientError
from bolide.filter.tags import is_tag_type, parse_tags, tag_hashes
from bolide.model.names import topic_problem
from bolide.protocol.bodies.clients import ClientCheck, Subscription
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command

EVERYTHING = "*"
_CHECK_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Sql:
    """Messages whose properties satisfy an SQL92 expression: `Sql("price > 10 AND region IN ('north', 'south')")`.

    The broker filters, and only with enablePropertyFilter=true.
    """

    expression: str


@dataclass(frozen=True, slots=True)
class ClassFilter:
    """Messages that a function of yours lets through, run by filter servers beside the brokers (`bolide filtersrv`).

    `source` is Python with a function `match(message, context) -> bool`, or a class `name` with such a method. It runs
    there, so it has to import what it needs itself. Filter servers take it only if it is signed: give `credentials`.
    """

    source: str
    name: str = "Filter"

    @classmethod
    def of(cls, filtering: Callable[..., bool]) -> "ClassFilter":
        """The filter in a function `match` of yours: its source, without anything around it."""
        if filtering.__name__ != "match":
            raise ClientError(f"the function of a filter is called match, not {filtering.__name__}")
        try:
            return cls(textwrap.dedent(inspect.getsource(filtering)))
        except (OSError, TypeError):
            raise ClientError("the source of the filter is not to be found; give it as a text") from None


Expression = str | Sql | ClassFilter
Topics = str | Mapping[str, Expression] | Mapping[str, str] | list[str]


def subscription_of(topic: str, expression: Expression, version_ms: int) -> Subscription:
    """A subscription by tags, by SQL, or by a filter of one's own."""
    if problem := topic_problem(topic):
        raise ClientError(problem)
    if isinstance(expression, ClassFilter):
        return Subscription(topic=topic, sub_string=expression.name, class_filter_mode=True, sub_version=version_ms)
    try:
        if isinstance(expression, Sql):
            from bolide.filter.sql import SQL92, compile_sql  # most subscribe by tags

            compile_sql(expression.expression)
            return Subscription(
                topic=topic, sub_string=expression.expression, expression_type=SQL92, sub_version=version_ms
            )
        tags = parse_tags(expression)
    except ValueError as problem:
        raise ClientError(f"subscription of {topic}: {problem}") from None
    hashes = tag_hashes(tags)
    return Subscription(
        topic=topic,
        sub_string=expression or EVERYTHING,
        tags_set=list(tags or ()),
        code_set=sorted(hashes or ()),
        sub_version=version_ms,
    )


async def check_sql(instance: Instance, group: str, subscriptions: Iterable[Subscription]) -> None:
    """Ask a broker of each topic whether it will filter by SQL; who cannot be asked will say so at the first pull."""
    for subscription in subscriptions:
        route = instance.known_route(subscription.topic)
        if is_tag_type(subscription.expression_type) or route is None or not route.subscribe:
            continue
        address = instance.address(route.subscribe[0].broker_name, is_exact=False)
        if address is None:
            continue
        asked = ClientCheck(client_id=instance.client_id, group=group, subscription_data=subscription)
        command = Command(RequestCode.CHECK_CLIENT_CONFIG, body=asked.encode())
        answer = await instance.request(address, command, _CHECK_LIMIT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ClientError(f"subscription of {subscription.topic}: {answer.remark}", answer.code)


def parse_topics(topics: Topics) -> dict[str, Expression]:
    """`"Orders"`, `["Orders", "Refunds"]`, `{"Orders": "TagA || TagB"}` or `{"Orders": Sql("price > 10")}`."""
    if isinstance(topics, str):
        return {topics: EVERYTHING}
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, EVERYTHING)


class Labelled(Protocol):
    """What has tags."""

    @property
    def tags(self) -> str | None: ...


def tag_test(subscription: Subscription) -> Callable[[Labelled], bool]:
    """Whether a delivered message was really asked for."""
    wanted = frozenset(subscription.tags_set)
    if not wanted:
        return lambda message: True
    return lambda message: message.tags in wanted
