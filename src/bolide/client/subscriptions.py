"""What a consumer asks for, as brokers want to hear it, and the second look at what they send.

A broker compares hashes of tags, and two tags may share one: the tag itself is compared here.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from bolide.errors import ClientError
from bolide.filter.tags import parse_tags, tag_hashes
from bolide.model.names import topic_problem
from bolide.protocol.bodies import Subscription

EVERYTHING = "*"


def subscription_of(topic: str, expression: str, version_ms: int) -> Subscription:
    """A subscription by tags."""
    if problem := topic_problem(topic):
        raise ClientError(problem)
    try:
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


def parse_topics(topics: str | Mapping[str, str] | list[str]) -> dict[str, str]:
    """`"Orders"`, `["Orders", "Refunds"]` or `{"Orders": "TagA || TagB"}`."""
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
