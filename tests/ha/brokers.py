"""What tests of replication start from: a store with its replication, and peers that speak raw bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolide.clock import Clock
from bolide.ha.config import HaConfig
from bolide.ha.door import Security
from bolide.ha.epochs import Epochs
from bolide.ha.frames import Body, Head, Transfers, Welcome
from bolide.ha.replication import Replication
from bolide.store.disk import Disk
from bolide.store.open import open_store
from bolide.store.store import Store
from bolide.testing.loop import VirtualClock
from tests.store.given import HOST, draft, small

FILE_SIZE = 16_384
LIMIT_S = 60


@dataclass
class Broker:
    store: Store
    replication: Replication
    epochs: Epochs | None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.replication.port}"

    def put(self, count: int = 1, size: int = 100) -> int:
        """Append messages; returns where the log ends."""
        for number in range(count):
            self.store.append([draft(f"{number} ".encode().ljust(size, b"x"))])
        return self.store.log_end

    def log(self, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of the log, as they lie in its files."""
        end = self.store.log_end if end is None else end
        found = b""
        while start + len(found) < end:
            view = self.store.log_view(start + len(found), end - start - len(found))
            assert view
            found += view
        return found


@asynccontextmanager
async def broker(
    root: Path,
    *,
    clock: Clock | None = None,
    is_slave: bool = False,
    epochs: list[tuple[int, int]] | None = None,
    slave_id: int = 2,
    disk: Disk | None = None,
    ha: dict[str, Any] | None = None,
    security: Security | None = None,
    **settings: Any,
) -> AsyncIterator[Broker]:
    """A store with its background work, and its replication. With epochs, be it none, the stream is AutoSwitch."""
    clock = clock or VirtualClock()
    async with open_store(small(root, **settings), clock, HOST, disk) as store:
        if is_slave:
            store.follow()
        table = None
        if epochs is not None:
            table = Epochs(root / "epochFileCheckpoint")
            for number, start in epochs:
                table.record(number, start)
        config = HaConfig(host="127.0.0.1", **ha or {})
        async with Replication(store, config, clock, table, lambda: slave_id, security) as replication:
            await replication.listen()
            if table is not None and not is_slave:
                replication.lead()
            yield Broker(store, replication, table)


class Peer:
    """A connection by hand, to a master or from a slave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._transfers: Transfers | None = None
        self._found: list[tuple[Head, bytes] | Welcome] = []

    def say(self, content: bytes) -> None:
        self.writer.write(content)

    async def hear(self, size: int) -> bytes:
        """Exactly so many bytes."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.readexactly(size)

    async def is_ended(self) -> bool:
        """Wait until the other side has closed the connection; what comes before is passed over."""
        with suppress(ConnectionError):
            async with asyncio.timeout(LIMIT_S):
                while await self.reader.read(1 << 16):
                    pass
        return True

    async def frames(self, is_plain: bool = True) -> AsyncIterator[Welcome | tuple[Head, bytes]]:
        """What a master sends, a frame at a time."""
        transfers, head, body = Transfers(is_plain), None, b""
        while chunk := await self._read():
            for part in transfers.feed(memoryview(chunk)):
                if isinstance(part, Welcome):
                    yield part
                    continue
                if isinstance(part, Head):
                    head, body = part, b""
                elif isinstance(part, Body):
                    body += part.content
                assert head is not None
                if len(body) == head.size:
                    yield head, body

    async def _read(self) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read(1 << 16)

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Peer]:
    host, _, port = address.rpartition(":")
    peer = Peer(*await asyncio.open_connection(host, int(port)))
    try:
        yield peer
    finally:
        peer.close()


class FakeMaster:
    """A port that a slave connects to; each connection is a peer."""

    def __init__(self) -> None:
        self.address = ""
        self._came: asyncio.Queue[Peer] = asyncio.Queue(64)

    async def slave(self) -> Peer:
        """The next connection."""
        async with asyncio.timeout(LIMIT_S):
            return await self._came.get()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._came.put_nowait(Peer(reader, writer))


@asynccontextmanager
async def fake_master() -> AsyncIterator[FakeMaster]:
    master = FakeMaster()
    server = await asyncio.start_server(master.accept, "127.0.0.1", 0)
    master.address = "{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield master
    finally:
        server.close()


async def turns(condition: Callable[[], bool], count_max: int = 2_000) -> None:
    """Let the loop turn, without time passing, until a condition holds."""
    for _ in range(count_max):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("not within so many turns of the loop")


async def taken(peer: Peer, offset: int, end: int, is_plain: bool = True) -> tuple[list[Head], bytes]:
    """The frames of a peer that is sent the log from an offset up to an end, and their bytes."""
    heads, log = [], b""
    async for frame in peer.frames(is_plain):
        assert not isinstance(frame, Welcome)
        heads.append(frame[0])
        assert frame[0].offset == offset + len(log)
        log += frame[1]
        if offset + len(log) >= end:
            break
    return heads, log
