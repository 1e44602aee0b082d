"""The switch between namespaces loses, delays and parts as it is told, and leaves nothing behind."""

import os
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from tests.replication.network import Host, Network, is_possible
from tests.replication.nodes import Node, await_that, ended

pytestmark = pytest.mark.skipif(not is_possible(), reason="namespaces take root and /dev/net/tun")
PORT = 5000
ECHO = """
import socket, sys, threading
def echo(end):
    while content := end.recv(1 << 16):
        end.sendall(content)
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    while True:
        threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def net() -> Iterator[Network]:
    with Network() as net:
        net.host("client")
        yield net


@pytest.fixture
def line(net: Network, tmp_path) -> Iterator[socket.socket]:
    """A connection from `client` to a process on `server` that sends everything back."""
    server = net.host("server")
    node = Node("echo", server, tmp_path, [sys.executable, "-c", ECHO, server.address, str(PORT)])
    with ended(lambda: [node]):
        node.start()
        with await_that("the server listens", lambda: connected(net.host("client"), server.address), 60) as line:
            yield line


def connected(host: Host, address: str) -> socket.socket | None:
    try:
        return host.run(lambda: socket.create_connection((address, PORT), 2))
    except OSError:
        return None


def echoed(line: socket.socket, limit_s: float) -> bool:
    line.settimeout(limit_s)
    try:
        line.sendall(b"x")
        return line.recv(100) != b""
    except TimeoutError:
        return False


def test_what_is_lost_one_way_is_lost_and_comes_when_the_way_is_mended(net: Network, line: socket.socket) -> None:
    assert echoed(line, 5)
    net.lose("server", "client")
    assert not echoed(line, 0.3)
    net.heal()
    line.settimeout(30)
    assert line.recv(100), "TCP sends again what was lost"


def test_a_delay_counts_one_way(net: Network, line: socket.socket) -> None:
    net.delay("client", "server", 0.5)
    took_s = []
    for _ in range(3):
        begun_s = time.monotonic()
        assert echoed(line, 5)
        took_s.append(time.monotonic() - begun_s)
    assert 0.5 <= min(took_s) < 1


def test_a_third_host_is_not_parted_with_the_other_two(net: Network, line: socket.socket) -> None:
    net.host("third")
    net.cut("client", "server")
    assert not echoed(line, 0.2)
    assert connected(net.host("client"), net.host("server").address) is None
    there = connected(net.host("third"), net.host("server").address)
    assert there is not None
    there.close()


def test_many_bytes_pass_whole(net: Network, line: socket.socket) -> None:
    content = os.urandom(1 << 20)
    came = bytearray()
    line.settimeout(30)
    for at in range(0, len(content), 1 << 14):
        line.sendall(content[at : at + (1 << 14)])
        while len(came) < at + (1 << 14):
            came += line.recv(1 << 16)
    assert bytes(came) == content


def test_a_host_reaches_nothing_outside(net: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with pytest.raises(OSError):  # noqa: PT011 (refused or unreachable, as the kernel likes)
            net.host("client").run(lambda: socket.create_connection(address, 1))
