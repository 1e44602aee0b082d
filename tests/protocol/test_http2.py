"""HTTP/2 as a server: the library `h2` reads what we write, and what the standard does not allow has its code."""

from typing import Any

import pytest
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import plain_left
from bolide.protocol.http2 import FRAME_SIZE_MAX, PREFACE, Http2Server
from bolide.protocol.http2_errors import BrokenHttp2, ErrorCode
from bolide.protocol.http2_events import Began, DataCame, SaidGoodbye, Trifle, WasReset
from bolide.protocol.http2_headers import encode_headers
from tests.kernel.twins import compiled
from tests.protocol.http2_reading import LIMITS, heard, parted, read_out

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/s/m"), (":authority", "h"), ("te", "trailers")]
E = ErrorCode


def client() -> H2Connection:
    made = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    made.initiate_connection()
    return made


def block(*extra: tuple[str, str], base: list[tuple[str, str]] = REQUEST) -> bytes:
    return Encoder().encode([*base, *extra])


def headers(stream_id: int = 1, *extra: tuple[str, str], ends: bool = False) -> Frame:
    return HeadersFrame(stream_id, block(*extra), flags=["END_HEADERS", *(["END_STREAM"] if ends else [])])


def greeted(*frames: Frame) -> Http2Server:
    server = Http2Server(LIMITS)
    server.receive(PREFACE + SettingsFrame(0).serialize())
    for frame in frames:
        server.receive(frame.serialize())
    return server


def test_a_call_goes_both_ways_and_the_library_understands_the_answer() -> None:
    server, peer = Http2Server(LIMITS), client()
    peer.receive_data(server.take_outgoing())
    peer.send_headers(1, REQUEST)
    peer.send_data(1, b"question", end_stream=True)
    found = server.receive(peer.data_to_send())
    assert [each for each in parted(found) if not isinstance(each, Trifle)] == [
        Began(
            1, {name.encode(): value.encode() for name, value in REQUEST}, len("".join(map("".join, REQUEST))), False
        ),
        DataCame(1, b"question", True),
    ]
    server.send_headers(1, encode_headers((b":status", b"200"), (b"x-long", b"v" * 300)))
    server.send_data(1, b"answer")
    server.send_headers(1, encode_headers((b"grpc-status", b"0")), is_end=True)
    heard = peer.receive_data(server.take_outgoing())
    answered = [each for each in heard if isinstance(each, events.ResponseReceived)]
    assert dict(answered[0].headers) == {b":status": b"200", b"x-long": b"v" * 300}
    assert [each.data for each in heard if isinstance(each, events.DataReceived)] == [b"answer"]
    assert any(isinstance(each, events.StreamEnded) for each in heard)
    assert server.room(1) == 0


