"""A link you can cut: a TCP proxy on loopback between two ends, which both believe to speak with each other.

    async with open_link("127.0.0.1:9876") as link:
        ... connect to link.address instead ...
        link.delay_s = 0.2          # every byte arrives later
        link.bytes_per_s = 10_000   # and no faster than this
        link.halve()                # half of what comes next is delivered, then nothing more; nobody is told
        link.freeze()               # nothing is delivered any more; nobody is told: a half-open connection
        link.heal()                 # what was held back goes on
        link.cut()                  # every connection breaks, at both ends, with a reset
        link.is_down = True         # anyone who connects is turned away

Faults reach all connections of the link and both directions. A byte that was held back is never lost unless the link is
cut, for that is how TCP behaves. Waiting is done with the loop's clock, so the link also works in virtual time. It
carries bytes at the speed of plain asyncio: use it for faults, not for measurements.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bolide.remoting.address import split_address
from bolide.remoting.isolated_tasks import IsolatedTasks

log = logging.getLogger(__name__)

_CHUNK_SIZE = 64 * 1024
_CHUNKS_WAITING_MAX = 4
_SLICE_S = 0.05
_NO_LINGER = struct.pack("ii", 1, 0)


class Link:
    """The faults between two ends; made by `open_link`."""

    def __init__(self, target: str, tasks: IsolatedTasks) -> None:
        self.address = ""
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self.is_down = False
        self._target = target
        self._tasks = tasks
        self._is_halving = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._carried: set[asyncio.Task[None]] = set()

    @property
    def connection_count(self) -> int:
        """Connections that are carried at the moment."""
        return len(self._carried)

    def halve(self) -> None:
        """Deliver half of the next bytes in each direction, then hold back all others."""
        self._is_halving = True
        self._flowing.clear()

    def freeze(self) -> None:
        """Hold back all bytes from now on."""
        self._is_halving = False
        self._flowing.clear()

    def heal(self) -> None:
        """Deliver what was held back, and carry on."""
        self.is_down = False
        self._is_halving = False
        self._flowing.set()

    def cut(self) -> None:
        """Break every connection at both ends; new ones may be made at once unless the link is down."""
        for task in self._carried:
            task.cancel()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            _reset(writer)
            return
        task = self._tasks.start(self._carry(reader, writer), name="link.carry")
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*split_address(self._target))
            ends.append(far_writer)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._pump(reader, far_writer), name="link.out")
                directions.create_task(self._pump(far_reader, writer), name="link.back")
            for end in ends:
                end.close()
        except OSError:
            log.debug("nobody at the other end target=%s", self._target)
        finally:
            for end in ends:
                if not end.is_closing():
                    _reset(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_WAITING_MAX)
        async with asyncio.TaskGroup() as ends:
            filling = ends.create_task(self._fill(reader, chunks), name="link.fill")
            with suppress(OSError):
                await self._drain(chunks, writer)
            filling.cancel()

    async def _fill(self, reader: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        chunk = b"?"
        while chunk:
            try:
                chunk = await reader.read(_CHUNK_SIZE)
            except OSError:
                chunk = b""
            await chunks.put((loop.time() + self.delay_s, chunk))

    async def _drain(self, chunks: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s, chunk = await chunks.get()
            if due_s > loop.time():
                await asyncio.sleep(due_s - loop.time())
            await self._deliver(chunk, writer)
            if not chunk:
                return

    async def _deliver(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        if not self._flowing.is_set():
            if self._is_halving and chunk:
                await self._write(chunk[: len(chunk) // 2], writer)
                chunk = chunk[len(chunk) // 2 :]
            await self._flowing.wait()
        await self._write(chunk, writer)
        if not chunk and not writer.is_closing():
            writer.write_eof()

    async def _write(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        while chunk:
            size = len(chunk)
            if self.bytes_per_s is not None:
                size = min(size, max(1, int(self.bytes_per_s * _SLICE_S)))
                await asyncio.sleep(size / self.bytes_per_s)
            if writer.is_closing():
                raise ConnectionResetError("the far end is gone")
            writer.write(chunk[:size])
            await writer.drain()
            chunk = chunk[size:]


def _reset(writer: asyncio.StreamWriter) -> None:
    end: socket.socket | None = writer.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


@asynccontextmanager
async def open_link(target: str) -> AsyncIterator[Link]:
    """A link to `target` ("host:port"); anyone who connects to its `address` reaches the target through it."""
    async with IsolatedTasks() as tasks:
        link = Link(target, tasks)
        server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
        link.address = "{}:{}".format(*server.sockets[0].getsockname())
        try:
            yield link
        finally:
            server.close()
            link.is_down = True
            link.cut()
