"""The examples run as they are, against a broker of their own."""

import json
import os
import runpy
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.testing import Cluster, cluster
from bolide.testing.nodes import free_port
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
    # A transfer has this long to be done before its broker asks: a database on a busy disk takes its time.
    settings = {"transactionCheckInterval": 200, "transactionTimeOut": 2000, "recallMessageEnable": "true"}
    with cluster(settings=settings) as running:
        yield running


def environment(namesrv: str, home: Path) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": namesrv, "HOME": str(home), "PYTHONPATH": str(ROOT / "src")}


def test_every_example_is_run_here() -> None:
    others = {"web_application.py", "test_own_service.py", "fastapi_lifespan.py"}
    others.add("spark_revenue.py")  # in tests/spark
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


def test_fastapi_sends_and_consumes_within_its_lifespan(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    rocket.create_topic("FastOrders")
    monkeypatch.setenv("NAMESRV_ADDR", rocket.namesrv)
    app = runpy.run_path(str(EXAMPLES / "fastapi_lifespan.py"))["app"]
    with TestClient(app) as client:  # its block is the application's life
        answer = client.post("/orders", params={"what": "two teas"})
        assert (answer.status_code, len(answer.json()["id"])) == (202, 32)
        wait_for(lambda: client.get("/orders").json() == ["two teas"])
        assert client.post("/orders").status_code == 422
        rocket.brokers[0].stop()
        try:
            refused = client.post("/orders", params={"what": "too late"})
        finally:
            rocket.brokers[0].start()
        assert (refused.status_code, "broker-0" in refused.text) == (503, True)


def test_django_sends_what_was_committed_and_a_command_consumes_it(rocket: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("django")
    rocket.create_topic("DjangoOrders")
    command = [sys.executable, str(EXAMPLES / "django_shop" / "manage.py")]
    given = {**environment(rocket.namesrv, tmp_path), "ORDERS_DB": str(tmp_path / "orders.db")}
    subprocess.run([*command, "migrate", "--run-syncdb"], check=True, capture_output=True, env=given, timeout=LIMIT_S)
    port = free_port()
    url = f"http://127.0.0.1:{port}/orders"
    serve = [*command, "runserver", "--noreload", "--nothreading", str(port)]
    with subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=given) as server:
        try:
            wait_for(lambda: _orders_if_up(url) == {"orders": []})
            with urllib.request.urlopen(url, data=b"what=two+teas", timeout=LIMIT_S) as answer:
                assert (answer.status, json.load(answer)) == (202, {"id": 1})
            cooked = subprocess.run(
                [*command, "consume", "--count", "1"], check=True, capture_output=True, text=True, env=given, timeout=60
            )
            assert (cooked.stdout, cooked.stderr) == ("cooked order 1\n", "")
            assert _orders(url) == {"orders": [{"id": 1, "what": "two teas", "is_cooked": True}]}
        finally:
            server.terminate()
            server.wait(LIMIT_S)


def _orders_if_up(url: str) -> object:
    try:
        return _orders(url)
    except OSError:
        return None


def test_the_test_of_ones_own_service_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, str(EXAMPLES / "test_own_service.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, "PYTEST_ADDOPTS": ""}
    )
    assert "2 passed" in done.stdout, done.stdout
