"""The examples run as they are, against a broker of their own."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.testing import Cluster, cluster
from tests.cli.processes import wait_for
from tests.tidy.source import ROOT

EXAMPLES = ROOT / "examples"
LIMIT_S = 60
LAST_LINES = {
    "quick_start.py": "got 'Hello, Bolide'",
    "ordered_orders.py": "5 orders, each in its order",
    "broadcast.py": "both heard everything",
    "batches.py": "1100 messages read",
    "idempotent.py": "ada paid 1500",
    "price_service.py": "no price for a unicorn (request sent: True)",
    "dead_letters.py": "ada has 500 and bob has 700",
    "payment_deadline.py": "o-1 cancelled, o-2 paid, o-3 cancelled",
    "transfer.py": "bob has 500 and heard of t-1 300, t-3 200",
}


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    settings = {"transactionCheckInterval": 200, "transactionTimeOut": 100, "recallMessageEnable": "true"}
    with cluster(settings=settings) as running:
        yield running


def environment(namesrv: str, home: Path) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": namesrv, "HOME": str(home), "PYTHONPATH": str(ROOT / "src")}


def test_every_example_is_run_here() -> None:
    others = {"web_application.py", "test_own_service.py", "spark_revenue.py"}  # the last in tests/spark
    assert {path.name for path in EXAMPLES.glob("*.py")} == LAST_LINES.keys() | others


@pytest.mark.feature("F236")
@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_does_what_it_says(name: str, rocket: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment(rocket.namesrv, tmp_path)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith(LAST_LINES[name])


def test_the_web_application_sends_what_is_posted_and_shows_what_it_consumed(rocket: Cluster, tmp_path: Path) -> None:
    rocket.create_topic("WebOrders")
    command = [sys.executable, str(EXAMPLES / "web_application.py"), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(rocket.namesrv, tmp_path)
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(url, data=b"two teas", timeout=LIMIT_S) as answer:
                assert (answer.status, len(json.load(answer)["id"])) == (202, 32)
            wait_for(lambda: _orders(url) == ["two teas"])
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LIMIT_S)
        assert (server.returncode, server.stderr.read()) == (0, "")


def _orders(url: str) -> object:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return json.load(answer)


def test_the_test_of_ones_own_service_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, str(EXAMPLES / "test_own_service.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, "PYTEST_ADDOPTS": ""}
    )
    assert "2 passed" in done.stdout, done.stdout