@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts: list[int]) -> None:
    peer = client()
    for stream_id in (1, 3):
        peer.send_headers(stream_id, REQUEST)
        peer.send_data(stream_id, b"x" * 20, end_stream=True)
    peer.ping(b"12345678")
    data = peer.data_to_send()
    whole, pieces = Http2Server(LIMITS), Http2Server(LIMITS)
    found, at = [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += pieces.receive(data[at:cut])
        at = max(at, cut)
    assert parted(found) == parted(whole.receive(data))
    assert pieces.take_outgoing() == whole.take_outgoing()


ODD_HEADERS = [
    *[("content-length", "4"), ("content-length", "3"), ("connection", "close"), ("te", "gzip"), ("x_y", "1")],
    *[("x-a", "b"), ("x-a", "c\n"), ("Upper", "1"), (":path", "/again"), ("x-long", "v" * 5000), ("", "nameless")],
]


@st.composite
def everyday_frames(draw: st.DrawFn) -> list[Frame]:
    """What clients send, with some of it wrong."""
    encoder, frames = Encoder(), list[Frame]()
    for number in range(draw(st.integers(1, 5))):
        stream_id = draw(st.sampled_from([2 * number + 1] * 8 + [1, 2]))
        extra = draw(st.lists(st.sampled_from(ODD_HEADERS), max_size=1) | st.just([]))
        flags = ["END_HEADERS", *draw(st.sampled_from([[]] * 6 + [["END_STREAM"], ["PRIORITY"]]))]
        base = draw(st.sampled_from([REQUEST] * 6 + [REQUEST[1:], [*REQUEST[4:], *REQUEST[:4]]]))
        frames.append(HeadersFrame(stream_id, encoder.encode([*base, *extra]), flags=flags))
        data = draw(st.sampled_from([b"data"] * 6 + [b"", b"x" * 1500]))
        frames.append(DataFrame(stream_id, data, flags=draw(st.sampled_from([["END_STREAM"]] * 6 + [[]]))))
        frames += draw(
            st.lists(
                st.sampled_from(
                    [
                        *(PingFrame(0, b"12345678"), PingFrame(0, b"12345678", flags=["ACK"])),
                        *(WindowUpdateFrame(0, window_increment=5), WindowUpdateFrame(0, window_increment=1 << 31 - 1)),
                        *(WindowUpdateFrame(1, window_increment=5), RstStreamFrame(1), SettingsFrame(0)),
                    ]
                ),
                max_size=2,
            )
        )
    return frames


@pytest.mark.skipif(compiled is None, reason="no compiled kernel here")
@given(everyday_frames())
def test_what_the_kernel_reads_at_once_means_what_it_means_frame_by_frame(frames: list[Frame]) -> None:
    data = b"".join(frame.serialize() for frame in frames)
    assert heard(compiled.read_http2_calls, data) == heard(plain_left.read_http2_calls, data)


@pytest.mark.skipif(compiled is None, reason="no compiled kernel here")
def test_a_request_in_one_read_is_read_at_once() -> None:
    data = headers(1).serialize() + DataFrame(1, b"data", flags=["END_STREAM"]).serialize()
    (item,), end, _ = compiled.read_http2_calls(data + b"\0", 0, 9, [], 4096, 4096, 4096)
    told = {name.encode(): value.encode() for name, value in REQUEST}
    assert item == (1, 1, (told, len("".join(map("".join, REQUEST)))), list(told.items()), b"data")
    assert end == len(data)


@pytest.mark.parametrize("frame", [PingFrame(0, b"12345678"), PriorityFrame(9), DataFrame(1)], ids=str)
def test_of_many_small_frames_some_are_read_at_a_time_and_none_is_lost(frame: Frame) -> None:
    server, data = greeted(headers()), frame.serialize()
    assert server.receive(data * 1000 + data[:5]) == [Trifle(False)] * 64
    assert server.is_behind
    assert read_out(server, data[5:]) == [Trifle(False)] * (1001 - 64)


@pytest.mark.skipif(compiled is None, reason="no compiled kernel here")
def test_the_kernel_reads_no_more_frames_than_it_is_asked_for() -> None:
    data = PingFrame(0, b"12345678").serialize() * 9
    items, end, _ = compiled.read_http2_calls(data, 0, 4, [], 4096, 4096, 4096)
    assert (len(items), end) == (4, 4 * 17)


def test_windows_are_topped_up_so_that_a_client_never_stalls() -> None:
    server, peer = Http2Server(LIMITS), client()
    peer.receive_data(server.take_outgoing())
    peer.send_headers(1, REQUEST)
    sent = 0
    while sent < 300_000:
        size = min(peer.local_flow_control_window(1), 700)
        assert size > 0
        peer.send_data(1, b"x" * size)
        sent += size
        server.receive(peer.data_to_send())
        peer.receive_data(server.take_outgoing())


def test_an_answer_keeps_to_the_windows_of_the_peer_and_of_its_streams() -> None:
    server = greeted(SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 10}), headers(1, ends=True))
    assert server.room(1) == 10
    server.send_data(1, b"x" * 10)
    assert server.room(1) == 0
    server.receive(SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 4}).serialize())
    assert server.room(1) == -6
    (found,) = server.receive(WindowUpdateFrame(1, window_increment=100).serialize())
    assert (found, server.room(1)) == (Trifle(True), 94)


