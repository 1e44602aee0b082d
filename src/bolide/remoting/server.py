"""A listening port: who may come in, how long one may stay, and how everybody leaves.

Connections are accepted by hand instead of by asyncio's server, because the first byte has to be seen on the raw
socket: it tells TLS from plain on one port (`opening.py`). Each connection is one task from its acceptance to its end;
all of them live in the group that `listen` holds open, and the nesting of `async with` is the order of the shutdown:
stop accepting, let what was begun be answered within a limit, close.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, cast

from bolide.clock import Clock
from bolide.errors import ConfigError, ProtocolError
from bolide.remoting.address import join_address
from bolide.remoting.idle import IdleSweep
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.listen_config import ListenConfig
from bolide.remoting.loop_turn import LoopTurn
from bolide.remoting.opening import Opening, read_opening
from bolide.remoting.reach import accept_from
from bolide.remoting.session import Owner, Session
from bolide.remoting.shared import Shared
from bolide.remoting.sparse import Sparse
from bolide.remoting.tls import Certificates

log = logging.getLogger(__name__)
log.addFilter(Sparse())

_ACCEPTED_A_TURN_MAX = 16
_ACCEPT_PAUSE_S = 1.0
_KEPT_DESCRIPTORS_MAX = 64


def _descriptors_for_guests() -> int:
    """Where the descriptors begin that no connection gets, for without files a server could not keep what it has.

    The system gives the lowest number that is free, so the number of a new one says how many are in use.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(_KEPT_DESCRIPTORS_MAX, soft // 8)


class Guest(Protocol):
    """A connection from its first byte on; a `Session` is one, and so is a connection of another protocol."""

    @property
    def is_made(self) -> bool:
        """The connection was established, be it closed by now."""
        ...

    async def run(self, attach: Callable[[], Awaitable[object]], tasks: IsolatedTasks) -> None:
        """Be the connection that `attach` makes, until it is gone and all its work, which `tasks` has, has ended."""
        ...

    def finish(self, why: str) -> None:
        """Take no more, answer what was begun, then close."""
        ...

    def expire(self, now_s: float, idle_max_s: float) -> float:
        """Close after too long a silence; returns when to look again."""
        ...


Greet = Callable[[Opening], Guest]


class Server:
    """A port that is served; made by `listen`."""

    def __init__(
        self,
        config: ListenConfig,
        greet: Greet,
        clock: Clock,
        tasks: IsolatedTasks,
        listeners: list[socket.socket],
        shared: Shared,
    ) -> None:
        self.config = config
        self.greet = greet
        self.clock = clock
        self.shared = shared
        self.certificates = Certificates(config, clock)
        self.addresses = [join_address(listener.getsockname()) for listener in listeners]
        self.port: int = listeners[0].getsockname()[1]
        self._loop = asyncio.get_running_loop()
        self.tasks = tasks
        self._listeners = listeners
        self._connections: set[_Connection] = set()
        self._closed = asyncio.Event()
        self._is_full = False
        self._sweep = IdleSweep(lambda: self._connections, config.idle_max_s, clock)
        for listener in listeners:
            self._loop.add_reader(listener, self._accept, listener)
        log.info("listening addresses=%s tls=%s", ",".join(self.addresses), config.tls_mode)

    @property
    def sessions(self) -> list[Session]:
        """The connections of the remoting protocol whose requests are served."""
        return [c.guest for c in self._connections if isinstance(c.guest, Session) and c.guest.is_made]

    @property
    def connection_count(self) -> int:
        """Everybody who was accepted and is not gone, those who have not said a word included."""
        return len(self._connections)

    def close(self) -> None:
        """Let `closed` return; leaving `listen` does the rest."""
        self._closed.set()

    async def closed(self) -> None:
        """Wait until somebody calls `close`."""
        await self._closed.wait()

    async def stop(self) -> None:
        """Stop accepting, let what was begun be answered within the limit, close."""
        self._closed.set()
        self._sweep.stop()
        self.shared.slack.stop()
        self.shared.dozing.stop()
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for connection in list(self._connections):
            connection.finish("the server stopped")
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.config.stop_limit_s)
            if late:
                log.warning("stopped: %d connections were not done after %d s", len(late), self.config.stop_limit_s)
            for task in late:
                task.cancel()
        for connection in [each for each in self._connections if each.task is None or each.task.done()]:
            self.leave(connection)  # its task was cancelled before its first step
        log.info("stopped listening addresses=%s", ",".join(self.addresses))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_A_TURN_MAX):
            try:
                accepted, sockaddr = accept_from(listener)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                # Out of descriptors or memory: the listener stays readable, so without a pause we would spin.
                log.error("not accepting for %g s: %s", _ACCEPT_PAUSE_S, problem)
                self._loop.remove_reader(listener)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again, listener)
                return
            self._welcome(accepted, join_address(sockaddr))

    def _accept_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    def _welcome(self, accepted: socket.socket, peer: str) -> None:
        problem = None
        if len(self._connections) >= self.config.connections_max:
            problem = f"limit={self.config.connections_max} reached"
        elif accepted.fileno() >= _descriptors_for_guests():
            problem = f"count={len(self._connections)}, the rest of the open files (ulimit -n) is kept for the server"
        if problem is not None:
            if not self._is_full:
                log.warning("connections refused: %s, first=%s", problem, peer)
            self._is_full = True
            accepted.close()
            return
        self._is_full = False
        connection = _Connection(self, accepted, peer)
        self._connections.add(connection)
        self.shared.slack.came()
        connection.task = self.tasks.call(connection.run, name=f"connection.{peer}")

    def leave(self, connection: "_Connection") -> None:
        """Nothing of it is left."""
        connection.accepted.close()
        self._connections.discard(connection)
        if not self._closed.is_set():
            self.shared.slack.left()


