"""A cluster inside a test: both faces, both kinds of node, and every way to end one."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.clock import Clock
from bolide.errors import ConfigError, StoreError
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.command import Command
from bolide.remoting.server import Server
from bolide.testing import AsyncCluster, Cluster, NotStarted, VirtualClock, cluster, clusters
from bolide.testing.clusters import _serve_namesrv
from bolide.testing.nodes import free_port
from tests.cli.processes import wait_for
from tests.e2e.up import ask, bodies, send
from tests.remoting.loops import both_loops, virtual_time

BOTH = pytest.mark.parametrize("processes", [False, True], ids=["inside", "processes"])


def route(namesrv: str, topic: str) -> TopicRoute:
    answer = ask(namesrv, Command(105, fields={"topic": topic}))
    assert answer.code == 0, answer.remark
    return TopicRoute.decode(answer.body)


def is_reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.fixture(params=[False, True], ids=["inside", "processes"])
def rocket(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(processes=request.param) as running:
        yield running


@BOTH
@pytest.mark.feature("F001", "F017")
def test_every_broker_is_known_to_every_name_server_when_the_block_begins(processes: bool) -> None:
    with cluster(namesrvs=2, brokers=2, processes=processes) as rocket:
        assert rocket.namesrv == ";".join(node.address for node in rocket.namesrvs)
        for namesrv in rocket.namesrvs:
            brokers = {
                broker.broker_name: broker.broker_addrs for broker in route(namesrv.address, "TBW102").broker_datas
            }
            assert brokers == {node.name: {0: node.address} for node in rocket.brokers}


def test_when_the_block_ends_nothing_is_left(rocket: Cluster) -> None:
    with cluster(namesrvs=1, brokers=1) as inner:
        directory, addresses = inner.directory, [inner.namesrv, inner.brokers[0].address]
        assert all(map(is_reachable, addresses))
    assert not directory.exists()
    assert not any(map(is_reachable, addresses))


@BOTH
def test_processes_have_pids_of_their_own(processes: bool) -> None:
    with cluster(processes=processes) as rocket:
        pids = {node.pid for node in (*rocket.namesrvs, *rocket.brokers)}
        assert pids == {os.getpid()} if not processes else len(pids) == 2
    for pid in pids - {os.getpid()}:
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("how", ["stop", "kill", "restart"])
def test_what_was_acknowledged_is_there_in_the_next_life_at_the_same_address(rocket: Cluster, how: str) -> None:
    (broker,) = rocket.brokers
    address = broker.address
    sent = [f"message {number}".encode() for number in range(100)]
    for body in sent:
        assert send(address, "T", body).code == 0
    getattr(broker, how)()
    if how != "restart":
        assert not broker.is_running
        assert not is_reachable(address)
        assert (broker.directory / "store" / "abort").exists() == (how == "kill")
        wait_for(lambda: ask(rocket.namesrv, Command(105, fields={"topic": "T"})).code == 17)
        broker.start()
    assert (broker.is_running, broker.address) == (True, address)
    assert bodies(address, "T") == sent
    assert send(address, "T", b"more").code == 0
    assert route(rocket.namesrv, "T").broker_datas[0].broker_addrs == {0: address}


def test_a_name_server_that_was_killed_hears_of_the_brokers_again(rocket: Cluster) -> None:
    rocket.create_topic("Orders", queue_count=3)
    (namesrv,) = rocket.namesrvs
    namesrv.kill()
    namesrv.start()
    rocket.create_topic("Orders", queue_count=3)  # returns when the route is there
    assert route(namesrv.address, "Orders").queue_datas[0].write_queue_nums == 3


def test_a_topic_is_made_on_all_brokers_and_is_routed_when_the_call_returns() -> None:
    with cluster(brokers=2, namesrvs=2) as rocket:
        rocket.create_topic("Orders", queue_count=5)
        for namesrv in rocket.namesrvs:
            queues = {row.broker_name: row.write_queue_nums for row in route(namesrv.address, "Orders").queue_datas}
            assert queues == {"broker-0": 5, "broker-1": 5}


@pytest.mark.feature("F010")
def test_nodes_can_be_added_while_it_runs() -> None:
    with cluster(brokers=0) as rocket:
        broker = rocket.add_broker("late", {"defaultTopicQueueNums": 2})
        assert [node.name for node in rocket.brokers] == ["late"]
        assert send(broker.address, "T", b"x", queue_count=8).code == 0
        wait_for(lambda: ask(rocket.namesrv, Command(105, fields={"topic": "T"})).code == 0)
        assert route(rocket.namesrv, "T").queue_datas[0].write_queue_nums == 2
        rocket.add_namesrv()
        assert len(rocket.namesrv.split(";")) == 2


@BOTH
def test_settings_reach_the_brokers_and_their_files_are_small(processes: bool) -> None:
    with cluster(processes=processes, settings={"autoCreateTopicEnable": False}) as rocket:
        (broker,) = rocket.brokers
        assert send(broker.address, "T", b"x").code == 17
        rocket.create_topic("T")
        assert send(broker.address, "T", b"x").code == 0
        (segment,) = (broker.directory / "store" / "commitlog").glob("0" * 20)
        assert segment.stat().st_size == 8 << 20


@BOTH
def test_a_node_that_cannot_start_says_why_and_leaves_nothing_behind(processes: bool) -> None:
    with (
        pytest.raises((ConfigError, NotStarted), match="did you mean brokerName"),
        cluster(processes=processes, settings={"brokrName": "x"}),
    ):
        pytest.fail("it started")


def test_a_directory_of_ones_own_is_kept(tmp_path: Path) -> None:
    with cluster(directory=tmp_path) as rocket:
        assert rocket.directory == tmp_path
        assert send(rocket.brokers[0].address, "T", b"x").code == 0
    assert (tmp_path / "broker-0" / "store" / "commitlog").is_dir()


def test_an_error_of_the_block_is_the_one_that_is_seen() -> None:
    with pytest.raises(ZeroDivisionError), cluster(brokers=0):
        raise ZeroDivisionError


def test_a_node_that_is_down_has_no_pid() -> None:
    with cluster(brokers=0) as rocket:
        (namesrv,) = rocket.namesrvs
        namesrv.stop()
        namesrv.stop()  # and stopping it again is no mistake
        with pytest.raises(NotStarted, match="not running"):
            _ = namesrv.pid


def test_after_the_block_every_call_says_that_it_has_ended() -> None:
    with cluster(brokers=0) as rocket:
        (namesrv,) = rocket.namesrvs
    with pytest.raises(NotStarted, match="ended"):
        namesrv.start()


async def in_thread(function: object, *arguments: object) -> object:
    """Ask from outside the loop, as another program would."""
    return await asyncio.to_thread(function, *arguments)  # type: ignore[arg-type]


@both_loops
async def test_with_asyncio_it_lives_in_the_running_loop() -> None:
    async with cluster(brokers=2) as rocket:
        assert isinstance(rocket, AsyncCluster)
        await rocket.create_topic("T")
        first, second = rocket.brokers
        assert (await in_thread(send, first.address, "T", b"x")).code == 0  # type: ignore[attr-defined]
        await first.kill()
        await second.stop()
        assert not first.is_running
        await first.restart()
        assert await in_thread(bodies, first.address, "T") == [b"x"]


@both_loops
async def test_an_error_of_an_async_block_is_seen_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster():
            raise ZeroDivisionError


@both_loops
async def test_with_asyncio_and_processes() -> None:
    async with cluster(processes=True) as rocket:
        (broker,) = rocket.brokers
        assert (await in_thread(send, broker.address, "T", b"x")).code == 0  # type: ignore[attr-defined]
        await broker.kill()
        await broker.start()
        assert await in_thread(bodies, broker.address, "T") == [b"x"]


@virtual_time
async def test_in_virtual_time_minutes_pass_in_no_time_and_heartbeats_with_them() -> None:
    clock = VirtualClock()
    async with cluster(clock=clock) as rocket:
        (broker,) = rocket.brokers
        await asyncio.sleep(130)  # virtual: longer than a name server keeps a silent broker
        assert clock.monotonic_s() >= 130
        await rocket.registered(broker)
        await broker.kill()
        await broker.start()
        await rocket.registered(broker)


def test_a_node_that_falls_takes_the_cluster_with_it_and_every_call_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    falls = threading.Event()

    @asynccontextmanager
    async def serve_until_it_falls(settings: dict[str, str], clock: Clock) -> AsyncIterator[Server]:
        async def fall() -> None:
            await asyncio.to_thread(falls.wait)
            raise StoreError("the disk is gone")

        async with _serve_namesrv(settings, clock) as server, asyncio.TaskGroup() as background:
            background.create_task(fall(), name="fall")
            yield server

    def use_it_to_the_end() -> None:
        with cluster(brokers=0) as rocket:
            (namesrv,) = rocket.namesrvs
            falls.set()
            wait_for(lambda: not namesrv.is_running)
            while True:  # a call that came just before the end is cancelled with it
                with contextlib.suppress(CancelledError):
                    namesrv.restart()

    monkeypatch.setattr(clusters, "_serve_namesrv", serve_until_it_falls)
    with pytest.raises(StoreError, match="the disk is gone"):
        use_it_to_the_end()


def test_a_busy_machine_makes_no_broker_refuse_a_message() -> None:
    with cluster() as rocket:
        answer = ask(rocket.brokers[0].address, Command(26))
    assert b"\nwaitTimeMillsInSendQueue=60000\n" in answer.body


def test_free_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert {free_port() < lowest for _ in range(20)} == {True}
