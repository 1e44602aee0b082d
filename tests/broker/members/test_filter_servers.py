"""Filter servers at the broker: who is known, who is forgotten, and who is started."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.broker.config import LiveConfig, read_config
from bolide.broker.members.filter_servers import FilterServers
from bolide.clock import Clock
from bolide.errors import ConfigError
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.filters import RegisterFilterServerAnswer, RegisterFilterServerRequest
from bolide.remoting.handlers import Handlers
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Owner, Reply, Request
from bolide.remoting.server import listen
from bolide.remoting.session import Session
from bolide.testing import VirtualClock
from tests.remoting.ends import Peer
from tests.remoting.loops import eventually, virtual_time


class Registry(Owner):
    def __init__(self, servers: FilterServers) -> None:
        self.servers = servers
        self.handlers = Handlers(servers.handlers())

    def serve(self, request: Request) -> Reply:
        reply = self.handlers.serve(request)
        assert isinstance(reply, Command)
        return reply

    def closed(self, session: Session, why: str) -> None:
        self.servers.left(session)


@asynccontextmanager
async def known(clock: Clock, **settings: str) -> AsyncIterator[tuple[FilterServers, int]]:
    servers = FilterServers(LiveConfig(read_config({"brokerName": "broker-a", **settings})), clock)
    async with listen(ListenConfig(host="127.0.0.1", port=0), Registry(servers), clock) as server:
        yield servers, server.port


def registering(address: str) -> Command:
    fields = RegisterFilterServerRequest(address=address).encode()
    return Command(RequestCode.REGISTER_FILTER_SERVER, opaque=1, fields=fields)


@pytest.mark.feature("F276", "F044")
@virtual_time
async def test_who_registers_is_known_until_it_hangs_up_or_is_silent_for_half_a_minute() -> None:
    clock = VirtualClock()
    async with known(clock) as (servers, port):
        told: list[list[str]] = []
        servers.listen(lambda: told.append(servers.addresses()))
        one, other = await Peer.connect(port), await Peer.connect(port)
        answer = RegisterFilterServerAnswer.decode((await one.ask(registering("10.0.0.1:30001"))).fields)
        assert (answer.broker_name, answer.broker_id) == ("broker-a", 0)
        await other.ask(registering("10.0.0.1:30002"))
        await one.ask(registering("10.0.0.1:30001"))
        assert told == [["10.0.0.1:30001"], ["10.0.0.1:30001", "10.0.0.1:30002"]], "a renewal is no news"
        await asyncio.sleep(20)  # virtual
        await one.ask(registering("10.0.0.1:30001"))
        await asyncio.sleep(15)  # virtual
        servers.scan()
        assert servers.addresses() == ["10.0.0.1:30001"]
        assert await other.end() == b""
        other.leave()
        one.leave()
        await eventually(lambda: servers.addresses() == [])
        assert len(told) == 4


@virtual_time
async def test_what_is_no_address_is_refused_and_there_is_a_bound() -> None:
    async with known(VirtualClock()) as (servers, port):
        peer = await Peer.connect(port)
        for address in ("x" * 300, "", "-1", "../../etc:1", "host:0", "host:66000", "a b:1", "a\nb:1"):
            assert (await peer.ask(registering(address))).code == ResponseCode.SYSTEM_ERROR, address
        assert servers.addresses() == []
        peer.leave()
    with pytest.raises(ConfigError):
        read_config({"filterServerNums": "65"})


@pytest.mark.feature("F133")
@virtual_time
async def test_missing_ones_are_started_with_the_configured_file_and_ended_with_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []

    class Child:
        pid = 1
        returncode: int | None = None

        def terminate(self) -> None:
            self.returncode = 0

    children: list[Child] = []

    async def start(*words: str, **options: object) -> Child:
        started.append(words)
        children.append(Child())
        return children[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    settings = {"filterServerNums": "2", "bolideFilterServerConfig": str(tmp_path / "f.conf")}
    async with known(VirtualClock(), **settings) as (servers, _), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(servers.start_forever(10911), name="test.start")
        await asyncio.sleep(6)  # virtual
        assert len(started) == 2
        command = (sys.executable, "-m", "bolide.cli.main", "filtersrv", "--broker", "127.0.0.1:10911")
        assert started[0] == (*command, "-c", str(tmp_path / "f.conf"))
        await asyncio.sleep(31)  # virtual
        assert len(started) == 2, "both live, though neither has registered yet"
        children[0].returncode = 1
        await asyncio.sleep(31)  # virtual
        assert len(started) == 3
        task.cancel()
    assert all(child.returncode is not None for child in children)
