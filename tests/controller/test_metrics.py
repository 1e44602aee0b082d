"""The controller's page."""

from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.controller.config import read_config
from bolide.controller.server import serve
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.broker.metering import PROM, Scraped, ask
from tests.controller.nodes import CLUSTER, BrokerPeer, running
from tests.remoting.loops import both_loops, eventually


@pytest.mark.feature("X20")
@both_loops
async def test_a_controller_shows_its_role_its_requests_and_its_elections(tmp_path: Path) -> None:
    paths = {"controllerStorePath": str(tmp_path), "configStorePath": str(tmp_path / "controller.properties")}
    settings = {"listenPort": "0", "bindAddress": "127.0.0.1", **paths, **PROM}
    clock = SystemClock()
    async with serve(read_config(settings), clock) as (controller, server), Client(ConnectConfig(), clock) as client:
        await eventually(lambda: controller.register.is_leader, 30)
        command = Command(RequestCode.CONTROLLER_GET_METADATA_INFO)
        await client.request(f"127.0.0.1:{server.port}", command, 10)
        assert controller.meter is not None
        controller.meter.elected("C1", "broker-a", "new_master_elected")
        assert controller.pages is not None
        page = Scraped((await ask(controller.pages.addresses[0]))[1])
        assert page.value("role", group="bolide", peer_id="n0") == 1
        about = {"request_type": "controller_get_metadata_info", "request_handle_status": "success"}
        assert page.value("request_total", **about) == 1
        assert page.value("request_latency_microseconds_count", **about) == 1
        assert page.value("election_total", broker_set="broker-a", election_result="new_master_elected") == 1
        assert await ask(controller.pages.addresses[0], "/readyz") == (200, "ready\n")


@both_loops
async def test_brokers_that_are_heard_are_counted_and_so_are_elections_that_took_place(tmp_path: Path) -> None:
    async with running(tmp_path, None, **PROM) as up, BrokerPeer().here() as one, BrokerPeer().here() as two:
        for broker in (one, two):
            await broker.join(up.address)
        assert up.controller.pages is not None
        address = up.controller.pages.addresses[0]
        page = Scraped((await ask(address))[1])
        assert page.value("active_broker_num", cluster=CLUSTER, broker_set="g") == 2
        assert page.value("election_total", cluster=CLUSTER, broker_set="g") == 1
        two.hang_up()
        health = up.controller.changes
        await eventually(lambda: len(health.health("g", health.known["g"]).reports) == 1, 30)
        assert Scraped((await ask(address))[1]).value("active_broker_num", broker_set="g") == 1


@both_loops
async def test_what_a_controller_refused_is_told_from_what_it_did(tmp_path: Path) -> None:
    async with running(tmp_path, None, **PROM) as up:
        assert (await up.ask(4711)).code != 0
        assert up.controller.pages is not None
        page = Scraped((await ask(up.controller.pages.addresses[0]))[1])
        about = {"request_type": "unknown", "request_handle_status": "failed"}
        assert page.value("request_total", **about) == page.value("request_latency_microseconds_count", **about) == 1
        assert page.value("request_total", request_type="unknown") == 1


@both_loops
async def test_a_controller_that_follows_says_so_and_where_none_leads_it_lives_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, None, **PROM) as up:
        assert up.controller.pages is not None
        address, register = up.controller.pages.addresses[0], type(up.controller.register)
        with monkeypatch.context() as other:
            other.setattr(register, "is_leader", False)
            assert Scraped((await ask(address))[1]).value("role") == 2
            assert await ask(address, "/readyz") == (200, "ready\n")
            other.setattr(register, "leader", None)
            assert await ask(address, "/readyz") == (503, "no controller leads\n")
            assert await ask(address, "/healthz") == (200, "alive\n")
