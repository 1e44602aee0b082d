"""Every benchmark runs small inside the tests, so that none rots."""

import json

import pytest

from benchmarks import broker, delayed, headers, routes, send_path, sql_filter


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    document: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def test_the_header_benchmark_tells_each_way_of_reading_and_writing(capsys: pytest.CaptureFixture[str]) -> None:
    headers.main(["--smoke"])
    told = last_line(capsys)
    assert isinstance(told["rows"], list)
    ways = {(row["what"], row["codec"], row["by"]) for row in told["rows"]}
    assert {("read", "JSON", "plain"), ("write", "binary", "plain"), ("read", "JSON", "msgspec")} <= ways
    assert all(row["ns"] > 0 for row in told["rows"])


def test_the_route_benchmark_gets_the_same_routes_at_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    routes.main(["--smoke"])
    told = last_line(capsys)
    assert isinstance(told["throughput"], list)
    assert [row["topics"] for row in told["throughput"]] == [10, 100]
    assert all(row["lookups_per_s"] > 0 and row["checksum"] for row in told["throughput"])


def test_the_broker_benchmark_measures_every_row_that_needs_no_java(capsys: pytest.CaptureFixture[str]) -> None:
    broker.main(["--smoke"])
    told = last_line(capsys)
    rows, scale, footprint = told["rows"], told["scale"], told["footprint"]
    assert isinstance(rows, dict)
    assert isinstance(scale, dict)
    assert isinstance(footprint, dict)
    assert len(rows) == 8
    # A busy machine may give a window of 0.3 s to others: no single figure is relied on.
    assert sum(row["bolide"]["rate"] for row in rows.values()) > 0
    assert len(scale) == 8
    assert sum(row["rate"] for row in scale.values()) > 0
    assert footprint["bolide"]["idle_own_mb"] > 0


@pytest.mark.parametrize("batch", ["1", "8"])
def test_the_send_benchmark_does_the_same_work_in_every_run(capsys: pytest.CaptureFixture[str], batch: str) -> None:
    send_path.main(["--runs", "2", "--count", "100", "--batch", batch])
    told = last_line(capsys)
    assert isinstance(told["facts"], dict)
    assert told["facts"].keys() == {"us", "plain_us", "kernel_us"}


def test_the_filter_benchmark_finds_one_in_a_hundred(capsys: pytest.CaptureFixture[str]) -> None:
    sql_filter.main(["--smoke"])
    told = last_line(capsys)
    assert (told["count"], told["found"]) == (4000, 40)


def test_the_benchmark_of_waiting_messages_sees_all_of_them_leave(capsys: pytest.CaptureFixture[str]) -> None:
    delayed.main(["--runs", "1", "--count", "600", "--together", "600"])
    told = last_line(capsys)
    assert isinstance(told["facts"], dict)
    assert told["facts"]["own_memory_mb"] < delayed.MEMORY_MAX_MB
    assert told["facts"]["filed_per_s"] > 0
