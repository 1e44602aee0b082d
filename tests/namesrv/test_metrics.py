"""The name server's page."""

from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.namesrv.config import read_config
from bolide.namesrv.server import serve
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.broker.metering import PROM, Scraped, ask
from tests.namesrv.brokers import TOPICS
from tests.namesrv.peers import BrokerPeer, running
from tests.remoting.loops import both_loops


@pytest.mark.feature("X20")
@both_loops
async def test_a_name_server_shows_what_is_registered_and_what_it_was_asked(tmp_path: Path) -> None:
    paths = {"kvConfigPath": str(tmp_path / "kv.json"), "configStorePath": str(tmp_path / "namesrv.properties")}
    settings = {"listenPort": "0", "bindAddress": "127.0.0.1", **paths, **PROM}
    clock = SystemClock()
    async with serve(read_config(settings), clock) as (namesrv, server), Client(ConnectConfig(), clock) as client:
        address = f"127.0.0.1:{server.port}"
        await client.request(address, Command(105, fields={"topic": "Nowhere"}), 10)
        assert namesrv.pages is not None
        page = Scraped((await ask(namesrv.pages.addresses[0]))[1])
        assert page.value("bolide_namesrv_brokers", node_type="nameserver") == 0
        asked = {"request_code": "get_routeinfo_by_topic", "response_code": "topic_not_exist"}
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **asked) == 1
        assert await ask(namesrv.pages.addresses[0], "/readyz") == (200, "ready\n")


@both_loops
async def test_routes_are_counted_and_so_are_answers_that_lay_ready(tmp_path: Path) -> None:
    async with running(tmp_path, None, **PROM) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        await broker.register()

        async def page() -> Scraped:
            assert ns.namesrv.pages is not None
            return Scraped((await ask(ns.namesrv.pages.addresses[0]))[1])

        seen = await page()
        assert seen.value("bolide_namesrv_brokers") == 1
        assert seen.value("bolide_namesrv_topics") == len(ns.namesrv.tables.topics) >= len(TOPICS)
        ready = seen.value("bolide_namesrv_ready_answers_total")
        assert ready == 0
        for _ in range(3):
            assert (await ns.look_up("T1")).code == 0
        seen = await page()
        timed = seen.value("rocketmq_rpc_latency_milliseconds_count", request_code="get_routeinfo_by_topic") or 0
        ready = seen.value("bolide_namesrv_ready_answers_total")
        assert ready is not None
        assert (timed + ready, ready >= 2) == (3, True)
