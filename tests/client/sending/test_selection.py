"""The next queue: in turn, elsewhere after a failure, and where Java's hash would put a shard."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.client.sending.selection import Selection, rest_ms, shard_queue
from bolide.model.queue import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(4)]


def selection(*, avoids_slow: bool = False) -> Selection:
    return Selection(random.Random(7), avoids_slow=avoids_slow)


@pytest.mark.feature("F109", "F077")
def test_queues_take_turns() -> None:
    chosen = selection()
    assert {chosen.choose("T", QUEUES, 0.0) for _ in range(8)} == set(QUEUES)


def test_the_first_turn_begins_anywhere() -> None:
    firsts = {Selection(random.Random(seed)).choose("T", QUEUES, 0.0) for seed in range(100)}
    assert firsts == set(QUEUES)


@pytest.mark.feature("F115")
@given(st.integers(0, 1000), st.sampled_from("ab"))
def test_after_a_failure_another_broker_is_taken(turns: int, failed: str) -> None:
    chosen = selection()
    for _ in range(turns % 9):
        chosen.choose("T", QUEUES, 0.0)
    assert chosen.choose("T", QUEUES, 0.0, last_broker=failed).broker_name != failed


def test_with_one_broker_a_retry_stays_there() -> None:
    assert selection().choose("T", QUEUES[:4], 0.0, last_broker="a").broker_name == "a"


@pytest.mark.feature("F122")
def test_a_failed_broker_rests_and_comes_back() -> None:
    chosen = selection(avoids_slow=True)
    chosen.note("a", 3.0, 100.0, has_failed=True, is_reachable=False)
    assert {chosen.choose("T", QUEUES, 100.1).broker_name for _ in range(8)} == {"b"}
    assert {chosen.choose("T", QUEUES, 111.0).broker_name for _ in range(8)} == {"a", "b"}


@pytest.mark.feature("F122")
def test_when_all_rest_one_that_can_be_reached_is_taken() -> None:
    chosen = selection(avoids_slow=True)
    chosen.note("a", 3.0, 100.0, has_failed=True, is_reachable=False)
    chosen.note("b", 4000.0, 100.0, has_failed=False, is_reachable=True)
    assert {chosen.choose("T", QUEUES, 100.1).broker_name for _ in range(8)} == {"b"}


@pytest.mark.parametrize(("latency_ms", "expected_ms"), [(49, 0), (100, 0), (550, 2000), (4999, 6000), (20000, 30000)])
def test_the_rest_grows_with_the_latency(latency_ms: int, expected_ms: int) -> None:
    assert rest_ms(latency_ms) == expected_ms


@pytest.mark.feature("F098", "F281")
def test_a_shard_lands_where_javas_hash_selector_puts_it() -> None:
    # "user-7".hashCode() is -836031819 in Java: % 8 gives -3, and its absolute value is taken.
    assert shard_queue(QUEUES, "user-7") == QUEUES[3]
    assert shard_queue(QUEUES, "Aa") == shard_queue(QUEUES, "BB") == QUEUES[2112 % 8]
