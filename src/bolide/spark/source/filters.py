"""Filters of a query → what need not be read: pure, and always on the safe side.

A filter that is not understood prunes nothing. Which queues and offsets are read is decided by the plan, to the row; of
tags a broker looks at hashes, and times are looked for where they should be, so these are checked again by Spark. Times
are compared in milliseconds, as messages have them; a filter's microseconds are rounded so that no row is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from bolide.model.queue import MessageQueue

_ORDERED = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(slots=True)
class Pruning:
    """What the filters leave: None is all. Times and offsets are [from, until)."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    queue_ids: tuple[int, int | None] = (0, None)
    chosen_ids: frozenset[int] | None = None
    offsets: tuple[int, int | None] = (0, None)
    from_ms: int | None = None
    until_ms: int | None = None
    is_empty: bool = False

    def has(self, queue: MessageQueue) -> bool:
        low, high = self.queue_ids
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker_name in self.brokers)
            and (self.chosen_ids is None or queue.queue_id in self.chosen_ids)
            and low <= queue.queue_id
            and (high is None or queue.queue_id < high)
        )


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """What rows that pass all of the filters can have."""
    found = Pruning()
    for each in filters:
        attribute = getattr(each, "attribute", None)
        if attribute is None or len(attribute) != 1:
            continue
        name = attribute[0]
        values = _values(each)
        if name in ("topic", "broker_name", "tags") and values is not None:
            _choose(found, {"topic": "topics", "broker_name": "brokers"}.get(name, name), values)
        elif name == "queue_id" and isinstance(each, In) and values is not None:
            chosen = frozenset(number for number in values if isinstance(number, int))
            found.chosen_ids = chosen if found.chosen_ids is None else found.chosen_ids & chosen
        elif name in ("queue_id", "queue_offset") and isinstance(each, _ORDERED) and isinstance(each.value, int):
            kept = found.queue_ids if name == "queue_id" else found.offsets
            bounds = _narrowed(kept, _bounds(each, each.value))
            if name == "queue_id":
                found.queue_ids = bounds
            else:
                found.offsets = bounds
        elif name == "store_ts" and isinstance(each, _ORDERED) and isinstance(each.value, datetime):
            _limit_time(found, each)
    return found


def is_kept_by_plan(each: Filter) -> bool:
    """Whether rows that fail it are never read: then Spark need not look at it again, and shows it as pushed."""
    attribute = getattr(each, "attribute", ())
    if attribute in (("topic",), ("broker_name",)):
        return isinstance(each, EqualTo | In) and all(isinstance(value, str) for value in _values(each) or ())
    if attribute in (("queue_id",), ("queue_offset",)):
        is_chosen = isinstance(each, In) and attribute == ("queue_id",)
        return is_chosen or (isinstance(each, _ORDERED) and isinstance(each.value, int))
    return False


def _values(each: Filter) -> frozenset[object] | None:
    if isinstance(each, EqualTo):
        return frozenset([each.value])
    if isinstance(each, In):
        return frozenset(each.value)
    return None


def _choose(found: Pruning, name: str, values: frozenset[object]) -> None:
    texts = frozenset(value for value in values if isinstance(value, str))
    if name == "tags" and not all(_is_tag(text) for text in texts):
        return
    known: frozenset[str] | None = getattr(found, name)
    chosen = texts if known is None else known & texts
    setattr(found, name, chosen)
    found.is_empty = found.is_empty or not chosen


def _is_tag(text: str) -> bool:
    """Whether a tag can stand in an expression as it is."""
    return bool(text) and text == text.strip() and "|" not in text and text != "*"


def _bounds(each: Filter, value: int) -> tuple[int, int | None]:
    if isinstance(each, EqualTo):
        return value, value + 1
    if isinstance(each, GreaterThan):
        return value + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return value, None
    return 0, value + 1 if isinstance(each, LessThanOrEqual) else value


def _narrowed(one: tuple[int, int | None], other: tuple[int, int | None]) -> tuple[int, int | None]:
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(one[0], other[0]), min(highs) if highs else None


def _limit_time(found: Pruning, each: Filter) -> None:
    moment = each.value  # type: ignore[attr-defined]
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    low, high = _bounds(each, time_us)
    if not isinstance(each, LessThan | LessThanOrEqual):
        from_ms = low // 1000
        found.from_ms = from_ms if found.from_ms is None else max(found.from_ms, from_ms)
    if high is not None:
        until_ms = -(-high // 1000)
        found.until_ms = until_ms if found.until_ms is None else min(found.until_ms, until_ms)
