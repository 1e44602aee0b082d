"""Times and spans as they are typed and shown: one way for all commands.

A time without a zone is local time, as clocks on the wall are; `bolide lake` says UTC, because its dates are. `-1h` is
an hour ago, `+30m` in half an hour. What is shown has its zone.
"""

import re
from datetime import datetime, tzinfo

from bolide.cli.exits import fail
from bolide.clock import SystemClock
from bolide.model.texts import UNITS_MS
from bolide.model.texts import moment as moment
from bolide.model.texts import span as span

_AGO = r"[-+]\d+(?:\.\d+)?(?:ms|s|m|h|d)"


def time_ms(option: str, text: str, zone: tzinfo | None = None) -> int:
    """`2026-05-01`, `2026-05-01T12:00`, the same with a zone, `-1h` or `+1h` from now, `now`, or milliseconds."""
    if text.isdecimal():
        return int(text)
    if text == "now":
        return SystemClock().now_ms()
    if re.fullmatch(_AGO, text):
        return SystemClock().now_ms() + (-1 if text[0] == "-" else 1) * span_ms(option, text[1:])
    try:
        found = datetime.fromisoformat(text)
        return round((found if found.tzinfo or not zone else found.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        fail(
            f"{option} {text}: must be a time like 2026-05-01T12:00 or 2026-05-01T12:00+02:00, -1h (an hour ago), now, "
            "or milliseconds"
        )


def span_ms(option: str, text: str) -> int:
    """`500ms`, `10s`, `5m`, `2h`, `1d`; a number alone is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if found is None:
        fail(f"{option}: {text!r} is no time; write 500ms, 10s, 5m, 2h or 1d")
    return round(float(found[1]) * UNITS_MS[found[2] or "s"])
