"""A listening port: whom it turns away, whom it outlasts, and how it stops."""

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.errors import ConfigError
from bolide.protocol.command import FRAME_SIZE_MAX
from bolide.protocol.frames import READ_SIZE
from bolide.remoting.address import join_address, split_address
from bolide.remoting.server import Server
from bolide.testing import VirtualClock, open_link
from tests.remoting.ends import Parked, Peer, Table, request_of, served, stream_of
from tests.remoting.loops import POLL_INTERVAL_S, both_loops, eventually, run_on, virtual_time


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# Silence


@virtual_time
async def test_a_connection_without_traffic_is_closed_after_120_s() -> None:
    clock = VirtualClock()
    owner = Table()
    async with served(owner, clock) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(1))
        await asyncio.sleep(100)  # virtual
        await peer.ask(request_of(2))
        asked_s = clock.monotonic_s()
        assert await peer.end() == b""
        assert 120 <= clock.monotonic_s() - asked_s <= 121
        assert [why for _, why in owner.gone] == ["idle"]
        peer.leave()


@virtual_time
async def test_a_peer_that_never_says_a_word_is_closed_too() -> None:
    clock = VirtualClock()
    async with served(Table(), clock) as server:
        peer = await Peer.connect(server.port)
        assert await peer.end() == b""
        assert 120 <= clock.monotonic_s() <= 121
        assert server.connection_count == 0
        peer.leave()


@virtual_time
async def test_a_half_open_peer_is_closed_when_its_silence_is_long_enough() -> None:
    clock = VirtualClock()
    owner = Table()
    async with served(owner, clock) as server, open_link(f"127.0.0.1:{server.port}") as link:
        peer = await Peer.connect(split_address(link.address)[1])
        await peer.ask(request_of(1))
        link.freeze()
        peer.send(request_of(2))
        await eventually(lambda: bool(owner.gone), limit_s=130)
        assert owner.served == [1]
        assert server.connection_count == 0
        peer.leave()


@virtual_time
async def test_what_is_written_to_a_peer_counts_as_traffic() -> None:
    clock = VirtualClock()
    async with served(Table(), clock) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(1))
        for _ in range(4):
            await asyncio.sleep(100)  # virtual
            server.sessions[0].send(request_of(0, code=40, flag=2))
            assert (await peer.answers(1))[0].code == 40
        assert clock.monotonic_s() == 400
        peer.leave()


@virtual_time
async def test_a_peer_that_takes_no_byte_of_its_answers_is_closed_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    owner = Table(lambda request: request.command.answer(0, body=bytes(10_000_000)))
    async with served(owner, clock) as server:
        peer = await Peer.connect(server.port)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(stream_of(5))
        await eventually(lambda: bool(owner.gone), limit_s=160)
        assert len(owner.served) == 1
        assert [why for _, why in owner.gone] == ["slow reader"]
        peer.leave()
    assert len(warnings_in(caplog)) == 1


@virtual_time
async def test_a_peer_that_takes_its_answer_slowly_is_not_idle() -> None:
    clock = VirtualClock()
    owner = Table(lambda request: request.command.answer(0, body=bytes(12_000_000)))
    async with served(owner, clock) as server:
        peer = await Peer.connect(server.port)
        # What it takes comes from the server and not from a large buffer of the system, which moves in real time.
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        peer.send(request_of(1))
        taken_size = 0
        while taken_size < 12_000_000:
            taken_size += len(await peer.reader.readexactly(400_000))
            await asyncio.sleep(20)  # virtual
        assert clock.monotonic_s() >= 600
        peer.leave()


# What is not our protocol

