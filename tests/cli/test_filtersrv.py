"""`bolide filtersrv` as people type it."""

import os
import subprocess
import sys

COMMAND = [sys.executable, "-m", "bolide.cli.main", "filtersrv"]
LIMIT_S = 60


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment
    )


def test_settings_are_printed_without_the_secret() -> None:
    done = run("-p", "--broker", "10.0.0.1:10911", "--set", "accessKey=a", "--set", "secretKey=hidden")
    assert done.returncode == 0
    assert "connectWhichBroker=10.0.0.1:10911" in done.stdout
    assert "hidden" not in done.stdout + done.stderr


def test_what_is_wrong_is_one_sentence() -> None:
    for words, complaint in (
        (("--set", "accessKey=a"), "needs secretKey beside it"),
        (("--set", "noSuchKey=a"), "noSuchKey"),
        (("--broker", "127.0.0.1:1", "--host", "127.0.0.1", "--log-level", "error"), "127.0.0.1:1"),
    ):
        done = run(*words)
        assert done.returncode != 0
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
