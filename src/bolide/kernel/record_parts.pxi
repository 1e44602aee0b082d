"""What a record says to queues and index: hashes of tags and keys, in bytes that grow."""


cdef struct Blob:  # bytes that grow
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t room


cdef int raise_no_memory() except -1 with gil:
    raise MemoryError


cdef int widen(Blob* blob, Py_ssize_t size) except -1 nogil:
    cdef Py_ssize_t room = max(2 * blob.room, size, 256)
    cdef uint8_t* data = <uint8_t*>realloc(blob.data, room)
    if data == NULL:
        raise_no_memory()
    blob.data = data
    blob.room = room
    return 0


cdef inline uint8_t* grow(Blob* blob, Py_ssize_t more) except NULL nogil:
    """Room for `more` bytes at the end; they count as used from here on."""
    if blob.size + more > blob.room:
        widen(blob, blob.size + more)
    blob.size += more
    return blob.data + blob.size - more


cdef inline bytes taken(Blob* blob):
    return PyBytes_FromStringAndSize(<char*>blob.data, blob.size)


cdef inline bint hash_ascii(const uint8_t* at, Py_ssize_t size, uint32_t* value) noexcept nogil:
    """Go on hashing as Java does; false when a byte is beyond ASCII."""
    cdef const uint8_t* end = at + size
    cdef uint32_t hashed = value[0]
    cdef uint8_t seen = 0
    while end - at >= 4:  # four at a time, so that a step need not wait for the one before
        seen |= at[0] | at[1] | at[2] | at[3]
        hashed = 923521 * hashed + (29791 * <uint32_t>at[0] + 961 * <uint32_t>at[1] + 31 * <uint32_t>at[2] + at[3])
        at += 4
    while at < end:
        seen |= at[0]
        hashed = 31 * hashed + at[0]
        at += 1
    value[0] = hashed
    return seen < 0x80


cdef int64_t hash_rare_tags(
    Span topic, const uint8_t* properties, Py_ssize_t properties_size, int64_t store_ms, delays_ms
) except? -2 with gil:
    name = PyUnicode_DecodeUTF8(<char*>topic.at, topic.size, b"replace")
    return tag_hash(name, PyBytes_FromStringAndSize(<char*>properties, properties_size), store_ms, delays_ms)


cdef inline int64_t hash_tags(
    Span topic, Span tags, const uint8_t* properties, Py_ssize_t properties_size, int64_t store_ms, delays_ms
) except? -2 nogil:
    cdef uint32_t hashed = 0
    if equals(topic, literal(b"SCHEDULE_TOPIC_XXXX")) or not hash_ascii(tags.at, tags.size, &hashed):
        return hash_rare_tags(topic, properties, properties_size, store_ms, delays_ms)
    return <int32_t>hashed


cdef int64_t hash_rare_key(Span topic, Span key) except -1 with gil:
    name = PyUnicode_DecodeUTF8(<char*>topic.at, topic.size, b"replace")
    return key_hash(name, PyUnicode_DecodeUTF8(<char*>key.at, key.size, b"replace"))


cdef int put_key(Blob* keys, Span topic, Span key, int64_t physical_offset, int64_t store_ms) except -1 nogil:
    cdef uint32_t hashed = 0
    cdef uint8_t* at
    if hash_ascii(topic.at, topic.size, &hashed):
        hashed = 31 * hashed + 35  # '#'
        if hash_ascii(key.at, key.size, &hashed):
            if <int32_t>hashed < 0:
                hashed = 0 - hashed
            if hashed > <uint32_t>INT32_MAX:
                hashed = 0
            at = grow(keys, ENTRY)
            put32(at, hashed)
            put64(at + 4, physical_offset)
            put64(at + 12, store_ms)
            return 0
    hashed = <uint32_t>hash_rare_key(topic, key)
    at = grow(keys, ENTRY)
    put32(at, hashed)
    put64(at + 4, physical_offset)
    put64(at + 12, store_ms)
    return 0


cdef inline int put_all_keys(
    Blob* keys, Span topic, Wanted* wanted, int64_t physical_offset, int64_t store_ms
) except -1 nogil:
    if wanted.unique_key.size:
        put_key(keys, topic, wanted.unique_key, physical_offset, store_ms)
    if wanted.keys.size:
        put_key_words(keys, topic, wanted.keys, physical_offset, store_ms)
    return 0


cdef int put_key_words(Blob* keys, Span topic, Span words, int64_t physical_offset, int64_t store_ms) except -1 nogil:
    cdef const uint8_t* at = words.at
    cdef const uint8_t* end = at + words.size
    cdef const uint8_t* blank
    cdef Span key
    while at < end:
        blank = <const uint8_t*>memchr(at, 32, end - at)
        if blank == NULL:
            blank = end
        if blank > at:
            key.at = at
            key.size = blank - at
            put_key(keys, topic, key, physical_offset, store_ms)
        at = blank + 1
    return 0
