"""One blocking connection with many requests in flight: what a Spark task needs of a client, and no more.

A task reads ranges whose ends are known and sends rows that lie ready; it has no use for a loop, heartbeats or a
rebalance. It puts requests down, does its work while they are answered, and takes the answers. The body of an answer is
a view of the buffer it was received into: records stay bytes until they become columns.
"""

import socket
import ssl
import struct
from collections.abc import Iterable
from typing import NamedTuple

from bolide import kernel
from bolide.client.signing import Signing
from bolide.errors import ConnectError, ConnectionLost, ProtocolError, RequestTimeout
from bolide.protocol.command import FRAME_SIZE_MAX, RESPONSE_FLAG, Command, encode_commands, read_commands
from bolide.remoting.address import reason_of, split_address
from bolide.remoting.tls import connecting_context
from bolide.spark.options import ClusterOptions

_RECEIVE_BUFFER_SIZE = 4 << 20


class Answer(NamedTuple):
    """What came back: `body` is a view, alive as long as somebody holds it."""

    opaque: int
    code: int
    remark: str | None
    fields: dict[str, str]
    body: memoryview


class Connection:
    """After any error it is of no more use."""

    def __init__(self, address: str, options: ClusterOptions) -> None:
        self.address = address
        self._signing = None if options.credentials is None else Signing(options.credentials)
        self._timeout_s = options.request_timeout_s
        self._opaque = 0
        self._early: dict[int, Answer] = {}
        try:
            plain = socket.create_connection(split_address(address), options.connect.connect_timeout_ms / 1000)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_SIZE)
            plain.settimeout(self._timeout_s)
            context = connecting_context(options.connect)
            self._socket = plain if context is None else context.wrap_socket(plain)
        except OSError as problem:
            raise ConnectError(f"{address}: {reason_of(problem)}") from problem

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_pending(self) -> bool:
        """Whether bytes were read already that `select` does not see; TLS reads whole records."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def close(self) -> None:
        self._socket.close()

    def put(self, commands: list[Command]) -> list[int]:
        """Send requests; returns the numbers under which their answers will come."""
        for command in commands:
            self._opaque = self._opaque % 0x7FFF_FFFF + 1
            command.opaque = self._opaque
            if self._signing is not None:
                self._signing.before(self.address, command)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(encode_commands(commands))
        except TimeoutError:
            raise RequestTimeout(f"{self.address} took no bytes for {self._timeout_s:g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem
        return [command.opaque for command in commands]

    def take(self, opaque: int, timeout_s: float | None = None) -> Answer:
        """The answer under a number; others that come before it are kept for who asks for them."""
        answer = self._early.pop(opaque, None)
        while answer is None:
            received = self.next(timeout_s)
            if received.opaque == opaque:
                answer = received
            else:
                self._early[received.opaque] = received
        return answer

    def ask(self, command: Command) -> Answer:
        """The answer to one request."""
        return self.take(self.put([command])[0])

    def ask_all(self, commands: Iterable[Command]) -> list[Answer]:
        """The answers to many, in the order of the requests."""
        return [self.take(opaque) for opaque in self.put(list(commands))]

    def next(self, timeout_s: float | None = None) -> Answer:
        """Whatever answer comes next; requests of the other side are passed over."""
        while True:
            frame = self._receive(timeout_s or self._timeout_s)
            header = kernel.read_headers(frame, [0, len(frame)])[0]
            if header is None:
                command = read_commands(frame, [0, len(frame)])[0]
                body = memoryview(command.body)
                answer = Answer(command.opaque, command.code, command.remark, command.fields, body)
                flag = command.flag
            else:
                _, code, _, _, opaque, flag, remark, fields, body_at = header
                answer = Answer(opaque, code, remark, fields, memoryview(frame)[body_at:])
            if flag & RESPONSE_FLAG:
                return answer

    def _receive(self, timeout_s: float) -> bytearray:
        try:
            self._socket.settimeout(timeout_s)
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= FRAME_SIZE_MAX:
                raise ProtocolError(f"{self.address} sent a frame of {size} bytes, the limit is {FRAME_SIZE_MAX}")
            return self._exactly(size)
        except TimeoutError:
            raise RequestTimeout(f"{self.address} did not answer within {timeout_s:g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem

    def _exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, filled = memoryview(buffer), 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise ConnectionLost(f"{self.address} closed the connection before it answered")
            filled += count
        return buffer
