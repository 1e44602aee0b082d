"""The dashboard and the alerts that ship: every query is asked of a real Prometheus that reads a loaded broker."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bolide import aio
from bolide.dashboard import prometheus as charts
from tests.broker.metering import PROM
from tests.broker.whole import whole
from tests.remoting.loops import both_loops
from tests.tidy.source import ROOT

DEPLOY = ROOT / "deploy"
POLL_INTERVAL_S = 0.1
NEEDS_PROMETHEUS = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no Prometheus here (on Debian: apt-get install prometheus)",
)
# What an idle moment has no series of: nothing failed, nothing waits, nobody is away.
MAY_BE_EMPTY = re.compile(
    r"dlq|sent_back|revive_retry|refused|half_messages|delayed|replica_behind|fsync|loop_delay|deriv|dequeue_lag|"
    r"histogram_quantile|rate\("
)


def queries() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "brokers.json").read_text("utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) >= 18
    texts = [target["expr"] for panel in panels for target in panel["targets"]]
    return [text.replace("$cluster", ".*").replace("$__rate_interval", "1m") for text in texts]


def asked(address: str, path: str, **words: str) -> Any:
    url = f"http://{address}{path}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def load(namesrv: str) -> None:
    async with aio.Admin(namesrv) as admin, aio.Producer("pg", namesrv) as producer:
        await admin.create_topic("Orders", 2)
        for number in range(20):
            await producer.send("Orders", b"%d" % number)
        async with aio.Consumer("readers", "Orders", namesrv, start_from=aio.StartFrom.oldest()) as consumer:
            count = 0
            while count < 20:
                for message in await consumer.receive(20):
                    message.ack()
                    count += 1


async def until(address: str, query: str) -> None:
    """Wait until a query has an answer."""
    async with asyncio.timeout(30):
        while True:
            try:
                found = await asyncio.to_thread(asked, address, "/api/v1/query", query=query)
                if found["data"]["result"]:
                    return
            except OSError:
                pass  # it is starting
            await asyncio.sleep(POLL_INTERVAL_S)


@NEEDS_PROMETHEUS
@pytest.mark.feature("X20")
@both_loops
async def test_every_panel_asks_what_prometheus_understands_and_a_broker_answers(tmp_path: Path) -> None:
    async with whole(tmp_path, **PROM) as rocket, aio.Consumer("members", "Orders", rocket.ns.address):
        await load(rocket.ns.address)
        pages = rocket.broker.metrics_port.server
        assert pages is not None
        address = f"127.0.0.1:{free_port()}"
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{DEPLOY / 'prometheus' / 'alerts.yml'}]\n"
            f"scrape_configs: [{{job_name: bolide, static_configs: [{{targets: ['{pages.addresses[0]}']}}]}}]\n"
        )
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
        command += [f"--web.listen-address={address}", "--log.level=error"]
        process = await asyncio.to_thread(subprocess.Popen, command)
        try:
            await until(address, 'rocketmq_consumer_lag_messages{consumer_group="readers"}')
            empty = []
            for query in queries():
                found = await asyncio.to_thread(asked, address, "/api/v1/query", query=query)
                assert found["status"] == "success", query
                if not found["data"]["result"] and not MAY_BE_EMPTY.search(query):
                    empty.append(query)
            assert empty == []
            for kind, name in (("cluster", ""), ("topic", "Orders"), ("group", "readers")):
                for query in charts.queries(kind, name, "C1", "1h"):
                    await until(address, query)  # a rate needs two scrapes
            rules = await asyncio.to_thread(asked, address, "/api/v1/rules")
            health = {rule["name"]: rule["lastError"] for group in rules["data"]["groups"] for rule in group["rules"]
                      if rule.get("lastError")}  # fmt: skip
            assert health == {}
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 30)


@NEEDS_PROMETHEUS
def test_the_alerts_ring_when_they_should_and_only_then() -> None:
    ran = subprocess.run(
        ["promtool", "test", "rules", "alerts.test.yml"],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
