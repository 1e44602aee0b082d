"""A queue as one group pops it, and the topics its failures go to.

A message nobody acknowledged is stored again in a topic of the group and the topic it came from (`protocol/popped.py`).
"""

from typing import NamedTuple

from bolide.model.topics import RETRY_PREFIX
from bolide.protocol.popped import retry_topic_v1, retry_topic_v2


class Lane(NamedTuple):
    """One queue as one group sees it; queue -1 is any queue of the topic."""

    group: str
    topic: str
    queue_id: int


ANY_QUEUE = -1


def retry_topic_for(group: str, topic: str, is_v2: bool) -> str:
    """Where a message of `topic` goes that `group` did not acknowledge; one that failed again stays where it is."""
    if topic.startswith(RETRY_PREFIX):
        return topic
    return retry_topic_v2(group, topic) if is_v2 else retry_topic_v1(group, topic)


def origin_of(group: str, topic: str) -> str:
    """The topic itself, or the one a retry topic of the group was made for."""
    for prefix in (f"{RETRY_PREFIX}{group}+", f"{RETRY_PREFIX}{group}_"):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def group_of_retry(topic: str, named: str) -> str:
    """The group whose retry topic this is. The name of one made by POP does not tell; messages in it name the group."""
    own = topic.removeprefix(RETRY_PREFIX)
    return named if named and own.startswith((f"{named}+", f"{named}_")) else own
