"""How many requests something took, counted where they leave.

A page tells how much it asked of a cluster, and who looks at it from afar wants to know it of that page alone. So the
count belongs to the task that began counting and to those it started.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Tally:
    """A count of requests."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


_current: ContextVar[Tally | None] = ContextVar("tally", default=None)


@contextmanager
def counting() -> Iterator[Tally]:
    """Count the requests that are made inside the block."""
    token = _current.set(tally := Tally())
    try:
        yield tally
    finally:
        _current.reset(token)


def count_request() -> None:
    """One more, for the one who counts."""
    tally = _current.get()
    if tally is not None:
        tally.count += 1
