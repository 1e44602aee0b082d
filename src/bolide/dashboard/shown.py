"""How values are written in templates: numbers with thin spaces, ages, sizes, rates, and texts that do nothing."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from urllib.parse import quote

from bolide.admin.reach import SilentBroker
from bolide.admin.rows import version_text
from bolide.dashboard.history import Trend
from bolide.dashboard.walk import Snapshot
from bolide.model.texts import printable

DASH = "–"
_THIN = "\u202f"
_SHOWN_LENGTH_MAX = 200
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 20


def number(value: float | None) -> str:
    """1 204 311; what is not known is a dash, never 0."""
    if value is None or value != value:
        return DASH
    return f"{value:,.0f}".replace(",", _THIN)


def counted(value: float, noun: str) -> str:
    """1 broker, 2 brokers."""
    return f"{number(value)} {noun}" if value == 1 else f"{number(value)} {noun}s"


def rate(value: float | None) -> str:
    """Events a second."""
    if value is None or value != value:
        return DASH
    return number(value) if value >= 100 or value == int(value) else f"{value:.1f}"


def size(value: float | None) -> str:
    """Bytes in the unit that reads best."""
    if value is None:
        return DASH
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f}{_THIN}{unit}" if unit == "B" or value >= 100 else f"{value:.1f}{_THIN}{unit}"
        value /= 1024
    raise AssertionError("the last unit takes all")


def span(value_ms: float | None) -> str:
    """A length of time in two steps at most: 3 min, 2 h 5 min."""
    if value_ms is None or value_ms != value_ms:
        return DASH
    seconds = max(0, int(value_ms // 1000))
    if seconds < 1:
        return "0 s" if value_ms <= 0 else "< 1 s"
    steps = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    for (length, name), following in zip(steps, [*steps[1:], None], strict=True):
        if seconds >= length:
            whole, rest = divmod(seconds, length)
            more = rest // following[0] if following is not None and whole < 10 else 0
            return f"{whole} {name}" + (f" {more} {following[1]}" if more and following is not None else "")
    raise AssertionError("a second is the last step")


def utc(time_ms: int | None) -> str:
    """A time as machines read it; nothing where no calendar has it."""
    try:
        return (
            datetime.fromtimestamp((time_ms or 0) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return ""


def clock(time_ms: int | None) -> str:
    """A time before the browser has put it into its own zone."""
    text = utc(time_ms)
    return f"{text[:10]} {text[11:19]} UTC" if text else str(time_ms)


def short(text: object, length_max: int = _SHOWN_LENGTH_MAX) -> str:
    """A text in which nothing acts, cut where it has no end."""
    whole = "" if text is None else str(text)
    if len(whole) <= length_max:
        return printable(whole)
    return f"{printable(whole[:length_max])}… ({number(len(whole))} characters)"


def part(text: object) -> str:
    """A name as a part of a path."""
    return quote(str(text), safe="")


def percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0%}"


def spark(trend: Trend) -> str:
    """The points of a sparkline, for an SVG of 96 by 20."""
    points = trend.points
    if len(points) < 2:
        return ""
    largest = max(points) or 1
    step = _SPARK_WIDTH / (len(points) - 1)
    return " ".join(
        f"{place * step:.1f},{_SPARK_HEIGHT - 1 - value / largest * (_SPARK_HEIGHT - 2):.1f}"
        for place, value in enumerate(points)
    )


def answered(silent: Collection[SilentBroker], snapshot: Snapshot) -> str:
    """How many brokers of how many told their part."""
    missing = {broker.name for broker in silent}
    names = {look.row.name for look in snapshot.brokers} | missing
    return f"{len(names - missing)} of {counted(len(names), 'broker')}"


def permission(bits: int) -> str:
    """What may be done with a topic."""
    return {6: "read, write", 4: "read only", 2: "write only"}.get(bits & 6, "closed")


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "counted": counted,
    "rate": rate,
    "size": size,
    "span": span,
    "utc": utc,
    "clock": clock,
    "short": short,
    "part": part,
    "percent": percent,
    "spark": spark,
    "permission": permission,
    "answered": answered,
    "version": version_text,
}
