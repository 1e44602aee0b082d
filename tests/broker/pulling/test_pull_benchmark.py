"""The benchmark of pulls still runs, and both of its ways hand out the same; what it measures is not asked here."""

import json

import pytest

from benchmarks import pull_path


def test_a_small_run_gives_the_same_work_on_both_paths(capsys: pytest.CaptureFixture[str]) -> None:
    checksums = set()
    for path in ("hot", "plain"):
        answer = pull_path.main(["--count", "512", "--runs", "1", "--path", path, "--pipeline", "2"])
        assert answer.median > 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert told["facts"]["cpu_us a pull"] > 0
        checksums.add(told["checksum"])
    assert len(checksums) == 1
