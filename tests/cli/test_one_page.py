"""The one page of several instances: what it says of those that are away, and of those that are there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bolide.broker.config import read_config
from bolide.cli.instances import Instance, _one_page
from bolide.cli.supervisor import Child
from tests.broker.metering import PROM, Scraped, ask
from tests.broker.whole import whole
from tests.remoting.loops import both_loops


@both_loops
async def test_the_unit_is_not_ready_while_one_is_away_and_lives_and_shows_the_others(tmp_path: Path) -> None:
    config = read_config({"bindAddress": "127.0.0.1", "brokerClusterName": "C1", **PROM})
    process: Any = SimpleNamespace(returncode=None)
    async with whole(tmp_path, **PROM) as rocket:
        assert rocket.broker.metrics_port.server is not None
        shown = {"metrics": f"http://{rocket.broker.metrics_port.server.addresses[0]}/metrics"}
        here = Child("broker-a", (), tmp_path, ready=shown, start_count=1, _process=process)
        away = Child("broker-b", (), tmp_path, ready=shown, start_count=3)
        unit = [Instance(child.name, 0, tmp_path, child) for child in (here, away)]
        async with _one_page(config, unit) as server:
            assert server is not None
            address = server.addresses[0]
            assert await ask(address, "/readyz") == (503, "broker-b: is not there\n")
            assert await ask(address, "/healthz") == (200, "alive\n")
            text = Scraped((await ask(address))[1])
            assert [text.value("bolide_instance_up", node_id=each.name) for each in unit] == [1, 0]
            assert [text.value("bolide_instance_starts_total", node_id=each.name) for each in unit] == [1, 3]
            assert text.value("rocketmq_topic_number", node_id="broker-a") == len(rocket.broker.state.topics.table)
            away._process = process
            assert await ask(address, "/readyz") == (200, "ready\n")
            rocket.broker.state.store.is_disk_full = True
            status, why = await ask(address, "/readyz")
            assert (status, why.count("full")) == (503, 2)