def test_headers_may_come_in_pieces() -> None:
    whole, server = block(("x-a", "b" * 200)), greeted()
    data = (
        HeadersFrame(1, whole[:10], flags=["END_STREAM"]).serialize() + ContinuationFrame(1, whole[10:40]).serialize()
    )
    assert server.receive(data) == []
    (found,) = server.receive(ContinuationFrame(1, whole[40:], flags=["END_HEADERS"]).serialize())
    assert isinstance(found, Began)
    assert (found.headers[b"x-a"], found.is_whole) == (b"b" * 200, True)


def test_padding_and_priorities_are_read_over() -> None:
    frame = HeadersFrame(1, block(), flags=["END_HEADERS", "PADDED", "PRIORITY"], pad_length=9, depends_on=3)
    (found,) = greeted().receive(frame.serialize())
    assert isinstance(found, Began)
    server = greeted(headers())
    assert server.receive(DataFrame(1, b"data" * 128, flags=["PADDED"], pad_length=7).serialize()) == [
        DataCame(1, b"data" * 128, False)
    ]


def test_trailers_end_a_request() -> None:
    server = greeted(headers())
    trailers = HeadersFrame(1, Encoder().encode([("x-t", "1")]), flags=["END_HEADERS", "END_STREAM"])
    assert server.receive(trailers.serialize()) == [DataCame(1, b"", True)]


def test_what_was_on_its_way_when_a_stream_was_reset_is_dropped() -> None:
    server = greeted(headers())
    server.reset(1, E.NO_ERROR)
    late = DataFrame(1, b"late").serialize() + headers(1, ends=True).serialize() + RstStreamFrame(1).serialize()
    assert server.receive(late) == [WasReset(0)]


def test_a_stream_beyond_the_limit_is_refused_while_the_peer_may_not_know_it_and_ends_the_connection_later() -> None:
    server = greeted(headers(1), headers(3), headers(5))
    assert server.receive(headers(7).serialize()) == [WasReset(7)]
    assert b"\x00\x00\x00\x07" in server.take_outgoing()
    server.receive(SettingsFrame(0, flags=["ACK"]).serialize())
    with pytest.raises(BrokenHttp2, match="more than 3 streams"):
        server.receive(headers(9).serialize())


def test_a_window_of_a_stream_beyond_2_gib_costs_the_stream() -> None:
    server = greeted(headers())
    server.take_outgoing()
    assert server.receive(raw(8, 0, 1, b"\x7f\xff\xff\xff")) == [WasReset(1)]
    assert server.take_outgoing() == RstStreamFrame(1, error_code=E.FLOW_CONTROL_ERROR).serialize()


def test_what_asks_for_nothing_is_told_as_such() -> None:
    server = greeted(headers())
    for frame in (PingFrame(0, b"12345678"), PriorityFrame(9, depends_on=1), DataFrame(1)):
        assert server.receive(frame.serialize()) == [Trifle(False)]
    assert server.receive(b"\0\0\2\xee\0\0\0\0\0xx") == [Trifle(False)]
    assert server.receive(GoAwayFrame(0).serialize()) == [SaidGoodbye()]
    assert server.receive(RstStreamFrame(1, error_code=8).serialize()) == [WasReset(1)]