GOOD = request_of(1, b"good").encode()
NONSENSE = [
    pytest.param(b"\xff" * 100, "may be 4 to", id="garbage"),
    pytest.param((FRAME_SIZE_MAX - 3).to_bytes(4, "big"), "may be 4 to", id="oversized"),
    pytest.param(b"\x00\x00\x00\x10\x00\x00\x00\x0d" + bytes(12), "does not fit its frame", id="header-beyond-frame"),
    pytest.param(b"\x00\x00\x00\x10\x05\x00\x00\x02" + bytes(12), "codec 5", id="unknown-codec"),
    pytest.param(b"\x00\x00\x00\x06\x00\x00\x00\x02{!", "header", id="no-json"),
    pytest.param(b"\x00\x00\x00\x06\x01\x00\x00\x02zz", "header", id="no-binary-header"),
    pytest.param(b"\x00\x00\x00\x06\x00\x00\x00\x02[]", "header", id="json-but-no-header"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request", id="http-get"),
    pytest.param(b"POST /v1 HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request", id="http-post"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP/2 preface", id="http2"),
    pytest.param(b"SSH-2.0-OpenSSH_9.0\r\n", "an SSH greeting", id="ssh"),
]


@pytest.mark.parametrize(("nonsense", "name"), NONSENSE)
@both_loops
async def test_nonsense_ends_in_one_clear_line_and_a_closed_connection(
    nonsense: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        peer.send(nonsense)
        assert await peer.end() == b""
        await eventually(lambda: server.connection_count == 0)
        peer.leave()
    (line,) = warnings_in(caplog)
    assert name in line
    assert peer.name in line


@pytest.mark.parametrize(("nonsense", "name"), NONSENSE)
@both_loops
async def test_frames_before_the_bad_one_are_still_served(
    nonsense: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        peer.send(GOOD, GOOD, nonsense)
        assert [answer.body for answer in await peer.answers(2)] == [b"good", b"good"]
        assert await peer.end() == b""
        peer.leave()
    assert len(warnings_in(caplog)) == 1


@both_loops
async def test_answers_under_way_are_finished_before_a_bad_peer_is_left() -> None:
    parked = Parked()
    async with served(Table(parked)) as server:
        peer = await Peer.connect(server.port)
        peer.send(GOOD, b"\xff" * 8, GOOD)
        await eventually(lambda: len(parked.waiting) == 1)
        parked.let_go()
        assert (await peer.answers(1))[0].body == b"good"
        assert await peer.end() == b""
        peer.leave()


@virtual_time
async def test_a_bad_peer_whose_answer_never_comes_is_left_after_a_limit() -> None:
    clock = VirtualClock()
    async with served(Table(Parked()), clock) as server:
        peer = await Peer.connect(server.port)
        peer.send(GOOD, b"\xff" * 8)
        assert await peer.end() == b""
        assert clock.monotonic_s() == 5
        peer.leave()


@both_loops
async def test_a_peer_that_leaves_in_the_middle_of_a_frame_leaves_one_line_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Table()
    async with served(owner) as server:
        peer = await Peer.connect(server.port)
        peer.send(GOOD, GOOD[:-1])
        await peer.answers(1)
        name = peer.name
        peer.leave()
        await eventually(lambda: bool(owner.gone))
        assert [why for _, why in owner.gone] == ["left in the middle of a frame"]
        assert owner.served == [1]
        assert server.connection_count == 0
    said = f"peer={name} left in the middle of a frame, {len(GOOD) - 1} bytes of it had come"
    assert warnings_in(caplog) == [f"connection closed: {said}"]


@both_loops
async def test_a_link_cut_in_the_middle_of_a_frame_ends_that_session_only() -> None:
    owner = Table()
    async with served(owner) as server, open_link(f"127.0.0.1:{server.port}") as link:
        bystander = await Peer.connect(server.port)
        peer = await Peer.connect(split_address(link.address)[1])
        await peer.ask(request_of(1))
        link.halve()
        peer.send(request_of(2, bytes(10_000)))
        await eventually(lambda: server.sessions[0].held_size + server.sessions[-1].held_size > 0)
        link.cut()
        await eventually(lambda: len(owner.gone) == 1)
        assert owner.served == [1]
        assert (await bystander.ask(request_of(3))).opaque == 3
        bystander.leave()
        peer.leave()


# Random bytes


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    streams=st.lists(
        st.one_of(
            st.binary(max_size=400),
            st.binary(max_size=60).map(lambda noise: GOOD + noise),
            st.binary(max_size=300).map(lambda noise: len(noise).to_bytes(4, "big") + noise),
            st.binary(max_size=300).map(lambda noise: (len(noise) + 4).to_bytes(4, "big") + b"\0\0\0\x10" + noise),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_random_bytes_at_a_live_port_neither_crash_it_nor_stay(streams: list[bytes]) -> None:
    async def throw() -> None:
        owner = Table()
        async with served(owner) as server:
            watcher = await Peer.connect(server.port)
            peers = [await Peer.connect(server.port) for _ in streams]
            for peer, stream in zip(peers, streams, strict=True):
                peer.send(stream)
                peer.writer.write_eof()
            for peer in peers:
                await peer.end()
                peer.leave()
            assert (await watcher.ask(request_of(77, b"alive"))).body == b"alive"
            await eventually(lambda: server.connection_count == 1)
            watcher.leave()
        assert all(size <= 64 * 1024 for size in map(len, server.shared.spare))

    run_on(asyncio.new_event_loop, throw)


def resident_size() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


@both_loops
async def test_claims_of_large_frames_and_slow_readers_do_not_grow_the_process() -> None:
    owner = Table(lambda request: request.command.answer(0, body=bytes(1_000_000)))
    claim = (FRAME_SIZE_MAX - 4).to_bytes(4, "big") + b"\0\0\0\x20" + b"x" * 100
    async with served(owner, in_flight_max=64) as server:
        warm = await Peer.connect(server.port)
        await warm.ask(request_of(1))
        before_size = resident_size()
        claimants = [await Peer.connect(server.port) for _ in range(100)]  # 1.6 GB, if one believed them
        for peer in claimants:
            peer.send(claim)
        readers = [await Peer.connect(server.port) for _ in range(10)]
        for peer in readers:  # 2 GB, if nobody minded
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            peer.send(stream_of(200))
        sessions = lambda: server.sessions  # noqa: E731
        await eventually(lambda: len(sessions()) == 111 and all(session.read_count for session in sessions()))
        for _ in range(20):
            await asyncio.sleep(POLL_INTERVAL_S)
        assert resident_size() - before_size < 100_000_000
        assert sum(session.held_size for session in sessions()) <= 111 * READ_SIZE
        for peer in (warm, *claimants, *readers):
            peer.writer.transport.abort()


# Limits and addresses


@both_loops
async def test_two_hundred_connections_are_served_side_by_side() -> None:
    owner = Table()
    async with served(owner) as server:
        peers = [await Peer.connect(server.port) for _ in range(200)]
        for n, peer in enumerate(peers):
            peer.send(stream_of(5, b"%d" % n))
        for n, peer in enumerate(peers):
            assert [answer.body for answer in await peer.answers(5)] == [b"%d" % n] * 5
        assert len(server.sessions) == 200
        for peer in peers:
            peer.leave()
        await eventually(lambda: server.connection_count == 0)
        assert len(owner.gone) == 200
        assert all(session.held_size == 0 for session, _ in owner.gone)


@both_loops
async def test_connections_beyond_the_limit_are_turned_away_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Table(), connections_max=2) as server:
        first, second = await Peer.connect(server.port), await Peer.connect(server.port)
        await first.ask(request_of(1))
        for _ in range(3):
            third = await Peer.connect(server.port)
            assert await third.end() == b""
            third.leave()
        assert (await second.ask(request_of(2))).opaque == 2
        first.leave()
        await eventually(lambda: server.connection_count == 1)
        fourth = await Peer.connect(server.port)
        assert (await fourth.ask(request_of(4))).opaque == 4
        second.leave()
        fourth.leave()
    assert len(warnings_in(caplog)) == 1
    assert "limit=2" in warnings_in(caplog)[0]


@both_loops
async def test_an_ipv6_port_is_served_and_named_as_rocketmq_does() -> None:
    async with served(Table(), host="::1") as server:
        assert server.addresses == [f"::1:{server.port}"]
        peer = await Peer.connect(server.port, "::1")
        await peer.ask(request_of(1))
        assert server.sessions[0].local == f"::1:{server.port}"
        peer.leave()


@both_loops
async def test_an_ipv4_peer_of_an_ipv6_port_is_shown_as_ipv4() -> None:
    async with served(Table(), host="::") as server:
        peer = await Peer.connect(server.port, "127.0.0.1")
        await peer.ask(request_of(1))
        assert server.sessions[0].peer == peer.name
        peer.leave()


@both_loops
async def test_a_name_with_two_addresses_is_served_on_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def both(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", port)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::", port, 0, 0)),
        ]

    class Resolving:
        """The loop, but for what it says of names."""

        getaddrinfo = staticmethod(both)

        def __getattr__(self, name: str) -> object:
            return getattr(loop, name)

    monkeypatch.setattr("bolide.remoting.server.asyncio.get_running_loop", Resolving)
    async with served(Table(), host="both") as server:
        monkeypatch.undo()
        assert server.addresses == [f"0.0.0.0:{server.port}", f":::{server.port}"]
        for host in ("127.0.0.1", "::1"):
            peer = await Peer.connect(server.port, host)
            assert (await peer.ask(request_of(1))).opaque == 1
            peer.leave()


@both_loops
async def test_a_port_that_is_taken_is_named_with_the_setting_that_chose_it() -> None:
    async with served(Table()) as server:
        with pytest.raises(ConfigError, match=f"listenPort.*{server.port}"):
            async with served(Table(), port=server.port):
                pass


@both_loops
async def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match="bindAddress"):
        async with served(Table(), host="192.0.2.1"):
            pass


def files_in_use() -> int:
    return max(int(name.name) for name in Path("/proc/self/fd").iterdir())


@both_loops
async def test_accepting_goes_on_after_the_system_ran_out_of_files(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with served(Table()) as server:
        peer = await Peer.connect(server.port)
        await peer.ask(request_of(1))
        late = socket.socket()
        late.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_in_use() + 1, hard))
        hoard: list[socket.socket] = []
        try:
            with pytest.raises(OSError, match="Too many open files"):
                hoard.extend(socket.socket() for _ in range(1000))
            await asyncio.get_running_loop().sock_connect(late, ("127.0.0.1", server.port))
            await eventually(lambda: "not accepting" in caplog.text)
        finally:
            for each in hoard:
                each.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await asyncio.get_running_loop().sock_sendall(late, request_of(2).encode())
        await eventually(lambda: len(server.sessions) == 2)
        late.close()
        peer.leave()


@both_loops
async def test_the_last_files_of_the_process_are_not_for_connections(caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    peers: list[Peer] = []
    async with served(Table()) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files_in_use() + 40, hard))
        try:
            while "connections refused" not in caplog.text:
                peers.append(await Peer.connect(server.port))
                await eventually(lambda: server.connection_count == len(peers) or "refused" in caplog.text)
            assert await peers[-1].end() == b""
            assert (await peers[0].ask(request_of(1))).opaque == 1
            with socket.socket():  # whoever needs a file still gets one
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for peer in peers:
                peer.leave()
    assert "ulimit" in warnings_in(caplog)[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("broker.example:10911", ("broker.example", 10911)),
        ("::1:9876", ("::1", 9876)),
        ("[fe80::2]:1", ("fe80::2", 1)),
    ],
)
def test_an_address_is_split_at_its_last_colon(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        split_address(text)


def test_an_address_inside_ipv6_is_written_as_ipv4() -> None:
    assert join_address(("::ffff:10.0.0.7", 5, 0, 0)) == "10.0.0.7:5"
    assert join_address(("fe80::1%eth0", 5, 0, 2)) == "fe80::1:5"


# The end


@asynccontextmanager
async def stopping(owner: Table, **settings: Any) -> AsyncIterator[tuple[Server, asyncio.Task[None], asyncio.Event]]:
    """A server in its own task, which stops when the event is set."""
    stop, ready = asyncio.Event(), asyncio.Event()
    servers: list[Server] = []

    async def serve() -> None:
        async with served(owner, **settings) as server:
            servers.append(server)
            ready.set()
            await stop.wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve())
        await ready.wait()
        yield servers[0], task, stop
        stop.set()


