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
