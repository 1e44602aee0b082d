"""The name server's memory is shared fairly: bounds on what is registered, and who leaves when there is no room."""

import asyncio
import gc
import json
import logging
import random
import socket
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import Refusal
from bolide.model.topics import QUEUE_COUNT_MAX
from bolide.namesrv import registrations, shares
from bolide.namesrv.entries import QueueRow
from bolide.namesrv.routes import RouteTables
from bolide.namesrv.shares import make_room, peer_of, topic_size
from bolide.protocol.bodies.routes import DataVersion
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.registration import RegisterBrokerRequest
from bolide.remoting.client import Client
from tests.e2e.up import POLL_INTERVAL_S, ask_on
from tests.e2e.up import running as process
from tests.namesrv.brokers import RW, announce
from tests.namesrv.peers import BrokerPeer, registration_body, route_of, running
from tests.remoting.loops import both_loops, eventually

MIB = 1 << 20
hosts = st.text("abcdef", min_size=1, max_size=2)


@given(st.dictionaries(hosts, st.integers(0, 100), max_size=6), hosts, st.integers(0, 100))
def test_whoever_stays_within_an_equal_share_is_let_in_and_only_the_greedy_leave(
    sizes: dict[str, int], peer: str, added: int
) -> None:
    size_max = 120
    total = sum(sizes.values())
    if total > size_max:
        return
    share = size_max // (len(sizes.keys() | {peer}) + 1)
    if sizes.get(peer, 0) + added > share and (total + added > size_max or sizes.get(peer, 0) + added > size_max // 2):
        with pytest.raises(Refusal) as caught:
            make_room(sizes, peer, added, size_max)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        return
    leaving = make_room(sizes, peer, added, size_max)
    assert peer not in leaving
    assert all(sizes[one] > share for one in leaving)
    assert total + added - sum(sizes[one] for one in leaving) <= size_max
    assert not leaving or total + added > size_max


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
    ],
)
def test_a_peer_is_a_host_or_a_network_of_ipv6(host: str, peer: str) -> None:
    assert peer_of(host) == peer


def test_what_is_registered_is_reckoned_and_all_of_it_is_given_back() -> None:
    dice = random.Random(7)
    tables = RouteTables()
    for step in range(300):
        name = dice.choice("abc")
        topics = {f"t{dice.randrange(30)}": QueueRow(dice.randrange(1, 9), 4, 6) for _ in range(5)} | {"x": RW, "y": RW}
        if dice.random() < 0.7:
            tables.register(
                announce(name, topics=topics, counter=step, connection=name), step, drops_missing=step % 2 > 0
            )
        elif dice.random() < 0.5:
            tables.delete_topic(f"t{dice.randrange(30)}")
        else:
            tables.disconnect(name, step)
        reckoned = {name: sum(map(topic_size, rows)) for name, rows in tables.queues.items()}
        assert {name: size for name, size in tables.sizes.items() if size} == reckoned
        assert tables.topics_size == sum(reckoned.values())
        assert sum(tables.holdings().values()) == tables.size
    for name in "abc":
        tables.disconnect(name, 0)
    assert (tables.size, tables.sizes, tables.topics_size) == (0, {}, 0)


@both_loops
async def test_a_broker_with_too_many_topics_is_refused_also_when_it_brings_them_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrations, "TOPICS_MAX", 50)
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        refused = await broker.register({f"a{i}": RW for i in range(51)})
        assert (refused.code, "at most 50" in (refused.remark or "")) == (1, True)
        assert (await broker.register({f"a{i}": RW for i in range(30)})).code == 0
        refused = await broker.register({f"b{i}": RW for i in range(30)}, counter=2)
        assert (refused.code, "would have 60 topics" in (refused.remark or "")) == (1, True)
        assert len(ns.namesrv.tables.topics) == 30


