"""The first bytes of a connection: PROXY headers of both versions, and what only looks like one."""

import ipaddress
import logging
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ProtocolError
from bolide.remoting.address import split_address
from bolide.remoting.opening import binary_ends, text_ends
from tests.remoting.ends import Peer, Table, request_of, served
from tests.remoting.loops import both_loops, eventually

SIGNATURE = bytes.fromhex("0D0A0D0A000D0A515549540A")


def binary_header(
    source: str, destination: str, ports: tuple[int, int], *, command: int = 1, tail: bytes = b""
) -> bytes:
    ends = [ipaddress.ip_address(source), ipaddress.ip_address(destination)]
    body = b"".join(end.packed for end in ends) + struct.pack(">HH", *ports) + tail
    family = 0x11 if ends[0].version == 4 else 0x21
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack(">H", len(body)) + body


@pytest.mark.parametrize(
    ("header", "peer", "local"),
    [
        (b"PROXY TCP4 203.0.113.7 198.51.100.1 5001 9876\r\n", "203.0.113.7:5001", "198.51.100.1:9876"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5001 9876\r\n", "2001:db8::7:5001", "2001:db8::1:9876"),
        (binary_header("203.0.113.7", "198.51.100.1", (5001, 9876)), "203.0.113.7:5001", "198.51.100.1:9876"),
        (binary_header("2001:db8::7", "2001:db8::1", (1, 2), tail=b"\x04\x00\x01x"), "2001:db8::7:1", "2001:db8::1:2"),
    ],
)
@both_loops
async def test_a_session_believes_the_addresses_a_proxy_announces(header: bytes, peer: str, local: str) -> None:
    async with served(Table()) as server:
        proxy = await Peer.connect(server.port)
        for byte in header[:-1]:  # however slowly it comes
            proxy.send(bytes([byte]))
            await proxy.writer.drain()
        assert (await proxy.ask_after(header[-1:], request_of(1))).opaque == 1
        assert (server.sessions[0].peer, server.sessions[0].local) == (peer, local)
        proxy.leave()


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", binary_header("1.2.3.4", "5.6.7.8", (1, 2), command=0)])
@both_loops
async def test_a_proxy_that_speaks_for_itself_keeps_its_own_address(header: bytes) -> None:
    async with served(Table()) as server:
        proxy = await Peer.connect(server.port)
        assert (await proxy.ask_after(header, request_of(1))).opaque == 1
        assert server.sessions[0].peer == proxy.name
        proxy.leave()


@pytest.mark.parametrize(
    "start",
    [
        b"PROXY TCP4 1.2.3.4\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 99999 1\r\n",
        b"PROXY " + b"x" * 200,
        b"PUT /x HTTP/1.1\r\n",
        SIGNATURE[:-1] + b"!" + bytes(20),
        SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\xff\xff" + bytes(12),
        SIGNATURE + b"\x21\x11\x00\x02" + bytes(2),
    ],
)
@both_loops
async def test_what_is_no_proxy_header_ends_in_one_line(start: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        peer.send(start)
        assert await peer.end() == b""
        peer.leave()
        await eventually(lambda: server.connection_count == 0)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@both_loops
async def test_a_port_that_accepts_no_proxy_refuses_its_header(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Table(), is_proxy_accepted=False) as server:
        peer = await Peer.connect(server.port)
        peer.send(b"PROXY TCP4 203.0.113.7 198.51.100.1 5001 9876\r\n", request_of(1))
        assert await peer.end() == b""
        peer.leave()
    assert "a PROXY header" in caplog.text


@both_loops
async def test_a_peer_that_connects_and_leaves_is_nobodys_business(caplog: pytest.LogCaptureFixture) -> None:
    owner = Table()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.leave()
        await eventually(lambda: server.connection_count == 0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert owner.gone == []


@given(line=st.binary(max_size=110))
def test_any_text_is_read_or_refused(line: bytes) -> None:
    with suppress(ProtocolError):
        ends = text_ends(line)
        assert ends is None or [split_address(end) for end in ends]


@given(start=st.binary(min_size=16, max_size=16), rest=st.binary(max_size=50))
def test_any_binary_header_is_read_or_refused(start: bytes, rest: bytes) -> None:
    with suppress(ProtocolError):
        ends = binary_ends(start, rest)
        assert ends is None or [split_address(end) for end in ends]
