"""A send of RocketMQ's gRPC protocol that needs no thought; above it stands `proxy/sending.py`."""

cdef enum:
    VARINT_OCTETS_MAX = 10
    KEYS_MAX = 8
    FIXED_PROPERTIES_SIZE = 128  # names and separators of all properties, and a time
    PROPERTIES_SIZE_EVERYDAY = 8192

# The fields of Message and of SystemProperties, and their enums' values
cdef enum:
    M_TOPIC = 1
    M_SYSTEM = 3
    M_BODY = 4
    S_TAG = 1
    S_KEYS = 2
    S_MESSAGE_ID = 3
    S_DIGEST = 4
    S_ENCODING = 5
    S_TYPE = 6
    S_BORN = 7
    S_BORN_HOST = 8
    S_QUEUE_ID = 13
    ENCODING_GZIP = 2
    TYPE_NORMAL = 1

ctypedef struct ProtoField:
    uint64_t number
    bint is_text
    uint64_t value
    Span text

ctypedef struct PlainSend:
    Span topic, body, tag, message_id, born_host
    Span keys[KEYS_MAX]
    int key_count
    int64_t born_ms


cdef bint read_varint(Span* left, uint64_t* value) noexcept nogil:
    cdef int i
    value[0] = 0
    for i in range(VARINT_OCTETS_MAX):
        if i >= left.size:
            return False
        value[0] |= <uint64_t>(left.at[i] & 0x7F) << (7 * i)
        if not left.at[i] & 0x80:
            left.at += i + 1
            left.size -= i + 1
            return True
    return False


cdef bint read_field(Span* left, ProtoField* field) noexcept nogil:
    """A number or some bytes; false for anything else."""
    cdef uint64_t head
    if not read_varint(left, &head) or not read_varint(left, &field.value):
        return False
    field.number, field.is_text = head >> 3, (head & 7) == 2
    if not field.is_text:
        return (head & 7) == 0
    if field.value > <uint64_t>left.size:
        return False
    field.text.at, field.text.size = left.at, <Py_ssize_t>field.value
    left.at += field.text.size
    left.size -= field.text.size
    return True


cdef bint is_new(uint64_t number, uint64_t* seen) noexcept nogil:
    """Whether a field comes for the first time; what comes twice has rules of its own."""
    cdef uint64_t bit
    if number > 63:
        return False
    bit = <uint64_t>1 << number
    if seen[0] & bit:
        return False
    seen[0] |= bit
    return True


cdef bint is_graphic(Span text) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(text.size):
        if not 0x21 <= text.at[i] <= 0x7E:
            return False
    return True


cdef bint read_topic(Span left, Span* topic) noexcept nogil:
    """The name of a resource; its namespace is for nobody."""
    cdef ProtoField field
    cdef uint64_t seen = 0
    while left.size:
        if not read_field(&left, &field) or not field.is_text or not is_new(field.number, &seen):
            return False
        if field.number > 2 or not is_graphic(field.text):
            return False
        if field.number == 2:
            topic[0] = field.text
    return topic.size > 0


