"""The name server over real sockets: brokers register, clients look up, operators change things."""

import asyncio
import json
import zlib
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from bolide.namesrv.entries import QueueRow
from bolide.protocol.bodies.routes import DataVersion, QueueRoute, TopicRoute
from bolide.protocol.command import BINARY_CODEC, ONEWAY_FLAG, Command, encode_commands, read_commands
from bolide.protocol.frames import FrameReader
from tests.namesrv.brokers import RW, TOPICS, version
from tests.namesrv.peers import BrokerPeer, registration_body, route_of, running, settled
from tests.remoting.loops import both_loops, eventually
from tests.store.given import HeldClock


def names(route: dict) -> list[str]:
    return [broker["brokerName"] for broker in route["brokerDatas"]]


@pytest.mark.feature("F015", "F029", "F045")
@both_loops
async def test_a_broker_registers_is_found_and_leaves(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        assert (await ns.look_up("T1")).code == 17
        assert (await broker.register()).code == 0
        route = route_of(await ns.look_up("T1"))
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "broker-a-0:10911"}
        assert route["queueDatas"][0]["writeQueueNums"] == 4
        assert route_of(await ns.look_up("T1")) == route  # now from the ready answers
        assert (await broker.unregister()).code == 0
        assert (await ns.look_up("T1")).code == 17


@both_loops
async def test_the_remark_of_17_names_cause_and_command_with_the_servers_own_address(tmp_path: Path) -> None:
    async with running(tmp_path, HeldClock()) as ns, BrokerPeer(ns) as broker:
        remark = (await ns.look_up("T1")).remark
        assert remark is not None
        assert f"start one with: bolide broker -n {ns.address}" in remark
        await broker.register()
        remark = (await ns.look_up("Orders")).remark
        assert remark is not None
        assert f"bolide topic create Orders -n {ns.address}" in remark
        broker.hang_up()
        await eventually(lambda: not ns.namesrv.tables.brokers)
        remark = (await ns.look_up("T1")).remark
        assert remark is not None
        assert "broker 'broker-a' (broker-a-0:10911), which had it, closed its connection 0 s ago" in remark
        await broker.register()
        await ns.ask(216, {"topic": "T1"})
        remark = (await ns.look_up("T1")).remark
        assert remark is not None
        assert "no registered broker has it" in remark  # the broker is back and no cause any more


