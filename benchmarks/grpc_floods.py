"""What a hostile peer sends to the gRPC port, a function for each kind, and an honest client of that port.

Frames that are right one by one and cost the server more than who sends them: the server hangs up after some hundreds,
and the flood comes again. `grpc_calls` are whole calls, which nothing bounds but fairness: a turn for everybody.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator

from benchmarks.floods import Target, again_and_again
from bolide.protocol.command import Command
from bolide.protocol.http2 import PREFACE
from bolide.protocol.http2_headers import encode_headers
from bolide.proxy import messages as m
from bolide.proxy.methods import SERVICE

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_COUNT = 5_000  # of frames that a connection sends, if nobody hangs up
_LINES = 4
_INITIAL_WINDOW = 4


def _frame(kind: int, flags: int, stream_id: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream_id) + content


def _block(method: str, client_id: str) -> bytes:
    return encode_headers(
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/{SERVICE}/{method}".encode()),
        (b":authority", b"here"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"x-mq-client-id", client_id.encode()),
        (b"x-mq-language", b"PYTHON"),
    )


def _message(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4, "big") + content


_BEGIN = PREFACE + _frame(_SETTINGS, 0, 0, b"")
_IDS = [2 * number + 1 for number in range(_COUNT)]


def _flood(target: Target, frames: Iterator[bytes]) -> int:
    data = _BEGIN + b"".join(frames)
    return again_and_again(target, target.grpc, lambda: iter([data]), _LINES)


def grpc_resets(target: Target) -> int:
    """Rapid reset: calls that are opened and given up."""
    opened, reset = _block("Heartbeat", "flood"), b"\0\0\0\x08"
    return _flood(target, (_frame(_HEADERS, 4, each, opened) + _frame(_RESET, 0, each, reset) for each in _IDS))


def grpc_pings(target: Target) -> int:
    return _flood(target, (_frame(_PING, 0, 0, b"12345678") for _ in _IDS))


def grpc_settings(target: Target) -> int:
    """Each one resizes the windows of all streams."""
    opened = b"".join(_frame(_HEADERS, _END_HEADERS, each, _block("Heartbeat", "flood")) for each in _IDS[:900])
    sizes = (_frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 1000 + each)) for each in _IDS)
    return _flood(target, iter([opened, *sizes]))


def grpc_windows(target: Target) -> int:
    return _flood(target, (_frame(_WINDOW, 0, 0, b"\0\0\0\1") for _ in _IDS))


def grpc_continuations(target: Target) -> int:
    """Headers without an end."""
    begin = _frame(_HEADERS, 0, 1, _block("Heartbeat", "flood"))
    return _flood(target, iter([begin, *(_frame(_CONTINUATION, 0, 1, b"") for _ in _IDS)]))


def grpc_crumbs(target: Target) -> int:
    """A request that comes byte by byte."""
    begin = _frame(_HEADERS, _END_HEADERS, 1, _block("Heartbeat", "flood"))
    return _flood(target, iter([begin, *(_frame(_DATA, 0, 1, b"\0") for _ in _IDS)]))


def grpc_garbage(target: Target) -> int:
    return _flood(target, iter([b"\xff" * 60_000]))


def grpc_calls(target: Target) -> int:
    """Whole calls, each refused."""
    block, data = _block("SendMessage", "flood"), _message(m.SendMessageRequest().SerializeToString())
    calls = (_frame(_HEADERS, _END_HEADERS, each, block) + _frame(_DATA, _END_STREAM, each, data) for each in _IDS)
    return _flood(target, calls)


GRPC_FLOODS: dict[str, Callable[[Target], int]] = {
    flood.__name__: flood
    for flood in (
        *(grpc_resets, grpc_pings, grpc_settings, grpc_windows, grpc_continuations, grpc_crumbs, grpc_garbage),
        grpc_calls,
    )
}


class GrpcSender:
    """An honest client: one message after the other, by gRPC."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: str) -> None:
        self._reader, self._writer, self._topic = reader, writer, topic
        self._stream_id = -1
        writer.write(_BEGIN + _frame(_WINDOW, 0, 0, struct.pack(">I", 1 << 30)))

    async def send(self, body: bytes) -> Command:
        """The answer, as far as it went well: its code is 0."""
        self._stream_id += 2
        message = m.Message(topic=m.Resource(name=self._topic), body=body)
        system = message.system_properties
        system.message_id, system.message_type = f"id-{self._stream_id}", m.MessageType.NORMAL
        system.body_encoding, system.born_timestamp.seconds = m.Encoding.IDENTITY, 1_700_000_000
        content = _message(m.SendMessageRequest(messages=[message]).SerializeToString())
        call = _frame(_HEADERS, _END_HEADERS, self._stream_id, _block("SendMessage", "honest"))
        self._writer.write(call + _frame(_DATA, _END_STREAM, self._stream_id, content))
        answer = b""
        while True:
            head = await self._reader.readexactly(9)
            kind, flags, stream_id = struct.unpack(">BBI", head[3:])
            content = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            if stream_id == self._stream_id and kind == _DATA:
                answer += content
            elif stream_id == self._stream_id and flags & _END_STREAM:
                told = m.SendMessageResponse.FromString(answer[5:]).status.code
                return Command(0 if told == m.Code.OK else 1)
