"""Reading one record."""

cdef enum:
    AT_END = 0
    AT_BLANK = 1
    AT_INVALID = 2
    AT_INNER_BATCH = 3
    FOUND = -1
    COLUMN_COUNT = 18
    PAGE = 4096
    CHECKSUM_SIZE = 20
    WHOLE_CHECKED = 2


cdef inline uint64_t place_of(int64_t physical_base, int64_t position) noexcept nogil:
    """The physical offset of a position; who asks may have any base, so it is a sum that may go round."""
    return <uint64_t>physical_base + <uint64_t>position


cdef inline int check_stretch(int64_t position, int64_t end) except -1:
    """Before a record is looked for: where a stretch begins was told by another."""
    if position < 0 or end < 0:
        raise ValueError(f"a stretch from {position} to {end} begins before its log")
    return 0


cdef bint is_torn(const uint8_t* log, int64_t position, int64_t size, int64_t physical_base) noexcept nogil:
    cdef int64_t end = position + size
    cdef int64_t edge = position + <int64_t>(0 - place_of(physical_base, position) & (PAGE - 1))
    if size == 0 or log[end - 1] == 0:
        return True
    while edge < end:
        if log[edge] == 0 or (edge > position and log[edge - 1] == 0):
            return True
        edge += PAGE
    return False


cdef void put_checksum_of(uint8_t* at, const uint8_t* record, Py_ssize_t size) noexcept nogil:
    """The property by which a record vouches for all before it: ten digits, the last one first."""
    cdef uint32_t crc = crc32_of(record, size) & 0x7FFFFFFF
    cdef int i
    put_span(at, literal(b"__CRC32#\x01"))
    for i in range(10):
        at[9 + i] = <uint8_t>(48 + crc % 10)
        crc //= 10
    at[19] = 2


cdef bint is_sealed(const uint8_t* record, const uint8_t* end, const uint8_t* properties) noexcept nogil:
    cdef uint8_t wanted[CHECKSUM_SIZE]
    cdef const uint8_t* seal = end - CHECKSUM_SIZE
    if seal < properties:
        return False
    put_checksum_of(wanted, record, seal - record)
    return memcmp(seal, wanted, CHECKSUM_SIZE) == 0


cdef bint has_whole_texts(const uint8_t* log, const int64_t* row, int64_t physical_base) noexcept nogil:
    return not is_torn(
        log, row[14], row[15], physical_base
    ) and not (row[17] and is_torn(log, row[16], row[17], physical_base))


cdef bint has_whole_body(const uint8_t* log, int64_t position, const int64_t* row, int check) noexcept nogil:
    if crc32_of(log + row[12], row[13]) & 0x7FFFFFFF != get32(log + position + 8):
        return False
    return check != WHOLE_CHECKED or is_sealed(log + position, log + position + row[1], log + row[16])


cdef int read_record(
    const uint8_t* log, int64_t position, int64_t end, int64_t physical_base, int check, int64_t* row
) noexcept nogil:
    """Fill a row of COLUMNS; FOUND, or why there is no record."""
    cdef const uint8_t* at
    cdef int64_t left = end - position
    cdef int64_t record_end, store_host, tail, body, body_size, topic, topic_size, properties, properties_size
    cdef int32_t size, sys_flag
    cdef uint32_t magic
    cdef int topic_width
    if left < 8:
        return AT_END if left == 0 else AT_INVALID
    at = log + position
    size = <int32_t>get32(at)
    magic = get32(at + 4)
    if magic == MAGIC_BLANK:
        return AT_BLANK
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN or size > left:
        return AT_INVALID
    row[0] = <int64_t>get64(at + 28)
    if <uint64_t>row[0] != place_of(physical_base, position):
        return AT_INVALID
    sys_flag = <int32_t>get32(at + 36)
    record_end = position + size
    store_host = position + 56 + (20 if sys_flag & IPV6_BORN else 8)
    tail = store_host + (20 if sys_flag & IPV6_STORE else 8)
    topic_width = 2 if magic == MAGIC_V2 else 1
    if tail + 16 > record_end:
        return AT_INVALID
    body_size = <int32_t>get32(log + tail + 12)
    body = tail + 16
    topic = body + body_size + topic_width
    if body_size < 0 or topic > record_end:
        return AT_INVALID
    topic_size = <int16_t>get16(log + topic - 2) if topic_width == 2 else <int8_t>log[topic - 1]
    properties = topic + topic_size + 2
    if topic_size < 0 or properties > record_end:
        return AT_INVALID
    properties_size = <int16_t>get16(log + properties - 2)
    if properties_size < 0 or properties + properties_size != record_end:
        return AT_INVALID
    row[1] = size
    row[2] = <int32_t>get32(at + 12)
    row[3] = <int32_t>get32(at + 16)
    row[4] = <int64_t>get64(at + 20)
    row[5] = sys_flag
    row[6] = <int64_t>get64(at + 40)
    row[7] = <int64_t>get64(log + store_host - 8)
    row[8] = <int32_t>get32(log + tail)
    row[9] = <int64_t>get64(log + tail + 4)
    row[10] = position + 48
    row[11] = store_host
    row[12] = body
    row[13] = body_size
    row[14] = topic
    row[15] = topic_size
    row[16] = properties
    row[17] = properties_size
    if check and not (has_whole_body(log, position, row, check) and has_whole_texts(log, row, physical_base)):
        return AT_INVALID
    return FOUND
