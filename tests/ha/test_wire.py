"""Wires: what one end puts comes out at the other, however full the line is, and whichever kind it is."""

import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.ha.wire import Parts, TlsWire, Wire
from bolide.remoting.tls import self_signed_pem

SIZE = 6 << 20


def plain_pair(_: Path) -> tuple[Wire, Wire]:
    near, far = tcp_pair()
    return Wire(near), Wire(far)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def tls_pair(folder: Path) -> tuple[Wire, Wire]:
    path = folder / "server.pem"
    path.write_bytes(self_signed_pem(SystemClock()))
    inner, outer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    inner.load_cert_chain(path)
    outer.check_hostname, outer.verify_mode = False, ssl.CERT_NONE
    near, far = tcp_pair()
    for end in (near, far):
        end.setblocking(False)
    ends = [
        outer.wrap_socket(near, do_handshake_on_connect=False),
        inner.wrap_socket(far, server_side=True, do_handshake_on_connect=False),
    ]
    left = list(ends)
    while left:
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                continue
    return TlsWire(ends[0]), TlsWire(ends[1])


@pytest.fixture(params=[plain_pair, tls_pair], ids=["plain", "TLS"])
def wires(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Wire, Wire]]:
    pair = request.param(tmp_path)
    yield pair
    for wire in pair:
        wire.close()


def test_what_a_full_line_did_not_take_goes_on_where_it_stopped(wires: tuple[Wire, Wire]) -> None:
    near, far = wires
    chance = random.Random(1)
    log = chance.randbytes(SIZE)
    rest: Parts = [b"head", memoryview(log)[: SIZE // 2], b"", memoryview(log)[SIZE // 2 :]]
    buffer, heard, full_count = bytearray(1 << 16), bytearray(), 0
    while len(heard) < SIZE + 4:
        if rest:
            rest = near.put(rest)
            full_count += bool(rest)
        try:
            size = far.receive_into(memoryview(buffer)[: chance.randrange(1, len(buffer))])
        except BlockingIOError:
            continue
        heard += buffer[:size]
    assert full_count > 3
    assert heard == b"head" + log
    assert rest == []


def test_an_empty_line_blocks_and_an_ended_one_gives_nothing(wires: tuple[Wire, Wire]) -> None:
    near, far = wires
    with pytest.raises(BlockingIOError):
        far.receive(10)
    assert near.put([b"last"]) == []
    near.close()
    heard = b""
    while len(heard) < 4:
        try:
            heard += far.receive(10)
        except BlockingIOError:
            continue
    assert (heard, far.receive(10)) == (b"last", b"")


def test_both_ends_of_tls_know_what_no_other_connection_has(tmp_path: Path) -> None:
    near, far = tls_pair(tmp_path)
    other, _ = tls_pair(tmp_path)
    assert near.binding == far.binding != b""
    assert other.binding != near.binding
    assert plain_pair(tmp_path)[0].binding == b""
