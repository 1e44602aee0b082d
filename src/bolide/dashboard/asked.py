"""What people type into forms: times, spans, expressions."""

import re
from datetime import UTC, datetime

from bolide.client.consuming.subscriptions import EVERYTHING, Expression, Sql
from bolide.errors import ClientError
from bolide.model.texts import UNITS_MS

_AGO = re.compile(r"-(\d{1,6})(s|m|h|d)")


def time_ms(text: str, now_ms: int, other: int) -> int:
    """`-1h`, milliseconds, or a time as browsers write it; without a zone it is UTC."""
    if not text:
        return other
    if found := _AGO.fullmatch(text):
        return now_ms - int(found[1]) * UNITS_MS[found[2]]
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ClientError(f"{text[:80]!r} is no time; write 2026-05-01T12:00Z, -1h, or milliseconds") from None


def expression_of(tag: str, sql: str) -> Expression:
    """What the broker filters by."""
    if tag and sql:
        raise ClientError("give tags or SQL, not both")
    return Sql(sql) if sql else tag or EVERYTHING
