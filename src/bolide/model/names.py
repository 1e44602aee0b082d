"""What a topic and a group may be called: the same rule for brokers, clients and tools.

Letters, digits and `% | _ -`, nothing else. A topic's name is at most 127 long, for a record keeps its length in one
signed byte; those derived from groups may be longer, as in 5.x. A group's is at most 120, so that its retry topic fits.
"""

import re

from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

TOPIC_LENGTH_MAX = 127
DERIVED_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120
_STRANGE = re.compile(r"[^%|a-zA-Z0-9_-]")
_SHOWN_LENGTH = 80


def topic_problem(topic: str) -> str | None:
    """Why this cannot be a topic's name; None if it can."""
    is_derived = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _problem("topic", topic, DERIVED_LENGTH_MAX if is_derived else TOPIC_LENGTH_MAX)


def group_problem(group: str) -> str | None:
    """Why this cannot be a group's name; None if it can."""
    return _problem("group", group, GROUP_LENGTH_MAX)


def _problem(kind: str, name: str, length_max: int) -> str | None:
    if not name.strip():
        return f"the name of the {kind} is blank; give it one"
    if len(name) > length_max:
        return f"{kind} {name[:_SHOWN_LENGTH]!r}... has {len(name)} characters; at most {length_max} are allowed"
    if strange := _STRANGE.search(name):
        allowed = "letters, digits and any of % | _ - are allowed"
        return f"{kind} {name[:_SHOWN_LENGTH]!r} holds {strange[0]!r} at character {strange.start()}; {allowed}"
    return None
