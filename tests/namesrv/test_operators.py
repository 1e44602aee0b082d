"""What operators keep in a name server: KV values, order topics, settings."""

import asyncio
import json
from pathlib import Path

import pytest

from bolide.errors import StoreError
from bolide.settings import read_properties
from tests.namesrv.peers import BrokerPeer, route_of, running
from tests.remoting.loops import both_loops


@both_loops
async def test_the_order_topics_are_returned_to_a_registering_broker_unless_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await ns.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "broker-a:4"})
        assert json.loads((await broker.register()).body) == {"table": {"T1": "broker-a:4"}}
        await ns.ask(318, body=b"returnOrderTopicConfigToBroker=false")
        assert (await broker.register()).body == b""


@pytest.mark.feature("F033")
@both_loops
async def test_kv_values_are_kept_answered_and_listed(tmp_path: Path) -> None:
    key = {"namespace": "ns", "key": "k"}
    async with running(tmp_path) as ns:
        assert (await ns.ask(101, key)).code == 22
        assert (await ns.ask(219, {"namespace": "ns"})).code == 22
        assert (await ns.ask(100, {**key, "value": "v"})).code == 0
        assert json.loads((tmp_path / "kvConfig.json").read_text()) == {"configTable": {"ns": {"k": "v"}}}
        assert (await ns.ask(101, key)).fields == {"value": "v"}
        assert json.loads((await ns.ask(219, {"namespace": "ns"})).body) == {"table": {"k": "v"}}
        assert (await ns.ask(100, {"namespace": "", "key": "k", "value": "v"})).code == 1
        assert (await ns.ask(100, {"key": "k", "value": "v"})).code == 1
    async with running(tmp_path) as ns:
        assert (await ns.ask(101, key)).fields == {"value": "v"}
        assert (await ns.ask(102, key)).code == 0
        assert (await ns.ask(102, key)).code == 0  # operators tell every name server
        assert (await ns.ask(101, key)).code == 22


@both_loops
async def test_many_puts_at_once_are_all_kept_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as ns:
        puts = [ns.ask(100, {"namespace": "n", "key": f"k{i % 5}", "value": str(i)}) for i in range(50)]
        assert [answer.code for answer in await asyncio.gather(*puts)] == [0] * 50
        table = json.loads((tmp_path / "kvConfig.json").read_text())["configTable"]["n"]
        assert table == {f"k{i}": str(45 + i) for i in range(5)}


@both_loops
async def test_a_kv_change_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as ns:
        (tmp_path / "kvConfig.json.tmp").mkdir()
        answer = await ns.ask(100, {"namespace": "n", "key": "k", "value": "v"})
        assert answer.code == 1
        assert "could not be written" in (answer.remark or "")
        assert (await ns.ask(101, {"namespace": "n", "key": "k"})).code == 22


@both_loops
async def test_changes_that_wait_for_the_disk_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.namesrv.operations.CHANGES_WAITING_MAX", 1)
    async with running(tmp_path) as ns:
        puts = [ns.ask(100, {"namespace": "n", "key": str(i), "value": "v"}) for i in range(10)]
        codes = [answer.code for answer in await asyncio.gather(*puts)]
        assert set(codes) == {0, 2}
        assert (await ns.ask(100, {"namespace": "n", "key": "last", "value": "v"})).code == 0


@both_loops
async def test_order_configuration_is_in_the_route_only_when_switched_on(tmp_path: Path) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "broker-a:4"}
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        await ns.ask(100, order)
        assert "orderTopicConf" not in route_of(await ns.look_up("T1"))
        assert (await ns.ask(318, body=b"orderMessageEnable=true")).code == 0
        assert route_of(await ns.look_up("T1"))["orderTopicConf"] == "broker-a:4"
        assert "orderTopicConf" not in route_of(await ns.look_up("T2"))
        await ns.ask(100, {**order, "value": "broker-a:8"})
        assert route_of(await ns.look_up("T1"))["orderTopicConf"] == "broker-a:8"
        await ns.ask(102, order)
        assert "orderTopicConf" not in route_of(await ns.look_up("T1"))


@both_loops
async def test_318_changes_keeps_and_refuses_and_319_tells_all(tmp_path: Path) -> None:
    store = tmp_path / "namesrv.properties"
    store.write_text("# mine\nlistenPort=0\n")
    async with running(tmp_path) as ns:
        assert (await ns.ask(318, body=b"orderMessageEnable=true\n")).code == 0
        texts = read_properties((await ns.ask(319)).body.decode())
        assert texts["orderMessageEnable"] == "true"
        assert texts["useEpollNativeSelector"] == "false"
        assert store.read_text().startswith("# mine\nlistenPort=0\n")
        assert read_properties(store.read_text())["orderMessageEnable"] == "true"
        assert (await ns.ask(318, body=b"kvConfigPath=/tmp/x\nenableTopicList=false")).code == 16
        assert (await ns.ask(318, body=b"noSuchKey=1")).code == 1
        assert (await ns.ask(318, body=b"\xff\xfe")).code == 1
        assert (await ns.ask(318)).code == 0
        assert read_properties((await ns.ask(319)).body.decode())["enableTopicList"] == "true"


@both_loops
async def test_a_change_of_settings_that_cannot_be_kept_does_not_happen(tmp_path: Path) -> None:
    (tmp_path / "namesrv.properties").mkdir()
    async with running(tmp_path) as ns:
        assert (await ns.ask(318, body=b"orderMessageEnable=true")).code == 1
        assert not ns.namesrv.settings.now.has_order_topics


def test_a_broken_kv_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")

    async def start() -> None:
        async with running(tmp_path):
            raise AssertionError("it started")

    with pytest.raises(StoreError, match=r"kvConfig\.json"):
        asyncio.run(start())