@both_loops
async def test_a_stop_lets_running_answers_finish_and_then_closes_everybody() -> None:
    parked = Parked()
    owner = Table(parked)
    async with stopping(owner) as (server, task, stop):
        silent, idle, busy = [await Peer.connect(server.port) for _ in range(3)]
        busy.send(stream_of(3))
        idle.send(request_of(9))
        await eventually(lambda: len(parked.waiting) == 4)
        parked.let_go(9)
        await idle.answers(1)
        stop.set()
        assert await silent.end() == b""
        assert await idle.end() == b""
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset: nobody listens any more
            await (await Peer.connect(server.port)).answers(1)
        assert not task.done()
        parked.let_go()
        assert len(await busy.answers(3)) == 3
        assert await busy.end() == b""
        await task
        for peer in (silent, idle, busy):
            peer.leave()
    assert sorted(why for _, why in owner.gone) == ["the server stopped"] * 2
    assert parked.cancelled == []


@virtual_time
async def test_a_stop_does_not_wait_longer_than_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    parked = Parked()
    clock = VirtualClock()
    async with stopping(Table(parked), clock=clock, stop_limit_s=3) as (server, task, stop):
        peer = await Peer.connect(server.port)
        peer.send(stream_of(2))
        await eventually(lambda: len(parked.waiting) == 2)
        began_s = clock.monotonic_s()
        stop.set()
        await task
        assert clock.monotonic_s() - began_s == pytest.approx(3)
        peer.leave()
    assert sorted(parked.cancelled) == [0, 1]
    assert "1 connections were not done" in caplog.text