def raw(kind: int, flags: int, stream_id: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + content


def request(*pairs: tuple[str, str], flags: int = 5) -> bytes:
    return raw(1, flags, 1, Encoder().encode(pairs))


OPEN, WHOLE = headers(1), headers(1, ends=True)
BROKEN: dict[str, tuple[ErrorCode, list[Frame], bytes]] = {
    "data on stream 0": (E.PROTOCOL_ERROR, [], raw(0, 0, 0, b"x")),
    "data on an idle stream": (E.PROTOCOL_ERROR, [], raw(0, 0, 1, b"x")),
    "data on an ended stream": (E.STREAM_CLOSED, [WHOLE], raw(0, 0, 1, b"x")),
    "headers on an ended stream": (E.STREAM_CLOSED, [WHOLE], WHOLE.serialize()),
    "a stream with an even number": (E.PROTOCOL_ERROR, [], headers(2).serialize()),
    "a stream with a lower number": (E.STREAM_CLOSED, [headers(3)], headers(1).serialize()),
    "padding beyond the frame": (E.PROTOCOL_ERROR, [OPEN], raw(0, 8, 1, b"\x05xxxx")),
    "a frame too large": (E.FRAME_SIZE_ERROR, [OPEN], raw(0, 0, 1, b"x" * 16_385)),
    "more than the stream's window": (E.FLOW_CONTROL_ERROR, [OPEN], raw(0, 0, 1, b"x" * 1001)),
    "a ping within headers": (
        E.PROTOCOL_ERROR,
        [],
        HeadersFrame(1, block()).serialize() + PingFrame(0, b"12345678").serialize(),
    ),
    "a continuation of nothing": (E.PROTOCOL_ERROR, [OPEN], raw(9, 4, 1, b"")),
    "a continuation of another stream": (E.PROTOCOL_ERROR, [], HeadersFrame(1, b"").serialize() + raw(9, 4, 3, b"")),
    "headers that cannot be read": (E.COMPRESSION_ERROR, [], raw(1, 5, 1, b"\xff\xff\xff\xff\xff\xff")),
    "a priority of four bytes": (E.FRAME_SIZE_ERROR, [], raw(2, 0, 1, b"xxxx")),
    "a stream that depends on itself": (E.PROTOCOL_ERROR, [], PriorityFrame(1, depends_on=1).serialize()),
    "a reset of three bytes": (E.FRAME_SIZE_ERROR, [OPEN], raw(3, 0, 1, b"xxx")),
    "a reset of an idle stream": (E.PROTOCOL_ERROR, [], raw(3, 0, 1, b"xxxx")),
    "settings of five bytes": (E.FRAME_SIZE_ERROR, [], raw(4, 0, 0, b"xxxxx")),
    "settings of a stream": (E.PROTOCOL_ERROR, [], raw(4, 0, 1, b"")),
    "an acknowledgement with content": (E.FRAME_SIZE_ERROR, [], raw(4, 1, 0, b"xxxxxx")),
    "a push switch of 2": (E.PROTOCOL_ERROR, [], raw(4, 0, 0, b"\0\2\0\0\0\2")),
    "an initial window of 2 GiB": (E.FLOW_CONTROL_ERROR, [], raw(4, 0, 0, b"\0\4\x80\0\0\0")),
    "frames of 16,383 bytes": (E.PROTOCOL_ERROR, [], raw(4, 0, 0, b"\0\5\0\0\x3f\xff")),
    "a promise": (E.PROTOCOL_ERROR, [OPEN], PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]).serialize()),
    "a ping of seven bytes": (E.FRAME_SIZE_ERROR, [], raw(6, 0, 0, b"1234567")),
    "a ping of a stream": (E.PROTOCOL_ERROR, [], raw(6, 0, 1, b"12345678")),
    "a goodbye of a stream": (E.PROTOCOL_ERROR, [], raw(7, 0, 1, b"12345678")),
    "a window that grows by 0": (E.PROTOCOL_ERROR, [], raw(8, 0, 0, b"\0\0\0\0")),
    "a window of three bytes": (E.FRAME_SIZE_ERROR, [], raw(8, 0, 0, b"\0\0\0")),
    "a window beyond 2 GiB": (E.FLOW_CONTROL_ERROR, [], raw(8, 0, 0, b"\x7f\xff\xff\xff")),
    "a window of an idle stream": (E.PROTOCOL_ERROR, [], raw(8, 0, 1, b"\0\0\0\1")),
    "trailers that do not end": (E.PROTOCOL_ERROR, [OPEN], raw(1, 4, 1, Encoder().encode([("x", "y")]))),
    "trailers with a path": (E.PROTOCOL_ERROR, [OPEN], raw(1, 5, 1, Encoder().encode([(":path", "/")]))),
    "no path": (E.PROTOCOL_ERROR, [], request((":method", "POST"), (":scheme", "http"))),
    "an empty path": (E.PROTOCOL_ERROR, [], request((":method", "GET"), (":scheme", "http"), (":path", ""))),
    "two methods": (E.PROTOCOL_ERROR, [], request(*REQUEST[:3], (":method", "GET"))),
    "a path behind a header": (E.PROTOCOL_ERROR, [], request(*REQUEST[:2], ("x", "y"), (":path", "/"))),
    "a status": (E.PROTOCOL_ERROR, [], request(*REQUEST, (":status", "200"))),
    "capitals": (E.PROTOCOL_ERROR, [], request(*REQUEST, ("X-Test", "ok"))),
    "a header of the connection": (E.PROTOCOL_ERROR, [], request(*REQUEST, ("connection", "keep-alive"))),
    "te of another kind": (E.PROTOCOL_ERROR, [], request(*REQUEST, ("te", "gzip"))),
    "a line within a header": (E.PROTOCOL_ERROR, [], request(*REQUEST, ("x-a", "b\r\nc: d"))),
    "a length that does not hold": (E.PROTOCOL_ERROR, [], request(*REQUEST, ("content-length", "5"))),
    "a length that is no number": (E.PROTOCOL_ERROR, [], request(*REQUEST, ("content-length", "-5"), flags=4)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_the_standard_does_not_allow_ends_the_connection_with_its_code(case: str) -> None:
    code, before, data = BROKEN[case]
    server = greeted(*before)
    with pytest.raises(BrokenHttp2) as broken:
        server.receive(data)
    assert broken.value.http2_code == code


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", PREFACE[:-1] + b"x", PREFACE + PingFrame(0).serialize()])
def test_a_connection_begins_with_the_preface_and_settings(first: bytes) -> None:
    with pytest.raises(BrokenHttp2):
        Http2Server(LIMITS).receive(first)


@pytest.mark.parametrize(("size", "count"), [(0, 70), (1000, 9)])
def test_headers_without_an_end_are_cut_off(size: int, count: int) -> None:
    frames = HeadersFrame(1, b"").serialize() + ContinuationFrame(1, b"x" * size).serialize() * count
    with pytest.raises(BrokenHttp2, match="without an end"):
        read_out(greeted(), frames)


@given(data=st.binary(max_size=200))
def test_no_bytes_do_more_than_break_the_connection(data: bytes) -> None:
    server = greeted(headers())
    try:
        server.receive(data)
    except BrokenHttp2:
        return


class _Untouched(dict[int, Any]):
    """Streams that nobody goes through."""

    def values(self) -> Any:
        raise AssertionError("every stream is touched")


def test_another_initial_window_touches_no_stream() -> None:
    server = greeted(*[headers(stream_id) for stream_id in (1, 3)], WindowUpdateFrame(3, window_increment=5))
    server._streams = _Untouched(server._streams)
    many = b"".join(_setting(4, size) for size in (*range(1, 2_000), 90))
    server.receive(len(many).to_bytes(3, "big") + b"\4\0\0\0\0\0" + many)
    assert (server.room(1), server.room(3)) == (90, 95)


def test_settings_that_take_any_open_stream_beyond_2_gib_end_the_connection_and_closed_ones_do_not_count() -> None:
    highest = (1 << 31) - 1
    server = greeted(headers(1), headers(3), WindowUpdateFrame(1, window_increment=5))
    server.receive(RstStreamFrame(1).serialize())
    server.receive(SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: highest}).serialize())
    assert server.room(3) == FRAME_SIZE_MAX
    server.receive(SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 0}).serialize())
    server.receive(WindowUpdateFrame(3, window_increment=1).serialize())
    with pytest.raises(BrokenHttp2, match="grew too large"):
        server.receive(SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: highest}).serialize())
    broken = _setting(4, 1 << 31) + _setting(4, 5)
    with pytest.raises(BrokenHttp2, match="a window of"):
        greeted().receive(len(broken).to_bytes(3, "big") + b"\4\0\0\0\0\0" + broken)


def _setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def test_a_crumb_of_data_is_told_as_a_trifle_too_unless_it_is_the_last() -> None:
    server = greeted(HeadersFrame(1, block(), flags=["END_HEADERS"]))
    assert server.receive(DataFrame(1, b"x").serialize()) == [Trifle(False), DataCame(1, b"x", False)]
    assert server.receive(DataFrame(1, b"x" * 512).serialize()) == [DataCame(1, b"x" * 512, False)]
    assert server.receive(DataFrame(1, b"x", flags=["END_STREAM"]).serialize()) == [DataCame(1, b"x", True)]
