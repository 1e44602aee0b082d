"""The frames of HTTP/2 that a client of gRPC sends day by day; above it stands `protocol/http2.py`."""

cdef enum:
    HTTP2_HEAD_SIZE = 9
    HTTP2_FRAME_SIZE_MAX = 16384
    K_DATA = 0
    K_HEADERS = 1
    K_PING = 6
    K_WINDOW = 8
    F_END_STREAM = 1
    F_END_HEADERS = 4

ctypedef struct Http2Frame:
    uint32_t size
    uint8_t kind
    uint8_t flags
    uint32_t stream_id
    const uint8_t* content


cdef bint read_http2_frame(const uint8_t* at, const uint8_t* end, Http2Frame* frame) noexcept nogil:
    """A frame that is whole and not too large."""
    if end - at < HTTP2_HEAD_SIZE:
        return False
    frame.size = <uint32_t>at[0] << 16 | get16(at + 1)
    frame.kind, frame.flags, frame.stream_id = at[3], at[4], get32(at + 5) & 0x7FFFFFFF
    frame.content = at + HTTP2_HEAD_SIZE
    return frame.size <= HTTP2_FRAME_SIZE_MAX and <Py_ssize_t>frame.size <= end - frame.content


cdef bint is_header_name(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Small letters, digits and dashes: what names are made of that mean nothing to HTTP/2 itself."""
    cdef Py_ssize_t i
    for i in range(size):
        if not (97 <= at[i] <= 122 or 48 <= at[i] <= 57 or at[i] == 45):
            return False
    return size > 0


cdef bint is_one_line(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if at[i] == 0 or at[i] == 10 or at[i] == 13:
            return False
    return True


cdef bint has_rules(Span name) noexcept nogil:
    """Names that the standard forbids, or that say something of the request's size."""
    if name.size == 2:
        return False  # te: looked at by who has its value
    return (
        equals(name, literal(b"connection"))
        or equals(name, literal(b"proxy-connection"))
        or equals(name, literal(b"keep-alive"))
        or equals(name, literal(b"transfer-encoding"))
        or equals(name, literal(b"upgrade"))
        or equals(name, literal(b"content-length"))
    )


cdef int first_kind(Span name) noexcept nogil:
    """Which of the four names it is that begin with a colon, as a bit; 0 for none."""
    if equals(name, literal(b":method")):
        return 1
    if equals(name, literal(b":scheme")):
        return 2
    if equals(name, literal(b":path")):
        return 4
    return 8 if equals(name, literal(b":authority")) else 0


cdef tuple plain_request(list headers):
    """Headers by name and their size; None where a rule has to be looked up."""
    cdef dict told = {}
    cdef Span name, value
    cdef Py_ssize_t size = 0
    cdef int kind, firsts = 0
    cdef bint is_behind = False
    for pair in headers:
        name, value = span_of((<tuple>pair)[0]), span_of((<tuple>pair)[1])
        if name.size and name.at[0] == c":":
            kind = first_kind(name)
            if not kind or is_behind or (kind == 4 and not value.size):
                return None
            firsts |= kind
        elif not is_header_name(name.at, name.size) or has_rules(name):
            return None
        else:
            is_behind = True
            if equals(name, literal(b"te")) and not equals(value, literal(b"trailers")):
                return None
        if not is_one_line(value.at, value.size):
            return None
        told[(<tuple>pair)[0]] = (<tuple>pair)[1]
        size += name.size + value.size
    if len(told) != len(headers) or firsts & 7 != 7:
        return None
    return told, size


def read_http2_calls(
    bytes data not None,
    Py_ssize_t start,
    Py_ssize_t count_max,
    list table not None,
    Py_ssize_t table_size_max,
    Py_ssize_t table_size_limit,
    Py_ssize_t list_size_max,
):
    cdef const uint8_t* begin = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const uint8_t* at = begin + start
    cdef const uint8_t* end = begin + PyBytes_GET_SIZE(data)
    cdef Http2Frame frame, body
    cdef list found = []
    while PyList_GET_SIZE(found) < count_max and read_http2_frame(at, end, &frame):
        if frame.kind == K_HEADERS:
            if frame.flags != F_END_HEADERS or not frame.stream_id & 1:
                break
            if not read_http2_frame(frame.content + frame.size, end, &body) or body.kind != K_DATA:
                break
            if body.flags != F_END_STREAM or body.stream_id != frame.stream_id:
                break
            block = PyBytes_FromStringAndSize(<const char*>frame.content, frame.size)
            headers, table_size_max = decode_headers(block, table, table_size_max, table_size_limit, list_size_max)
            content = PyBytes_FromStringAndSize(<const char*>body.content, body.size)
            found.append((K_HEADERS, frame.stream_id, plain_request(headers), headers, content))
            at = body.content + body.size
            continue
        if frame.stream_id:
            break
        if frame.kind == K_PING and frame.size == 8 and not frame.flags:
            found.append((K_PING, PyBytes_FromStringAndSize(<const char*>frame.content, frame.size)))
        elif frame.kind == K_WINDOW and frame.size == 4 and get32(frame.content) & 0x7FFFFFFF:
            found.append((K_WINDOW, get32(frame.content) & 0x7FFFFFFF))
        else:
            break
        at = frame.content + frame.size
    return found, at - begin, table_size_max
