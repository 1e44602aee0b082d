"""Whether two members of one group want the same: the silent loss of messages, found by comparing.

A group shares its queues among its members, whatever each subscribed to. A member that wants other topics or other tags
than its mates has queues whose messages the mates alone would take, and the broker goes by anyone who spoke last:
messages are passed over, and nobody is told. So members must want the same, and this says where they do not.

Tags are compared as sets: `A || B` and `B||A` are one wish. The group's own retry topic is everybody's and says
nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

from bolide.filter.tags import EVERYTHING, TAG, is_tag_type, parse_tags

_RETRY_PREFIX = "%RETRY%"
_NOTHING = "nothing"
Wants = frozenset[tuple[str, str, str]]  # topic, type, expression


class Difference(NamedTuple):
    """What two members want of one topic."""

    topic: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"of topic {self.topic} it wants {self.ours}, its mate {self.theirs}"


def wants_of(subscriptions: Iterable[tuple[str, str | None, str | None]]) -> Wants:
    """What a member's subscriptions (topic, type, expression) come to."""
    return frozenset(
        (topic, kind or TAG, _spelt_alike(kind, expression))
        for topic, kind, expression in subscriptions
        if not topic.startswith(_RETRY_PREFIX)
    )


def differences(ours: Wants, theirs: Wants) -> list[Difference]:
    """Where two members disagree, topic by topic."""
    here, there = _by_topic(ours - theirs), _by_topic(theirs - ours)
    return [
        Difference(topic, here.get(topic, _NOTHING), there.get(topic, _NOTHING)) for topic in sorted({**here, **there})
    ]


def _by_topic(wants: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    return {topic: expression if is_tag_type(kind) else f"{kind} {expression}" for topic, kind, expression in wants}


def _spelt_alike(kind: str | None, expression: str | None) -> str:
    if not is_tag_type(kind):
        return expression or ""
    try:
        tags = parse_tags(expression)
    except ValueError:
        return expression or ""
    return EVERYTHING if tags is None else " || ".join(sorted(tags))
