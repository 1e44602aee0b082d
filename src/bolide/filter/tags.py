"""Tag expressions: `TagA || TagB` becomes the set of hashes that a queue's entries are compared with.

The rule is RocketMQ's: a broker compares hashes and never the tags themselves. Two tags may share a hash ("Aa" and
"BB" do), so it may send more than was asked for, and the consumer drops the rest. A set of None stands for everything;
an empty one for nothing, since a message without a tag passes no expression that names one.
"""

from collections.abc import Iterable

from bolide import kernel
from bolide.kernel.layout import Buffer

EVERYTHING = "*"
TAG = "TAG"
_SEPARATOR = "||"
# What Java's trim takes away: the blank and everything below it.
_BLANKS = "".join(map(chr, range(0x21)))
_ONE = (1, 1)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is about tags; a client that names no type means them."""
    return not expression_type or expression_type == TAG


def parse_tags(expression: str | None) -> list[str] | None:
    """The tags an expression names, None for all of them; raises ValueError for one that is nothing but separators."""
    if not expression or expression == EVERYTHING:
        return None
    parts = expression.split(_SEPARATOR)
    if not any(parts):
        raise ValueError(f"{expression!r} has separators and no tag; name some, as in 'A || B', or say '*'")
    return list(dict.fromkeys(tag for part in parts if (tag := part.strip(_BLANKS))))


def tag_hashes(tags: Iterable[str] | None) -> frozenset[int] | None:
    """The hashes under which queue entries know tags."""
    return None if tags is None else frozenset(map(kernel.java_hash, tags))


def any_passes(entries: Buffer, wanted: frozenset[int] | None) -> bool:
    """Whether one of a run of queue entries may be wanted."""
    return wanted is None or bool(kernel.select_entries(entries, wanted, 0, 0, 1, 0, _ONE, _ONE)[0])
