"""`bolide bench` as people and programs type it: small, and each number one that can be checked."""

from collections.abc import Iterator

import pytest

from bolide.cli.bench import Tally, percentiles
from bolide.testing import Cluster, cluster
from bolide.testing.nodes import free_port
from tests.cli.inside import run, told


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.mark.parametrize("ways", [(), ("--in-flight", "3"), ("--threads", "2"), ("--batch",)])
def test_what_was_produced_is_what_can_be_consumed(rocket: Cluster, ways: tuple[str, ...]) -> None:
    topic = f"Bench{len(ways)}{ways[0].strip('-') if ways else ''}"
    (sent,) = told(rocket.namesrv, "bench", "produce", "--topic", topic, "--count", "300", "--size", "50", *ways)
    assert sent["messages"] == 300
    assert sent["messages/s"] == pytest.approx(300 / sent["seconds"], rel=0.05)
    if "--batch" not in ways:
        assert 0 < sent["p50 ms"] <= sent["p90 ms"] <= sent["p99 ms"] <= sent["p99.9 ms"]
    # One more was sent to find the route.
    (read,) = told(rocket.namesrv, "bench", "consume", "--topic", topic, "--count", "301")
    assert read["messages"] == 301


def test_the_time_is_a_limit_too(rocket: Cluster) -> None:
    (sent,) = told(rocket.namesrv, "bench", "produce", "--topic", "BenchTime", "--seconds", "0.3", "--in-flight", "1")
    assert 0 < sent["messages"] < 100_000
    assert 0.25 < sent["seconds"] < 30


def test_latency_is_told_in_percentiles_of_all_messages(rocket: Cluster) -> None:
    words = ("bench", "latency", "--topic", "BenchLate", "--count", "100", "--rate", "500")
    (row,) = told(rocket.namesrv, *words)
    assert row["messages"] == 100
    assert 0 < row["p50 ms"] <= row["p99.9 ms"]
    shown = run(rocket.namesrv, *words).stdout
    assert "p99.9 ms" in shown


def test_groups_that_were_made_for_it_are_gone_afterwards(rocket: Cluster) -> None:
    told(rocket.namesrv, "bench", "latency", "--topic", "BenchGone", "--count", "10")
    told(rocket.namesrv, "bench", "consume", "--topic", "BenchGone", "--count", "10")
    told(rocket.namesrv, "bench", "consume", "--topic", "BenchGone", "--count", "10", "--group", "kept")
    (groups,) = told(rocket.namesrv, "group", "list")
    assert [row["group"] for row in groups if row["group"].startswith(("bolide-bench-", "kept"))] == ["kept"]


def test_what_cannot_be_measured_is_told(rocket: Cluster) -> None:
    both = run(rocket.namesrv, "bench", "produce", "--threads", "2", "--batch")
    assert both.exit_code != 0
    assert "leave out --threads" in both.stderr
    nobody = run(f"127.0.0.1:{free_port()}", "bench", "produce", "--count", "1")
    assert nobody.exit_code != 0
    assert "`bolide up` starts one" in nobody.stderr


def test_percentiles_are_those_of_the_sorted_delays() -> None:
    delays = [number / 1000 for number in range(1000, 0, -1)]
    assert percentiles(delays) == {50.0: 0.501, 90.0: 0.901, 99.0: 0.991, 99.9: 1.0}
    assert percentiles([]) == {}


def test_a_tally_gives_out_no_more_than_was_asked_for() -> None:
    steps: list[int] = []
    tally = Tally(3, None, steps.append)
    assert [tally.wants_more() for _ in range(5)] == [True, True, True, False, False]
    for _ in range(3):
        tally.note(0.5)
    tally.end()
    assert (tally.done_count, sum(steps)) == (3, 3)
