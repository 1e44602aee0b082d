"""Why a connection of HTTP/2 ends, or a stream of it."""

from enum import IntEnum

from bolide.errors import ProtocolError


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class BrokenHttp2(ProtocolError):
    """The peer did what the standard does not allow."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.http2_code = code