@pytest.mark.feature("F026", "F016")
@both_loops
async def test_t1_ns21_a_killed_broker_is_gone_as_soon_as_its_connection_is(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        await ns.look_up("T1")
        broker.hang_up()
        await eventually(lambda: not ns.namesrv.tables.live)
        assert (await ns.look_up("T1")).code == 17


@pytest.mark.feature("F045")
@both_loops
async def test_an_unknown_code_is_answered_with_3_and_a_one_way_request_not_at_all(tmp_path: Path) -> None:
    async with running(tmp_path) as ns:
        answer = await ns.ask(4711)
        assert (answer.code, answer.remark) == (3, " request type 4711 not supported")
        reader, writer = await asyncio.open_connection("127.0.0.1", ns.server.port)
        oneway = [Command(code, opaque=1, flag=ONEWAY_FLAG, fields={"topic": "T"}) for code in (105, 4711, 103, 206)]
        writer.write(encode_commands([*oneway, Command(206, opaque=2)]))
        frames = FrameReader(1 << 20, 1 << 16)
        view = frames.window()
        data = await reader.read(len(view))
        view[: len(data)] = data
        answers = read_commands(frames.stream, frames.cut(len(data)))
        assert [command.opaque for command in answers] == [2]
        writer.close()


@both_loops
async def test_answers_come_in_the_codec_of_the_request(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        for code in (105, 106, 206, 4711):
            answer = await ns.ask(code, {"topic": "T1"}, codec=BINARY_CODEC)
            assert answer.codec == BINARY_CODEC


@both_loops
async def test_t19_old_clients_get_bare_keys_and_new_ones_quoted(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        for _ in range(2):  # the second time from the ready answers
            assert b'{0:"broker-a-0:10911"}' in (await ns.look_up("T1", version=399)).body
            assert b'{"0":"broker-a-0:10911"}' in (await ns.look_up("T1", version=401)).body
            standard = {"acceptStandardJsonOnly": "true"}
            assert b'{"0":"broker-a-0:10911"}' in (await ns.look_up("T1", fields=standard, version=399)).body


@pytest.mark.feature("F050")
@both_loops
async def test_a_slave_hears_where_its_master_is_and_a_master_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as master, BrokerPeer(ns, broker_id=1) as slave:
        answer = await master.register()
        assert answer.fields == {}
        assert answer.body == b""
        answer = await slave.register()
        assert answer.fields == {"masterAddr": "broker-a-0:10911", "haServerAddr": "broker-a-0:10912"}


@pytest.mark.feature("F019")
@both_loops
async def test_a_registration_is_read_in_every_form(tmp_path: Path) -> None:
    forms = {"json-5": (False, 479), "json-4": (False, 409), "zlib-5": (True, 479), "zlib-4": (True, 409)}
    async with running(tmp_path) as ns:
        for name, (compressed, wire_version) in forms.items():
            async with BrokerPeer(ns, name) as broker:
                answer = await broker.register(compressed=compressed, wire_version=wire_version)
                assert (answer.code, answer.remark) == (0, None)
                assert ns.namesrv.tables.queues[name] == TOPICS
        async with BrokerPeer(ns, "ancient") as broker:  # before 3.0.11: the topic table alone
            key = ("C1", broker.address)
            ns.namesrv.tables.filter_servers[key] = ["f:1"]
            assert (await broker.register(wire_version=36)).code == 0
            assert ns.namesrv.tables.queues["ancient"] == TOPICS
            assert ns.namesrv.tables.filter_servers == {key: ["f:1"]}  # it said nothing of them


@both_loops
async def test_a_body_whose_crc_is_wrong_is_refused_and_0_is_not_checked(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        answer = await broker.register(crc=12345)
        assert answer.code == 1
        assert ns.namesrv.tables.brokers == {}
        assert (await broker.register(crc=0)).code == 0


@both_loops
async def test_a_registration_without_a_body_has_no_topics(tmp_path: Path) -> None:
    async with running(tmp_path) as ns:
        fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
        assert (await ns.ask(103, fields)).code == 0
        assert ns.namesrv.tables.live["C", "x:1"].version == DataVersion()
        assert (await ns.ask(103, {**fields, "brokerId": "no"})).code == 1
        del fields["brokerName"]
        answer = await ns.ask(103, fields)
        assert answer.code == 1
        assert "brokerName" in (answer.remark or "")


@pytest.mark.parametrize("body", [b"{", b"\x78\x9cgarbage", b"\xff" * 100, zlib.compress(b"\0\0\0\x7f")])
@both_loops
async def test_a_body_that_cannot_be_read_is_refused_and_the_connection_lives_on(tmp_path: Path, body: bytes) -> None:
    fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
    async with running(tmp_path) as ns:
        assert (await ns.ask(103, fields, body)).code == 1
        assert ns.namesrv.tables.brokers == {}
        assert (await ns.ask(206)).code == 0
        assert len(ns.server.sessions) == 1


@both_loops
async def test_half_a_character_in_a_header_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as ns:
        reader, writer = await asyncio.open_connection("127.0.0.1", ns.server.port)
        for code, field in ((100, "namespace"), (105, "topic"), (104, "brokerName")):
            fields = {
                "namespace": "n",
                "key": "k",
                "value": "v",
                "clusterName": "c",
                "brokerAddr": "a",
                "brokerId": "0",
            }
            header = json.dumps({"code": code, "opaque": 1, "extFields": {**fields, field: "\ud800"}}).encode()
            writer.write((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert b'"code":1,' in await reader.readexactly(size)
        writer.close()


@pytest.mark.feature("F020")
@both_loops
async def test_322_compares_versions_and_904_is_a_heartbeat(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        fields = {"brokerName": "broker-a", "brokerAddr": broker.address, "clusterName": "C1", "brokerId": "0"}
        answer = await broker.ask(322, fields, version(7).encode())
        assert (answer.fields, answer.body) == ({"changed": "true"}, b"")
        await broker.register(counter=7)
        live = ns.namesrv.tables.live["C1", broker.address]
        live.heard_ms = -1
        answer = await broker.ask(322, fields, version(7).encode())
        assert answer.fields == {"changed": "false"}
        assert DataVersion.decode(answer.body) == version(7)
        assert live.heard_ms > -1
        live.heard_ms = -1
        answer = await broker.ask(322, fields, version(8).encode())
        assert answer.fields == {"changed": "true"}
        assert live.heard_ms > -1  # a sign of life whatever the result
        live.heard_ms = -1
        assert (await broker.ask(904, fields)).code == 0
        assert live.heard_ms > -1
        assert (await broker.ask(904, {**fields, "brokerAddr": "nobody:1"})).code == 0


@both_loops
async def test_205_and_327_wipe_and_add_write_permission_and_count_topics(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        assert route_of(await ns.look_up("T1"))["queueDatas"][0]["perm"] == 6
        assert (await ns.ask(205, {"brokerName": "broker-a"})).fields == {"wipeTopicCount": "3"}
        assert route_of(await ns.look_up("T1"))["queueDatas"][0]["perm"] == 4
        assert (await ns.ask(327, {"brokerName": "broker-a"})).fields == {"addTopicCount": "3"}
        assert route_of(await ns.look_up("T1"))["queueDatas"][0]["perm"] == 6


@both_loops
async def test_lists_of_topics_and_clusters(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register({"T1": RW, "U": QueueRow(1, 1, 6, 3)})

        async def topics(code: int, **fields: str) -> list[str]:
            return msgspec.json.decode((await ns.ask(code, fields)).body)["topicList"]

        assert sorted(await topics(206)) == ["T1", "U"]
        assert sorted(await topics(224, cluster="C1")) == ["T1", "U"]
        assert await topics(224, cluster="none") == []
        assert await topics(304) == ["C1", "broker-a"]
        assert await topics(311) == ["U"]
        assert await topics(312) == ["U"]
        assert await topics(313) == []
        clusters = msgspec.json.decode((await ns.ask(106)).body)
        assert clusters["clusterAddrTable"] == {"C1": ["broker-a"]}
        members = msgspec.json.decode((await ns.ask(901, {"clusterName": "C1", "brokerName": "broker-a"})).body)
        assert members["brokerMemberGroup"]["brokerAddrs"] == {"0": "broker-a-0:10911"}
        await ns.ask(318, body=b"enableAllTopicList=false\nenableTopicList=false")
        assert [(await ns.ask(code, {"cluster": "C1"})).code for code in (206, 224, 311, 312, 313)] == [1] * 5


@both_loops
async def test_216_and_217_delete_and_register_one_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        await ns.look_up("T1")
        assert (await ns.ask(216, {"topic": "T1"})).code == 0
        assert (await ns.look_up("T1")).code == 17
        row = QueueRoute(broker_name="broker-a", read_queue_nums=2, write_queue_nums=3, perm=6)
        body = TopicRoute(queue_datas=[row]).encode()
        assert (await ns.ask(217, {"topic": "N"}, body)).code == 0
        assert route_of(await ns.look_up("N"))["queueDatas"][0]["writeQueueNums"] == 3
        ghost = TopicRoute(queue_datas=[row, QueueRoute(broker_name="ghost")]).encode()
        assert (await ns.ask(217, {"topic": "M"}, ghost)).code == 0
        assert (await ns.look_up("M")).code == 17


@both_loops
async def test_a_zone_asks_for_its_own_brokers(tmp_path: Path) -> None:
    zone = {"__ZONE_MODE": "true", "__ZONE_NAME": "Z1"}
    async with running(tmp_path) as ns:
        for name in ("here", "there"):
            fields = {"brokerName": name, "brokerAddr": f"{name}:1", "clusterName": "C", "haServerAddr": "h:2"}
            fields |= {"brokerId": "0", "__ZONE_NAME": "Z1" if name == "here" else "Z2"}
            await ns.ask(103, fields, registration_body(TOPICS))
        assert names(route_of(await ns.look_up("T1"))) == ["here", "there"]
        assert names(route_of(await ns.look_up("T1", fields=zone))) == ["here"]
        assert b'{0:"here:1"}' in (await ns.look_up("T1", fields=zone, version=399)).body
        assert names(route_of(await ns.look_up("T1", fields={**zone, "__ZONE_MODE": "false"}))) == ["here", "there"]


@both_loops
async def test_with_acting_master_a_slave_is_shown_as_master(tmp_path: Path) -> None:
    async with (
        running(tmp_path, supportActingMaster="true") as ns,
        BrokerPeer(ns) as master,
        BrokerPeer(ns, broker_id=1) as slave,
    ):
        await master.register(is_acting_master_enabled=True)
        await slave.register(is_acting_master_enabled=True)
        await ns.look_up("T1")
        await master.unregister()
        route = route_of(await ns.look_up("T1"))
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "broker-a-1:10911"}
        assert route["queueDatas"][0]["perm"] == 4


@pytest.mark.feature("F031", "F030", "F013")
@both_loops
async def test_two_name_servers_hold_everything_apart_and_agree_after_the_next_registration(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as one,
        running(tmp_path) as two,
        BrokerPeer(one) as to_one,
        BrokerPeer(two) as to_two,
    ):
        await to_one.register()
        await to_two.register()
        await to_one.register({**TOPICS, "New": RW}, counter=2)
        assert (await one.look_up("New")).code == 0
        assert (await two.look_up("New")).code == 17  # nobody told it
        await to_two.register({**TOPICS, "New": RW}, counter=2)
        assert route_of(await two.look_up("New")) == route_of(await one.look_up("New"))
        assert len(one.server.sessions) == len(two.server.sessions) == 2  # its broker and its asker, not each other


@pytest.mark.feature("F027")
@both_loops
async def test_a_client_never_hears_of_a_change_unasked(tmp_path: Path) -> None:
    async with (
        running(tmp_path, notifyMinBrokerIdChanged="true") as ns,
        BrokerPeer(ns) as broker,
        BrokerPeer(ns, broker_id=1) as slave,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", ns.server.port)
        writer.write(Command(105, fields={"topic": "T1"}).encode())
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        await slave.register()
        await broker.register()
        await broker.register({"T1": QueueRow(1, 1, 6)}, counter=2)
        await broker.unregister()
        await settled()
        writer.write(Command(206, opaque=77).encode())
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        assert b'"opaque":77' in answer  # the very next bytes
        writer.close()


@both_loops
async def test_905_tells_the_other_members_of_a_smaller_id_only_when_switched_on(tmp_path: Path) -> None:
    told: asyncio.Queue[Command] = asyncio.Queue()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            stream = size + await reader.readexactly(int.from_bytes(size, "big"))
            told.put_nowait(read_commands(stream, [4, len(stream)])[0])
        writer.close()

    listener = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with (
        listener,
        running(tmp_path, notifyMinBrokerIdChanged="true") as ns,
        BrokerPeer(ns, broker_id=2) as slave,
        BrokerPeer(ns, broker_id=0) as master,
    ):
        slave.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        await slave.register(is_acting_master_enabled=True)
        await master.register(is_acting_master_enabled=True)
        command = await asyncio.wait_for(told.get(), 30)
        assert command.is_oneway
        assert command.code == 905
        assert command.fields == {
            "minBrokerId": "0",
            "brokerName": "broker-a",
            "minBrokerAddr": "broker-a-0:10911",
            "haBrokerAddr": "broker-a-0:10912",
        }
        await master.unregister()
        command = await asyncio.wait_for(told.get(), 30)
        assert command.fields == {
            "minBrokerId": "2",
            "brokerName": "broker-a",
            "minBrokerAddr": slave.address,
            "offlineBrokerAddr": "broker-a-0:10911",
        }
        await ns.ask(318, body=b"notifyMinBrokerIdChanged=false")
        await master.register(is_acting_master_enabled=True)
        await settled()
        assert told.empty()


@both_loops
async def test_a_stop_is_no_news_of_brokers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as after_the_stop, running(tmp_path) as ns:
        broker = await after_the_stop.enter_async_context(BrokerPeer(ns))
        await broker.register()
    assert not [line for line in caplog.messages if "broker gone" in line]
