"""Laying out one record."""


cdef struct NewRecord:  # a record about to be laid out, but for its properties
    Span topic
    Span body
    Span born_host
    Span store_host
    uint32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_ms
    int64_t store_ms
    int64_t prepared_offset


cdef inline bint has_zero(Span span) noexcept nogil:
    """Recovery takes a zero at the end of a text for a lost one, so none is let in."""
    return span.size and memchr(span.at, 0, span.size) != NULL


cdef inline bint is_topic(Span topic) noexcept nogil:
    cdef Py_ssize_t limit = 127
    if begins_within(topic.at, topic.size, literal(b"%RETRY%")):
        limit = 255
    return 0 < topic.size <= limit and not has_zero(topic)


cdef inline bint is_host(Span host) noexcept nogil:
    return host.size == 8 or host.size == 20


cdef inline int check_host(Span host) except -1:
    if not is_host(host):
        raise ValueError(f"a host of {host.size} bytes, it has 8 (IPv4) or 20 (IPv6)")
    return 0


cdef inline int32_t with_hosts(int32_t sys_flag, Span born_host, Span store_host) noexcept nogil:
    """System flags that tell how long the hosts are."""
    sys_flag &= ~(IPV6_BORN | IPV6_STORE)
    return sys_flag | (IPV6_BORN if born_host.size == 20 else 0) | (IPV6_STORE if store_host.size == 20 else 0)


cdef inline Py_ssize_t size_of(const NewRecord* laid, Py_ssize_t properties_size) noexcept nogil:
    return (
        74 + laid.born_host.size + laid.store_host.size + laid.body.size
        + (2 if laid.topic.size > 127 else 1) + laid.topic.size + properties_size
    )


cdef inline uint8_t* put_host(uint8_t* at, Span host) noexcept nogil:
    if host.size == 8:
        memcpy(at, host.at, 8)  # a known size is one move
    else:
        memcpy(at, host.at, host.size)
    return at + host.size


cdef inline uint8_t* encode_record(
    uint8_t* at, const NewRecord* laid, Py_ssize_t size, Py_ssize_t properties_size
) noexcept nogil:
    """All of a record but its properties; the result is where they go."""
    cdef bint is_long = laid.topic.size > 127
    put32(at, <uint32_t>size)
    put32(at + 4, <uint32_t>(MAGIC_V2 if is_long else MAGIC_V1))
    put32(at + 8, laid.body_crc)
    put32(at + 12, laid.queue_id)
    put32(at + 16, laid.flag)
    put64(at + 20, laid.queue_offset)
    put64(at + 28, laid.physical_offset)
    put32(at + 36, laid.sys_flag)
    put64(at + 40, laid.born_ms)
    at = put_host(at + 48, laid.born_host)
    put64(at, laid.store_ms)
    at = put_host(at + 8, laid.store_host)
    put32(at, laid.reconsume_times)
    put64(at + 4, laid.prepared_offset)
    put32(at + 12, <uint32_t>laid.body.size)
    memcpy(at + 16, laid.body.at, laid.body.size)
    at += 16 + laid.body.size
    if is_long:
        at[0] = <uint8_t>(laid.topic.size >> 8)
        at += 1
    at[0] = <uint8_t>laid.topic.size
    memcpy(at + 1, laid.topic.at, laid.topic.size)
    at += 1 + laid.topic.size
    put16(at, <uint16_t>properties_size)
    return at + 2
