"""Whatever is sent to the port: every request is answered, nothing fails unforeseen, nothing stays behind."""

import asyncio
import json
import logging
import random
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.errors import ClientError
from bolide.namesrv.server import NameServer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.namesrv.brokers import RW, TOPICS
from tests.namesrv.peers import TIMEOUT_S, BrokerPeer, registration_body, route_of, running, settled
from tests.remoting.loops import both_loops, eventually

KEYS = ["topic", "namespace", "key", "value", "brokerName", "brokerAddr", "clusterName", "cluster", "haServerAddr"]
KEYS += ["brokerId", "compressed", "bodyCrc32", "heartbeatTimeoutMillis", "enableActingMaster", "__ZONE_MODE"]
KEYS += ["__ZONE_NAME", "acceptStandardJsonOnly"]
VALUES = ["", "a", "0", "-1", "true", "9" * 25, "ORDER_TOPIC_CONFIG", "x:1", "\x00", "中", "😀", "%s", "a" * 5000, "1"]
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"queueDatas":[{"brokerName":"a"}]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{},"b":null}}}',
    b'{"topicConfigSerializeWrapper":null,"filterServerList":null}',
    b"\x78\x9c",
    b"a=b\nenableTopicList=maybe",
    b"\\u12",
    bytes(range(256)),
    b"[" * 100_000,
]


@pytest.mark.parametrize("seed", range(4))
@both_loops
async def test_any_request_is_answered_and_none_fails_unforeseen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    dice = random.Random(seed)
    async with running(tmp_path) as ns:
        codes = [*ns.namesrv._handlers._handlers, 0, 10, 310, 200050, -1]
        commands = [
            Command(
                dice.choice(codes),
                fields={key: dice.choice(VALUES) for key in dice.sample(KEYS, dice.randrange(len(KEYS)))},
                body=dice.choice(BODIES),
                version=dice.choice([0, 36, 399, 413, 479]),
                codec=dice.choice([0, 1]),
            )
            for _ in range(300)
        ]
        answers = await asyncio.gather(*(ns.client.request(ns.address, each, TIMEOUT_S) for each in commands))
        assert len(answers) == 300
        await ns.look_up("T1")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@both_loops
async def test_names_nobody_can_read_are_refused(tmp_path: Path) -> None:
    fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
    async with running(tmp_path) as ns:
        for key in ("brokerName", "brokerAddr", "clusterName"):
            for name in ("", "a\nERROR forged", "\x1b[31m", "x" * 256):
                assert (await ns.ask(103, {**fields, key: name}, registration_body(TOPICS))).code in (1, 29)
        assert ns.namesrv.tables.brokers == {}
        assert (await ns.ask(103, {**fields, "brokerName": "бро кер"}, registration_body(TOPICS))).code == 0


def tables_are_empty(namesrv: NameServer) -> bool:
    tables = namesrv.tables
    return not (tables.brokers or tables.topics or tables.queues or tables.live or tables.clusters or tables._carried)


@both_loops
async def test_connections_that_come_register_and_vanish_leave_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as ns:
        for round_ in range(20):
            async with BrokerPeer(ns, f"broker-{round_ % 3}") as broker:
                pending = asyncio.ensure_future(broker.register({f"t{i}": RW for i in range(2 + round_ * 100)}))
                if round_ % 2:
                    await pending
                else:
                    await settled()
                broker.hang_up()
                await asyncio.gather(pending, return_exceptions=True)
        await eventually(lambda: not ns.server.sessions)
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count == 0)
        assert tables_are_empty(ns.namesrv)
        assert len(ns.namesrv.answers) == 0


@both_loops
async def test_a_registration_that_waits_behind_another_is_not_carried_out_for_a_dead_connection(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path) as ns,
        BrokerPeer(ns, "big") as big,
        BrokerPeer(ns, "small") as small,
    ):
        await small.ask(206, {})
        first = asyncio.ensure_future(big.register({f"topic-{i}": RW for i in range(10_000)}))
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count == 1)
        second = asyncio.ensure_future(small.register())
        await eventually(lambda: ns.namesrv.registrations.changes.waiting_count != 1)
        small.hang_up()
        with pytest.raises(ClientError):
            await second
        assert (await first).code == 0
        await eventually(lambda: "small" not in ns.namesrv.tables.brokers)


@both_loops
async def test_a_hundred_clients_at_once_see_only_whole_routes_while_brokers_come_and_go(tmp_path: Path) -> None:
    async with running(tmp_path) as ns, BrokerPeer(ns, "a") as a, BrokerPeer(ns, "b") as b:
        await a.register()

        async def churn() -> None:
            for counter in range(2, 40):
                await b.register(counter=counter)
                await ns.ask(205, {"brokerName": "b"})
                await b.unregister()

        churning = asyncio.ensure_future(churn())
        seen = set()
        while not churning.done():
            answers = await asyncio.gather(*(ns.look_up("T1") for _ in range(50)))
            for route in map(route_of, answers):
                brokers = [broker["brokerName"] for broker in route["brokerDatas"]]
                assert brokers == [queue["brokerName"] for queue in route["queueDatas"]]
                seen.add(tuple(brokers))
        await churning
        assert ("a",) in seen


@both_loops
async def test_tls_and_plain_are_served_on_one_port(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as ns,
        BrokerPeer(ns) as broker,
        Client(ConnectConfig(is_tls=True, connect_timeout_ms=60_000), SystemClock()) as client,
    ):
        await broker.register()
        answer = await client.request(ns.address, Command(105, fields={"topic": "T1"}), TIMEOUT_S)
        assert route_of(answer) == route_of(await ns.look_up("T1"))


@both_loops
async def test_an_enforcing_server_takes_no_plain_look_up(tmp_path: Path) -> None:
    settings = {"tls.server.mode": "enforcing"}
    async with (
        running(tmp_path, None, **settings) as ns,
        Client(ConnectConfig(is_tls=True, connect_timeout_ms=60_000), SystemClock()) as client,
    ):
        assert (await client.request(ns.address, Command(206), TIMEOUT_S)).code == 0
        with pytest.raises(ClientError):
            await ns.ask(206)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.QUERY_DATA_VERSION, b"{'a':[" + b"1," * 3000 + b"1]}"),
        (RequestCode.REGISTER_TOPIC_IN_NAMESRV, b"{'a':[" + b"1," * 40_000 + b"1]}"),
        (RequestCode.UPDATE_NAMESRV_CONFIG, b"a=\\u0041" * 10_000),
    ],
)
@both_loops
async def test_a_body_too_large_to_be_read_at_once_is_refused_unread(tmp_path: Path, code: int, body: bytes) -> None:
    fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "brokerId": "0", "topic": "T"}
    async with running(tmp_path) as ns:
        answer = await ns.ask(code, fields, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"a body of {len(body)} bytes" in (answer.remark or "")


@pytest.mark.parametrize(
    "wrong", [{"readQueueNums": 2**31}, {"writeQueueNums": -1}, {"perm": -7}, {"topicSysFlag": 2**40}]
)
@both_loops
async def test_numbers_no_client_could_hold_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    topic = {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, **wrong}
    table = {"topicConfigTable": {"T": topic, "U": {**topic, "topicName": "U"}}, "dataVersion": {"counter": 1}}
    body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
    fields = {"brokerName": "a", "brokerAddr": "x:1", "clusterName": "C", "haServerAddr": "x:2", "brokerId": "0"}
    async with running(tmp_path) as ns:
        assert (await ns.ask(RequestCode.REGISTER_BROKER, fields, body)).code == ResponseCode.SYSTEM_ERROR
        assert ns.namesrv.tables.brokers == {}
