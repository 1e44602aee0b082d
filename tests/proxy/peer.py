"""A gRPC client for tests: one connection of HTTP/2, every frame in the test's hand."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from h2 import events
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection

from bolide.proxy.methods import SERVICE

T = TypeVar("T")
_ids = itertools.count()


def framed(message: Any) -> bytes:
    """A message as gRPC carries it."""
    content = message.SerializeToString()
    return b"\0" + len(content).to_bytes(4, "big") + content


@dataclass
class Reading:
    """What came on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    is_over: bool = False
    reset_code: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers["grpc-status"])

    def messages(self, kind: type[T]) -> list[T]:
        found, at = [], 0
        while len(self.data) >= at + 5:
            end = at + 5 + int.from_bytes(self.data[at + 1 : at + 5], "big")
            if len(self.data) < end:
                break
            found.append(kind.FromString(bytes(self.data[at + 5 : end])))  # type: ignore[attr-defined]
            at = end
        return found


class Peer:
    """One connection; calls share it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self.client_id = client_id
        self.frames = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.streams: dict[int, Reading] = {}
        self.goodbye: int | None = None  # the error code of GOAWAY
        self.is_over = False
        self.seen: list[events.Event] = []
        self.transport = writer.transport
        self._reader = reader
        self._writer = writer
        self._news = asyncio.Event()

    async def read_forever(self) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                # One frame at a time: the library takes none after a goodbye, and calls are answered after it.
                head = await self._reader.readexactly(9)
                frame = head + await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                for event in self.frames.receive_data(frame):
                    self._take(event)
                if self.goodbye is not None:
                    self.frames.state_machine.state = ConnectionState.CLIENT_OPEN
                self.flush()
                self._tell()
        self.is_over = True
        self._tell()

    def _take(self, event: events.Event) -> None:
        self.seen.append(event)
        if isinstance(event, events.ConnectionTerminated):
            self.goodbye = int(event.error_code or 0)
        stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
        if stream is None:
            return
        if isinstance(event, events.ResponseReceived | events.TrailersReceived):
            stream.headers.update({str(name): str(value) for name, value in event.headers})
        elif isinstance(event, events.DataReceived):
            stream.data += event.data
            self.frames.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, events.StreamEnded):
            stream.is_over = True
        elif isinstance(event, events.StreamReset):
            stream.is_over, stream.reset_code = True, int(event.error_code)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, condition: Any) -> None:
        """Wait until something holds, or the connection is over."""
        async with asyncio.timeout(600):
            while not condition() and not self.is_over:
                await self._news.wait()

    def flush(self) -> None:
        self.write(self.frames.data_to_send())

    def write(self, data: bytes) -> None:
        """Any bytes; to a port that has hung up, nothing."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def begin(self, method: str, path: str | None = None, **headers: str) -> int:
        """Open a stream; returns its number."""
        number = self.frames.get_next_available_stream_id()
        told = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path or f"/{SERVICE}/{method}",
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
            "x-mq-client-id": self.client_id,
            "x-mq-language": "JAVA",
            "x-mq-client-version": "5.2.0",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        self.streams[number] = Reading()
        self.frames.send_headers(number, list(told.items()))
        return number

    def send(self, number: int, data: bytes, *, ends: bool = True) -> None:
        """Data of a stream, in frames of the largest size."""
        for at in range(0, max(1, len(data)), 16_384):
            piece = data[at : at + 16_384]
            self.frames.send_data(number, piece, end_stream=ends and at + 16_384 >= len(data))
        self.flush()

    def open(self, method: str, message: Any, **headers: str) -> Reading:
        """A call that is on its way."""
        number = self.begin(method, headers.pop("path", None), **headers)
        self.send(number, framed(message))
        return self.streams[number]

    async def stream(self, method: str, message: Any, kind: type[T], **headers: str) -> list[T]:
        """A call, and all messages of its answer."""
        reading = self.open(method, message, **headers)
        await self.until(lambda: reading.is_over)
        assert reading.status == 0, reading.headers
        return reading.messages(kind)

    async def call(self, method: str, message: Any, kind: type[T], **headers: str) -> T:
        (answer,) = await self.stream(method, message, kind, **headers)
        return answer

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(port: int, client_id: str | None = None, first: bytes = b"", **given: Any) -> AsyncIterator[Peer]:
    """A connection to a port of this machine; `first` goes before all of HTTP/2."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **given)
    writer.write(first)
    peer = Peer(reader, writer, client_id or f"client@{next(_ids)}")
    peer.frames.initiate_connection()
    peer.flush()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(peer.read_forever(), name="test.peer")
        try:
            await peer.until(lambda: any(isinstance(each, events.WindowUpdated) for each in peer.seen))
            yield peer
        finally:
            reading.cancel()
            writer.close()
