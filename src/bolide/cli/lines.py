"""How a record of the log is written: one line each, whatever is in it.

Records show what strangers send: names, remarks, client ids. A line end among them would make a line of its own, and
an escape sequence would paint the terminal. So control characters are written as escapes, and a line has an end. What
follows a record, a traceback, is indented: no line of it can be taken for a record.
"""

import logging
import re

LINE_LENGTH_MAX = 4096
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class OneLine(logging.Formatter):
    """A formatter for a log that people and programs read by line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        line = one_line(super().formatMessage(record))
        if len(line) > LINE_LENGTH_MAX:
            line = f"{line[:LINE_LENGTH_MAX]}... ({len(line) - LINE_LENGTH_MAX} characters more)"
        return line

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = super().format(record).split("\n")
        return "\n".join([first, *(f"    {one_line(line)}" for line in rest)])


def one_line(text: str) -> str:
    """The text with control characters as escapes."""
    return _CONTROL.sub(_escaped, text)


def _escaped(found: "re.Match[str]") -> str:
    return ascii(found[0])[1:-1]
