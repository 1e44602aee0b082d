"""What the frames of a peer mean: the events of `http2.py`."""

from typing import NamedTuple


class Began(NamedTuple):
    """A stream with the headers of a request."""

    stream_id: int
    headers: dict[bytes, bytes]
    headers_size: int
    is_whole: bool  # nothing follows


class Asked(NamedTuple):
    """A whole request: headers and all of its data in one read, as clients of gRPC mostly send it."""

    stream_id: int
    headers: dict[bytes, bytes]
    headers_size: int
    data: bytes


class DataCame(NamedTuple):
    """More of a request."""

    stream_id: int
    data: bytes
    is_whole: bool


class WasReset(NamedTuple):
    """The peer gives a stream up, or made us refuse one; one that is over already has the number 0."""

    stream_id: int


class Trifle(NamedTuple):
    """A frame that asks for nothing; with more room it may be that something can be sent."""

    has_room: bool


class SaidGoodbye(NamedTuple):
    """The peer opens no more streams."""


Event = Asked | Began | DataCame | WasReset | Trifle | SaidGoodbye
