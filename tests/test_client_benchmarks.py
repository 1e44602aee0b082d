"""The client's benchmarks run small inside the tests, so that none rots."""

import pytest

from benchmarks import client_path, client_peers, transactions
from benchmarks.client_peers import _verdicts


def test_the_client_benchmark_measures_every_row_of_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    told = client_peers.main(["--smoke"])
    assert set(told["rows"]) == {"bolide"}
    assert set(told["rows"]["bolide"]) == set(client_peers.COUNTS)
    assert all(row["rate"] > 0 and row["client_us"] > 0 for row in told["rows"]["bolide"].values())
    assert told["rows"]["bolide"]["latency"]["p50_ms"] > 0
    assert "latency" in capsys.readouterr().out


def test_a_target_is_met_or_missed_by_what_was_measured_and_silent_where_nothing_was() -> None:
    def rows(rate: float, cpu_us: float, p50_ms: float) -> dict[str, dict[str, float]]:
        row = {"rate": rate, "client_us": cpu_us, "p50_ms": p50_ms}
        return dict.fromkeys(("send", "inflight", "batch", "read", "latency"), row)

    better = _verdicts({"bolide": rows(21, 2, 1.1), "aiokafka": rows(10, 9, 9), "confluent": rows(20, 1, 9)})
    assert set(better.values()) == {True}
    worse = _verdicts({"bolide": rows(19, 3, 1.3), "redis": rows(20, 9, 1), "aiokafka": rows(20, 9, 9)})
    assert set(worse.values()) == {False}
    assert _verdicts({"bolide": rows(1, 1, 1)}) == {}


@pytest.mark.parametrize("path", ["send", "batch", "receipts", "records"])
def test_the_kernel_benchmark_does_the_same_work_in_every_run(capsys: pytest.CaptureFixture[str], path: str) -> None:
    answer = client_path.main(["--runs", "2", "--count", "100", "--path", path])
    assert answer.facts["us"] > 0
    assert f'"path": "{path}"' in capsys.readouterr().out


def test_the_benchmark_of_transactions_commits_what_it_counts(capsys: pytest.CaptureFixture[str]) -> None:
    answer = transactions.main(["--runs", "1", "--count", "64"])
    assert answer.facts["plain"] > 0
    assert answer.facts["ratio"] > 0
    assert answer.facts["blocking_ratio"] > 0
    assert "transactions/s" in capsys.readouterr().out