class _Connection:
    """One that was accepted: first a socket, then, once it has spoken, a session.

    Thousands may be here that say little, so what lasts as long as one is a task, this and its guest: no callback that
    knows it, no function made for it alone, and no group of tasks beside the server's.
    """

    __slots__ = ("_accepted_s", "_context", "_peer", "_server", "accepted", "guest", "task")

    def __init__(self, server: Server, accepted: socket.socket, peer: str) -> None:
        self.accepted = accepted
        self.guest: Guest | None = None
        self.task: asyncio.Task[None] | None = None
        self._server = server
        self._peer = peer
        self._context: ssl.SSLContext | None = None
        self._accepted_s = server.clock.monotonic_s()

    async def run(self) -> None:
        config = self._server.config
        try:
            self.accepted.setblocking(False)
            self.accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening = await read_opening(
                self.accepted, is_proxy_accepted=config.is_proxy_accepted, is_http2="h2" in config.alpn
            )
            if opening is not None:
                self._context = await self._context_for(opening)
                self.guest = self._server.greet(opening)
                del opening, config
                await self.guest.run(self._attach, self._server.tasks)
        except ProtocolError as problem:
            log.warning("connection closed: peer=%s sent %s", self._peer, problem)
        except OSError as problem:  # a reset, a failed or unfinished TLS handshake
            log.warning(
                "connection closed: peer=%s before its first request: %s", self._peer, str(problem) or "timeout"
            )
        finally:
            self._server.leave(self)

    async def _context_for(self, opening: Opening) -> ssl.SSLContext | None:
        """How TLS is spoken where it is; a connection that may not begin as it does is refused."""
        config = self._server.config
        if opening.is_tls and config.tls_mode == "disabled":
            raise ProtocolError("a TLS handshake, and tls.server.mode is disabled")
        if not opening.is_tls and config.tls_mode == "enforcing":
            raise ProtocolError("plain bytes, and tls.server.mode is enforcing")
        context = await self._server.certificates.context() if opening.is_tls else None
        if opening.is_tls and context is None:
            raise ProtocolError("a TLS handshake, and there is no certificate")
        return context

    async def _attach(self) -> None:
        context, limit_s = self._context, self._server.config.tls_handshake_limit_s
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: cast(asyncio.BaseProtocol, self.guest),
            self.accepted,
            ssl=context,
            ssl_handshake_timeout=limit_s if context else None,
        )

    def finish(self, why: str) -> None:
        if self.guest is not None and self.guest.is_made:
            self.guest.finish(why)
        elif self.task is not None:
            self.task.cancel()

    def expire(self, now_s: float, idle_max_s: float) -> float:
        if self.guest is not None and self.guest.is_made:
            return self.guest.expire(now_s, idle_max_s)
        due_s = self._accepted_s + idle_max_s
        if due_s <= now_s:
            log.info("connection closed: peer=%s said nothing for %d s", self._peer, idle_max_s)
            self.finish("idle")
        return max(due_s, now_s + 1)


@asynccontextmanager
async def listen(
    config: ListenConfig, owner: Owner, clock: Clock, shared: Shared | None = None
) -> AsyncIterator[Server]:
    """Serve a port as long as the block lasts; leaving it lets running answers finish within `stop_limit_s`.

    `shared` is another port's, where one process has several.
    """
    shared = shared or Shared.of_server(config, clock)
    turn = LoopTurn(owner)
    async with listen_for(config, lambda opening: Session(turn, config, clock, opening, shared), clock, shared) as port:
        yield port


@asynccontextmanager
async def listen_for(config: ListenConfig, greet: Greet, clock: Clock, shared: Shared) -> AsyncIterator[Server]:
    """The same for connections of any protocol, which `greet` makes."""
    async with IsolatedTasks() as tasks:
        listeners = await bind(config)
        try:
            server = Server(config, greet, clock, tasks, listeners, shared)
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        try:
            yield server
        finally:
            await server.stop()


async def bind(config: ListenConfig) -> list[socket.socket]:
    """A socket for each address the host name stands for, all on one port."""
    loop = asyncio.get_running_loop()
    listeners: list[socket.socket] = []
    port = config.port
    try:
        found = await loop.getaddrinfo(config.host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, sockaddr in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # `::` alone means every address of both kinds; beside an IPv4 socket it must not take its port.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, len(found) > 1)
            listener.setblocking(False)
            listener.bind((sockaddr[0], port, *sockaddr[2:]))
            port = listener.getsockname()[1]
            listener.listen(config.backlog)
    except OSError as problem:
        for listener in listeners:
            listener.close()
        key, value = ("listenPort", port) if problem.errno == errno.EADDRINUSE else ("bindAddress", config.host)
        why = f"cannot listen on {config.host}:{port}: {problem.strerror or problem}"
        raise ConfigError(key, value, why) from problem
    return listeners
