"""A broker beside the name server is shown to each asker under the host by which it came."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.namesrv.config import read_config
from bolide.namesrv.nearness import Nearness, nearness
from bolide.namesrv.server import serve
from bolide.protocol.bodies.routes import BrokerMembersAnswer, Clusters, TopicList, TopicRoute
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.namesrv.brokers import TOPICS
from tests.namesrv.peers import TIMEOUT_S, BrokerPeer, Running, registration_body
from tests.remoting.loops import both_loops

OWN, ELSEWHERE = "127.0.0.1", "127.0.0.2"


@asynccontextmanager
async def everywhere(tmp_path: Path, own_host: str | None) -> AsyncIterator[Running]:
    """A name server on all addresses of the machine."""
    clock = SystemClock()
    settings = {"listenPort": "0", "bindAddress": "0.0.0.0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
    async with serve(read_config(settings), clock, own_host) as (namesrv, server), Client(ConnectConfig(), clock) as c:
        yield Running(namesrv, server, c)


class Local(BrokerPeer):
    """A broker that knows itself as 127.0.0.1."""

    def __init__(self, namesrv: Running, name: str = "near", host: str = OWN) -> None:
        super().__init__(namesrv, name)
        self.address = f"{host}:10911"


async def ask(ns: Running, host: str, code: int, **fields: str) -> Command:
    answer = await ns.client.request(f"{host}:{ns.server.port}", Command(code, fields=fields), TIMEOUT_S)
    assert answer.code == 0, answer.remark
    return answer


async def addresses_of_route(ns: Running, host: str) -> list[str]:
    route = TopicRoute.decode((await ask(ns, host, 105, topic="T1")).body)
    return [address for broker in route.broker_datas for address in broker.broker_addrs.values()]


@both_loops
async def test_each_asker_gets_the_host_by_which_it_came_also_from_ready_answers(tmp_path: Path) -> None:
    async with everywhere(tmp_path, OWN) as ns, Local(ns) as near:
        await near.register()
        for _ in range(3):  # the first one makes the answer ready, which the others must not mix up
            assert await addresses_of_route(ns, OWN) == ["127.0.0.1:10911"]
            assert await addresses_of_route(ns, ELSEWHERE) == ["127.0.0.2:10911"]


@both_loops
async def test_a_broker_of_another_machine_is_shown_as_it_registered(tmp_path: Path) -> None:
    async with everywhere(tmp_path, OWN) as ns, Local(ns) as near, Local(ns, "far", "10.0.0.5") as far:
        await near.register()
        await far.register()
        assert await addresses_of_route(ns, ELSEWHERE) == ["127.0.0.2:10911", "10.0.0.5:10911"]


@both_loops
async def test_without_a_host_of_its_own_nothing_is_changed(tmp_path: Path) -> None:
    async with everywhere(tmp_path, None) as ns, Local(ns) as near:
        await near.register()
        assert await addresses_of_route(ns, ELSEWHERE) == ["127.0.0.1:10911"]


@both_loops
async def test_every_answer_that_names_a_broker_names_the_same_address(tmp_path: Path) -> None:
    async with everywhere(tmp_path, OWN) as ns, Local(ns) as near:
        await near.register()
        clusters = Clusters.decode((await ask(ns, ELSEWHERE, 106)).body)
        assert clusters.broker_addr_table["near"].broker_addrs == {0: "127.0.0.2:10911"}
        answer = await ask(ns, ELSEWHERE, 901, clusterName="C1", brokerName="near")
        members = BrokerMembersAnswer.decode(answer.body).broker_member_group
        assert members is not None
        assert members.broker_addrs == {0: "127.0.0.2:10911"}
        assert TopicList.decode((await ask(ns, ELSEWHERE, 304)).body).broker_addr == "127.0.0.2:10911"


@both_loops
async def test_a_zone_and_an_old_client_see_it_too(tmp_path: Path) -> None:
    async with everywhere(tmp_path, OWN) as ns, Local(ns) as near:
        header = {"brokerName": near.name, "brokerAddr": near.address, "clusterName": "C1", "brokerId": "0"}
        fields = {**header, "haServerAddr": "127.0.0.1:10912", "__ZONE_NAME": "z"}
        assert (await near.ask(103, fields, registration_body(TOPICS))).code == 0
        zone = {"__ZONE_MODE": "true", "__ZONE_NAME": "z"}
        answer = await ask(ns, ELSEWHERE, 105, topic="T1", **zone)
        assert b'{"0":"127.0.0.2:10911"}' in answer.body
        old = Command(105, fields={"topic": "T1"}, version=373)
        answer = await ns.client.request(f"{ELSEWHERE}:{ns.server.port}", old, TIMEOUT_S)
        assert b'{0:"127.0.0.2:10911"}' in answer.body


def test_filter_servers_are_where_their_broker_is() -> None:
    route = TopicRoute(filter_server_table={"127.0.0.1:10911": ["127.0.0.1:9100", "10.0.0.9:9100"]})
    seen = Nearness("127.0.0.1", "192.168.1.5").route(route)
    assert seen.filter_server_table == {"192.168.1.5:10911": ["192.168.1.5:9100", "10.0.0.9:9100"]}


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("127.0.0.1:10911", "h:10911"),
        ("127.0.0.10:10911", "127.0.0.10:10911"),
        ("127.0.0.1:1:10911", "127.0.0.1:1:10911"),  # another host that begins alike
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_only_the_whole_host_counts(address: str, seen: str) -> None:
    assert Nearness("127.0.0.1", "h").address(address) == seen


@pytest.mark.parametrize("local", ["127.0.0.1:9876", "", ":9876"])
def test_whoever_came_by_our_own_host_or_by_none_sees_the_tables(local: str) -> None:
    assert nearness("127.0.0.1", local) is None


def test_an_ipv6_host_is_split_at_its_last_colon() -> None:
    near = nearness("::1", "fe80::5:9876")
    assert near is not None
    assert near.address("::1:10911") == "fe80::5:10911"
