"""Popped messages as RocketMQ's gRPC protocol carries them, where nothing is special; above: `proxy/receiving.py`."""

cdef enum:
    HOST_TEXT_MAX = 24
    HANDLE_TAIL_MAX = 64  # three numbers and what is between them
    TIME_SIZE_MAX = 20

ctypedef struct Labels:  # what the properties of a record say
    Span tag, keys, message_id, born_host
    bint is_plain


cdef void put_varint(Blob* into, uint64_t value) except *:
    while value > 0x7F:
        grow(into, 1)[0] = <uint8_t>(value & 0x7F | 0x80)
        value >>= 7
    grow(into, 1)[0] = <uint8_t>value


cdef void put_number(Blob* into, int number, uint64_t value) except *:
    put_varint(into, number << 3)
    put_varint(into, value)


cdef void put_octets(Blob* into, int number, const void* at, Py_ssize_t size) except *:
    put_varint(into, number << 3 | 2)
    put_varint(into, size)
    memcpy(grow(into, size), at, size)


cdef void put_words(Blob* into, int number, Span text) except *:
    """Each word of a text, as a field of its own."""
    cdef Py_ssize_t start = 0, i
    for i in range(text.size + 1):
        if i == text.size or text.at[i] == 32:
            if i > start:
                put_octets(into, number, text.at + start, i - start)
            start = i + 1


