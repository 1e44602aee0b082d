"""What a queue of Celery is called in RocketMQ, and what cannot be a queue here.

A topic's name has letters, digits and `% | _ -`. Celery's names may have more, above all dots: each such character is
written as `%` and two hexadecimal digits of its UTF-8 bytes, as in a URL. So no two queues meet in one topic, and
`bolide topic list` shows which is which. The virtual host of the URL is a namespace: it stands before every name.
"""

import re
from typing import Any

from bolide.errors import ClientError
from bolide.model.names import group_problem, topic_problem
from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

_PLAIN = re.compile(r"[a-zA-Z0-9_-]")
GROUP = "celery-workers"
_EVENTS = "celeryev"


def escaped(name: str) -> str:
    """Letters, digits, `_` and `-` as they are, everything else as bytes in hexadecimal."""
    return "".join(
        character if _PLAIN.fullmatch(character) else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in name
    )


def topic_of(queue: str, namespace: str = "") -> str:
    """The topic of a queue; raises ClientError where there can be none."""
    topic = f"{escaped(namespace)}%{escaped(queue)}" if namespace else escaped(queue)
    if problem := topic_problem(topic):
        raise ClientError(f"queue {queue!r} cannot be a topic: {problem}")
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise ClientError(f"queue {queue!r} would be the topic {topic}, which belongs to a group; choose another name")
    return topic


def group_of(name: str, namespace: str = "") -> str:
    """The consumer group that workers are members of."""
    group = f"{escaped(namespace)}%{name}" if namespace else name
    if problem := group_problem(group):
        raise ClientError(problem)
    return group


def is_broadcast(exchange: str, declared: dict[str, Any] | None) -> bool:
    """Whether everyone who is bound to an exchange gets all of it from then on, and nobody gets what was before.

    So it is for commands to workers, their replies, and events: each worker has a queue for as long as it lives.
    """
    if exchange == _EVENTS or exchange.endswith(".pidbox"):
        return True
    return declared is not None and (declared["type"] == "fanout" or not declared["durable"])


def check_priority(priority: object) -> None:
    """A log has one order: what was sent first comes first."""
    if priority not in (None, 0):
        raise ClientError(
            f"a task with priority {priority!r} was sent, and a topic has no priorities: send urgent tasks to "
            "a queue of their own, with workers of its own (`task_routes`, `celery worker -Q urgent`)"
        )


def check_arguments(queue: str, arguments: dict[str, Any] | None) -> None:
    """What an AMQP broker would do with a queue, and a topic does not."""
    if arguments and "x-max-priority" in arguments:
        raise ClientError(
            f"queue {queue!r} is declared with x-max-priority, and a topic has no priorities; leave it out"
        )
