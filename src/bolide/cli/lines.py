"""How a record of the log is written: one line each, whatever is in it.

Records show what strangers send: names, remarks, client ids. A line end among them would make a line of its own, and
an escape sequence would paint the terminal. So control characters are written as escapes, and a line has an end. What
follows a record, a traceback, is indented: no line of it can be taken for a record.

Programs read JSON: the same record as one object, its traceback included. `event` is what the line says without its
values, the same for each record of a kind, and `facts` has the values that a line names as `key=value`.
"""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

LINE_LENGTH_MAX = 4096
TEXT, JSON = FORMATS = ("text", "json")
_FACT = re.compile(r"(?:^|(?<=[ ,;(]))(\w+)=%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_VALUE = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")
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


class JsonLine(logging.Formatter):
    """A formatter for a log that a program gathers: an object a line, with the same keys in each."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        """Keys: time, level, server, logger, event, message, facts; trace where something was raised."""
        message = record.getMessage()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "server": self._server,
            "logger": record.name,
            "event": _event(str(record.msg)),
            "message": message[:LINE_LENGTH_MAX],
            "facts": _facts(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII: no line end, no escape sequence


def _event(template: str) -> str:
    """A line's words up to its first fact, without values."""
    first = re.search(r"(?:^|[ ,;(])\w+=", template)
    words = template[: first.start()] if first else template
    return _VALUE.sub(lambda found: "%" if found[0] == "%%" else "...", words).strip(" :,;(")[:LINE_LENGTH_MAX]


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    """What a line names as key=value; numbers stay numbers."""
    if not isinstance(record.args, tuple) or not record.args:
        return {}
    template, facts = str(record.msg), {}
    places = [found.end() for found in _VALUE.finditer(template) if found[0] != "%%"]
    for found in _FACT.finditer(template):
        value = record.args[places.index(found.end())]
        facts[found[1]] = value if isinstance(value, int | float) else str(value)[:LINE_LENGTH_MAX]
    return facts


def one_line(text: str) -> str:
    """The text with control characters as escapes."""
    return _CONTROL.sub(_escaped, text)


def _escaped(found: "re.Match[str]") -> str:
    return ascii(found[0])[1:-1]
