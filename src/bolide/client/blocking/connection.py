"""A connection that its caller writes and reads itself: for a blocking send, and for a Spark task.

Through a loop in another thread a request pays two thread switches; here it pays two system calls. One thread uses it
at a time. Many requests may be in flight: they are put down, and their answers taken while the caller does its work.
The body of an answer is a view of the bytes it was received into: records stay bytes until they become columns.

After any error a connection is of no more use.
"""

import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import ConnectError, ConnectionLost, ProtocolError, RequestTimeout
from bolide.protocol.command import FRAME_SIZE_MAX, RESPONSE_FLAG, Command, encode_commands, read_commands
from bolide.remoting.address import reason_of, split_address
from bolide.remoting.config import ConnectConfig
from bolide.remoting.tls import ConnectingTls

if TYPE_CHECKING:
    from bolide.client.signing import Signing

REST_MAX_S = 60.0
_READ_SIZE = 4096
_RECEIVE_BUFFER_SIZE = 4 << 20
_OPAQUE_MAX = 0x7FFF_FFFF


class Answer(NamedTuple):
    """What came back: `body` is a view, alive as long as somebody holds it."""

    opaque: int
    code: int
    remark: str | None
    fields: dict[str, str]
    body: memoryview


class Connection:
    """One connection, with TLS if there is a `context`; requests are signed with `signing`."""

    def __init__(
        self,
        address: str,
        timeout_s: float,
        *,
        connect_timeout_s: float | None = None,
        context: ssl.SSLContext | None = None,
        signing: "Signing | None" = None,
    ) -> None:
        """`timeout_s` is how long it waits for the other side where nothing else is said."""
        self.address = address
        self._timeout_s = timeout_s
        self._signing = signing
        self._opaque = 0
        self._limit_s = 0.0
        self._received, self._at = b"", 0  # what was read, and from where on it was not taken yet
        self._early: dict[int, Answer] = {}
        try:
            host, port = split_address(address)
            plain = socket.create_connection((host, port), connect_timeout_s or timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_SIZE)
            self._socket = plain if context is None else context.wrap_socket(plain, server_hostname=host)
            self._socket.settimeout(None)
        except OSError as problem:
            raise ConnectError(f"{address}: {reason_of(problem)}") from problem

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_pending(self) -> bool:
        """Whether bytes were read already that `select` does not see; TLS reads whole records."""
        if self._at < len(self._received):
            return True
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def close(self) -> None:
        self._socket.close()

    # Requests

    def put(self, commands: list[Command], timeout_s: float | None = None) -> list[int]:
        """Send requests; returns the numbers under which their answers will come."""
        for command in commands:
            command.opaque = self.next_opaque()
            if self._signing is not None:
                self._signing.before(self.address, command)
        self.write(encode_commands(commands), timeout_s or self._timeout_s)
        return [command.opaque for command in commands]

    def take(self, opaque: int, timeout_s: float | None = None) -> Answer:
        """The answer under a number; others that come before it are kept for anyone who asks for them."""
        answer = self._early.pop(opaque, None)
        while answer is None:
            received = self.next(timeout_s)
            if received.opaque == opaque:
                answer = received
            else:
                self._early[received.opaque] = received
        return answer

    def ask(self, command: Command, timeout_s: float | None = None) -> Answer:
        """The answer to one request."""
        return self.take(self.put([command], timeout_s)[0], timeout_s)

    def ask_all(self, commands: Iterable[Command]) -> list[Answer]:
        """The answers to many, in the order of the requests."""
        return [self.take(opaque) for opaque in self.put(list(commands))]

    def next(self, timeout_s: float | None = None) -> Answer:
        """Whatever answer comes next; requests of the other side are passed over."""
        while True:
            answer = answer_in(self.receive(timeout_s or self._timeout_s))
            if answer is not None:
                return answer

    # Bytes

    def next_opaque(self) -> int:
        """The number of the next request."""
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        return self._opaque

    def write(self, frames: bytes, timeout_s: float) -> None:
        """Send frames that lie ready."""
        if timeout_s != self._limit_s:
            self._limit(timeout_s)
        try:
            self._socket.sendall(frames)
        except (BlockingIOError, TimeoutError):
            raise RequestTimeout(f"{self.address} took no bytes for {timeout_s:g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem

    def receive(self, timeout_s: float) -> bytes | bytearray:
        """The next frame, without its length."""
        if timeout_s != self._limit_s:
            self._limit(timeout_s)
        try:
            if self._at < len(self._received):
                return self._next_frame(self._received, self._at)
            received = self._socket.recv(_READ_SIZE)
            size = len(received) - 4
            if size >= 4 and int.from_bytes(received[:4], "big") == size:  # the usual case: one answer, and no more
                return received[4:]
            return self._next_frame(received, 0)
        except (BlockingIOError, TimeoutError):
            raise RequestTimeout(f"{self.address} did not answer within {timeout_s:g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem

    def _next_frame(self, received: bytes, at: int) -> bytes | bytearray:
        """The one that begins there in what was read; what follows it is kept."""
        while len(received) - at < 4:
            more = self._socket.recv(_READ_SIZE) if received else b""
            if not more:
                raise self._closed()
            received, at = received[at:] + more, 0
        size = int.from_bytes(received[at : at + 4], "big")
        if not 4 <= size <= FRAME_SIZE_MAX:
            _, _, wrong = kernel.cut_frames(received[at:], len(received) - at, FRAME_SIZE_MAX)
            raise ProtocolError(f"{self.address} sent {wrong}")
        end = at + 4 + size
        if end <= len(received):
            self._received, self._at = received, end
            return received[at + 4 : end]
        self._received, self._at = b"", 0
        return self._filled(size, received[at + 4 :])

    def _filled(self, size: int, begun: bytes) -> bytearray:
        """A frame that is longer than what was read of it: the rest is received where it stays."""
        frame = bytearray(size)
        filled = len(begun)
        frame[:filled] = begun
        view = memoryview(frame)
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise self._closed()
            filled += count
        return frame

    def _closed(self) -> ConnectionLost:
        return ConnectionLost(f"{self.address} closed the connection before it answered")

    def _limit(self, timeout_s: float) -> None:
        """The kernel's own limit: Python's would cost a further system call for each one. TLS knows Python's alone."""
        self._limit_s = timeout_s
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(timeout_s)
            return
        seconds = int(timeout_s)
        packed = struct.pack("ll", seconds, max(int((timeout_s - seconds) * 1_000_000), 1))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)


def answer_in(frame: bytes | bytearray) -> Answer | None:
    """What a frame answers; None for a request of the other side."""
    header = kernel.read_headers(frame, [0, len(frame)])[0]
    if header is None:
        command = read_commands(frame, [0, len(frame)])[0]
        answer = Answer(command.opaque, command.code, command.remark, command.fields, memoryview(command.body))
        return answer if command.is_response else None
    _, code, _, _, opaque, flag, remark, fields, body_at = header
    return Answer(opaque, code, remark, fields, memoryview(frame)[body_at:]) if flag & RESPONSE_FLAG else None


class ConnectionPool:
    """Connections that rest, by address; each thread takes one and gives it back.

    One that rested too long is not trusted: brokers close connections that are silent for two minutes, and a send into
    a closed one is in doubt.
    """

    def __init__(self, config: ConnectConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._tls: ConnectingTls | None = None
        self._resting: dict[str, deque[tuple[Connection, float]]] = {}
        self.is_closed = False

    def take(self, address: str, timeout_s: float) -> Connection:
        """A connection of our own, until `give_back` or its end."""
        resting = self.take_resting(address)
        if resting is not None:
            return resting
        if self._tls is None:
            self._tls = ConnectingTls(self._config)
        return Connection(address, timeout_s, context=self._tls.context())

    def take_resting(self, address: str) -> Connection | None:
        """The same if there is one, the one that was used last."""
        resting = self._resting.get(address)
        while resting:
            try:
                connection, since_s = resting.pop()  # one step, so threads need no lock
            except IndexError:
                break
            if self._clock.monotonic_s() - since_s < REST_MAX_S:
                return connection
            connection.close()
        return None

    def give_back(self, connection: Connection) -> None:
        """The connection has no request under way, and somebody else may have it."""
        if self.is_closed:
            connection.close()
        else:
            resting = self._resting.get(connection.address)
            if resting is None:
                resting = self._resting.setdefault(connection.address, deque())
            resting.append((connection, self._clock.monotonic_s()))

    def close(self) -> None:
        self.is_closed = True
        for resting in self._resting.values():
            while resting:
                resting.pop()[0].close()
