"""A connection that its caller writes and reads himself: the shortest way for one blocking request.

Through a loop in another thread a send pays two thread switches; here it pays two system calls. A line serves one
request at a time and is lent to one thread; lines that rested too long are not trusted, because brokers close
connections that are silent for two minutes, and a send into a closed one is in doubt.
"""

import socket
import struct
from collections import deque
from collections.abc import Callable

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import ConnectError, ConnectionLost, ProtocolError, RequestTimeout
from bolide.protocol.command import FRAME_SIZE_MAX, Command, read_commands
from bolide.remoting.address import split_address

REST_MAX_S = 60.0
_READ_SIZE = 16 * 1024
_OPAQUE_MAX = 0x7FFF_FFFF


class Line:
    """One blocking connection."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self.rests_since_s = 0.0
        self._opaque = 0
        self._limit_s = 0.0
        try:
            self._socket = socket.create_connection(split_address(address), timeout_s)
        except OSError as problem:
            raise ConnectError(f"{address}: {problem}") from problem
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)

    def ask(self, command: Command, timeout_s: float) -> Command:
        """The answer to one request; after any error the line is of no more use."""
        self._opaque = command.opaque = self._opaque % _OPAQUE_MAX + 1
        self._limit(timeout_s)
        try:
            self._socket.sendall(command.encode())
            return self._answer(command, timeout_s)
        except BlockingIOError:
            raise RequestTimeout(
                f"{self.address} did not answer request {command.code} within {timeout_s:g} s"
            ) from None
        except OSError as problem:
            raise ConnectionLost(f"the connection to {self.address} is gone: {problem}") from problem

    def _limit(self, timeout_s: float) -> None:
        """The kernel's own limit: Python's would cost a further system call for each one."""
        if timeout_s != self._limit_s:
            self._limit_s = timeout_s
            seconds = int(timeout_s)
            packed = struct.pack("ll", seconds, max(int((timeout_s - seconds) * 1_000_000), 1))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)

    def _answer(self, command: Command, timeout_s: float) -> Command:
        received = self._socket.recv(_READ_SIZE)
        while True:
            if not received:
                raise ConnectionLost(f"{self.address} closed the connection before it answered")
            bounds, _, problem = kernel.cut_frames(received, len(received), FRAME_SIZE_MAX)
            if problem is not None:
                raise ProtocolError(f"{self.address} sent {problem}")
            for answer in read_commands(received, bounds):
                if answer.is_response and answer.opaque == command.opaque:
                    return answer
            more = self._socket.recv(_READ_SIZE)
            received = received + more if more else b""

    def close(self) -> None:
        self._socket.close()


class Lines:
    """Lines that rest, by address; each thread takes one and gives it back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting: dict[str, deque[Line]] = {}
        self._is_closed = False

    def ask(self, address: str, command: Command, timeout_s: float, sign: Callable[[str, Command], None]) -> Command:
        """One request on a line of our own."""
        sign(address, command)
        line = self._take(address, timeout_s)
        try:
            answer = line.ask(command, timeout_s)
        except BaseException:
            line.close()
            raise
        line.rests_since_s = self._clock.monotonic_s()
        if self._is_closed:
            line.close()
        else:
            self._resting.setdefault(address, deque()).append(line)
        return answer

    def _take(self, address: str, timeout_s: float) -> Line:
        resting = self._resting.get(address)
        while resting:
            try:
                line = resting.pop()  # one step, so threads need no lock
            except IndexError:
                break
            if self._clock.monotonic_s() - line.rests_since_s < REST_MAX_S:
                return line
            line.close()
        return Line(address, timeout_s)

    def close(self) -> None:
        self._is_closed = True
        for resting in self._resting.values():
            while resting:
                resting.pop().close()
