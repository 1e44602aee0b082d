"""Controllers over a real etcd of three nodes: one leads, a deposed one changes nothing, a lost quorum is no change."""

import asyncio
import http.server
import signal
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.controller import elections
from bolide.controller.config import read_config
from bolide.controller.elections import Health
from bolide.controller.etcd_register import EtcdRegister
from bolide.controller.register import ABSENT, Node, Unreachable
from bolide.errors import ConfigError
from tests.controller.etcds import Etcds, etcds, needs_etcd
from tests.controller.nodes import BrokerPeer, Running, running, trio
from tests.remoting.loops import POLL_INTERVAL_S, eventually

LIMIT_S = 60


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcds]:
    with etcds(tmp_path_factory.mktemp("etcd")) as started:
        yield started


def register_at(endpoints: str, group: str) -> EtcdRegister:
    settings = {"bolideEtcdEndpoints": endpoints, "controllerDLegerGroup": group}
    return EtcdRegister(read_config(settings), SystemClock())


@needs_etcd
@pytest.mark.feature("X05")
def test_one_of_two_leads_the_other_says_so_and_takes_over_when_it_is_gone(nodes: Etcds, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack, AsyncExitStack() as first:
            settings = {"bolideEtcdEndpoints": nodes.endpoints, "controllerDLegerGroup": "takeover"}
            settings |= {"scanInactiveMasterInterval": "300"}
            leader = await first.enter_async_context(running(tmp_path, None, **settings))
            await eventually(lambda: leader.controller.register.is_leader)
            other = await stack.enter_async_context(running(tmp_path, None, **settings))
            await eventually(lambda: len(other.controller.register.peers) == 2)
            answer = await other.ask(1005)
            assert answer.fields["controllerLeaderAddress"] == leader.address
            assert answer.fields["isLeader"] == "false"
            assert answer.fields["peers"].count(";") == 2
            assert (await other.ask(1004, {"brokerName": "g"})).code == 2007
            # They say once that they live, however long it takes until another leads.
            peers = [BrokerPeer(heartbeat_timeout_ms=2000 * LIMIT_S) for _ in range(2)]
            one, two = [await stack.enter_async_context(peer.here()) for peer in peers]
            await trio(leader, one, two)
            await eventually(lambda: len(other.controller.changes.known.get("g", _NOBODY).members) == 2)
            for broker in (one, two):
                await broker.beat(other.address)
            await first.aclose()
            await eventually(lambda: other.controller.register.is_leader, LIMIT_S)
            state = await other.state()
            assert (state.master_broker_id, state.master_epoch) == (1, 1)
            assert [replica.alive for replica in state.in_sync_replicas] == [True, True]
            one.hang_up()
            await eventually(lambda: bool(two.notices), 2)
            assert two.notices[-1].fields["masterBrokerId"] == "2"

    asyncio.run(scenario())


_NOBODY = elections.ReplicaGroup(cluster="", name="")


@needs_etcd
def test_a_deposed_leader_changes_nothing(nodes: Etcds) -> None:
    async def scenario() -> None:
        old, new = (register_at(nodes.endpoints, "deposed") for _ in range(2))
        await old.join(Node("a", "127.0.0.1:1"))
        await new.join(Node("b", "127.0.0.1:2"))
        old._step()
        assert old.is_leader
        group = elections.elect(elections.apply(None, "c", "g", 1, "h:1;1"), Health(), asker=1)
        assert await old.write("g", group, ABSENT)
        kept = await old.read("g")
        old._etcd.call("lease/revoke", {"ID": old._lease})
        new._step()
        assert new.is_leader
        assert old.is_leader, "it does not know yet"
        assert not await old.write("g", elections.without_master(group), kept.revision)
        assert await new.read("g") == kept
        assert await new.write("g", elections.without_master(group), kept.revision)
        assert not await new.write("g", None, kept.revision)
        old._step()
        assert not old.is_leader
        assert old.leader == Node("b", "127.0.0.1:2")
        kept = await new.read("g")
        assert await new.write("g", None, kept.revision)
        assert (await old.read("g")).group is None
        await old.close()
        await new.close()

    asyncio.run(scenario())


@needs_etcd
def test_of_two_controllers_that_elect_at_once_one_does(nodes: Etcds) -> None:
    async def scenario() -> None:
        registers = [register_at(nodes.endpoints, "race") for _ in range(2)]
        for number, register in enumerate(registers):
            await register.join(Node(f"n{number}", f"127.0.0.1:{number}"))
            register._step()
        assert await registers[0].write("g", elections.apply(None, "c", "g", 1, "h:1;1"), ABSENT)
        for _ in range(20):
            registers[0]._step()
            # Both believe to lead, by the same key: only revisions part them.
            registers[1]._created, registers[1]._leads_until_s = registers[0]._created, registers[0]._leads_until_s
            kept = await registers[0].read("g")
            assert kept.group is not None
            alive = Health({1: elections.Report()})
            is_led = kept.group.master_id is not None
            after = elections.without_master(kept.group) if is_led else elections.elect(kept.group, alive, asker=1)
            won = await asyncio.gather(*(register.write("g", after, kept.revision) for register in registers))
            assert sorted(won) == [False, True]
        for register in registers:
            await register.close()

    asyncio.run(scenario())


@needs_etcd
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_of_etcd_may_fall_and_a_lost_quorum_changes_nothing(tmp_path: Path, blow: signal.Signals) -> None:
    async def scenario(nodes: Etcds) -> None:
        settings = {"bolideEtcdEndpoints": nodes.endpoints, "bolideEtcdTimeoutMillis": "700"}
        async with running(tmp_path, None, **settings) as up, BrokerPeer().here() as one, BrokerPeer().here() as two:
            await eventually(lambda: up.controller.register.is_leader)
            await trio(up, one, two)
            nodes.signal(0, blow)
            await until_answered(up)
            one.hang_up()
            await eventually(lambda: bool(two.notices), LIMIT_S)
            assert two.notices[-1].fields["masterBrokerId"] == "2"
            epoch = (await up.state()).master_epoch
            nodes.signal(1, blow)
            assert (await up.ask(1004, {"brokerName": "g"})).code == 2007
            assert (await up.ask(1005)).code == 0
            two.hang_up()
            await eventually(lambda: not up.controller.register.is_leader)
            assert (await up.ask(1002, {"brokerName": "g", "brokerId": "2"})).code == 2007
            if blow is signal.SIGSTOP:
                nodes.signal(1, signal.SIGCONT)
            else:
                nodes.processes[1].wait()
                nodes.processes[1] = nodes.start(1)
            await eventually(lambda: up.controller.register.is_leader, LIMIT_S)
            await eventually(lambda: up.controller.changes.known["g"].master_id is None, LIMIT_S)
            assert up.controller.changes.known["g"].master_epoch == epoch + 1

    with etcds(tmp_path) as nodes:
        asyncio.run(scenario(nodes))


async def until_answered(up: Running) -> None:
    """Wait out the change of etcd's own leader."""
    async with asyncio.timeout(LIMIT_S):
        while (await up.ask(1004, {"brokerName": "g"})).code != 0:  # noqa: ASYNC110
            await asyncio.sleep(POLL_INTERVAL_S)


@contextmanager
def answering(version: str) -> Iterator[str]:
    """Something that says it is an etcd of a version."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"etcdserver":"%s","etcdcluster":"3.5.0"}' % version.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("version", "is_fit"), [("3.5.0", False), ("3.5.5", False), ("3.5.6", True), ("3.5.10", True)])
def test_versions_that_may_lose_what_was_agreed_are_refused(version: str, is_fit: bool) -> None:
    with answering(version) as endpoint:
        register = register_at(endpoint, "version")
        joining = register.join(Node("a", "127.0.0.1:1"))
        if is_fit:
            asyncio.run(joining)
        else:
            with pytest.raises(ConfigError, match=rf"etcd {version} may lose.*upgrade"):
                asyncio.run(joining)


def test_where_no_etcd_is_the_sentence_says_so() -> None:
    register = register_at("http://127.0.0.1:1", "nobody")
    with pytest.raises(ConfigError, match="no etcd answers there"):
        asyncio.run(register.join(Node("a", "127.0.0.1:1")))
    for text in ("ftp://x", "http://", "http://h:99999", "http://h/path"):
        with pytest.raises(ConfigError, match="must be http"):
            register_at(text, "nobody")
    with pytest.raises(Unreachable):
        asyncio.run(register.read("g"))
