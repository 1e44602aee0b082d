"""The benchmark of copying runs, small."""

from benchmarks import log_copy


def test_the_benchmark_copies_a_small_log() -> None:
    answer = log_copy.main(["--mebibytes", "1", "--batches", "3", "--runs", "1"])
    assert answer.median > 0
    assert answer.facts["lag_ms"] > 0
