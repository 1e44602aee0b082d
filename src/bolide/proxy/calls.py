"""One gRPC call: what was asked and until when, and how it is answered.

A message of gRPC is a byte (0: not compressed), its length in four bytes, and protobuf. An answer is headers, messages,
and headers again with `grpc-status`; what clients understand as a refusal of RocketMQ's is a message with its status
inside, and `grpc-status` stays 0. Only what is no proper call ends with another one.

A call that is answered later leaves here nothing but itself: no task and no future. Who waits for something in the name
of a call hears through `when_gone` that nobody wants the answer any more.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol

_PREFIX_SIZE = 5
_ONE_PIECE_MAX = 16 * 1024  # what a frame of HTTP/2 has room for, nearly
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_DIGITS_MAX = 8
_LOOKED_AT = (b"x-mq-client-id", b"x-mq-language", b"x-mq-client-version", b"authorization", b"x-mq-date-time")


class GrpcStatus(IntEnum):
    """The few of gRPC's own status codes that are used."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Encoded(Protocol):
    """A message of protobuf."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802


class Carrier(Protocol):
    """The connection of a call, as far as the call needs it."""

    peer: str
    local: str
    is_lost: bool  # nobody is at the other end any more
    origin: str  # the host at the other end of the socket, whatever a PROXY header says

    def start(self, call: "Call") -> None:
        """Send the headers of the answer."""
        ...

    def push(self, call: "Call", piece: bytes) -> None:
        """Send a message, as the windows allow."""
        ...

    def end(self, call: "Call", status: int, text: str) -> None:
        """Send the end, after all that was pushed."""
        ...

    def answer(self, call: "Call", piece: bytes) -> bool:
        """Send headers, the only message and the end at once, if that goes; false if nothing was sent."""
        ...

    def run_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Have something done in a task that ends with the connection."""
        ...


class Call:
    """What a client asked, and where its answer goes."""

    __slots__ = (
        "_is_over",
        "_on_gone",
        "_on_late",
        "began_s",
        "carrier",
        "deadline_s",
        "has_begun",
        "headers",
        "headers_size",
        "is_foreign",
        "is_lasting",
        "is_whole",
        "outgoing",
        "path",
        "received",
        "receiver",
        "stream_id",
        "timer",
        "unsent_end",
    )

    def __init__(self, carrier: Carrier, stream_id: int, path: str, headers: Mapping[bytes, bytes]) -> None:
        self.carrier = carrier
        self.stream_id = stream_id
        self.path = path
        self.headers = headers
        self.headers_size = 0  # counted by the carrier, which knows
        self.began_s: float | None = None  # of the steady clock; None is not timed
        self.deadline_s: float | None = None
        self.is_foreign = False  # no gRPC: told so once the client has said all
        self.is_lasting = False  # a server that stops does not wait for it
        self.is_whole = False  # the client has said all
        self.receiver: Callable[[bytes], None] | None = None  # of each message; None: of the one message
        self.received = bytearray()
        self.outgoing = bytearray()  # what no window had room for
        self.unsent_end: tuple[int, str] | None = None
        self.timer: Any = None
        self.has_begun = False  # headers of the answer are out
        self._is_over = False
        self._on_gone: Callable[[], None] | None = None
        self._on_late: Callable[[], None] | None = None

    def header(self, name: str) -> str:
        """A header of the client's, or nothing."""
        return self.headers.get(name.encode(), b"").decode("utf-8", "replace")

    @property
    def is_open(self) -> bool:
        """Somebody waits for an answer, or for more of it."""
        return not self._is_over and not self.carrier.is_lost

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Have it called if the client leaves, or its time is over, before the answer has ended."""
        self._on_gone = callback

    def when_late(self, callback: Callable[[], None], margin_s: float) -> None:
        """Have it called so long before the client's time is over: it says something while the client still hears."""
        if self.deadline_s is not None:
            self.deadline_s -= margin_s
            self._on_late = callback

    def late(self) -> bool:
        """The time is over; false if nobody had a last word."""
        on_late = self._on_late
        if on_late is not None:
            self._on_late = None
            on_late()
        return on_late is not None

    def write(self, message: Encoded) -> None:
        """One message of the answer; to a client that is gone, silently nothing."""
        self.write_encoded(message.SerializeToString())

    def write_encoded(self, content: bytes) -> None:
        """The same of a message that is encoded."""
        if self._is_over:
            return
        if not self.has_begun:
            self.has_begun = True
            self.carrier.start(self)
        self.carrier.push(self, _piece(content))

    def reply_all(self, contents: Sequence[bytes]) -> None:
        """All messages of the answer, encoded, and its end: in one piece if it is small."""
        if self._is_over:
            return
        is_small = not self.has_begun and sum(map(len, contents)) <= _ONE_PIECE_MAX
        if is_small and self.carrier.answer(self, b"".join(map(_piece, contents))):
            self._close()
            return
        for content in contents[:-1]:
            self.write_encoded(content)
        self.reply_encoded(contents[-1])

    def reply(self, message: Encoded) -> None:
        """The only message of the answer, or the last one, and the end."""
        self.reply_encoded(message.SerializeToString())

    def reply_encoded(self, content: bytes) -> None:
        """The same of a message that is encoded."""
        if self._is_over:
            return
        piece = _piece(content)
        if not self.has_begun:
            if self.carrier.answer(self, piece):
                self._close()
                return
            self.has_begun = True
            self.carrier.start(self)
        self.carrier.push(self, piece)
        self.end()

    def end(self, status: int = GrpcStatus.OK, text: str = "") -> None:
        """No more follows."""
        if not self._is_over:
            self._close()
            self.carrier.end(self, status, text)

    def gone(self) -> None:
        """The client left, or does not wait any more."""
        if not self._is_over:
            on_gone = self._on_gone
            self._close()
            if on_gone is not None:
                on_gone()

    def _close(self) -> None:
        self._is_over = True
        self._on_gone = self._on_late = self.receiver = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _piece(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4, "big") + content


def kept_headers(headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Of a request that is on its way: what is looked at when all of it is here. Others may leave thousands so."""
    return {name: headers[name] for name in _LOOKED_AT if name in headers}


def parse_timeout(text: bytes) -> float | None:
    """`grpc-timeout` in seconds; None if it is none."""
    digits, unit_s = text[:-1], _UNITS_S.get(text[-1:])
    is_one = unit_s is not None and digits.isdigit() and len(digits) <= _TIMEOUT_DIGITS_MAX
    return int(digits) * unit_s if is_one and unit_s is not None else None


def cut_message(received: bytearray, size_max: int) -> bytes | None:
    """The next whole message, taken off what has come; None while it is not whole. Raises ValueError."""
    if len(received) < _PREFIX_SIZE:
        return None
    size = int.from_bytes(received[1:_PREFIX_SIZE], "big")
    if size > size_max:
        raise ValueError(f"a message of {size} bytes, at most {size_max} are taken (grpcMaxInboundMessageSize)")
    if received[0]:
        raise ValueError("a compressed message; send it uncompressed, bodies of messages may be")
    end = _PREFIX_SIZE + size
    if len(received) < end:
        return None
    message = bytes(memoryview(received)[_PREFIX_SIZE:end])
    del received[:end]
    return message


def only_message(data: bytes, size_max: int) -> bytes | None:
    """The message of a request that came in one piece; None if it is not just that."""
    size = len(data) - _PREFIX_SIZE
    if not 0 <= size <= size_max or data[0] or int.from_bytes(data[1:_PREFIX_SIZE], "big") != size:
        return None
    return data[_PREFIX_SIZE:]
