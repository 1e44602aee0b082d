"""The headers of frames, scanned in place: numbers and ext fields, and bounds of frames, which are checked first.

Anyone who looks for fields gives a function that takes them, one at a time.
"""

cdef enum:
    JSON_CODEC = 0
    BINARY_CODEC = 1
    RESPONSE_FLAG = 1
    ONEWAY_FLAG = 2
    # what a header has been seen to have
    HAS_CODE = 1
    HAS_VERSION = 2
    HAS_OPAQUE = 4
    HAS_FLAG = 8
    HAS_FIELDS = 16
    # what became of a frame, besides what was looked for
    OTHERS = 0
    IRREGULAR = -1

# Takes one ext field; false if that makes the header irregular. A null is a text that lies nowhere.
ctypedef bint (*Take)(const Text* key, const Text* text, void* into) noexcept nogil


cdef struct Head:
    int64_t code
    int64_t version
    int64_t opaque
    int64_t flag
    int seen
    bint is_twice  # a number was given again, and the last one counts
    Take take
    void* into


cdef inline void clear_head(Head* head, Take take, void* into) noexcept nogil:
    head.code = head.version = head.opaque = head.flag = 0
    head.seen = 0
    head.is_twice = False
    head.take = take
    head.into = into


cdef inline int64_t* see(Head* head, int bit, int64_t* number) noexcept nogil:
    head.is_twice |= head.seen & bit
    head.seen |= bit
    return number


cdef inline int64_t* number_called(const Text* key, Head* head) noexcept nogil:
    if is_text(key, literal(b"code")):
        return see(head, HAS_CODE, &head.code)
    if is_text(key, literal(b"version")):
        return see(head, HAS_VERSION, &head.version)
    if is_text(key, literal(b"opaque")):
        return see(head, HAS_OPAQUE, &head.opaque)
    if is_text(key, literal(b"flag")):
        return see(head, HAS_FLAG, &head.flag)
    return NULL


cdef inline const char* scan_number(const char* at, const char* end, int64_t* number) noexcept nogil:
    cdef Text text
    at = scan_integer(at, end, &text, number)
    return at if at != NULL and INT32_MIN <= number[0] <= INT32_MAX else NULL


cdef const char* scan_field(const char* at, const char* end, const Text* key, void* into) noexcept nogil:
    cdef Head* head = <Head*>into
    cdef Text text
    at = scan_value(at, end, &text)
    return at if at != NULL and head.take(key, &text, head.into) else NULL


cdef const char* scan_head_member(const char* at, const char* end, const Text* key, void* into) noexcept nogil:
    cdef Head* head = <Head*>into
    cdef int64_t* number = number_called(key, head)
    if number != NULL:
        return scan_number(at, end, number)
    if is_text(key, literal(b"extFields")):
        if head.seen & HAS_FIELDS:
            return NULL
        head.seen |= HAS_FIELDS
        return scan_object(at, end, scan_field, head)
    # A remark is text or null; anything else makes the header none.
    if is_text(key, literal(b"remark")) and at[0] != 34 and at[0] != 110:
        return NULL
    return skip_scalar(at, end)


cdef inline bint scan_json_head(const char* at, const char* end, Head* head, Member member) noexcept nogil:
    """Read a JSON header; false if anything about it is irregular. `member` is scan_head_member, or ends with it."""
    at = scan_object(skip_blanks(at, end), end, member, head)
    return at != NULL and skip_blanks(at, end) == end


cdef inline Py_ssize_t header_size_of(const uint8_t* frame) noexcept nogil:
    """Of a frame behind its length: one byte of codec, then three of size."""
    return get32(frame) & 0xFFFFFF


cdef inline int check_pairs(list bounds) except -1:
    if len(bounds) & 1:
        raise ValueError(f"{len(bounds)} bounds, they come in pairs")
    return 0


cdef inline int check_bounds(Py_ssize_t start, Py_ssize_t end, Py_ssize_t size) except -1:
    if not 0 <= start <= end - 4 <= size - 4:
        raise ValueError(f"a frame from {start} to {end} is outside a stream of {size} bytes")
    return 0
