"""Filters → what need not be read; nothing that a filter lets pass may be pruned."""

from datetime import UTC, datetime, timedelta, timezone

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from bolide.model.queue import MessageQueue
from bolide.spark.source.filters import pruning_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


def test_topics_queues_and_tags_are_intersected() -> None:
    found = pruning_of(
        [
            In(("topic",), ("a", "b")),
            EqualTo(("topic",), "b"),
            GreaterThan(("queue_id",), 1),
            In(("queue_id",), (0, 2, 3)),
            LessThanOrEqual(("queue_offset",), 9),
            In(("tags",), ("x", "y")),
            IsNotNull(("tags",)),
            EqualTo(("properties", "x"), "y"),
        ]
    )
    assert [queue_id for queue_id in range(5) if found.has(MessageQueue("b", "n", queue_id))] == [2, 3]
    assert not found.has(MessageQueue("a", "n", 2))
    assert (found.tags, found.offsets) == (frozenset("xy"), (0, 10))


def test_times_are_rounded_so_that_no_row_is_lost() -> None:
    micro = timedelta(microseconds=1)
    found = pruning_of([GreaterThan(("store_ts",), NOON + micro), LessThanOrEqual(("store_ts",), NOON + micro)])
    assert (found.from_ms, found.until_ms) == (NOON_MS, NOON_MS + 1)
    east = NOON.astimezone(timezone(timedelta(hours=3)))
    assert pruning_of([LessThan(("store_ts",), east)]).until_ms == NOON_MS
    equal = pruning_of([EqualTo(("store_ts",), NOON), GreaterThanOrEqual(("store_ts",), NOON)])
    assert (equal.from_ms, equal.until_ms) == (NOON_MS, NOON_MS + 1)


def test_a_tag_that_cannot_stand_in_an_expression_prunes_nothing_and_no_value_prunes_all() -> None:
    assert pruning_of([EqualTo(("tags",), "a||b")]).tags is None
    assert pruning_of([EqualTo(("topic",), "a"), EqualTo(("topic",), "b")]).is_empty
