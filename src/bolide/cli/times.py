"""Times and spans as they are typed and shown: one way for all commands.

A time without a zone is local time, as clocks on the wall are; `bolide lake` says UTC, because its dates are.
"""

import re
from datetime import datetime, tzinfo

from bolide.cli.start import fail

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment(time_ms: int) -> str:
    """A time for people; nothing where there is none, and the number where no calendar has it: clients send any."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", "milliseconds") if time_ms > 0 else ""
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def time_ms(option: str, text: str, zone: tzinfo | None = None) -> int:
    """`2026-05-01`, `2026-05-01T12:00`, the same with a zone, or milliseconds."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        return round((found if found.tzinfo or not zone else found.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        fail(f"{option} {text}: must be a time like 2026-05-01T12:00 or 2026-05-01T12:00+02:00, or milliseconds")


def span_ms(option: str, text: str) -> int:
    """`500ms`, `10s`, `5m`, `2h`, `1d`; a number alone is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if found is None:
        fail(f"{option}: {text!r} is no time; write 500ms, 10s, 5m, 2h or 1d")
    return round(float(found[1]) * _UNITS_MS[found[2] or "s"])


def span(span_ms: int) -> str:
    """The shortest way to write a span that is read back as the same."""
    unit = next((unit for unit in ("d", "h", "m", "s") if span_ms and span_ms % _UNITS_MS[unit] == 0), "ms")
    return f"{span_ms // _UNITS_MS[unit]}{unit}"
