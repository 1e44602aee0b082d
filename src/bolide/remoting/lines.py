"""How many lines of the log one connection may cause.

Whatever a peer sends may be worth a line: a group it joined, a request that failed. A line is longer than what caused
it, so a peer could fill the disk with less than it sends. Therefore a session says that it is the one being served
(`serving`), and a filter at the handler of the log counts: this many lines in this many seconds, errors apart from the
rest, so that none hides behind them. The last one says that no more follow; what is left out is counted, and told with
the next line.

The filter belongs to anyone who sets up the log of a server (`cli/start.py`). Nobody who writes a line need know of it.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
SPAN_S = 10.0
LINES_MAX = 30


class LineBudget:
    """The lines of one connection: since when they are counted, and how many were written and left out."""

    __slots__ = ("_began_s", "_counts", "left_out")

    def __init__(self) -> None:
        self._began_s = 0.0
        self._counts = [0, 0]
        self.left_out = 0

    def take(self, now_s: float, *, is_error: bool) -> int:
        """One more line: how many may be written after it, below zero if it may not itself."""
        if not 0 <= now_s - self._began_s < SPAN_S:
            self._began_s = now_s
            self._counts = [0, 0]
        self._counts[is_error] += 1
        left = LINES_MAX - self._counts[is_error]
        self.left_out += left < 0
        return left


class Speaker(Protocol):
    """A session, as far as its lines go; it has no budget until it caused one."""

    lines: LineBudget | None


serving: ContextVar[Speaker | None] = ContextVar("serving", default=None)


def spoken(speaker: Speaker, call: Callable[P, T], *given: P.args, **more: P.kwargs) -> T:
    """Call, and count what is logged meanwhile, also by tasks that are begun, as this one's."""
    token = serving.set(speaker)
    try:
        return call(*given, **more)
    finally:
        serving.reset(token)


class PeerLines(logging.Filter):
    """For the handler of a server's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        speaker = serving.get()
        if speaker is None:
            return True
        budget = speaker.lines = speaker.lines or LineBudget()
        left = budget.take(record.created, is_error=record.levelno >= logging.ERROR)
        if left < 0:
            return False
        notes = []
        if budget.left_out:
            notes.append(f"{budget.left_out} lines of this connection before it were left out")
            budget.left_out = 0
        if left == 0:
            notes.append(f"what this connection causes in the next {SPAN_S:.0f} s is left out")
        if notes:
            record.msg = f"{record.getMessage()} ({'; '.join(notes)})"
            record.args = ()
        return True
