"""A name server on a free port, and peers that talk to it as brokers, clients and operators do."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bolide.clock import Clock, SystemClock
from bolide.kernel import body_crc
from bolide.namesrv.config import read_config
from bolide.namesrv.entries import QueueRow
from bolide.namesrv.server import NameServer, serve
from bolide.protocol.bodies.registration import encode_registration
from bolide.protocol.bodies.topics import Registration, TopicConfig, TopicTable
from bolide.protocol.command import VERSION, Command
from bolide.protocol.headers.registration import RegisterBrokerRequest, UnregisterBrokerRequest
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.server import Server
from tests.namesrv.brokers import TOPICS, version

TIMEOUT_S = 60


@dataclass
class Running:
    """A name server that answers, and a client of it."""

    namesrv: NameServer
    server: Server
    client: Client

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **more: Any) -> Command:
        command = Command(code, fields=fields or {}, body=body, **more)
        return await self.client.request(self.address, command, TIMEOUT_S)

    async def look_up(self, topic: str, **more: Any) -> Command:
        return await self.ask(105, {"topic": topic, **more.pop("fields", {})}, **more)


@asynccontextmanager
async def running(tmp_path: Path, clock: Clock | None = None, **settings: str) -> AsyncIterator[Running]:
    clock = clock or SystemClock()
    defaults = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(tmp_path / "kvConfig.json"),
        "configStorePath": str(tmp_path / "namesrv.properties"),
    }
    async with (
        serve(read_config(defaults | settings), clock) as (namesrv, server),
        Client(ConnectConfig(), clock) as client,
    ):
        yield Running(namesrv, server, client)


class BrokerPeer:
    """A broker as the name server sees it: one connection, registrations on it."""

    def __init__(self, namesrv: Running, name: str = "broker-a", broker_id: int = 0, cluster: str = "C1") -> None:
        self._namesrv = namesrv
        self.name = name
        self.broker_id = broker_id
        self.cluster = cluster
        self.address = f"{name}-{broker_id}:10911"
        self.client = Client(ConnectConfig(), SystemClock())

    async def __aenter__(self) -> "BrokerPeer":
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self.client.__aexit__(*problem)

    async def register(
        self,
        topics: Mapping[str, QueueRow] = TOPICS,
        counter: int = 1,
        *,
        compressed: bool = False,
        wire_version: int = VERSION,
        crc: int | None = None,
        **header: Any,
    ) -> Command:
        body = registration_body(topics, counter, compressed, wire_version)
        fields = RegisterBrokerRequest(
            broker_name=self.name,
            broker_address=self.address,
            cluster_name=self.cluster,
            ha_address=self.address.replace("10911", "10912"),
            broker_id=self.broker_id,
            is_compressed=compressed,
            body_crc32=body_crc(body) if crc is None else crc,
            **header,
        ).encode()
        return await self.ask(103, fields, body, version=wire_version)

    async def unregister(self) -> Command:
        header = UnregisterBrokerRequest(
            broker_name=self.name,
            broker_address=self.address,
            cluster_name=self.cluster,
            broker_id=self.broker_id,
        )
        return await self.ask(104, header.encode())

    async def ask(self, code: int, fields: dict[str, str], body: bytes = b"", **more: Any) -> Command:
        command = Command(code, fields=fields, body=body, **more)
        return await self.client.request(self._namesrv.address, command, TIMEOUT_S)

    def hang_up(self) -> None:
        """What the operating system does for a process that was killed."""
        for session in self.client.sessions():
            session.abort("killed")


def registration_body(
    topics: Mapping[str, QueueRow], counter: int = 1, compressed: bool = False, wire_version: int = VERSION
) -> bytes:
    table = {
        topic: TopicConfig(
            topic_name=topic,
            read_queue_nums=row.read_count,
            write_queue_nums=row.write_count,
            perm=row.perm,
            topic_sys_flag=row.flags,
        )
        for topic, row in topics.items()
    }
    topic_table = TopicTable(data_version=version(counter), topic_config_table=table)
    registration = Registration(topic_config_serialize_wrapper=topic_table)
    return encode_registration(registration, compressed, wire_version)


def route_of(answer: Command) -> dict[str, Any]:
    assert answer.code == 0, answer.remark
    document = msgspec.json.decode(answer.body)
    assert isinstance(document, dict)
    return document


async def settled() -> None:
    """Let everything that is ready happen."""
    for _ in range(10):
        await asyncio.sleep(0)
