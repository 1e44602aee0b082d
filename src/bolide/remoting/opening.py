"""The first bytes of a connection: a PROXY header, then TLS or plain.

They are looked at on the raw socket before any transport has it: TLS bytes are peeked and left for the handshake, a
PROXY header is taken away. One byte decides, because within the frame limit every frame begins with 0x00 and never with
`P`, CR or 0x16: what begins like a PROXY header and is none belongs to another protocol, and may be consumed meanwhile.
HTTP/2 begins with `PRI`; where it is spoken, what was taken of that is given back (`Opening.taken`).

The price is a wait for the first byte before a session exists; anyone who calls bounds it.
"""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass

from bolide.errors import ProtocolError
from bolide.protocol.frames import stranger

_TLS_HANDSHAKE = 0x16
_TEXT_START = b"PROXY "
_HTTP2_START = b"PRI"
_TEXT_SIZE_MAX = 107
_BINARY_START = b"\r\n\r\n\x00\r\nQUIT\n"
_BINARY_HEAD_SIZE = 16
_BINARY_SIZE_MAX = 4096
# Transport and family in the binary header → the size of one address.
_ADDRESS_SIZES = {0x11: 4, 0x21: 16}

# Who connected, and to which address: both as host:port.
Ends = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Opening:
    """How a connection begins; `ends` is what a proxy announced, `taken` what was read of the connection's own."""

    is_tls: bool
    ends: Ends | None = None
    taken: bytes = b""


async def read_opening(connection: socket.socket, *, is_proxy_accepted: bool, is_http2: bool = False) -> Opening | None:
    """Wait for the first byte and see what it begins; None when the peer left without a word."""
    ends = None
    first = await _peek(connection, 1)
    if is_proxy_accepted and first in (b"P", b"\r"):
        head = await _take(connection, len(_HTTP2_START)) if is_http2 and first == b"P" else b""
        if head == _HTTP2_START:
            return Opening(False, ends, head)
        ends = await (_read_text(connection, head) if first == b"P" else _read_binary(connection))
        first = await _peek(connection, 1)
    return Opening(first[0] == _TLS_HANDSHAKE, ends) if first else None


async def _read_text(connection: socket.socket, head: bytes) -> Ends | None:
    head += await _take(connection, len(_TEXT_START) - len(head))
    if head != _TEXT_START:
        raise _not_proxy(head)
    line = b""
    while not line.endswith(b"\n"):
        seen = await _peek(connection, _TEXT_SIZE_MAX - len(head) - len(line))
        if not seen:
            raise ProtocolError("a PROXY header without an end")
        line += await _take(connection, seen.find(b"\n") + 1 or len(seen))
    return text_ends(line)


async def _read_binary(connection: socket.socket) -> Ends | None:
    head = await _take(connection, _BINARY_HEAD_SIZE)
    size = int.from_bytes(head[14:16], "big")
    if not head.startswith(_BINARY_START) or head[12] >> 4 != 2 or size > _BINARY_SIZE_MAX:
        raise _not_proxy(head)
    return binary_ends(head, await _take(connection, size))


def _not_proxy(head: bytes) -> ProtocolError:
    return ProtocolError(f"{stranger(head) or f'bytes that begin {head!r}'} on a port of RocketMQ's remoting protocol")


def text_ends(line: bytes) -> Ends | None:
    """What follows `PROXY ` in version 1: `TCP4 source destination port port`, or `UNKNOWN`."""
    words = line.decode("latin-1").split()
    if words[:1] == ["UNKNOWN"]:
        return None
    try:
        family, source, destination, source_port, destination_port = words
        if family not in ("TCP4", "TCP6"):
            raise ValueError(family)
        return _end(source, int(source_port)), _end(destination, int(destination_port))
    except ValueError:
        raise ProtocolError(f"a PROXY header that cannot be read: {line[:_TEXT_SIZE_MAX]!r}") from None


def binary_ends(head: bytes, addresses: bytes) -> Ends | None:
    """The addresses of version 2; None when the proxy speaks for itself (LOCAL) or not of TCP."""
    size = _ADDRESS_SIZES.get(head[13])
    if not head[12] & 1 or size is None:
        return None
    if len(addresses) < 2 * size + 4:
        raise ProtocolError("a PROXY header too short for its addresses")
    source, destination = (str(ipaddress.ip_address(addresses[at : at + size])) for at in (0, size))
    source_port, destination_port = (int.from_bytes(addresses[at : at + 2], "big") for at in (2 * size, 2 * size + 2))
    return _end(source, source_port), _end(destination, destination_port)


def _end(host: str, port: int) -> str:
    if not 0 <= port <= 65_535:
        raise ValueError(port)
    return f"{ipaddress.ip_address(host)}:{port}"


async def _peek(connection: socket.socket, size: int) -> bytes:
    while True:
        try:
            return connection.recv(size, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _readable(connection)


async def _take(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, taken off the socket."""
    taken = b""
    while len(taken) < size:
        seen = await _peek(connection, size - len(taken))
        if not seen:
            raise ProtocolError(f"a connection that ended after {taken!r}")
        taken += connection.recv(len(seen))
    return taken


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connection, _wake, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connection)


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
