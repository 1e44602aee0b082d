"""The port under attack: what a peer can make it keep or do has an end, and others are served meanwhile."""

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, ResponseReceived
from h2.settings import SettingCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from bolide.admin.doctor.probes import spoken_at
from bolide.protocol.http2_events import Event
from bolide.proxy import messages as m
from bolide.proxy.calls import Call, GrpcStatus
from bolide.proxy.config import PortConfig, read_config
from bolide.proxy.http2 import Http2Connection
from bolide.proxy.methods import SERVICE
from bolide.proxy.port import LIMITS, Method, Port, Unwhole
from bolide.remoting.server import Server, listen_for
from bolide.remoting.shared import Shared
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import Peer, connected, framed
from tests.remoting.loops import both_loops, eventually, virtual_time

CALM = int(ErrorCodes.ENHANCE_YOUR_CALM)


class Echo:
    """A service that gives back what it is sent, or waits for ever."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.gone_count = 0

    def methods(self) -> dict[str, Method]:
        return {
            f"/{SERVICE}/Echo": Method(self.echo),
            f"/{SERVICE}/Wait": Method(self.wait),
            f"/{SERVICE}/Hold": Method(self.hold),
            f"/{SERVICE}/Talk": Method(self.echo_each, is_streaming=True),
        }

    def echo(self, call: Call, content: bytes) -> None:
        call.reply(m.Resource.FromString(content))

    def echo_each(self, call: Call, content: bytes) -> None:
        call.write(m.Resource.FromString(content))

    def wait(self, call: Call, content: bytes) -> None:
        call.is_lasting = True
        call.when_gone(self._gone)
        self.waiting.append(call)

    def hold(self, call: Call, content: bytes) -> None:
        self.waiting.append(call)

    def _gone(self) -> None:
        self.gone_count += 1


class Rig:
    def __init__(self, server: Server, echo: Echo, unwhole: Unwhole) -> None:
        self.port = server.port
        self.server = server
        self.echo = echo
        self.unwhole = unwhole


@asynccontextmanager
async def serving(**settings: str) -> AsyncIterator[Rig]:
    config: PortConfig = read_config({"listenPort": "0", "bindAddress": "127.0.0.1", **settings})[0].port
    clock, echo, unwhole = VirtualClock(), Echo(), Unwhole(config.unwhole_size_max)
    port = Port(config, echo.methods(), unwhole, clock)
    shared = Shared.of_server(config.listen, clock)
    async with listen_for(config.listen, lambda opening: Http2Connection(port, opening), clock, shared) as server:
        yield Rig(server, echo, unwhole)


async def echoes(peer: Peer, text: str = "hello") -> bool:
    return (await peer.call("Echo", m.Resource(name=text), m.Resource)).name == text


async def flooded(rig: Rig, frames: Callable[[Peer], bytes]) -> int | None:
    """Send the same again and again until the port has enough; returns what it said."""
    async with connected(rig.port) as attacker, connected(rig.port) as other:
        for _ in range(100):
            if attacker.is_over or attacker.goodbye is not None:
                break
            attacker.write(frames(attacker))
            assert await echoes(other)
        await attacker.until(lambda: attacker.is_over)
        assert await echoes(other)
        return attacker.goodbye


def opened_and_reset(peer: Peer) -> bytes:
    for _ in range(100):
        number = peer.begin("Wait")
        peer.frames.reset_stream(number)
    return peer.frames.data_to_send()


def repeated(frame: Frame) -> Callable[[Peer], bytes]:
    return lambda _: frame.serialize() * 100


def empty_data(peer: Peer) -> bytes:
    if not peer.streams:
        peer.begin("Echo")
    return peer.frames.data_to_send() + DataFrame(1).serialize() * 100


def crumbs(peer: Peer) -> bytes:
    if not peer.streams:
        peer.begin("Echo")
    return peer.frames.data_to_send() + DataFrame(1, b"x").serialize() * 100


def bytes_of_window(peer: Peer) -> bytes:
    """An answer that is taken a byte at a time."""
    if not peer.streams:
        peer.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        number = peer.begin("Echo")
        peer.send(number, framed(m.Resource(name="x" * 9_000)))
    for _ in range(100):
        peer.frames.increment_flow_control_window(1, 1)
    return peer.frames.data_to_send()


FLOODS: dict[str, Callable[[Peer], bytes]] = {
    "rapid reset": opened_and_reset,
    "pings": repeated(PingFrame(0, b"12345678")),
    "settings": repeated(SettingsFrame(0, {SettingCodes.HEADER_TABLE_SIZE: 4096})),
    "priorities": repeated(PriorityFrame(1, depends_on=0, stream_weight=5)),
    "empty data": empty_data,
    "crumbs of data": crumbs,
    "bytes of window": bytes_of_window,
    "unknown frames": lambda _: b"\0\0\0\xee\0\0\0\0\0" * 100,
}


@pytest.mark.parametrize("flood", FLOODS)
@both_loops
@pytest.mark.feature("X08")
async def test_a_flood_of_frames_that_are_no_work_ends_its_connection_and_no_other(flood: str) -> None:
    async with serving() as rig:
        assert await flooded(rig, FLOODS[flood]) == CALM
        await eventually(lambda: rig.server.connection_count == 0)


@both_loops
async def test_headers_without_an_end_are_cut_off() -> None:
    async with serving() as rig, connected(rig.port) as peer, connected(rig.port) as other:
        peer.write(HeadersFrame(1, b"\x82").serialize())
        for _ in range(2000):
            peer.write(ContinuationFrame(1, b"\x40" * 16).serialize())
            if peer.is_over:
                break
        await peer.until(lambda: peer.is_over)
        assert peer.goodbye is not None
        assert await echoes(other)


@both_loops
async def test_headers_beyond_16_kib_end_the_connection() -> None:
    async with serving() as rig, connected(rig.port) as peer, connected(rig.port) as other:
        peer.begin("Echo", x_large="v" * 17_000)
        peer.flush()
        await peer.until(lambda: peer.is_over)
        assert peer.goodbye is not None
        assert await echoes(other)


@both_loops
async def test_what_is_no_http2_ends_the_connection() -> None:
    async with serving() as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
        async with asyncio.timeout(10):
            while await reader.read(1000):
                pass
        writer.close()


@virtual_time
async def test_a_peer_opens_no_more_streams_than_it_was_told() -> None:
    async with serving() as rig, connected(rig.port) as peer, connected(rig.port) as other:
        assert await echoes(peer)
        assert peer.frames.remote_settings.max_concurrent_streams == LIMITS.streams_max
        for _ in range(LIMITS.streams_max):
            peer.begin("Wait")
        peer.flush()
        peer.write(HeadersFrame(2 * LIMITS.streams_max + 101, b"\x82\x84\x86", flags=["END_HEADERS"]).serialize())
        await peer.until(lambda: peer.is_over)
        assert await echoes(other)


@both_loops
async def test_a_large_message_goes_both_ways_through_small_windows() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        text = "x" * 3_000_000
        await peer.until(lambda: peer.frames.remote_settings.initial_window_size == 1 << 20)
        number, data = peer.begin("Echo"), framed(m.Resource(name=text))
        at = 0
        while at < len(data):
            room = min(peer.frames.local_flow_control_window(number), 16_384, len(data) - at)
            if room:
                peer.frames.send_data(number, data[at : at + room], end_stream=at + room == len(data))
                at += room
                peer.flush()
            else:
                seen = len(peer.seen)
                await peer.until(lambda seen=seen: len(peer.seen) > seen)
        reading = peer.streams[number]
        await peer.until(lambda: reading.is_over)
        (answer,) = reading.messages(m.Resource)
        assert answer.name == text
        assert rig.unwhole.size == 0


@both_loops
async def test_an_answer_without_a_window_waits_and_nothing_of_it_is_lost() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        peer.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        peer.flush()
        reading = peer.open("Echo", m.Resource(name="y" * 50_000))
        await peer.until(lambda: ":status" in reading.headers)
        assert not reading.data
        assert await asyncio.wait_for(_other_echoes(rig), 10)
        peer.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
        peer.flush()
        await peer.until(lambda: reading.is_over)
        assert len(reading.messages(m.Resource)[0].name) == 50_000


@virtual_time
async def test_what_is_said_to_no_call_waits_for_a_window_too() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        peer.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1})
        peer.flush()
        reading = peer.open("Echo", m.Resource(), content_type="text/plain")
        await peer.until(lambda: len(reading.data) == 1)
        peer.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
        peer.flush()
        await peer.until(lambda: reading.is_over)
        assert reading.data.endswith(b"apache.rocketmq.v2.\n")


def watched(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """What a method of connections is called with from now on."""
    calls: list[tuple[Any, ...]] = []
    method = getattr(Http2Connection, name)

    def noting(self: Http2Connection, *given: Any) -> Any:
        calls.append(given)
        return method(self, *given)

    monkeypatch.setattr(Http2Connection, name, noting)
    return calls


@virtual_time
async def test_answers_that_wait_are_looked_at_once_a_read_however_many_windows_it_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = watched(monkeypatch, "_send_waiting")
    async with serving() as rig, connected(rig.port) as peer:
        assert await echoes(peer)
        looks.clear()
        peer.write(WindowUpdateFrame(0, window_increment=1).serialize() * 300)
        assert await echoes(peer)
        assert 0 < len(looks) < 20


@virtual_time
async def test_of_what_one_peer_sends_at_once_some_is_served_and_then_others_have_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes = watched(monkeypatch, "_take")
    async with serving() as rig, connected(rig.port) as peer:
        calls = [peer.open("Echo", m.Resource(name=f"{number}")) for number in range(300)]
        await peer.until(lambda: all(call.is_over for call in calls))
        assert [call.messages(m.Resource)[0].name for call in calls] == [f"{number}" for number in range(300)]
    assert max(len(found) for (found,) in takes) <= 2 * 16


@virtual_time
async def test_the_calls_of_a_lost_connection_are_let_go_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = watched(monkeypatch, "_let_go")
    async with serving() as rig, connected(rig.port) as peer:
        for _ in range(500):
            peer.open("Wait", m.Resource())
        await eventually(lambda: len(rig.echo.waiting) == 500)
        peer.transport.abort()
        await eventually(lambda: rig.echo.gone_count == 500)
        assert rig.unwhole.size == 0
    assert len(steps) >= 500 // 64


@virtual_time
async def test_what_a_newcomer_waits_for_does_not_grow_with_those_who_send_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, turns, served = asyncio.get_running_loop(), itertools.count(), Counter[int]()
    turn = next(turns)
    take = Http2Connection._take

    def begin_turn() -> None:
        nonlocal turn
        turn = next(turns)
        loop.call_soon(begin_turn)

    def noting(self: Http2Connection, found: list[Event]) -> None:
        served[turn] += len(found)
        take(self, found)

    async with serving() as rig, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(rig.port)) for _ in range(8)]
        calls = []
        for peer in peers:
            for _ in range(200):
                number = peer.begin("Echo")
                peer.frames.send_data(number, framed(m.Resource(name="much" * 20)), end_stream=True)
                calls.append(peer.streams[number])
        monkeypatch.setattr(Http2Connection, "_take", noting)
        begin_turn()
        for peer in peers:
            peer.flush()
        async with connected(rig.port) as other:
            assert await echoes(other)
            assert not all(call.is_over for call in calls)
        for peer in peers:
            await peer.until(lambda peer=peer: all(each.is_over for each in peer.streams.values()))
        assert all(call.messages(m.Resource)[0].name == "much" * 20 for call in calls)
    first, *later = [count for _, count in sorted(served.items()) if count]
    assert max(later) <= 4 * 16, (first, later)


async def _other_echoes(rig: Rig) -> bool:
    async with connected(rig.port) as other:
        return await echoes(other)


@both_loops
async def test_a_peer_that_gives_no_window_for_its_answers_is_left() -> None:
    async with serving(unsentBytesMax="1000000", writeBufferHighWaterMark="1000") as rig, connected(rig.port) as peer:
        peer.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        for _ in range(30):
            peer.open("Echo", m.Resource(name="y" * 50_000))
            if peer.is_over:
                break
            await asyncio.sleep(0)
        await peer.until(lambda: peer.is_over)
        assert peer.goodbye == CALM


@both_loops
async def test_a_message_beyond_the_limit_is_refused_before_it_has_come() -> None:
    async with serving(grpcMaxInboundMessageSize="100000") as rig, connected(rig.port) as peer:
        number = peer.begin("Echo")
        peer.send(number, b"\0\x7f\xff\xff\xff" + b"x" * 10, ends=False)
        peer.send(number, b"x" * 16_000, ends=False)
        for _ in range(7):
            peer.send(number, b"x" * 16_000, ends=False)
        reading = peer.streams[number]
        await peer.until(lambda: reading.is_over)
        assert reading.status == GrpcStatus.RESOURCE_EXHAUSTED
        assert "grpcMaxInboundMessageSize" in reading.headers["grpc-message"]
        await eventually(lambda: rig.unwhole.size == 0)
        assert await echoes(peer)


@both_loops
async def test_requests_that_are_not_whole_have_a_bound_over_all_connections() -> None:
    async with serving(bolideGrpcUnfinishedBytesMax=str(1 << 20)) as rig, connected(rig.port) as peer:
        numbers = [peer.begin("Echo") for _ in range(60)]
        for number in numbers:
            peer.send(number, b"\0\0\0\xff\xff" + b"x" * 20_000, ends=False)
        await peer.until(lambda: any(each.is_over for each in peer.streams.values()))
        refused = [each for each in peer.streams.values() if each.is_over]
        assert {each.status for each in refused} == {GrpcStatus.RESOURCE_EXHAUSTED}
        assert rig.unwhole.size <= 1 << 20
        assert await echoes(peer)


@virtual_time
async def test_headers_of_open_calls_count_among_what_is_kept_and_are_let_go_with_them() -> None:
    async with serving(bolideGrpcUnfinishedBytesMax=str(1 << 20)) as rig, connected(rig.port) as peer:
        for number in range(100):
            peer.begin("Wait", x_large=f"{number}" + "x" * 14_000)
        peer.flush()
        await peer.until(lambda: any(each.is_over for each in peer.streams.values()))
        refused = [each for each in peer.streams.values() if each.is_over]
        assert {each.status for each in refused} == {GrpcStatus.RESOURCE_EXHAUSTED}
        assert rig.unwhole.size <= 1 << 20
        peer.transport.abort()
        await eventually(lambda: rig.unwhole.size == 0)
        async with connected(rig.port) as other:
            assert await echoes(other)


@virtual_time
async def test_a_call_ends_with_its_deadline_and_who_serves_it_hears_of_that() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        reading = peer.open("Wait", m.Resource(), grpc_timeout="2500m")
        await peer.until(lambda: reading.is_over)
        assert (reading.status, rig.echo.gone_count) == (GrpcStatus.DEADLINE_EXCEEDED, 1)
        assert asyncio.get_running_loop().time() == pytest.approx(2.5, abs=0.2)


@virtual_time
async def test_a_request_that_does_not_become_whole_is_given_up_after_a_minute() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        number = peer.begin("Echo")
        peer.send(number, b"\0\0\0", ends=False)
        reading = peer.streams[number]
        await peer.until(lambda: reading.is_over)
        assert reading.status == GrpcStatus.DEADLINE_EXCEEDED
        assert await echoes(peer)


@virtual_time
async def test_a_connection_without_a_call_is_closed_and_one_with_a_waiting_call_is_not() -> None:
    async with (
        serving(grpcClientIdleTimeMills="20000") as rig,
        connected(rig.port) as idle,
        connected(rig.port) as busy,
    ):
        assert await echoes(idle)
        busy.open("Wait", m.Resource())
        await idle.until(lambda: idle.is_over)
        assert idle.goodbye == ErrorCodes.NO_ERROR
        assert await echoes(busy)


@both_loops
async def test_what_is_no_call_is_refused_and_the_connection_goes_on() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        unknown = peer.open("Echo", m.Resource(), path="/other.Service/Echo")
        plain = peer.open("Echo", m.Resource(), content_type="text/plain")
        packed = peer.begin("Echo")
        peer.send(packed, b"\1\0\0\0\1x")
        cut = peer.begin("Echo")
        peer.send(cut, b"\0\0\0\0\x05x")
        await peer.until(lambda: all(each.is_over for each in peer.streams.values()))
        assert unknown.status == GrpcStatus.UNIMPLEMENTED
        assert (plain.headers[":status"], b"speaks gRPC" in plain.data) == ("415", True)
        assert peer.streams[packed].status == GrpcStatus.INTERNAL
        assert peer.streams[cut].status == GrpcStatus.INTERNAL
        assert await echoes(peer)


@both_loops
async def test_messages_of_a_stream_are_served_as_they_come() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        number = peer.begin("Talk")
        reading = peer.streams[number]
        data = framed(m.Resource(name="one")) + framed(m.Resource(name="two"))
        peer.send(number, data[:9], ends=False)
        peer.send(number, data[9:], ends=False)
        await peer.until(lambda: len(reading.messages(m.Resource)) == 2)
        peer.send(number, b"")
        await peer.until(lambda: reading.is_over)
        assert [each.name for each in reading.messages(m.Resource)] == ["one", "two"]
        assert reading.status == 0


@both_loops
async def test_a_stop_ends_what_waits_and_answers_what_was_begun() -> None:
    stack = AsyncExitStack()
    rig = await stack.enter_async_context(serving())
    async with connected(rig.port) as peer:
        waiting, begun = peer.open("Wait", m.Resource()), peer.open("Hold", m.Resource(name="kept"))
        await eventually(lambda: len(rig.echo.waiting) == 2)
        asyncio.get_running_loop().call_later(0.05, rig.echo.waiting[1].reply, m.Resource(name="kept"))
        await stack.aclose()
        await peer.until(lambda: peer.is_over)
        assert (waiting.status, rig.echo.gone_count) == (GrpcStatus.UNAVAILABLE, 1)
        assert (begun.status, begun.messages(m.Resource)[0].name) == (0, "kept")
        assert peer.goodbye == ErrorCodes.NO_ERROR


@both_loops
async def test_a_client_that_said_goodbye_hears_the_answers_it_waits_for() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        reading = peer.open("Hold", m.Resource())
        await eventually(lambda: bool(rig.echo.waiting))
        peer.write(GoAwayFrame(0).serialize())
        peer.write(PingFrame(0, b"12345678").serialize())
        await peer.until(lambda: any(isinstance(each, PingAckReceived) for each in peer.seen))
        rig.echo.waiting[0].reply(m.Resource(name="kept"))
        await peer.until(lambda: peer.is_over)
        assert reading.messages(m.Resource)[0].name == "kept"


@virtual_time
async def test_a_ping_is_answered_soon_and_with_the_next_answer_if_that_comes_first() -> None:
    async with serving() as rig, connected(rig.port) as peer:
        assert await echoes(peer)
        began_s = asyncio.get_running_loop().time()
        peer.write(PingFrame(0, b"12345678").serialize())
        await peer.until(lambda: any(isinstance(each, PingAckReceived) for each in peer.seen))
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(0.002, abs=0.001)
        peer.seen.clear()
        peer.write(PingFrame(0, b"87654321").serialize())
        assert await echoes(peer)
        kinds = [type(each) for each in peer.seen]
        assert kinds.index(PingAckReceived) < kinds.index(ResponseReceived)


@both_loops
async def test_the_doctor_tells_the_port_from_that_of_a_name_server() -> None:
    async with serving() as rig:
        assert await spoken_at(f"127.0.0.1:{rig.port}") == "HTTP/2 (gRPC)"


@both_loops
async def test_tls_and_plain_connections_share_the_port() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    async with serving() as rig, connected(rig.port, ssl=context) as secret, connected(rig.port) as plain:
        assert await echoes(secret)
        assert await echoes(plain)
        tls = secret.transport.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == "h2"


@both_loops
async def test_a_proxy_header_may_come_first(tmp_path: Path) -> None:
    async with serving() as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(b"PROXY TCP4 10.1.2.3 10.1.2.4 1234 8081\r\n")
        peer = Peer(reader, writer, "proxied")
        peer.frames.initiate_connection()
        peer.flush()
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(peer.read_forever(), name="test.peer")
            peer.open("Wait", m.Resource())
            await eventually(lambda: bool(rig.echo.waiting))
            assert rig.echo.waiting[0].carrier.peer == "10.1.2.3:1234"
            reading.cancel()
            writer.close()
