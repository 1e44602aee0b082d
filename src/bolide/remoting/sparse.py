"""Log lines that strangers cause: some of each kind, and then a number.

Anybody can connect and send nonsense as often as he likes, and each time there is something to say. A logger with this
filter says so much of it that an operator sees what happens, and beyond that two lines a second of a kind; the next
line that is let through says how many were left out before it. A kind is a line's text without its values.

The time is the record's own, so nothing here reads a clock.
"""

import logging

BURST_COUNT = 100
A_SECOND = 2.0
_KINDS_MAX = 1_000


class Sparse(logging.Filter):
    """Lets lines through as long as there are not too many of their kind; debug lines are wanted as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[float, float, int]] = {}  # when, how many may come then, how many were left out

    def forget(self) -> None:
        """Begin again, as if nothing had been said."""
        self._kinds.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        kind = str(record.msg)
        then_s, count, left_out = self._kinds.get(kind, (record.created, float(BURST_COUNT), 0))
        count = min(BURST_COUNT, count + max(record.created - then_s, 0.0) * A_SECOND)
        if count < 1:
            self._kinds[kind] = record.created, count, left_out + 1
            return False
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} such lines before it that were left out)"
            record.args = ()
        if len(self._kinds) > _KINDS_MAX:
            self._kinds.clear()
        self._kinds[kind] = record.created, count - 1, 0
        return True
