"""The store's benchmarks still run; what they measure is not asked here."""

import shutil

import pytest

from benchmarks import store_append, store_read, store_recover, store_start, store_sync

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the C program beside them needs a compiler")


@needs_compiler
@pytest.mark.parametrize(
    ("benchmark", "options"),
    [
        (store_append, ["--count", "128"]),
        (store_read, ["--count", "128"]),
        (store_recover, ["--count", "128", "--keys", "1"]),
        (store_start, ["--count", "128", "--queues", "70", "--depth", "10"]),
        (store_sync, ["--count", "128"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_small_run_gives_an_answer(benchmark, options, capsys):
    answer = benchmark.main([*options, "--runs", "1"])
    assert answer.median > 0
    assert '"checksum"' in capsys.readouterr().out
