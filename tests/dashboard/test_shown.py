"""Numbers, spans and texts as pages write them."""

import pytest

from bolide.dashboard import shown
from bolide.dashboard.history import Trend


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (float("nan"), "–"), (0, "0"), (1204311, "1 204 311")])
def test_what_is_not_known_is_a_dash_and_never_nought(value: float | None, text: str) -> None:
    assert shown.number(value).replace("\u202f", " ") == text


def test_one_is_told_as_one() -> None:
    assert [shown.counted(value, "broker") for value in (0, 1, 2)] == ["0 brokers", "1 broker", "2 brokers"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, "–"), (0, "0 s"), (400, "< 1 s"), (59_000, "59 s"), (61_000, "1 min 1 s"), (7_500_000, "2 h 5 min")],
)
def test_spans_have_two_steps_at_most(ms: float | None, text: str) -> None:
    assert shown.span(ms) == text


def test_texts_do_nothing_and_have_an_end() -> None:
    assert shown.short("a\u202eb\0c") == "a\\u202eb\\x00c"
    assert shown.short("x" * 1_000_000).startswith("x" * 200 + "… (1")
    assert shown.part("%RETRY%a/b") == "%25RETRY%25a%2Fb"


def test_a_sparkline_ends_at_the_right_edge_and_its_highest_point_is_at_the_top() -> None:
    assert shown.spark(Trend((0, 5, 10), "growing")) == "0.0,19.0 48.0,10.0 96.0,1.0"
    assert shown.spark(Trend((1,), "")) == ""


@pytest.mark.parametrize(("value", "text"), [(12, "12 B"), (2048, "2.0 KiB"), (5 << 30, "5.0 GiB"), (None, "–")])
def test_sizes_have_the_unit_that_reads_best(value: float | None, text: str) -> None:
    assert shown.size(value).replace("\u202f", " ") == text


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert shown.clock(1 << 62) == str(1 << 62)
    assert shown.clock(0) == "1970-01-01 00:00:00 UTC"
