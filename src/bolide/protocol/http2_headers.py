"""The headers of a request and of an answer in HTTP/2; `kernel.decode_headers` has unpacked the first."""

from bolide.protocol.http2_errors import BrokenHttp2, ErrorCode

_PSEUDO = {b":method", b":scheme", b":path", b":authority"}
_NEEDED = {b":method", b":scheme", b":path"}
_OF_CONNECTIONS = {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
_NAME_OCTETS = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
_SIZE_DIGITS_MAX = 15
_SEEN_MAX = 64
_seen_names: set[tuple[bytes, ...]] = set()  # of whole requests that were looked at and are allowed

Pair = tuple[bytes, bytes]


def read_request(headers: list[Pair]) -> tuple[dict[bytes, bytes], int]:
    """The headers of a request by name, and their size; raises BrokenHttp2 for what is no request."""
    told = dict(headers)
    names = tuple(told)
    if len(names) != len(headers) or names not in _seen_names or told.get(b"te", b"trailers") != b"trailers":
        _check_names(headers)
        if len(_seen_names) >= _SEEN_MAX:
            _seen_names.clear()
        if len(names) == len(headers):
            _seen_names.add(names)
    values = b"".join(told.values())
    if len(values.translate(None, b"\0\r\n")) != len(values):
        raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a header with the end of a line in it")
    if not told.keys() >= _NEEDED or not told[b":path"]:
        raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a request without method, scheme or path")
    return told, len(values) + len(b"".join(names))


def _check_names(headers: list[Pair]) -> None:
    firsts = set[bytes]()
    is_behind = False  # the names that begin with a colon come first
    for name, value in headers:
        if name in _PSEUDO:
            if is_behind or name in firsts:
                raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, f"header {name!r} twice, or out of place")
            firsts.add(name)
        elif is_regular(name, value):
            is_behind = True
        else:
            raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, f"a header that is not allowed: {name[:40]!r}")


def content_length(told: dict[bytes, bytes]) -> int | None:
    """The size that a request says it has."""
    length = told.get(b"content-length")
    if length is None:
        return None
    if not length.isdigit() or len(length) > _SIZE_DIGITS_MAX:
        raise BrokenHttp2(ErrorCode.PROTOCOL_ERROR, "a content-length that is no number")
    return int(length)


def is_regular(name: bytes, value: bytes) -> bool:
    """Whether a header may stand behind the first ones."""
    if not name or not _NAME_OCTETS.issuperset(name) or name in _OF_CONNECTIONS:
        return False
    return name != b"te" or value == b"trailers"


def encode_headers(*pairs: Pair) -> bytes:
    """A block of headers as texts, none of them remembered or packed."""
    return b"".join(b"\0" + _encode_size(len(name)) + name + _encode_size(len(value)) + value for name, value in pairs)


def _encode_size(size: int) -> bytes:
    if size < 0x7F:
        return bytes((size,))
    size -= 0x7F
    octets = bytearray((0x7F,))
    while size >= 0x80:
        octets.append(size & 0x7F | 0x80)
        size >>= 7
    octets.append(size)
    return bytes(octets)
