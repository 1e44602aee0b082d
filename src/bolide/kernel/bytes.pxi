"""Bytes that lie somewhere, and the numbers and texts in them. All other parts stand on this one."""

cdef extern from "big_endian.h":
    uint16_t get16(const uint8_t* at) nogil
    uint32_t get32(const uint8_t* at) nogil
    uint64_t get64(const uint8_t* at) nogil
    void put16(uint8_t* at, uint16_t value) nogil
    void put32(uint8_t* at, uint32_t value) nogil
    void put64(uint8_t* at, uint64_t value) nogil


cdef extern from "spans.h":
    ctypedef struct Span:
        const uint8_t* at
        Py_ssize_t size
    Span literal "LITERAL"(const char* text) nogil

ctypedef fused Octet:
    char
    uint8_t


cdef inline bint equals(Span span, Span other) noexcept nogil:
    return span.size == other.size and memcmp(span.at, other.at, other.size) == 0


cdef inline bint begins(const void* at, Span text) noexcept nogil:
    """Whether that text lies there; there must be room for it."""
    return memcmp(at, text.at, text.size) == 0


cdef inline bint begins_within(const uint8_t* at, Py_ssize_t size, Span text) noexcept nogil:
    """The same of this many bytes."""
    return size >= text.size and begins(at, text)


cdef inline Octet* put_span(Octet* at, Span text) noexcept nogil:
    memcpy(at, text.at, text.size)
    return at + text.size


cdef inline Octet* put_text(Octet* at, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(at, text, size)
    return at + size


cdef inline Span span_of(object text):
    """Of a bytes object, which must outlive it."""
    cdef Span span
    span.at = <const uint8_t*>PyBytes_AS_STRING(text)
    span.size = PyBytes_GET_SIZE(text)
    return span


cdef inline bint is_ascii(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* end = at + size
    cdef uint64_t word, seen = 0
    while end - at >= 8:
        memcpy(&word, at, 8)
        seen |= word
        at += 8
    while at < end:
        seen |= <uint64_t>at[0]
        at += 1
    return not seen & <uint64_t>0x8080808080808080


cdef inline int64_t number_of(const uint8_t* at, Py_ssize_t size, Py_ssize_t size_max) noexcept nogil:
    """Some digits, 18 at most, as a number; -1 for anything else."""
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if not 0 < size <= size_max:
        return -1
    for i in range(size):
        if not 48 <= at[i] <= 57:
            return -1
        number = number * 10 + (at[i] - 48)
    return number


cdef inline char* write16(char* at, uint16_t value) noexcept nogil:
    put16(<uint8_t*>at, value)
    return at + 2


cdef inline char* write32(char* at, uint32_t value) noexcept nogil:
    put32(<uint8_t*>at, value)
    return at + 4