@virtual_time
async def test_a_stop_is_not_held_up_by_a_peer_that_takes_no_bytes() -> None:
    clock = VirtualClock()
    owner = Table(lambda request: request.command.answer(0, body=bytes(10_000_000)))
    async with stopping(owner, clock=clock, stop_limit_s=2) as (server, task, stop):
        peer = await Peer.connect(server.port)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.send(request_of(1))
        await eventually(lambda: bool(owner.served))
        stop.set()
        await task
        assert clock.monotonic_s() < 10
        peer.leave()


@both_loops
async def test_what_the_block_raises_leaves_as_it_is() -> None:
    peers: list[Peer] = []

    async def fail() -> None:
        async with served(Table()) as server:
            peers.append(await Peer.connect(server.port))
            await peers[0].ask(request_of(1))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()
    assert await peers[0].end() == b""
    peers[0].leave()


@both_loops
async def test_a_cancelled_server_still_stops_cleanly() -> None:
    parked = Parked()
    owner = Table(parked)
    async with stopping(owner) as (server, task, _):
        peer = await Peer.connect(server.port)
        peer.send(request_of(1, b"last"))
        await eventually(lambda: len(parked.waiting) == 1)
        task.cancel()
        await eventually(lambda: not server.sessions[0].is_open)
        parked.let_go()
        assert (await peer.answers(1))[0].body == b"last"
        assert await peer.end() == b""
        peer.leave()
    assert task.cancelled()


@both_loops
async def test_closed_waits_for_close() -> None:
    async with served(Table()) as server:
        waiting = asyncio.ensure_future(server.closed())
        await asyncio.sleep(0)
        assert not waiting.done()
        server.close()
        await waiting