@both_loops
async def test_a_connection_registers_a_container_of_brokers_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrations, "BROKERS_BY_CONNECTION_MAX", 3)
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker, BrokerPeer(ns, "other") as other:
        codes = []
        for number in range(4):
            broker.name, broker.address = f"b{number}", f"b{number}:1"
            codes.append((await broker.register()).code)
        assert codes == [0, 0, 0, 1]
        broker.name, broker.address = "b0", "b0:1"
        assert (await broker.register()).code == 0  # those that are here go on
        assert (await other.register()).code == 0


@both_loops
async def test_names_of_topics_and_filter_servers_are_short_and_readable(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        for name in ("x" * 256, "a\nERROR forged", "\x1b[31m"):
            refused = await broker.register({name: RW, "T": RW})
            assert (refused.code, "topicName must be 1 to 255 printable" in (refused.remark or "")) == (1, True)
        fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
        for servers in (["x" * 300], ["x"] * 1000):
            document = json.loads(registration_body({"T": RW, "U": RW}))
            body = json.dumps({**document, "filterServerList": servers}).encode()
            assert (await ns.ask(103, fields, body)).code == 1
        assert (
            await ns.ask(103, {**fields, "__ZONE_NAME": "z" * 300}, registration_body({"T": RW, "U": RW}))
        ).code == 1
        assert (await ns.ask(217, {"topic": "x" * 300}, b'{"queueDatas":[{"brokerName":"a"}]}')).code == 29
        assert ns.namesrv.tables.brokers == {}


@both_loops
async def test_a_topic_with_more_queues_than_anybody_uses_costs_itself_and_not_its_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    largest, beyond = QueueRow(QUEUE_COUNT_MAX, QUEUE_COUNT_MAX, 6), QueueRow(4, QUEUE_COUNT_MAX + 1, 6)
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        assert (await broker.register({"T": RW, "Large": largest, "Orders": beyond})).code == 0
        assert (await ns.look_up("Orders")).code == 17
        assert route_of(await ns.look_up("Large"))["queueDatas"][0]["writeQueueNums"] == QUEUE_COUNT_MAX
        assert any("topics left out" in line and "Orders" in line for line in caplog.messages)
        row = {"brokerName": "broker-a", "readQueueNums": 5_000_000, "writeQueueNums": 4, "perm": 6}
        refused = await ns.ask(217, {"topic": "Orders"}, json.dumps({"queueDatas": [row]}).encode())
        assert (refused.code, f"at most {QUEUE_COUNT_MAX} queues" in (refused.remark or "")) == (1, True)


@both_loops
async def test_topics_that_operators_add_to_a_broker_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.namesrv.routes.UNTOLD_TOPICS_MAX", 3)
    body = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":4,"writeQueueNums":4,"perm":6}]}'
    async with running(tmp_path) as ns, BrokerPeer(ns) as broker:
        await broker.register()
        codes = [(await ns.ask(217, {"topic": f"added-{i}"}, body)).code for i in range(4)]
        assert codes == [0, 0, 0, 1]
        assert (await ns.ask(217, {"topic": "T1"}, body)).code == 0


@both_loops
async def test_who_fills_the_tables_makes_room_for_an_honest_broker_from_elsewhere(tmp_path: Path) -> None:
    """The greedy ones come from other addresses of this machine."""

    def register(connection: socket.socket, name: str, topic_count: int) -> Command:
        body = registration_body({f"{name}-{i}": RW for i in range(topic_count)})
        header = RegisterBrokerRequest(
            broker_name=name, broker_address=f"{name}:1", cluster_name="C", ha_address="x:2", broker_id=0
        )
        return ask_on(connection, Command(103, fields=header.encode(), body=body))

    loop = asyncio.get_running_loop()
    async with running(tmp_path, None, bolideRegistrationsSizeMax=str(MIB)) as ns, BrokerPeer(ns, "honest") as honest:
        tables = ns.namesrv.tables
        for host, count in (("127.0.0.2", 1_100), ("127.0.0.3", 1_000)):
            greedy = socket.create_connection(("127.0.0.1", ns.server.port), 10, source_address=(host, 0))
            assert (await loop.run_in_executor(None, register, greedy, host, count)).code == 0
            refused = await loop.run_in_executor(None, register, greedy, f"{host}-more", 500)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert "bolideRegistrationsSizeMax" in (refused.remark or "")
        answer = await honest.register({f"h-{i}": RW for i in range(500)})
        assert answer.code == 0, answer.remark
        assert set(tables.brokers) == {"127.0.0.3", "honest"}  # the greediest left
        assert tables.size <= MIB
        await eventually(lambda: len([one for one in ns.server.sessions if "127.0.0.2" in one.peer]) == 0)


@both_loops
async def test_deep_json_and_refused_changes_of_those_who_hang_up_leave_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
    async with running(tmp_path) as ns:
        for body in (b"[" * 10_000, b'{"a":' * 2_000, b"{'a':" * 2_000):
            answer = await ns.ask(103, fields, body)
            assert answer.code == 1
            assert "RecursionError" not in (answer.remark or "")
        for code, more, body in (
            (318, {}, b"scanNotActiveBrokerInterval=0"),
            (100, {"namespace": "n", "key": "", "value": "v"}, b""),
        ):
            async with Client(ns.client._config, ns.client._clock) as leaving:
                pending = asyncio.ensure_future(leaving.request(ns.address, Command(code, fields=more, body=body), 10))
                await asyncio.sleep(0)
                for session in leaving.sessions():
                    session.abort("killed")
                await asyncio.gather(pending, return_exceptions=True)
            assert (await ns.ask(code, more, body)).code == 1
    gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@both_loops
async def test_a_long_name_in_a_request_of_an_operator_makes_no_long_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    long = "n" * 20_000
    async with running(tmp_path) as ns:
        for code, fields in (
            (205, {"brokerName": long}),
            (327, {"brokerName": long}),
            (216, {"topic": long, "clusterName": long}),
            (100, {"namespace": long, "key": long, "value": long}),
            (102, {"namespace": long, "key": long}),
            (104, {"brokerName": long, "brokerAddr": long, "clusterName": long, "brokerId": "0"}),
        ):
            await ns.ask(code, fields)
    assert max(map(len, caplog.messages)) < 2_000


def compressed(tag: bytes, count: int) -> bytes:
    def part(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    topics = b"".join(part(b"%s%d 1 1 6 S" % (tag, number)) for number in range(count))
    whole = part(DataVersion(counter=1).encode()) + count.to_bytes(4, "big") + topics + part(b"[]") + bytes(4)
    return zlib.compress(whole, 1)


def test_memory_stays_bounded_under_large_registrations_and_comes_back_when_they_leave(tmp_path: Path) -> None:
    with process(tmp_path, "namesrv", "--host", "127.0.0.1", "--port", "0") as up:
        host, _, port = up.namesrv.rpartition(":")
        before = up.status("VmRSS")

        def flood() -> list[int]:
            connections, codes = [], []
            for number in range(6):
                connection = socket.create_connection((host, int(port)), 30)
                connections.append(connection)
                count = 300_000 if number < 2 else shares.TOPICS_MAX
                header = RegisterBrokerRequest(
                    broker_name=f"b{number}",
                    broker_address=f"b{number}:1",
                    cluster_name="C",
                    ha_address="x:2",
                    broker_id=0,
                    is_compressed=True,
                )
                body = compressed(b"%d-" % number, count)
                codes.append(ask_on(connection, Command(103, fields=header.encode(), body=body)).code)
            for connection in connections:
                connection.close()
            return codes

        assert flood() == [1, 1, 0, 0, 0, 2]
        assert up.status("VmHWM") < before + 160 * MIB
        flood()
        with socket.create_connection((host, int(port)), 30) as connection:
            header = {"topic": "T"}
            assert ask_on(connection, Command(105, fields=header)).code == 17
        assert up.status("VmHWM") < before + 200 * MIB  # and not twice as much the second time
        deadline_s = time.monotonic() + 30
        while up.status("VmRSS") > before + 64 * MIB:
            assert time.monotonic() < deadline_s, "the memory did not come back"
            time.sleep(POLL_INTERVAL_S)
        _, _, stderr = up.stop()
    assert "Traceback" not in stderr
