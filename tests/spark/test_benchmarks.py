"""The benchmark of the formats runs small here, with our own sides, so that it does not rot."""

from pathlib import Path

import pytest

from benchmarks.peers.spark_jobs import Plan, Side, fill, timed
from benchmarks.spark import broker_plan, store_plan, verdicts
from benchmarks.spark_kafka import read_options

OPTIONS = read_options("", ["--count", "200", "--sizes", "100", "--runs", "1"])


@pytest.fixture(scope="module")
def filled(rocket) -> None:
    rocket.create_topic("filled-100", 4)
    rocket.create_topic("written-100-1", 4)
    fill(rocket.namesrv, "filled-100", 200, 100)


def ask(plan: Plan, spark) -> None:
    side = Side(plan, spark)
    for question in plan.questions:
        assert timed(side, question) > 0  # each checks how many rows it worked on


def test_every_question_is_answered_through_the_broker(rocket, spark, filled, tmp_path: Path) -> None:
    ask(broker_plan(rocket.namesrv, tmp_path, 100, OPTIONS), spark)


def test_every_question_is_answered_from_the_files_of_the_store(rocket, spark, filled, tmp_path: Path) -> None:
    ask(store_plan(rocket.brokers[0].directory / "store", tmp_path, 100, OPTIONS), spark)


def test_a_target_is_met_or_missed_by_what_was_measured_and_silent_where_nothing_was() -> None:
    kafka = {"100": {"aggregate": {"rate": 100.0}, "write": {"rate": 100.0}, "latency at 50/s": {"p50_ms": 200.0}}}
    ours = {"100": {"aggregate": {"rate": 90.0}, "write": {"rate": 90.0}, "latency at 50/s": {"p50_ms": 90.0}}}
    found = verdicts({"kafka": kafka, "broker": ours, "store": {"100": {"aggregate": {"rate": 170.0}}}})
    assert list(found.values()) == [True, False, True, False]
    assert verdicts({"broker": ours}) == {}
