"""What topics, groups and clients may be called: the same rule for brokers, clients and tools.

There are three questions, and each is asked in one place only.

A *kind* says what a text from the wire is allowed to be at all: how long, and without what would be a line of a log, a
path of a file system or a table without bounds. Headers and bodies name the kind of each of their texts, and are
checked when they are read. It is mild: whatever a RocketMQ of any age had in its tables passes.

A name that *becomes* a topic or a group is held to more (`topic_problem`, `group_problem`): letters, digits and
`% | _ -`, nothing else. A topic's name is at most 127 long, for a record keeps its length in one signed byte; those
derived from groups may be longer, as in 5.x. A group's is at most 120, so that its retry topic fits.

And a name that becomes a directory must be one part of a path (`path_problem`): the store asks that itself.
"""

import re
from collections.abc import Callable
from typing import Annotated

import msgspec

from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

TOPIC_LENGTH_MAX = 127
DERIVED_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120
PATH_SIZE_MAX = 255  # bytes, in every file system we know
KEY_LENGTH_MAX = 32_767  # what the properties of a message have room for
_STRANGE = re.compile(r"[^%|a-zA-Z0-9_-]")
_SHOWN_LENGTH = 80


class Kind(msgspec.Struct, frozen=True):
    """What a text is: the word for it, and what it must be. Printable ones have no control or invisible characters."""

    word: str
    length_max: int | None = None
    is_printable: bool = True
    may_have_slash: bool = True

    def problem(self, text: str) -> str | None:
        """Why this text is none of the kind; None if it is. An empty one passes: what needs a name asks for it."""
        if self.length_max is not None and len(text) > self.length_max:
            return f"{self.word} {shown(text)} has {len(text)} characters; at most {self.length_max} are allowed"
        if self.is_printable and not text.isprintable():
            at = next(i for i, character in enumerate(text) if not character.isprintable())
            return f"{self.word} {shown(text)} holds {text[at]!r} at character {at}, which cannot be printed"
        if not self.may_have_slash and "/" in text:
            return f"{self.word} {shown(text)} holds '/' at character {text.index('/')}, which would make it a path"
        if not self.may_have_slash and text in (".", ".."):
            return f"{self.word} {shown(text)} would be a path"
        return None

    def checked(self) -> Callable[[str], str] | None:
        """What gives a text back that is of the kind, and raises UnfitName for any other; None if any is."""
        limit = self.length_max
        if limit is None:
            return None
        is_printable, may_have_slash = self.is_printable, self.may_have_slash

        def check(text: str) -> str:
            # On the way of every request: nearly all names are fine, and are seen to be in one line.
            is_short_text = len(text) <= limit and (not is_printable or text.isprintable())
            if is_short_text and (may_have_slash or ("/" not in text and text[:1] != ".")):
                return text
            if (problem := self.problem(text)) is not None:
                raise UnfitName(problem)
            return text

        return check


TOPIC = Kind("topic", DERIVED_LENGTH_MAX, may_have_slash=False)
GROUP = Kind("group", 255, may_have_slash=False)
CLIENT = Kind("client id", 255)
LABEL = Kind("name", 255)
KEY = Kind("key", KEY_LENGTH_MAX, is_printable=False)
TEXT = Kind("text", is_printable=False)

TopicName = Annotated[str, TOPIC]
GroupName = Annotated[str, GROUP]
ClientId = Annotated[str, CLIENT]
Label = Annotated[str, LABEL]  # of brokers, clusters, strategies and the like; addresses too
Key = Annotated[str, KEY]  # of messages and tables, and their ids
Text = Annotated[str, TEXT]  # names nothing: expressions, properties, packed texts

KINDS = {TopicName: TOPIC, GroupName: GROUP, ClientId: CLIENT, Label: LABEL, Key: KEY, Text: TEXT}


class UnfitName(ValueError):
    """A text that is not what its kind allows; the sentence says why."""


def shown(text: str) -> str:
    """A stranger's text for a remark or a line of the log: in quotes, without control characters, and not long."""
    return repr(text) if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]!r}..."


def topic_problem(topic: str) -> str | None:
    """Why this cannot be a topic's name; None if it can."""
    is_derived = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _problem("topic", topic, DERIVED_LENGTH_MAX if is_derived else TOPIC_LENGTH_MAX)


def group_problem(group: str) -> str | None:
    """Why this cannot be a group's name; None if it can."""
    return _problem("group", group, GROUP_LENGTH_MAX)


def path_problem(name: str) -> str | None:
    """Why this cannot be the name of one directory below another; None if it can."""
    if not name:
        return "a directory without a name"
    if "/" in name or "\0" in name or name.startswith("."):
        return f"{shown(name)} is not one part of a path: it holds a slash or a zero, or begins with a dot"
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > PATH_SIZE_MAX:
        return f"{shown(name)} takes {size} bytes; the name of a directory takes at most {PATH_SIZE_MAX}"
    return None


def _problem(kind: str, name: object, length_max: int) -> str | None:
    if not isinstance(name, str):
        return f"the {kind} is a {type(name).__name__}: give its name as text"
    if not name.strip():
        return f"the name of the {kind} is blank; give it one"
    if len(name) > length_max:
        return f"{kind} {name[:_SHOWN_LENGTH]!r}... has {len(name)} characters; at most {length_max} are allowed"
    if strange := _STRANGE.search(name):
        allowed = "letters, digits and any of % | _ - are allowed"
        return f"{kind} {name[:_SHOWN_LENGTH]!r} holds {strange[0]!r} at character {strange.start()}; {allowed}"
    return None
