"""HTTP/2 as a server speaks it (RFC 9113): bytes in, events out, and bytes to send until they are taken.

A frame is its size (24 bits), kind, flags, the number of its stream (31 bits), and content. What a peer does wrong ends
its connection, with the standard's code: `BrokenHttp2`. Clients of gRPC do nothing wrong, and a stream is cheap to
open again. Headers of ours are texts that nobody has to remember, so there is no table on the way out.

What comes late is no mistake: after our reset of a stream its frames may still be on their way, and are dropped.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bolide import kernel
from bolide.protocol.http2_errors import BrokenHttp2, ErrorCode
from bolide.protocol.http2_events import Asked, Began, DataCame, Event, SaidGoodbye, Trifle, WasReset
from bolide.protocol.http2_headers import Pair, content_length, is_regular, read_request

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_SIZE_MAX = 16_384
_TABLE_SIZE = 4_096
_DEFAULT_WINDOW, _WINDOW_MAX = 65_535, (1 << 31) - 1
_CONTINUATIONS_MAX = 64
_SMALL_DATA = 512
_RESETS_KEPT = 256
_FRAMES_AT_ONCE = 64
_FRAMES_A_CALL = 4  # what a call costs to serve, beside a frame that is only read
_ID_MASK = 0x7FFF_FFFF

_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PROMISE, _PING, _GOODBYE, _WINDOW, _CONTINUATION = range(10)
_EVERYDAY = frozenset([_HEADERS, _PING, _WINDOW])  # what the kernel reads, or leaves to us
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_S_PUSH, _S_STREAMS, _S_WINDOW, _S_FRAME_SIZE, _S_HEADERS = 2, 3, 4, 5, 6

_head = struct.Struct(">BHBBI")
_setting = struct.Struct(">HI")
_word = struct.Struct(">I")
_TRIFLE, _MORE_ROOM = Trifle(False), Trifle(True)


class Limits(NamedTuple):
    """What a peer is told to keep to."""

    streams_max: int
    headers_size_max: int
    stream_window: int
    connection_window: int


class _Stream:
    __slots__ = ("credit", "extra", "is_ended", "is_whole", "size_left")

    def __init__(self, credit: int, size_left: int | None, is_whole: bool) -> None:
        self.extra = 0  # what we may send beyond the initial window, or less than it
        self.credit = credit  # what the peer may send
        self.size_left = size_left  # of the content-length, where the peer told one
        self.is_whole = is_whole  # the peer has ended it
        self.is_ended = False  # we have


class Http2Server:
    """One connection."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._streams: dict[int, _Stream] = {}
        self._reset_ids: deque[int] = deque(maxlen=_RESETS_KEPT)
        self.last_id = 0
        self._held = b""
        self.is_behind = False  # whole frames wait
        self._is_greeted = self._has_settings = self._is_acknowledged = False
        self._table: list[Pair] = []
        self._table_size = _TABLE_SIZE
        self._block: bytearray | None = None  # headers that go on in the next frame
        self._block_id = self._block_flags = self._block_count = 0
        # A stream's window is the initial one and its extra: a peer that sets another need not have each touched.
        self._initial_window = self._window = _DEFAULT_WINDOW
        self._extra_max = 0  # at least the largest of those that are open
        self._frame_size_max = FRAME_SIZE_MAX
        self._credit = limits.connection_window
        self._outgoing = [
            _frame(
                _SETTINGS,
                0,
                0,
                _setting.pack(_S_STREAMS, limits.streams_max)
                + _setting.pack(_S_WINDOW, limits.stream_window)
                + _setting.pack(_S_HEADERS, limits.headers_size_max),
            ),
            _frame(_WINDOW, 0, 0, _word.pack(limits.connection_window - _DEFAULT_WINDOW)),
        ]

    # What the peer sends

    def receive(self, data: bytes) -> list[Event]:
        """What some bytes mean; raises BrokenHttp2.

        Of many small frames only the first: others have a turn before the rest, which is asked for with no bytes.
        """
        if self._held:
            data = self._held + data
        at, end, found = 0, len(data), list[Event]()
        if not self._is_greeted:
            if not data.startswith(PREFACE[:end]):
                raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
            if end < len(PREFACE):
                self._held = data
                return found
            self._is_greeted, at = True, len(PREFACE)
        left = _FRAMES_AT_ONCE
        while left > 0 and end - at >= 9:
            if data[at + 3] in _EVERYDAY and self._has_settings and self._block is None:
                at, cost = self._read_calls(data, at, left, found)
                left -= cost
                if cost:
                    continue
            stop = self._read_frame(data, at, found)
            if stop == at:
                break
            left -= _FRAMES_A_CALL if data[at + 3] == _HEADERS else 1
            at = stop
        self._held, self.is_behind = data[at:], left <= 0 and at < end
        return found

    def _read_frame(self, data: bytes, at: int, found: list[Event]) -> int:
        """Any frame that is there; returns where it ends, or where it begins if it is not whole."""
        high, low, kind, flags, stream_id = _head.unpack_from(data, at)
        size = high << 16 | low
        if size > FRAME_SIZE_MAX:
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes, at most {FRAME_SIZE_MAX} go")
        stop: int = at + 9 + size
        if stop > len(data):
            return at
        if self._block is not None and kind != _CONTINUATION:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a frame within headers that are not whole")
        if not self._has_settings and kind != _SETTINGS:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        read = _READERS.get(kind)
        if read is None:
            found.append(_TRIFLE)  # of a kind that we do not know
        else:
            read(self, stream_id & _ID_MASK, flags, data[at + 9 : stop], found)
        return stop

    def _read_calls(self, data: bytes, at: int, left: int, found: list[Event]) -> tuple[int, int]:
        """What the kernel reads of the frames there, everyday ones; returns where it stopped, and what that cost."""
        cost, count_max = 0, -(-left // _FRAMES_A_CALL)
        try:
            items, at, self._table_size = kernel.read_http2_calls(
                data, at, count_max, self._table, self._table_size, _TABLE_SIZE, self._limits.headers_size_max
            )
        except ValueError as problem:
            raise BrokenHttp2(ErrorCode.COMPRESSION_ERROR, f"headers: {problem}") from None
        for item in items:
            cost += 1
            if item[0] == _HEADERS:
                cost += _FRAMES_A_CALL - 1
                _, stream_id, request, headers, content = item
                self._take_call(stream_id, request, headers, content, found)
            elif item[0] == _PING:
                self._outgoing.append(_frame(_PING, _ACK, 0, item[1]))
                found.append(_TRIFLE)
            else:
                self._grow(item[1])
                found.append(_MORE_ROOM)
        return at, cost

    def _take_call(
        self,
        stream_id: int,
        request: tuple[dict[bytes, bytes], int] | None,
        headers: list[Pair],
        content: bytes,
        found: list[Event],
    ) -> None:
        limits = self._limits
        is_odd = stream_id <= self.last_id or len(self._streams) >= limits.streams_max
        if request is None or is_odd or len(content) > limits.stream_window:
            self._open(stream_id, _END_HEADERS, headers, found)
            self._read_data(stream_id, _END_STREAM, content, found)
            return
        self._take_credit(len(content))
        self.last_id = stream_id
        self._streams[stream_id] = _Stream(limits.stream_window, None, True)
        found.append(Asked(stream_id, *request, content))

    def _take_credit(self, size: int) -> None:
        self._credit -= size
        if self._credit < 0:
            raise BrokenHttp2(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window")
        if self._credit < self._limits.connection_window >> 1:
            self._outgoing.append(_frame(_WINDOW, 0, 0, _word.pack(self._limits.connection_window - self._credit)))
            self._credit = self._limits.connection_window

    def _read_data(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        size = len(content)
        self._take_credit(size)
        if flags & _PADDED:
            content = _unpadded(content)
        stream = self._streams.get(stream_id)
        if stream is None or stream.is_whole:
            if stream is None and stream_id in self._reset_ids:
                return
            raise self._out_of_place(stream_id, "data")
        stream.credit -= size
        if stream.credit < 0:
            raise BrokenHttp2(ErrorCode.FLOW_CONTROL_ERROR, "more data than the stream's window")
        if stream.size_left is not None:
            stream.size_left -= len(content)
        if flags & _END_STREAM:
            self._end_of_peer(stream_id, stream)
        elif stream.credit < self._limits.stream_window >> 1:
            self._outgoing.append(_frame(_WINDOW, 0, stream_id, _word.pack(self._limits.stream_window - stream.credit)))
            stream.credit = self._limits.stream_window
        is_last = bool(flags & _END_STREAM)
        if len(content) < _SMALL_DATA and not is_last:
            found.append(_TRIFLE)  # a flood of crumbs costs us more than its sender
        if content or is_last:
            found.append(DataCame(stream_id, content, is_last))

    def _end_of_peer(self, stream_id: int, stream: _Stream) -> None:
        if stream.size_left:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a request has not the size that it was said to have")
        stream.is_whole = True
        if stream.is_ended:
            del self._streams[stream_id]

    def _read_headers(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if flags & _PADDED:
            content = _unpadded(content)
        if flags & _HAS_PRIORITY:
            _check_priority(stream_id, content)
            content = content[5:]
        if flags & _END_HEADERS:
            self._take_headers(stream_id, flags, content, found)
        else:
            self._block, self._block_id, self._block_flags = bytearray(content), stream_id, flags
            self._block_count = 0

    def _read_continuation(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        block = self._block
        if block is None or stream_id != self._block_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "headers go on that have not begun")
        self._block_count += 1
        block += content
        if self._block_count > _CONTINUATIONS_MAX or len(block) > 2 * self._limits.headers_size_max:
            raise BrokenHttp2(ErrorCode.ENHANCE_YOUR_CALM, "headers without an end")
        if flags & _END_HEADERS:
            self._block = None
            self._take_headers(stream_id, self._block_flags, bytes(block), found)

    def _take_headers(self, stream_id: int, flags: int, block: bytes, found: list[Event]) -> None:
        size_max = self._limits.headers_size_max
        try:
            headers, self._table_size = kernel.decode_headers(
                block, self._table, self._table_size, _TABLE_SIZE, size_max
            )
        except ValueError as problem:
            raise BrokenHttp2(ErrorCode.COMPRESSION_ERROR, f"headers: {problem}") from None
        self._open(stream_id, flags, headers, found)

    def _open(self, stream_id: int, flags: int, headers: list[Pair], found: list[Event]) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._take_trailers(stream_id, stream, flags, headers, found)
            return
        if stream_id in self._reset_ids:
            return
        if not stream_id & 1 or stream_id <= self.last_id:
            raise self._out_of_place(stream_id, "headers")
        self.last_id = stream_id
        if len(self._streams) >= self._limits.streams_max:
            if self._is_acknowledged:
                raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, f"more than {self._limits.streams_max} streams at once")
            self.reset(stream_id, ErrorCode.REFUSED_STREAM)  # it could not know
            found.append(WasReset(stream_id))
            return
        told, size = read_request(headers)
        stream = _Stream(self._limits.stream_window, content_length(told), False)
        self._streams[stream_id] = stream
        is_whole = bool(flags & _END_STREAM)
        if is_whole:
            self._end_of_peer(stream_id, stream)
        found.append(Began(stream_id, told, size, is_whole))

    def _take_trailers(
        self, stream_id: int, stream: _Stream, flags: int, headers: list[Pair], found: list[Event]
    ) -> None:
        if stream.is_whole:
            raise BrokenHttp2(ErrorCode.STREAM_CLOSED, "headers on a stream that has ended")
        if not flags & _END_STREAM or any(not is_regular(*pair) for pair in headers):
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "headers behind a request that do not end it, or are none")
        self._end_of_peer(stream_id, stream)
        found.append(DataCame(stream_id, b"", True))

    def _read_priority(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if not stream_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        if len(content) != 5:
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "a priority has five bytes")
        _check_priority(stream_id, content)
        found.append(_TRIFLE)

    def _read_reset(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if len(content) != 4:
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "a reset has four bytes")
        if not stream_id or stream_id > self.last_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a reset of a stream that was not opened")
        if self._streams.pop(stream_id, None) is None:
            stream_id = 0
        found.append(WasReset(stream_id))

    def _read_settings(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if stream_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "settings of a stream")
        if len(content) % 6 or (flags & _ACK and content):
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "settings have six bytes each")
        self._has_settings = True
        if flags & _ACK:
            self._is_acknowledged = True
            found.append(_TRIFLE)
            return
        window = self._initial_window
        for name, value in _setting.iter_unpack(content):
            if name == _S_WINDOW:
                window = value
            self._set(name, value)
        self._resize(window)
        self._outgoing.append(_SETTINGS_TAKEN)
        found.append(_MORE_ROOM)

    def _set(self, name: int, value: int) -> None:
        if name == _S_WINDOW and value > _WINDOW_MAX:
            raise BrokenHttp2(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
        if name == _S_FRAME_SIZE:
            if not FRAME_SIZE_MAX <= value < 1 << 24:
                raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
            self._frame_size_max = value
        elif name == _S_PUSH and value > 1:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a switch that is neither on nor off")

    def _resize(self, window: int) -> None:
        self._initial_window = window
        if window + self._extra_max > _WINDOW_MAX:
            self._extra_max = max((stream.extra for stream in self._streams.values()), default=0)
            if window + self._extra_max > _WINDOW_MAX:
                raise BrokenHttp2(ErrorCode.FLOW_CONTROL_ERROR, "a window grew too large")

    def _read_promise(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a client promises nothing")

    def _read_ping(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if stream_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a ping of a stream")
        if len(content) != 8:
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "a ping has eight bytes")
        if not flags & _ACK:
            self._outgoing.append(_frame(_PING, _ACK, 0, content))
        found.append(_TRIFLE)

    def _read_goodbye(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if stream_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a goodbye of a stream")
        if len(content) < 8:
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "a goodbye has eight bytes or more")
        found.append(SaidGoodbye())

    def _read_window(self, stream_id: int, flags: int, content: bytes, found: list[Event]) -> None:
        if len(content) != 4:
            raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "a window has four bytes")
        more = _word.unpack(content)[0] & _ID_MASK
        if not more:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a window that grows by nothing")
        if not stream_id:
            self._grow(more)
        elif stream_id > self.last_id:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a window of a stream that was not opened")
        elif (stream := self._streams.get(stream_id)) is not None:
            stream.extra += more
            self._extra_max = max(self._extra_max, stream.extra)
            if (
                self._initial_window + stream.extra > _WINDOW_MAX
            ):  # the one mistake that the standard wants to cost the stream alone
                self.reset(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
                found.append(WasReset(stream_id))
                return
        found.append(_MORE_ROOM)

    def _grow(self, more: int) -> None:
        self._window += more
        if self._window > _WINDOW_MAX:
            raise BrokenHttp2(ErrorCode.FLOW_CONTROL_ERROR, "a window grew too large")

    def _out_of_place(self, stream_id: int, what: str) -> BrokenHttp2:
        if stream_id & 1 and stream_id <= self.last_id:
            return BrokenHttp2(ErrorCode.STREAM_CLOSED, f"{what} on a stream that has ended")
        return BrokenHttp2(ErrorCode.PROTOCOL_ERROR, f"{what} on stream {stream_id}, which the peer cannot have opened")

    # What we send

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def take_outgoing(self) -> bytes:
        """All that is to be sent, once."""
        outgoing, self._outgoing = self._outgoing, []
        return b"".join(outgoing)

    def room(self, stream_id: int) -> int:
        """How much of an answer goes into the next frame."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        return min(self._initial_window + stream.extra, self._window, self._frame_size_max)

    def send_headers(self, stream_id: int, block: bytes, *, is_end: bool = False) -> None:
        """Headers that are encoded; of a stream that is over, nothing."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.is_ended:
            return
        flags = _END_HEADERS
        if is_end:
            flags |= _END_STREAM
            stream.is_ended = True
            if stream.is_whole:
                del self._streams[stream_id]
        self._outgoing.append(_frame(_HEADERS, flags, stream_id, block))

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Part of an answer, no more than there is room for."""
        self._streams[stream_id].extra -= len(data)
        self._window -= len(data)
        self._outgoing.append(_frame(_DATA, 0, stream_id, data))

    def send_answer(self, stream_id: int, head: bytes, data: bytes, trailers: bytes) -> bool:
        """A whole answer to a whole request, if there is room for it; false if nothing was sent."""
        stream, size = self._streams.get(stream_id), len(data)
        if stream is None or not stream.is_whole or stream.is_ended or size > self.room(stream_id):
            return False
        del self._streams[stream_id]
        self._window -= size
        self._outgoing += (
            _head.pack(0, len(head), _HEADERS, _END_HEADERS, stream_id),
            head,
            _head.pack(size >> 16, size & 0xFFFF, _DATA, 0, stream_id),
            data,
            _head.pack(0, len(trailers), _HEADERS, _END_HEADERS | _END_STREAM, stream_id),
            trailers,
        )
        return True

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Give a stream up; what is on its way is dropped when it comes."""
        self._streams.pop(stream_id, None)
        self._reset_ids.append(stream_id)
        self._outgoing.append(_frame(_RESET, 0, stream_id, _word.pack(code)))

    def say_goodbye(self, code: ErrorCode) -> None:
        """No more streams are taken; those that are open go on."""
        self._outgoing.append(_frame(_GOODBYE, 0, 0, _word.pack(self.last_id) + _word.pack(code)))


_READERS: dict[int, Callable[[Http2Server, int, int, bytes, list[Event]], None]] = {
    _DATA: Http2Server._read_data,
    _HEADERS: Http2Server._read_headers,
    _PRIORITY: Http2Server._read_priority,
    _RESET: Http2Server._read_reset,
    _SETTINGS: Http2Server._read_settings,
    _PROMISE: Http2Server._read_promise,
    _PING: Http2Server._read_ping,
    _GOODBYE: Http2Server._read_goodbye,
    _WINDOW: Http2Server._read_window,
    _CONTINUATION: Http2Server._read_continuation,
}


def _frame(kind: int, flags: int, stream_id: int, content: bytes) -> bytes:
    size = len(content)
    return _head.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + content


_SETTINGS_TAKEN = _frame(_SETTINGS, _ACK, 0, b"")


def _unpadded(content: bytes) -> bytes:
    if not content or content[0] >= len(content):
        raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "more padding than the frame has room for")
    return content[1 : len(content) - content[0]]


def _check_priority(stream_id: int, content: bytes) -> None:
    if len(content) < 5:
        raise BrokenHttp2(ErrorCode.FRAME_SIZE_ERROR, "a priority has five bytes")
    if _word.unpack_from(content)[0] & _ID_MASK == stream_id:
        raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
