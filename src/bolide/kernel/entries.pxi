"""Entries of a queue: where a record lies, its size, the hash of its tags; and how many of them an answer may have."""

cdef enum:
    ENTRY = 20
    PRE_BLANK_SIZE = 0x7FFFFFFF  # the size in an entry that stands for nothing


cdef struct Limits:
    int64_t log_min
    int64_t near_from
    int64_t count_max
    int64_t size_max
    int64_t near_size
    int64_t near_count
    int64_t far_size
    int64_t far_count


cdef inline void put_entry(uint8_t* at, int64_t physical_offset, int32_t size, int64_t tag) noexcept nogil:
    put64(at, physical_offset)
    put32(at + 8, size)
    put64(at + 12, tag)


cdef inline int read_limits(Limits* limits, log_min, near_from, count_max, size_max, near_limits, far_limits) except -1:
    limits.log_min, limits.near_from, limits.count_max, limits.size_max = log_min, near_from, count_max, size_max
    limits.near_size, limits.near_count = near_limits[0], near_limits[1]
    limits.far_size, limits.far_count = far_limits[0], far_limits[1]
    return 0


cdef inline bint is_full(
    const Limits* limits, int64_t physical_offset, int64_t record_size, int64_t count, int64_t size
) noexcept nogil:
    """Whether a record is too many behind `count` others of `size` bytes."""
    cdef int64_t more = size + record_size
    if count >= limits.count_max or more > limits.size_max:
        return True
    if physical_offset >= limits.near_from:
        return count >= limits.near_count or more > limits.near_size
    return count >= limits.far_count or more > limits.far_size


cdef inline bint is_there(const Limits* limits, int64_t physical_offset, int64_t record_size) noexcept nogil:
    return physical_offset >= limits.log_min and record_size > 0 and record_size != PRE_BLANK_SIZE


cdef inline bint begins_in(int64_t physical_offset, int64_t log_base, int64_t log_size) noexcept nogil:
    """Whether an offset is one of the log; the difference of two that are in order always fits without a sign."""
    return physical_offset >= log_base and <uint64_t>physical_offset - <uint64_t>log_base < <uint64_t>log_size


cdef inline bint lies_in(
    int64_t physical_offset, int64_t record_size, int64_t log_base, int64_t log_size
) noexcept nogil:
    """Whether a record lies whole in the log. Any number may stand in an entry: nothing here can leave its bounds."""
    if physical_offset < log_base or record_size < 0 or record_size > log_size:
        return False
    return <uint64_t>physical_offset - <uint64_t>log_base <= <uint64_t>(log_size - record_size)


cdef inline int32_t* hashes_of(tag_hashes, Py_ssize_t* count) except? NULL:
    """The wanted hashes, the caller's to free; NULL without an exception means that all are."""
    cdef int32_t* hashes
    cdef Py_ssize_t i
    count[0] = 0
    if tag_hashes is None:
        return NULL
    hashes = <int32_t*>malloc((len(tag_hashes) + 1) * sizeof(int32_t))
    if hashes == NULL:
        raise MemoryError
    try:
        for i, hashed in enumerate(tag_hashes):
            hashes[i] = hashed
    except BaseException:
        free(hashes)
        raise
    count[0] = len(tag_hashes)
    return hashes


cdef inline bint is_wanted(int64_t tag, const int32_t* hashes, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    if hashes == NULL or tag < INT32_MIN:
        return True  # below: an address in the extension file
    for i in range(count):
        if hashes[i] == <int32_t>tag:
            return True
    return False
