"""A controller on a free port, and peers that talk to it as brokers do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolide.clock import Clock, SystemClock
from bolide.controller.config import read_config
from bolide.controller.server import Controller, serve
from bolide.protocol.bodies.controller import ReplicaGroupState, ReplicaTable, SyncStateSet, encode_broker_names
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.owner import Owner
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session

TIMEOUT_S = 20
CLUSTER = "c"


@dataclass
class Running:
    """A controller that answers, and a client of it."""

    controller: Controller
    server: Server
    client: Client

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.client.request(self.address, Command(code, fields=fields or {}, body=body), TIMEOUT_S)

    async def state(self, name: str = "g") -> ReplicaGroupState:
        answer = await self.ask(1006, body=encode_broker_names([name]))
        assert answer.code == 0
        return ReplicaTable.decode(answer.body).replicas_info_table[name]


@asynccontextmanager
async def running(tmp_path: Path, clock: Clock | None = None, **settings: str) -> AsyncIterator[Running]:
    clock = clock or SystemClock()
    defaults = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "controllerStorePath": str(tmp_path / "controller"),
        "configStorePath": str(tmp_path / "controller.properties"),
        "connectTimeoutMillis": "500",
    }
    async with (
        serve(read_config(defaults | settings), clock) as (controller, server),
        Client(ConnectConfig(), clock) as client,
    ):
        yield Running(controller, server, client)


class BrokerPeer(Owner):
    """A broker as a controller sees it: a port that takes notices, and one connection for all it says."""

    def __init__(self, name: str = "g", heartbeat_timeout_ms: int = 10_000) -> None:
        self.name = name
        self.member = 0
        self.address = ""
        self.epoch = self.end = 0
        self.heartbeat_timeout_ms = heartbeat_timeout_ms
        self.notices: list[Command] = []
        self.client = Client(ConnectConfig(), SystemClock())

    def serve(self, request: Request) -> Reply:
        self.notices.append(request.command)
        return None

    def closed(self, session: Session, why: str) -> None:
        pass

    @asynccontextmanager
    async def here(self) -> AsyncIterator["BrokerPeer"]:
        clock = SystemClock()
        async with listen(ListenConfig(host="127.0.0.1", port=0), self, clock) as server, self.client:
            self.address = f"127.0.0.1:{server.port}"
            yield self

    async def ask(self, at: str, code: int, body: bytes = b"", **fields: object) -> Command:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        texts = {"clusterName": CLUSTER, "brokerName": self.name} | texts
        return await self.client.request(at, Command(code, fields=texts, body=body), TIMEOUT_S)

    async def apply(self, at: str) -> int:
        answer = await self.ask(at, 1012)
        assert answer.code == 0
        self.member = int(answer.fields["nextBrokerId"])
        code = f"{self.address};1"
        answer = await self.ask(at, 1013, appliedBrokerId=self.member, registerCheckCode=code)
        assert answer.code == 0, answer.remark
        return self.member

    async def register(self, at: str) -> Command:
        return await self.ask(at, 1003, brokerId=self.member, brokerAddress=self.address, invokeTime=1)

    async def beat(self, at: str) -> None:
        answer = await self.ask(
            at,
            904,
            brokerAddr=self.address,
            brokerId=self.member,
            epoch=self.epoch,
            maxOffset=self.end,
            heartbeatTimeoutMills=self.heartbeat_timeout_ms,
        )
        assert answer.code == 0

    async def elect(self, at: str, **more: Any) -> Command:
        return await self.ask(at, 1002, **{"brokerId": self.member, "designateElect": False, "invokeTime": 1} | more)

    async def alter(self, at: str, members: list[int], set_epoch: int, epoch: int) -> Command:
        body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch).encode()
        return await self.ask(at, 1001, body, masterBrokerId=self.member, masterEpoch=epoch)

    async def join(self, at: str) -> Command:
        """All that a broker does at its start; the last answer says who is master."""
        if not self.member:
            await self.apply(at)
        answer = await self.register(at)
        await self.beat(at)
        if "masterBrokerId" not in answer.fields:
            answer = await self.elect(at)
        return answer

    def hang_up(self) -> None:
        """What the operating system does for a process that was killed."""
        for session in list(self.client.sessions()):
            session.abort("killed")

    async def beat_forever(self, at: str) -> None:
        while True:
            await self.beat(at)
            await asyncio.sleep(1)  # virtual


async def trio(up: Running, *brokers: BrokerPeer) -> None:
    """Have brokers join; the first is master, and all are in sync."""
    for broker in brokers:
        await broker.join(up.address)
    master = brokers[0]
    state = await up.state()
    assert state.master_broker_id == master.member
    ids = [broker.member for broker in brokers]
    answer = await master.alter(up.address, ids, state.sync_state_set_epoch, state.master_epoch)
    assert answer.code == 0, answer.remark
