"""Frames: cut, read, written, and look-ups of routes answered; `plain.py` has the meaning."""

cdef tuple LANGUAGE_NAMES = LANGUAGES
cdef dict LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}

cdef enum:
    JAVA = 0
    PYTHON = 3
    OTHER_LANGUAGE = 7
    LANGUAGE_COUNT = 14
    ROUTE_REQUEST = 105
    STANDARD_JSON_VERSION = 401
    BINARY_SIZE_MIN = 21
    HEADER_SIZE_MAX = 0xFFFFFF

assert len(LANGUAGES) == LANGUAGE_COUNT
assert LANGUAGES.index("PYTHON") == PYTHON and LANGUAGES.index("OTHER") == OTHER_LANGUAGE


# A buffer that grows; the only memory taken here.

cdef struct Out:
    char* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef int reserve(Out* out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity
    cdef char* data
    if out.size + more <= out.capacity:
        return 0
    capacity = max(out.capacity * 2, out.size + more)
    data = <char*>PyMem_Realloc(out.data, capacity)
    if data == NULL:
        raise MemoryError()
    out.data = data
    out.capacity = capacity
    return 0


cdef inline int put_bytes(Out* out, const char* data, Py_ssize_t size) except -1:
    reserve(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline int put_word(Out* out, Span word) except -1:
    return put_bytes(out, <const char*>word.at, word.size)


cdef inline int put_u32(Out* out, uint32_t value) except -1:
    reserve(out, 4)
    write32(out.data + out.size, value)
    out.size += 4
    return 0


cdef int put_integer(Out* out, int64_t value) except -1:
    reserve(out, 20)
    out.size = put_decimal(out.data + out.size, value) - out.data
    return 0


def java_hash(text: str) -> int:
    cdef uint32_t value = 0
    cdef bytes units = text.encode("utf-16-le", "surrogatepass")
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(units)
    cdef Py_ssize_t i
    for i in range(0, PyBytes_GET_SIZE(units), 2):
        value = 31 * value + (at[i] | (<uint32_t>at[i + 1] << 8))
    return <int32_t>value


def cut_frames(stream, end: int, frame_size_max: int) -> tuple:
    cdef Py_buffer buffer
    cdef Py_ssize_t limit = end
    cdef int64_t size_max = frame_size_max - 4
    cdef Py_ssize_t position = 0
    cdef int64_t size
    cdef uint32_t header_size
    cdef const uint8_t* at
    cdef list bounds = []
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= limit <= buffer.len:
            raise ValueError(f"end {end} is outside a stream of {buffer.len} bytes")
        while limit - position >= 4:
            at = <const uint8_t*>buffer.buf + position
            size = <int32_t>get32(at)
            if size < 4 or size > size_max:
                return bounds, position, f"a frame says it is {size} bytes long, it may be 4 to {size_max}"
            if limit - position < 8:
                break
            header_size = header_size_of(at + 4)
            if at[4] > BINARY_CODEC:
                return bounds, position, f"a frame has codec {at[4]}, known are 0 (JSON) and 1 (binary)"
            if header_size > size - 4:
                return bounds, position, f"a header of {header_size} bytes does not fit its frame of {size}"
            if limit - position < 4 + size:
                break
            bounds.append(position + 4)
            bounds.append(position + 4 + size)
            position += 4 + size
        return bounds, position, None
    finally:
        PyBuffer_Release(&buffer)


cdef inline object text_to_str(const Text* text):
    """The text as str, or None if it is irregular."""
    if text.is_ascii and not text.is_escaped:
        return PyUnicode_DecodeUTF8(text.at, text.size, NULL)
    return odd_text_to_str(text)


cdef object odd_text_to_str(const Text* text):
    cdef char small[512]
    cdef char* target = small
    cdef Py_ssize_t size
    try:
        if not text.is_escaped:
            return PyUnicode_DecodeUTF8(text.at, text.size, NULL)
        if text.size > <Py_ssize_t>sizeof(small):
            target = <char*>PyMem_Malloc(text.size)
            if target == NULL:
                raise MemoryError()
        try:
            size = unescape(text, target)
            return None if size < 0 else PyUnicode_DecodeUTF8(target, size, NULL)
        finally:
            if target != small:
                PyMem_Free(target)
    except UnicodeDecodeError:
        return None


cdef const char* read_fields(const char* at, const char* end, dict fields) except? NULL:
    """The object behind extFields; `at` is its opening brace. NULL without an exception means irregular."""
    cdef Text key, text
    cdef int64_t number
    cdef bint is_last
    cdef object name, value
    at = skip_blanks(at + 1, end)
    if at < end and at[0] == 125:
        return at + 1
    while True:
        at = scan_key(at, end, &key)
        if at == NULL or at >= end:
            return NULL
        if at[0] == 34:
            at = scan_text(at, end, &text)
            if at == NULL:
                return NULL
            value = text_to_str(&text)
        elif at[0] == 45 or 48 <= at[0] <= 57:
            at = scan_integer(at, end, &text, &number)
            if at == NULL:
                return NULL
            value = PyUnicode_DecodeUTF8(text.at, text.size, NULL)
        elif at[0] == 116:
            at = scan_word(at, end, literal(b"true"))
            value = "true"
        elif at[0] == 102:
            at = scan_word(at, end, literal(b"false"))
            value = "false"
        else:
            return NULL
        name = text_to_str(&key)
        if at == NULL or name is None or value is None:
            return NULL
        fields[name] = value
        at = next_member(at, end, &is_last)
        if at == NULL or is_last:
            return at


cdef tuple read_json_header(const char* at, const char* end, Py_ssize_t body_position):
    """The header as a tuple, or None if anything about it is irregular."""
    cdef Head numbers
    cdef int64_t* number
    cdef Text key, text
    cdef bint is_last
    cdef int language = JAVA
    cdef object remark = None
    cdef object name
    cdef dict fields = {}
    clear_head(&numbers, NULL, NULL)
    at = skip_blanks(at, end)
    if at >= end or at[0] != 123:
        return None
    at = skip_blanks(at + 1, end)
    while True:
        at = scan_key(at, end, &key)
        if at == NULL or at >= end or key.is_escaped:
            return None
        number = number_called(&key, &numbers)
        if number != NULL:
            at = scan_number(at, end, number)
        elif is_text(&key, literal(b"extFields")):
            fields = {}
            if at[0] == 123:
                at = read_fields(at, end, fields)
            else:
                at = scan_word(at, end, literal(b"null"))
        elif is_text(&key, literal(b"language")):
            at = scan_text(at, end, &text)
            if at == NULL:
                return None
            name = text_to_str(&text)
            if name is None:
                return None
            language = LANGUAGE_CODES.get(name, OTHER_LANGUAGE)
        elif is_text(&key, literal(b"remark")):
            if at[0] == 110:
                remark = None
                at = scan_word(at, end, literal(b"null"))
            else:
                at = scan_text(at, end, &text)
                if at == NULL:
                    return None
                remark = text_to_str(&text)
                if remark is None:
                    return None
        else:
            if not key.is_ascii:
                return None
            at = skip_scalar(at, end)
        if at == NULL:
            return None
        at = next_member(at, end, &is_last)
        if at == NULL:
            return None
        if is_last:
            break
    if skip_blanks(at, end) != end:
        return None
    return (
        JSON_CODEC, numbers.code, language, numbers.version, numbers.opaque, numbers.flag, remark, fields, body_position
    )


cdef tuple read_binary_header(const uint8_t* header, Py_ssize_t size, Py_ssize_t body_position):
    cdef Py_ssize_t at, value_at
    cdef int32_t remark_size, ext_size, key_size, value_size
    cdef int language
    cdef dict fields = {}
    if size < BINARY_SIZE_MIN:
        return None
    remark_size = <int32_t>get32(header + 13)
    if remark_size < 0 or size - BINARY_FIXED_SIZE - remark_size < 4:
        return None
    at = BINARY_FIXED_SIZE + remark_size
    ext_size = <int32_t>get32(header + at)
    at += 4
    if ext_size != size - at:
        return None
    try:
        remark = PyUnicode_DecodeUTF8(
            <const char*>header + BINARY_FIXED_SIZE, remark_size, NULL
        ) if remark_size else None
        while at < size:
            if size - at < 6:
                return None
            key_size = <int16_t>get16(header + at)
            value_at = at + 2 + key_size + 4
            if key_size < 0 or value_at > size:
                return None
            value_size = <int32_t>get32(header + value_at - 4)
            if value_size < 0 or value_size > size - value_at:
                return None
            key = PyUnicode_DecodeUTF8(<const char*>header + at + 2, key_size, NULL)
            value = PyUnicode_DecodeUTF8(<const char*>header + value_at, value_size, NULL)
            if key_size and value_size:
                fields[key] = value
            at = value_at + value_size
    except UnicodeDecodeError:
        return None
    language = header[2] if header[2] < LANGUAGE_COUNT else OTHER_LANGUAGE
    return (
        BINARY_CODEC, <int16_t>get16(header), language, <int16_t>get16(header + 3), <int32_t>get32(header + 5),
        <int32_t>get32(header + 9), remark, fields, body_position
    )


def read_headers(stream, bounds: list) -> list:
    check_pairs(bounds)
    cdef Py_buffer buffer
    cdef Py_ssize_t i, start, end, header_end
    cdef const uint8_t* data
    cdef list headers = []
    cdef tuple header
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>buffer.buf
        for i in range(0, len(bounds), 2):
            start = bounds[i]
            end = bounds[i + 1]
            check_bounds(start, end, buffer.len)
            header_end = start + 4 + header_size_of(data + start)
            header = None
            if header_end <= end:
                if data[start] == BINARY_CODEC:
                    header = read_binary_header(data + start + 4, header_end - start - 4, header_end)
                elif data[start] == JSON_CODEC:
                    header = read_json_header(<const char*>data + start + 4, <const char*>data + header_end, header_end)
                    if header is None:
                        header = plain.read_odd_header(stream, start, end)
            headers.append(header)
        return headers
    finally:
        PyBuffer_Release(&buffer)


# Writing.

cdef int put_json_text(Out* out, object text) except -1:
    cdef Py_ssize_t size
    cdef const char* data = PyUnicode_AsUTF8AndSize(text, &size)
    cdef Py_ssize_t i, plain_from = 0
    cdef uint8_t byte
    cdef char* escape
    reserve(out, size + 2)
    out.data[out.size] = 34
    out.size += 1
    for i in range(size):
        byte = <uint8_t>data[i]
        if byte >= 32 and byte != 34 and byte != 92:
            continue
        put_bytes(out, data + plain_from, i - plain_from)
        plain_from = i + 1
        if byte == 34:
            put_word(out, literal(b'\\"'))
        elif byte == 92:
            put_word(out, literal(b"\\\\"))
        elif byte == 10:
            put_word(out, literal(b"\\n"))
        elif byte == 13:
            put_word(out, literal(b"\\r"))
        elif byte == 9:
            put_word(out, literal(b"\\t"))
        elif byte == 12:
            put_word(out, literal(b"\\f"))
        elif byte == 8:
            put_word(out, literal(b"\\b"))
        else:
            put_word(out, literal(b"\\u00"))
            reserve(out, 2)
            out.data[out.size] = 48 + (byte >> 4)
            out.data[out.size + 1] = (48 if (byte & 15) < 10 else 87) + (byte & 15)
            out.size += 2
    put_bytes(out, data + plain_from, size - plain_from)
    put_word(out, literal(b'"'))
    return 0


cdef int put_json_header(
    Out* out, int64_t code, object language, int64_t version, int64_t opaque, int64_t flag, object remark, dict fields
) except -1:
    cdef bint is_first = True
    cdef bytes name
    put_word(out, literal(b'{"code":'))
    put_integer(out, code)
    if fields or not flag & RESPONSE_FLAG:
        put_word(out, literal(b',"extFields":{'))
        if fields is not None:
            for key, value in fields.items():
                if not is_first:
                    put_word(out, literal(b","))
                is_first = False
                put_json_text(out, key)
                put_word(out, literal(b":"))
                put_json_text(out, value)
        put_word(out, literal(b"}"))
    put_word(out, literal(b',"flag":'))
    put_integer(out, flag)
    put_word(out, literal(b',"language":'))
    put_json_text(out, LANGUAGE_NAMES[language])
    put_word(out, literal(b',"opaque":'))
    put_integer(out, opaque)
    if remark is not None:
        put_word(out, literal(b',"remark":'))
        put_json_text(out, remark)
    put_word(out, literal(b',"serializeTypeCurrentRPC":"JSON","version":'))
    put_integer(out, version)
    put_word(out, literal(b"}"))
    return 0


cdef int put_sized_text(Out* out, object text) except -1:
    """A text behind its int32 length."""
    cdef Py_ssize_t size
    cdef const char* data = PyUnicode_AsUTF8AndSize(text, &size)
    put_u32(out, <uint32_t>size)
    put_bytes(out, data, size)
    return 0


cdef int put_binary_header(
    Out* out, int64_t code, uint8_t language, int64_t version, int32_t opaque, int32_t flag, object remark, dict fields
) except -1:
    cdef char fixed[13]
    cdef Py_ssize_t size, ext_at
    cdef const char* data
    write16(fixed, <uint16_t>code)
    fixed[2] = <char>language
    write16(fixed + 3, <uint16_t>version)
    write32(fixed + 5, <uint32_t>opaque)
    write32(fixed + 9, <uint32_t>flag)
    put_bytes(out, fixed, 13)
    put_sized_text(out, remark or "")
    ext_at = out.size
    put_u32(out, 0)
    if fields is not None:
        for key, value in fields.items():
            data = PyUnicode_AsUTF8AndSize(key, &size)
            if size > 0x7FFF:
                raise ValueError(f"a field name of {size} bytes, the limit is {0x7FFF}")
            write16(fixed, <uint16_t>size)
            put_bytes(out, fixed, 2)
            put_bytes(out, data, size)
            put_sized_text(out, value)
    write32(out.data + ext_at, <uint32_t>(out.size - ext_at - 4))
    return 0


cdef int put_frame(Out* out, tuple frame) except -1:
    cdef Py_ssize_t start = out.size
    cdef Py_ssize_t header_size
    cdef Py_buffer body
    codec, code, language, version, opaque, flag, remark, fields, content = frame
    put_u32(out, 0)
    put_u32(out, 0)
    if codec == BINARY_CODEC:
        put_binary_header(out, code, language, version, opaque, flag, remark, fields)
    else:
        put_json_header(out, code, language, version, opaque, flag, remark, fields)
    header_size = out.size - start - 8
    if header_size > HEADER_SIZE_MAX:
        raise ValueError(f"a header of {header_size} bytes, the limit is {HEADER_SIZE_MAX}")
    PyObject_GetBuffer(content, &body, PyBUF_SIMPLE)
    try:
        if 4 + header_size + body.len > 0x7FFFFFFF:
            raise ValueError(f"a body of {body.len} bytes does not fit a frame")
        put_bytes(out, <const char*>body.buf, body.len)
        write32(out.data + start, <uint32_t>(4 + header_size + body.len))
        write32(out.data + start + 4, (<uint32_t>(codec == BINARY_CODEC) << 24) | <uint32_t>header_size)
    finally:
        PyBuffer_Release(&body)
    return 0


def write_frames(frames: list) -> bytes:
    cdef Out out
    cdef Py_ssize_t start
    cdef bytes whole
    out.data = NULL
    out.size = out.capacity = 0
    try:
        reserve(&out, 256)
        for frame in frames:
            start = out.size
            try:
                put_frame(&out, frame)
            except UnicodeEncodeError:  # half a surrogate pair: the twin writes it as Java does
                out.size = start
                whole = plain.write_frames([frame])
                put_bytes(&out, PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))
        return PyBytes_FromStringAndSize(out.data, out.size)
    finally:
        PyMem_Free(out.data)


# Route look-ups.

cdef struct RouteRequest:
    Head head
    Text topic
    bint has_topic
    bint is_standard
    bint has_zone


cdef bint take_route_field(const Text* key, const Text* text, void* into) noexcept nogil:
    cdef RouteRequest* request = <RouteRequest*>into
    if is_text(key, literal(b"topic")):
        request.topic = text[0]
        request.has_topic = True
    elif is_text(key, literal(b"acceptStandardJsonOnly")):
        request.is_standard = is_text(text, literal(b"true"))
        if not request.is_standard and not is_text(text, literal(b"false")):
            return False
    elif is_text(key, literal(b"__ZONE_MODE")):
        request.has_zone = True
    return is_plain(text)


cdef bint scan_route_request(const char* at, const char* end, RouteRequest* request) noexcept nogil:
    """Reads a JSON header as a look-up without making an object of it; false if it is irregular."""
    clear_head(&request.head, take_route_field, request)
    request.has_topic = request.is_standard = request.has_zone = False
    return scan_json_head(at, end, &request.head, scan_head_member)


cdef int put_route_answer(Out* out, int64_t opaque, int64_t version, bytes body) except -1:
    cdef Py_ssize_t start = out.size
    cdef Py_ssize_t header_size
    put_u32(out, 0)
    put_u32(out, 0)
    put_word(out, literal(b'{"code":0,"flag":1,"language":"PYTHON","opaque":'))
    put_integer(out, opaque)
    put_word(out, literal(b',"serializeTypeCurrentRPC":"JSON","version":'))
    put_integer(out, version)
    put_word(out, literal(b"}"))
    header_size = out.size - start - 8
    if PyBytes_GET_SIZE(body) > 0x7FFFFFFF - 4 - header_size:
        raise ValueError(f"a body of {len(body)} bytes does not fit a frame")
    put_bytes(out, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    write32(out.data + start, <uint32_t>(out.size - start - 4))
    write32(out.data + start + 4, <uint32_t>header_size)
    return 0


def answer_routes(stream, bounds: list, quoted: dict, bare: dict, version: int) -> tuple:
    check_pairs(bounds)
    cdef Py_buffer buffer
    cdef Out out
    cdef RouteRequest request
    cdef Py_ssize_t i, start, end, header_end
    cdef const uint8_t* data
    cdef PyObject* found
    cdef bytes topic, whole
    cdef int64_t own_version = version
    cdef list left = []
    out.data = NULL
    out.size = out.capacity = 0
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        reserve(&out, 4096)
        data = <const uint8_t*>buffer.buf
        for i in range(0, len(bounds), 2):
            start = bounds[i]
            end = bounds[i + 1]
            check_bounds(start, end, buffer.len)
            header_end = start + 4 + header_size_of(data + start)
            if (
                header_end > end
                or data[start] != JSON_CODEC
                or not scan_route_request(<const char*>data + start + 4, <const char*>data + header_end, &request)
            ):
                whole, more = plain.answer_routes(stream, [start, end], quoted, bare, version)
                put_bytes(&out, PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole))
                left += more
                continue
            found = NULL
            if request.head.code == ROUTE_REQUEST and not request.head.flag & 3 and not request.has_zone:
                topic = PyBytes_FromStringAndSize(request.topic.at, request.topic.size) if request.has_topic else b""
                request.is_standard = request.is_standard or request.head.version >= STANDARD_JSON_VERSION
                found = PyDict_GetItemWithError(quoted if request.is_standard else bare, topic)
            if found == NULL:
                left.append(start)
                left.append(end)
            else:
                put_route_answer(&out, request.head.opaque, own_version, <bytes>found)
        return PyBytes_FromStringAndSize(out.data, out.size), left
    finally:
        PyBuffer_Release(&buffer)
        PyMem_Free(out.data)
