"""A listener on the line between a program and a name server: passes all bytes on and keeps every frame.

What goes over the wire is the only witness for some claims: that a heartbeat carries all topics, that a stopping broker
says so, that a name server starts no talk of its own. The tap changes nothing; it adds some microseconds. When either
side hangs up it hangs up the other, so that a killed broker looks killed from behind the tap too.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bolide import kernel
from interop.wire import FRAME_SIZE_MAX, Address

READ_SIZE = 64 * 1024
JOIN_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """One frame on the line. `connection` counts from 0 in the order of their opening."""

    at_s: float
    connection: int
    from_client: bool
    code: int
    flag: int
    fields: dict[str, str]
    body: bytes
    raw: bytes

    @property
    def is_request(self) -> bool:
        return not self.flag & 1


class Tap:
    """Stands before `target`; everyone who connects to `address` reaches it."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._door = socket.create_server(("127.0.0.1", 0))
        self._heard: list[Heard] = []
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._door]
        self.connection_count = 0
        self.address: Address = self._door.getsockname()

    @property
    def endpoint(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def requests(self, code: int | None = None, *, from_client: bool = True) -> list[Heard]:
        """The requests heard so far, of one code or of all."""
        return [
            heard
            for heard in list(self._heard)
            if heard.is_request and heard.from_client == from_client and code in (None, heard.code)
        ]

    def frames(self) -> list[Heard]:
        return list(self._heard)

    def start(self) -> None:
        self._spawn(self._accept)

    def stop(self) -> None:
        for end in self._sockets:
            _hang_up(end)
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT_S)

    def _spawn(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                number = self.connection_count
                self.connection_count += 1
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    _hang_up(client)
                    continue
                self._sockets += [client, server]
                self._spawn(self._pass_on, client, server, number, True)
                self._spawn(self._pass_on, server, client, number, False)

    def _pass_on(self, source: socket.socket, sink: socket.socket, number: int, from_client: bool) -> None:
        rest = b""
        with suppress(OSError):
            while content := source.recv(READ_SIZE):
                rest = self._keep(rest + content, number, from_client)
                sink.sendall(content)
        _hang_up(source)
        _hang_up(sink)

    def _keep(self, stream: bytes, number: int, from_client: bool) -> bytes:
        bounds, taken, _ = kernel.cut_frames(stream, len(stream), FRAME_SIZE_MAX)
        for i, header in enumerate(kernel.read_headers(stream, bounds)):
            assert header is not None
            _, code, _, _, _, flag, _, fields, body_position = header
            start, end = bounds[2 * i : 2 * i + 2]
            body, raw = stream[body_position:end], stream[start - 4 : end]
            self._heard.append(Heard(time.monotonic(), number, from_client, code, flag, fields, body, raw))
        return stream[taken:]


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def tapped(target: Address) -> Iterator[Tap]:
    tap = Tap(target)
    tap.start()
    try:
        yield tap
    finally:
        tap.stop()
