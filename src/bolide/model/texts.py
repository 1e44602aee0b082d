"""Texts, times and rows as they are shown, by commands and by pages alike.

Times are written in one form: `2026-11-16T14:48:29.071+01:00`. A column `…_at` that holds milliseconds is one, in every
row. What messages and strangers wrote never acts where it is shown: control characters are written out.
"""

import re
from collections.abc import Mapping
from datetime import datetime

# Controls of both halves, line ends of other alphabets, and what turns the direction of writing or hides.
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def printable(text: str) -> str:
    """The text with everything a terminal would obey, or would show as something else, written out."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def counted(count: int, noun: str) -> str:
    """`1 queue`, `2 queues`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def json_text(value: object) -> str:
    """JSON on one line, in which no character does anything."""
    import json  # a table does without

    text = json.dumps(value, ensure_ascii=False)
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def with_times(value: object) -> object:
    """The same with every time as text."""
    if isinstance(value, Mapping):
        return {key: _told(key, inner) for key, inner in value.items()}
    return [with_times(inner) for inner in value] if isinstance(value, list | tuple) else value


def _told(key: object, value: object) -> object:
    is_time = isinstance(key, str) and key.endswith("_at") and isinstance(value, int) and not isinstance(value, bool)
    return moment(value) if is_time else with_times(value)  # type: ignore[arg-type]


def moment(time_ms: int) -> str:
    """A time for people; nothing where there is none, and the number where no calendar has it: clients send any."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat("T", "milliseconds") if time_ms > 0 else ""
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def span(span_ms: int) -> str:
    """The shortest way to write a span that is read back as the same."""
    unit = next((unit for unit in ("d", "h", "m", "s") if span_ms and span_ms % UNITS_MS[unit] == 0), "ms")
    return f"{span_ms // UNITS_MS[unit]}{unit}"