cdef void put_time(Blob* into, int number, int64_t at_ms) except *:
    """A Timestamp or a Duration."""
    cdef uint8_t space[TIME_SIZE_MAX]
    cdef Blob time
    time.data, time.size, time.room = space, 0, TIME_SIZE_MAX
    if at_ms >= 1000:
        put_number(&time, 1, at_ms // 1000)
    if at_ms % 1000:
        put_number(&time, 2, at_ms % 1000 * 1000000)
    put_octets(into, number, time.data, time.size)


cdef void put_address(Blob* into, int number, const uint8_t* host) except *:
    cdef char text[HOST_TEXT_MAX]
    put_octets(
        into, number, text,
        snprintf(text, sizeof(text), "%d.%d.%d.%d:%u", host[0], host[1], host[2], host[3], get32(host + 4)),
    )


cdef bint is_silent(Span name) noexcept nogil:
    """Names of RocketMQ's own that say nothing to a consumer."""
    return (
        equals(name, literal(b"PGROUP"))
        or equals(name, literal(b"BORN_TIMESTAMP"))
        or equals(name, literal(b"WAIT"))
        or equals(name, literal(b"MSG_REGION"))
        or equals(name, literal(b"TRACE_ON"))
        or equals(name, literal(b"CLUSTER"))
    )


cdef Span* place_of_label(Labels* labels, Span name) noexcept nogil:
    if equals(name, literal(b"TAGS")):
        return &labels.tag
    if equals(name, literal(b"KEYS")):
        return &labels.keys
    if equals(name, literal(b"UNIQ_KEY")):
        return &labels.message_id
    return &labels.born_host if equals(name, literal(b"__BORNHOST")) else NULL


cdef void put_labels_of(Blob* message, Span text, Labels* labels) except *:
    """Properties of users go into the message; of the others only those pass that are everyday."""
    cdef const uint8_t* end = text.at + text.size
    cdef const uint8_t* at = text.at
    cdef const uint8_t* stop
    cdef const uint8_t* middle
    cdef Span name, value
    cdef Span* place
    cdef Blob pair
    memset(labels, 0, sizeof(Labels))
    memset(&pair, 0, sizeof(pair))
    labels.is_plain = is_ascii(text.at, text.size)
    while at < end and labels.is_plain:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        stop = end if stop == NULL else stop
        middle = <const uint8_t*>memchr(at, 1, stop - at)
        if middle == NULL or middle == at or middle + 1 == stop or memchr(middle + 1, 1, stop - middle - 1) != NULL:
            labels.is_plain = False
            break
        name.at, name.size, value.at, value.size = at, middle - at, middle + 1, stop - middle - 1
        at = stop + 1
        place = place_of_label(labels, name)
        if place != NULL:
            labels.is_plain = not place.size
            place[0] = value
        elif 97 <= name.at[0] <= 122:  # no name of RocketMQ's own begins so
            pair.size = 0
            put_octets(&pair, 1, name.at, name.size)
            put_octets(&pair, 2, value.at, value.size)
            put_octets(message, 2, pair.data, pair.size)
        else:
            labels.is_plain = is_silent(name)
    free(pair.data)
    labels.is_plain = labels.is_plain and labels.message_id.size > 0


cdef void put_system(
    Blob* system,
    const uint8_t* log,
    const int64_t* row,
    const Labels* labels,
    Span digest,
    Span handle,
    int64_t invisible_ms,
) except *:
    """SystemProperties; the numbers are those of its fields."""
    cdef Blob inner
    cdef uint8_t space[64]
    inner.data, inner.size, inner.room = space, 0, sizeof(space)
    if labels.tag.size:
        put_octets(system, 1, labels.tag.at, labels.tag.size)
    put_words(system, 2, labels.keys)
    put_octets(system, 3, labels.message_id.at, labels.message_id.size)
    put_number(&inner, 1, 2)  # MD5
    put_octets(&inner, 2, digest.at, digest.size)
    put_octets(system, 4, inner.data, inner.size)
    put_number(system, 5, 1)  # IDENTITY
    put_number(system, 6, 1)  # NORMAL
    put_time(system, 7, row[6])
    if labels.born_host.size:
        put_octets(system, 8, labels.born_host.at, labels.born_host.size)
    else:
        put_address(system, 8, log + row[10])
    put_time(system, 9, row[7])
    put_address(system, 10, log + row[11])
    put_octets(system, 12, handle.at, handle.size)
    if row[2]:
        put_number(system, 13, row[2])
    put_number(system, 14, row[4])
    put_time(system, 15, invisible_ms)
    put_number(system, 16, 1)  # the first attempt


cdef bint is_first_delivery(const uint8_t* log, const int64_t* row, Span topic) noexcept nogil:
    """A message of the topic itself that is delivered for the first time, as it was sent."""
    if row[5] or row[8] or row[2] < 0 or row[4] < 0 or row[6] < 0 or row[7] < 0:
        return False
    if get32(log + row[10] + 4) > 0xFFFF or get32(log + row[11] + 4) > 0xFFFF:
        return False
    return row[15] == topic.size and memcmp(log + row[14], topic.at, topic.size) == 0


cdef tuple received(const uint8_t* log, const int64_t* row, bytes topic, bytes head, int64_t invisible_ms):
    """The encoded answer, its handle and its tag; None if the record is not everyday."""
    cdef char tail[HANDLE_TAIL_MAX]
    cdef Blob message, system, content
    cdef Labels labels
    cdef Span text
    memset(&message, 0, sizeof(Blob))
    memset(&system, 0, sizeof(Blob))
    memset(&content, 0, sizeof(Blob))
    text.at, text.size = log + row[16], row[17]
    try:
        put_octets(&system, 2, PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))
        put_octets(&message, 1, system.data, system.size)
        put_labels_of(&message, text, &labels)
        if not labels.is_plain:
            return None
        body = PyBytes_FromStringAndSize(<const char*>log + row[12], row[13])
        digest = md5(body, usedforsecurity=False).hexdigest().upper().encode()
        handle = head + PyBytes_FromStringAndSize(tail, snprintf(
            tail, sizeof(tail), " %lld %lld %lld", <long long>row[2], <long long>row[4], <long long>row[0]
        ))
        system.size = 0
        put_system(&system, log, row, &labels, span_of(digest), span_of(handle), invisible_ms)
        put_octets(&message, 3, system.data, system.size)
        if row[13]:
            put_octets(&message, 4, log + row[12], row[13])
        put_octets(&content, 2, message.data, message.size)
        tag = None if not labels.tag.size else ascii_text(labels.tag)
        return taken(&content), (<bytes>handle).decode(), tag
    finally:
        free(message.data)
        free(system.data)
        free(content.data)


def encode_received(bytes records not None, bytes topic not None, dict heads not None, int64_t invisible_ms):
    cdef const uint8_t* log = <const uint8_t*>PyBytes_AS_STRING(records)
    cdef int64_t end = PyBytes_GET_SIZE(records), position = 0
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t base  # that fits: an answer has records of anywhere
    cdef list found = []
    if invisible_ms < 0:
        return None
    while position < end:
        if end - position < RECORD_SIZE_MIN:
            return None
        base = <int64_t>(get64(log + position + 28) - <uint64_t>position)
        if read_record(log, position, end, base, 0, row) != FOUND:
            return None
        head = heads.get(row[2])
        if head is None or not is_first_delivery(log, row, span_of(topic)):
            return None
        told = received(log, row, topic, head, invisible_ms)
        if told is None:
            return None
        found.append(told)
        position += row[1]
    return found
