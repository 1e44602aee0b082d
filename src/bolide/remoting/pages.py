"""A few pages over HTTP, for Prometheus and for those who watch over processes: GET, one answer a connection.

It is no web server. One who asks has a few seconds to say what he wants in at most 8 KiB, few may ask at once, and one
who does not take what he asked for is let go. A page is text that comes in pieces (`metrics/page.py`). Pieces are made
on the loop, since they read what only the loop may, a millisecond at a time; then the loop has three for others. One
page is made at a time. So the one who asks again and again has a quarter of the loop at most, and nobody else waits
longer than for any other request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bolide.clock import Clock
from bolide.errors import ConfigError, ProtocolError
from bolide.remoting.address import join_address
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.server import bind
from bolide.remoting.sparse import Sparse

log = logging.getLogger(__name__)
log.addFilter(Sparse())

SLICE_S = 0.001
REST_FACTOR = 3
HEAD_SIZE_MAX = 8 << 10
CONNECTIONS_MAX = 32
ASK_LIMIT_S = 5.0
TAKE_LIMIT_S = 10.0  # for each piece
_CHUNK_SIZE = 32 << 10
_BACKLOG = 16
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says: a status, and text in pieces."""

    pieces: Iterator[str]
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], Answer | Awaitable[Answer]]]


class PageServer:
    """The port; made by `serve_pages`."""

    def __init__(self, pages: Pages, clock: Clock, tasks: IsolatedTasks) -> None:
        self.addresses: list[str] = []
        self._pages = pages
        self._clock = clock
        self._tasks = tasks
        self._one_at_a_time = asyncio.Lock()
        self._open: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody came; too many of them are sent away."""
        if len(self._open) >= CONNECTIONS_MAX:
            log.warning("pages: connection refused: limit=%d reached", CONNECTIONS_MAX)
            writer.transport.abort()
            return
        task = self._tasks.start(self._serve(reader, writer), name="pages.connection")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def stop(self) -> None:
        for task in self._open:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                head = await _read_head(reader)
            if head is not None:
                method, path, is_chunked = head
                await self._answer(writer, method, path, is_chunked)
                writer.close()
        except (OSError, ProtocolError, asyncio.IncompleteReadError) as problem:  # a timeout is an OSError
            log.info("pages: connection closed: %s", str(problem) or "timeout")
        finally:
            if not writer.is_closing():
                writer.transport.abort()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, path: str, is_chunked: bool) -> None:
        page = self._pages.get(path)
        if method not in ("GET", "HEAD"):
            answer = Answer(iter(["only GET is answered here\n"]), 405)
        elif page is None:
            answer = Answer(iter([f"no such page; there are {', '.join(self._pages)}\n"]), 404)
        else:
            made = page()
            answer = made if isinstance(made, Answer) else await made
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
            f"{'Transfer-Encoding: chunked' + chr(13) + chr(10) if is_chunked else ''}Connection: close\r\n\r\n"
        )
        writer.write(head.encode())
        if method != "HEAD":
            await self._write(writer, answer.pieces, is_chunked)

    async def _write(self, writer: asyncio.StreamWriter, pieces: Iterator[str], is_chunked: bool) -> None:
        async for chunk in self._chunks(pieces):
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)
            async with asyncio.timeout(TAKE_LIMIT_S):
                await writer.drain()
        if is_chunked:
            writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(TAKE_LIMIT_S):
            await writer.drain()

    async def _chunks(self, pieces: Iterator[str]) -> AsyncIterator[bytes]:
        """Bytes of a page, made in slices of the loop's time."""
        is_over = False
        while not is_over:
            parts: list[str] = []
            size = 0
            async with self._one_at_a_time:
                while size < _CHUNK_SIZE and not is_over:
                    began_s = self._clock.monotonic_s()
                    some, is_over = self._slice(pieces, began_s + SLICE_S, _CHUNK_SIZE - size)
                    parts += some
                    size += sum(map(len, some))
                    if not is_over:
                        took_s = self._clock.monotonic_s() - began_s
                        await asyncio.sleep(min(took_s * REST_FACTOR, SLICE_S * REST_FACTOR))
            if parts:
                yield "".join(parts).encode("utf-8", "replace")

    def _slice(self, pieces: Iterator[str], until_s: float, size_max: int) -> tuple[list[str], bool]:
        """What a slice brings, and whether that was all."""
        some: list[str] = []
        size = 0
        for piece in pieces:
            some.append(piece)
            size += len(piece)
            if size >= size_max or self._clock.monotonic_s() >= until_s:
                return some, False
        return some, True


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, str, bool] | None:
    """Method, path and whether chunks are understood; None from one who left without a word."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise ProtocolError(f"a request of more than {HEAD_SIZE_MAX} bytes") from None
    except asyncio.IncompleteReadError as problem:
        if not problem.partial:
            return None
        raise
    first = head.split(b"\r\n", 1)[0].split(b" ")
    if len(first) != 3 or not first[2].startswith(b"HTTP/1."):
        raise ProtocolError("no request of HTTP/1")
    return first[0].decode("latin-1"), first[1].partition(b"?")[0].decode("latin-1"), first[2] != b"HTTP/1.0"


@asynccontextmanager
async def serve_pages(host: str, port: int, pages: Pages, clock: Clock) -> AsyncIterator[PageServer | None]:
    """Serve pages as long as the block lasts; None where the port is taken, which is warned of and stops nothing."""
    try:
        listeners = await bind(ListenConfig(host=host, port=port, backlog=_BACKLOG))
    except ConfigError as problem:
        log.warning("no metrics: %s; choose another port with metricsPromExporterPort", problem.why)
        yield None
        return
    async with IsolatedTasks() as tasks:
        server = PageServer(pages, clock, tasks)
        accepting = [
            await asyncio.start_server(server.connected, sock=listener, limit=HEAD_SIZE_MAX, backlog=_BACKLOG)
            for listener in listeners
        ]
        server.addresses = [join_address(listener.getsockname()) for listener in listeners]
        log.info("pages are served addresses=%s paths=%s", ",".join(server.addresses), ",".join(pages))
        try:
            yield server
        finally:
            for each in accepting:
                each.close()
            server.stop()


async def get_page(host: str, port: int, path: str) -> tuple[int, str]:
    """Another server's page: its status and its text; raises OSError, ValueError. The caller has a limit of time."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status = head.split(b" ", 2)[1:2]
    if not status:
        raise ValueError("no answer of HTTP")
    return int(status[0]), body.decode()
