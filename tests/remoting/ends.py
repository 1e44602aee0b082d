"""Both ends of a connection for tests: owners that serve a port, and a peer that may send any bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from bolide.clock import SystemClock
from bolide.protocol.command import Command, read_commands
from bolide.protocol.frames import FrameReader
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.loop_turn import answer_each
from bolide.remoting.owner import Answered, Owner, Read
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session

ECHO = 1000


def echo(request: Request) -> Reply:
    return request.command.answer(0, body=request.command.body, fields=request.command.fields)


@dataclass
class Table(Owner):
    """An owner without a fast path that answers with one function, and remembers what it saw."""

    answer: Callable[[Request], Reply | Awaitable[Reply]] = echo
    reads: list[int] = field(default_factory=list)
    served: list[int] = field(default_factory=list)
    gone: list[tuple[Session, str]] = field(default_factory=list)

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        return answer_each(reads, self.answer_read)

    def answer_read(self, read: Read) -> Answered:
        self.reads.append(len(read.bounds) // 2)
        return b"", read.bounds

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        self.served.append(request.command.opaque)
        return self.answer(request)

    def closed(self, session: Session, why: str) -> None:
        self.gone.append((session, why))


class Parked:
    """An owner's function whose answers wait until they are let go, one by one or all."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.cancelled: list[int] = []

    def __call__(self, request: Request) -> Awaitable[Reply]:
        return self._wait(request)

    async def _wait(self, request: Request) -> Reply:
        opaque = request.command.opaque
        self.waiting[opaque] = asyncio.get_running_loop().create_future()
        try:
            await self.waiting[opaque]
        except asyncio.CancelledError:
            self.cancelled.append(opaque)
            raise
        finally:
            self.waiting.pop(opaque, None)
        return echo(request)

    def let_go(self, *opaques: int) -> None:
        for opaque in opaques or list(self.waiting):
            self.waiting.pop(opaque).set_result(None)


def request_of(opaque: int, body: bytes = b"", *, code: int = ECHO, flag: int = 0, codec: int = 0) -> Command:
    return Command(code, opaque=opaque, body=body, flag=flag, codec=codec)


def stream_of(count: int, body: bytes = b"") -> bytes:
    return b"".join(request_of(n, body).encode() for n in range(count))


class Peer:
    """The other end, which sends what it is told and reads when it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader()
        self._ready: list[Command] = []

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> Self:
        return cls(*await asyncio.open_connection(host, port, ssl=context))

    @property
    def name(self) -> str:
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def send(self, *parts: bytes | Command) -> None:
        self.writer.write(b"".join(part if isinstance(part, bytes) else part.encode() for part in parts))

    async def answers(self, count: int) -> list[Command]:
        while len(self._ready) < count:
            chunk = await self.reader.read(1 << 16)
            assert chunk, f"the connection ended after {len(self._ready)} of {count} answers"
            for frame in self._frames.feed(chunk):
                self._ready += read_commands(frame, [0, len(frame)])
        answers, self._ready = self._ready[:count], self._ready[count:]
        return answers

    async def ask(self, command: Command) -> Command:
        return await self.ask_after(b"", command)

    async def ask_after(self, first: bytes, command: Command) -> Command:
        self.send(first, command)
        return (await self.answers(1))[0]

    async def end(self) -> bytes:
        """Everything up to the end of the connection; a reset is an end."""
        try:
            return await self.reader.read()
        except OSError:
            return b""

    def leave(self) -> None:
        self.writer.close()


@asynccontextmanager
async def served(owner: Any, clock: Any = None, **settings: Any) -> AsyncIterator[Server]:
    config = ListenConfig(**{"host": "127.0.0.1", "port": 0, **settings})
    async with listen(config, owner, clock or SystemClock()) as server:
        yield server
