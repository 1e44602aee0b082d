"""The benchmark of floods: it runs, and what was mended by shape shows in memory and log, whatever the machine."""

import asyncio

import pytest

from benchmarks import hostile


@pytest.mark.parametrize("name", ["small_beginnings"])
def test_a_flood_leaves_an_honest_client_and_the_servers_memory_alone(name: str) -> None:
    [row] = asyncio.run(hostile.run([name], 2.0))
    assert "failed" not in row
    numbers = {key: value for key, value in row.items() if isinstance(value, float)}
    assert numbers["sent MB"] > 0
    assert numbers["refused s"] == 0
    assert numbers["peak ratio"] < 5  # with 64 KiB for each beginning of a frame it was 9
    assert numbers["log/sent"] < 3
    assert 0 < numbers["stretch ms"] < 1000
