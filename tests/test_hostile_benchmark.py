"""The benchmark of floods: it runs, and what was mended by shape shows in memory and log, whatever the machine."""

import asyncio

import pytest

from benchmarks import hostile
from benchmarks.stretches import wait_s


@pytest.mark.parametrize("name", ["small_beginnings"])
def test_a_flood_leaves_an_honest_client_and_the_servers_memory_alone(name: str) -> None:
    [row] = asyncio.run(hostile.run([name], 2.0))
    assert "failed" not in row
    numbers = {key: value for key, value in row.items() if isinstance(value, float)}
    assert numbers["sent MB"] > 0
    assert numbers["refused s"] == 0
    assert numbers["peak ratio"] < 5  # with 64 KiB for each beginning of a frame it was 9
    assert numbers["log/sent"] < 3
    assert 0 < numbers["own p99"] <= numbers["stretch ms"] < 1000


def test_who_comes_at_any_moment_waits_for_the_end_of_the_stretch_he_meets() -> None:
    assert wait_s([(1, 0.1)], 1.0, 0.99) == pytest.approx(0.09)  # one in a hundred comes in its first tenth
    assert wait_s([(100, 0.1)], 1.0, 0.99) < 0.001
    assert wait_s([(1, 0.005)], 1.0, 0.99) == pytest.approx(0.0, abs=1e-9)  # fewer than one in a hundred meet it
    assert wait_s([], 1.0, 0.99) == 0.0
