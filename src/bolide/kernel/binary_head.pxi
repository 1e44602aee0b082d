"""Headers in the binary codec, scanned in place."""

cdef enum:
    BINARY_FIXED_SIZE = 17


cdef bint scan_binary_head(const uint8_t* header, Py_ssize_t size, Head* head) noexcept nogil:
    """Read a binary header; false if anything about it is irregular."""
    cdef Py_ssize_t at, value_at
    cdef int32_t remark_size, key_size, value_size
    cdef Text key, text
    if size < BINARY_FIXED_SIZE + 4:
        return False
    head.code = <int16_t>get16(header)
    head.opaque = <int32_t>get32(header + 5)
    head.flag = <int32_t>get32(header + 9)
    remark_size = <int32_t>get32(header + 13)
    if remark_size < 0 or remark_size > size - BINARY_FIXED_SIZE - 4:
        return False
    at = BINARY_FIXED_SIZE + remark_size
    if not is_ascii(header + BINARY_FIXED_SIZE, remark_size) or <int32_t>get32(header + at) != size - at - 4:
        return False
    at += 4
    key.is_escaped = text.is_escaped = False
    key.is_ascii = True
    while at < size:
        if size - at < 6:
            return False
        key_size = <int16_t>get16(header + at)
        value_at = at + 2 + key_size + 4
        if key_size < 0 or value_at > size:
            return False
        value_size = <int32_t>get32(header + value_at - 4)
        if value_size < 0 or value_size > size - value_at or not is_ascii(header + at + 2, key_size):
            return False
        key.at = <const char*>header + at + 2
        key.size = key_size
        text.at = <const char*>header + value_at
        text.size = value_size
        text.is_ascii = is_ascii(header + value_at, value_size)
        # Java reads a length of zero as null, and so an empty text is none.
        if value_size and not head.take(&key, &text, head.into):
            return False
        at = value_at + value_size
    return True
