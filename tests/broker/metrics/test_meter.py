"""What the fast path tells is counted later, and nothing of it is lost or counted twice."""

from collections.abc import Iterator, Sized

import pytest

from bolide.broker.metrics.meter import Meter
from bolide.kernel.layout import SentTally
from bolide.metrics.page import Sample
from bolide.metrics.values import Histogram
from bolide.remoting.request_times import TIMES

SEND, PULL, NORMAL = 310, 11, 0


def tally(topic: str = "Orders", count: int = 1, size: int = 300, code: int = SEND) -> SentTally:
    return topic, count, size, NORMAL, code, 0, count


def times_of(meter: Meter) -> dict[str, Histogram]:
    samples: Iterator[Sample | None] = iter(dict(meter.requests.families())[TIMES])  # type: ignore[arg-type]
    found = {}
    for text, histogram in (each for each in samples if each is not None):
        code = next(part for part in text.split(",") if "request_code" in part)
        assert isinstance(histogram, Histogram)
        found[code.partition("=")[2].strip('"')] = histogram
    return found


def test_what_quick_turns_told_is_counted_when_somebody_looks() -> None:
    meter = Meter(lambda: 0.0)
    for size in (100, 100, 250):
        meter.told += [tally(size=size)]
        meter.told.append((PULL, 0))
        meter.told_before = len(meter.told)
    assert not meter.sent
    meter.catch_up()
    meter.catch_up()
    counts = meter.sent["Orders", NORMAL]
    assert (counts.count, counts.size, counts.sizes.total) == (3, 450, 450)
    times = times_of(meter)
    assert {code: sum(each.counts) for code, each in times.items()} == {"send_message_v2": 3, "pull_message": 3}


def test_a_slow_turn_counts_with_its_time_and_those_before_it_with_none() -> None:
    meter = Meter(lambda: 0.0)
    meter.told += [tally(), tally("Bills")]
    meter.told.append((PULL, 0))
    meter.told_before = len(meter.told)
    meter.told += [tally(count=4, size=1_200)]
    meter.told.append((PULL, 0))
    meter.count_turn(0.0085)
    assert not meter.told
    assert not meter.told_before
    assert meter.sent["Orders", NORMAL].count == 5
    assert meter.sent["Bills", NORMAL].count == 1
    times = times_of(meter)
    assert (times["send_message_v2"].counts[0], times["send_message_v2"].total) == (2, 4 * 8)
    assert (times["pull_message"].counts[0], times["pull_message"].total) == (1, 8)


def test_answers_that_wait_are_timed_when_they_leave_and_only_then() -> None:
    meter = Meter(lambda: 2.0)
    meter.told += [tally()]
    meter.stored_in_turn([tally(), tally()])
    meter.catch_up()
    assert meter.sent["Orders", NORMAL].count == 3
    assert sum(times_of(meter)["send_message_v2"].counts) == 1
    meter.answered_later(SEND, 0, 2, began_s=1.996)
    assert sum(times_of(meter)["send_message_v2"].counts) == 3


@pytest.mark.parametrize("is_told_before", [True, False])
def test_a_topic_that_is_forgotten_does_not_come_back_with_what_was_told_of_it(is_told_before: bool) -> None:
    meter = Meter(lambda: 0.0)
    meter.told += [tally(), tally("Bills")]
    meter.told_before = len(meter.told) if is_told_before else 0
    meter.forget_topic("Orders")
    meter.catch_up()
    assert list(meter.sent) == [("Bills", NORMAL)]


def test_a_request_with_many_messages_counts_all_of_them_and_one_size() -> None:
    meter = Meter(lambda: 0.0)
    meter.sent_one("T", 0, 4, 400)
    meter.sent_one("%RETRY%cg", 0, 1, 100)
    meter.delivered("T", 0, 1, 100)
    (counts,) = meter.sent.values()
    assert (counts.count, counts.size, sum(counts.sizes.counts), counts.sizes.total) == (5, 500, 2, 200)


def test_a_commit_is_timed_in_seconds_from_the_birth_of_its_half_and_a_rollback_is_not() -> None:
    meter = Meter(lambda: 0.0)
    for age_ms in (61_500, -2_000):  # one was born by a clock that is ahead
        meter.ended("Orders", is_commit=True, age_ms=age_ms)
    meter.ended("Orders", is_commit=False, age_ms=9_000)
    finishes = meter.finishes["Orders"]
    assert (finishes.total, dict(zip(finishes.bounds, finishes.counts, strict=False))[600]) == (61, 1)
    assert (sum(finishes.counts), meter.commits, meter.rollbacks) == (2, {"Orders": 2}, {"Orders": 1})


def test_a_topic_that_is_forgotten_leaves_no_counter_of_any_kind_and_takes_no_others() -> None:
    meter = Meter(lambda: 0.0)
    for topic in ("Orders", "Bills"):
        meter.sent_one(topic, NORMAL, 1, 100)
        for is_commit in (True, False):
            meter.ended(topic, is_commit=is_commit, age_ms=1)
        meter.file(topic, 1)
        meter.wait(topic, 1_000)
        meter.deliver(topic, 1)
        meter.put_revive("G", topic, "CK")
        meter.revive("G", topic)
    waiting = (meter.commits, meter.rollbacks, meter.finishes, meter.filed, meter.timed, meter.delays)
    tables: list[Sized] = [meter.sent, *waiting, meter.revive_puts, meter.revivals]
    assert [len(table) for table in tables] == [2] * 9
    meter.forget_topic("Orders")
    assert [len(table) for table in tables] == [1] * 9
    assert "Orders" not in str(tables)
