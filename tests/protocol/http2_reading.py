"""What bytes of HTTP/2 mean, with one reader of the kernel or another."""

from collections.abc import Callable
from unittest.mock import patch

from bolide import kernel
from bolide.protocol.http2 import PREFACE, Http2Server, Limits
from bolide.protocol.http2_errors import BrokenHttp2
from bolide.protocol.http2_events import Asked, Began, DataCame, Event

LIMITS = Limits(streams_max=3, headers_size_max=4096, stream_window=1000, connection_window=65_535 + 3000)
NO_SETTINGS = b"\0\0\0\4\0\0\0\0\0"


def parted(found: list[Event]) -> list[Event]:
    """What came at once as if it had come in two pieces: the plain kernel leaves it so."""
    told: list[Event] = []
    for each in found:
        if isinstance(each, Asked):
            told += (Began(*each[:3], False), DataCame(each.stream_id, each.data, True))
        else:
            told.append(each)
    return told


def read_out(server: Http2Server, data: bytes) -> list[Event]:
    """What some bytes mean, in as many turns as they take."""
    found = server.receive(data)
    while server.is_behind:
        found += server.receive(b"")
    return found


def heard(read: Callable[..., object], data: bytes) -> tuple[list[Event], bytes] | None:
    """None for what breaks the connection: the kernel unpacks headers ahead, so it may name another of two mistakes."""
    server = Http2Server(LIMITS)
    with patch.object(kernel, "read_http2_calls", read):
        try:
            found = parted(read_out(server, PREFACE + NO_SETTINGS + data))
        except BrokenHttp2:
            return None
    return found, server.take_outgoing()