cdef bint read_time(Span left, int64_t* at_ms) noexcept nogil:
    cdef ProtoField field
    cdef uint64_t seen = 0, seconds = 0, nanos = 0
    while left.size:
        if not read_field(&left, &field) or field.is_text or not is_new(field.number, &seen):
            return False
        if field.number == 1:
            seconds = field.value
        elif field.number == 2:
            nanos = field.value
        else:
            return False
    at_ms[0] = <int64_t>(seconds * 1000 + nanos // 1000000)
    return 0 < seconds < <uint64_t>1 << 40 and nanos < 1000000000


cdef bint is_digest(Span left) noexcept nogil:
    """Nobody looks at it, but it has to be one."""
    cdef ProtoField field
    while left.size:
        if not read_field(&left, &field) or field.number > 2 or field.is_text != (field.number == 2):
            return False
        if field.is_text and not is_graphic(field.text):
            return False
    return True


cdef bint read_system_text(ProtoField* field, PlainSend* send) noexcept nogil:
    if field.number == S_DIGEST:
        return is_digest(field.text)
    if field.number == S_BORN:
        return read_time(field.text, &send.born_ms)
    if not field.text.size or not is_graphic(field.text):
        return False
    if field.number == S_TAG:
        send.tag = field.text
        return memchr(field.text.at, c"|", field.text.size) == NULL
    if field.number == S_KEYS:
        if send.key_count == KEYS_MAX:
            return False
        send.keys[send.key_count] = field.text
        send.key_count += 1
    elif field.number == S_MESSAGE_ID:
        send.message_id = field.text
    elif field.number == S_BORN_HOST:
        send.born_host = field.text
    else:
        return False
    return True


cdef bint read_system(Span left, PlainSend* send) noexcept nogil:
    cdef ProtoField field
    cdef uint64_t seen = 0
    while left.size:
        if not read_field(&left, &field):
            return False
        if field.number != S_KEYS and not is_new(field.number, &seen):
            return False
        if field.is_text:
            if not read_system_text(&field, send):
                return False
        elif field.number == S_ENCODING:
            if field.value >= ENCODING_GZIP:
                return False
        elif field.number == S_TYPE:
            if field.value != TYPE_NORMAL:
                return False
        elif field.number != S_QUEUE_ID:
            return False
    return send.message_id.size > 0 and send.born_ms > 0


cdef bint read_message(Span left, PlainSend* send) noexcept nogil:
    cdef ProtoField field
    cdef uint64_t seen = 0
    while left.size:
        if not read_field(&left, &field) or not field.is_text or not is_new(field.number, &seen):
            return False
        if field.number == M_TOPIC:
            if not read_topic(field.text, &send.topic):
                return False
        elif field.number == M_SYSTEM:
            if not read_system(field.text, send):
                return False
        elif field.number == M_BODY:
            send.body = field.text
        else:
            return False
    return send.topic.size > 0 and send.body.size > 0 and send.message_id.size > 0


cdef str properties_of(PlainSend* send):
    cdef char space[FIXED_PROPERTIES_SIZE + PROPERTIES_SIZE_EVERYDAY]
    cdef char digits[24]
    cdef char* at = space
    cdef int i
    cdef Span born
    if send.tag.size:
        at = put_property(at, literal(b"TAGS"), send.tag)
    if send.key_count:
        at = put_span(at, literal(b"KEYS\x01"))
        for i in range(send.key_count):
            at = put_span(at, send.keys[i])
            at[0] = 2 if i + 1 == send.key_count else 32
            at += 1
    at = put_property(at, literal(b"UNIQ_KEY"), send.message_id)
    at = put_property(at, literal(b"PGROUP"), send.topic)
    if send.born_host.size:
        at = put_property(at, literal(b"__BORNHOST"), send.born_host)
    born.at, born.size = <const uint8_t*>digits, snprintf(digits, sizeof(digits), "%lld", <long long>send.born_ms)
    at = put_property(at, literal(b"BORN_TIMESTAMP"), born)
    return PyUnicode_DecodeASCII(space, at - space, NULL)


def read_grpc_send(bytes content not None, Py_ssize_t body_size_max, Py_ssize_t properties_size_max):
    cdef Span left = span_of(content)
    cdef ProtoField field
    cdef PlainSend send
    cdef Py_ssize_t named, size
    cdef int i
    memset(&send, 0, sizeof(send))
    if not read_field(&left, &field) or left.size or field.number != 1 or not field.is_text:
        return None
    if not read_message(field.text, &send):
        return None
    named = send.tag.size
    for i in range(send.key_count):
        named += send.keys[i].size
    size = named + send.key_count + send.message_id.size + send.topic.size + send.born_host.size
    if size > PROPERTIES_SIZE_EVERYDAY or 0 < properties_size_max < named or 0 < body_size_max < send.body.size:
        return None
    return (
        PyUnicode_DecodeASCII(<const char*>send.topic.at, send.topic.size, NULL),
        PyUnicode_DecodeASCII(<const char*>send.message_id.at, send.message_id.size, NULL),
        properties_of(&send),
        PyBytes_FromStringAndSize(<const char*>send.body.at, send.body.size),
        send.born_ms,
    )
