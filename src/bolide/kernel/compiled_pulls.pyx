# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True
"""plain_pulls.py with types: the same functions, the same answers.

A request that is not regular (escapes, odd numbers, nested values) is given to the plain function for that one frame. A
header whose first `code` is another's is left at once: most frames of a broker are sends.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from bolide.kernel import plain_pulls

include "scan.pxi"

cdef enum:
    JSON_CODEC = 0
    BINARY_CODEC = 1
    PULL_REQUEST = 11
    LITE_PULL_REQUEST = 361
    BINARY_FIXED_SIZE = 17
    ENTRY_SIZE_ = 20
    PRE_BLANK_SIZE_ = 0x7FFFFFFF
    HEAD_SIZE_MAX = 512
    # fields, in the order of the numbers below
    QUEUE_ID = 0
    OFFSET = 1
    COUNT_MAX = 2
    SIZE_MAX_ = 3
    SYS_FLAG = 4
    COMMIT_OFFSET = 5
    SUSPEND_MS = 6
    VERSION = 7
    NUMBER_COUNT = 8
    GROUP = 8
    TOPIC = 9
    EXPRESSION = 10
    EXPRESSION_TYPE = 11
    FIELD_COUNT = 12
    NOBODYS = 12
    SOURCE = 13
    # what became of a frame
    READ = 1
    OTHERS = 0
    IRREGULAR = -1
    # all but the size, the expression and its type must be there
    REQUIRED = 0x3F7


cdef struct Fields:
    int64_t numbers[NUMBER_COUNT]
    Text texts[4]
    uint32_t seen
    int64_t code
    int64_t opaque


cdef inline uint32_t read_u32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t read_i64(const uint8_t* at) noexcept nogil:
    return <int64_t>((<uint64_t>read_u32(at) << 32) | read_u32(at + 4))


cdef inline int16_t read_i16(const uint8_t* at) noexcept nogil:
    return <int16_t>((<uint16_t>at[0] << 8) | at[1])


cdef inline char* put_u32(char* at, uint32_t value) noexcept nogil:
    at[0] = <char>(value >> 24)
    at[1] = <char>(value >> 16)
    at[2] = <char>(value >> 8)
    at[3] = <char>value
    return at + 4


cdef inline char* put_u16(char* at, uint16_t value) noexcept nogil:
    at[0] = <char>(value >> 8)
    at[1] = <char>value
    return at + 2


cdef int field_of(const Text* key) noexcept nogil:
    """Which field a key names."""
    if key.size == 5:
        return TOPIC if is_text(key, b"topic", 5) else NOBODYS
    if key.size == 7:
        if is_text(key, b"queueId", 7):
            return QUEUE_ID
        return SYS_FLAG if is_text(key, b"sysFlag", 7) else NOBODYS
    if key.size == 10:
        if is_text(key, b"maxMsgNums", 10):
            return COUNT_MAX
        return VERSION if is_text(key, b"subVersion", 10) else NOBODYS
    if key.size == 11:
        if is_text(key, b"queueOffset", 11):
            return OFFSET
        return SIZE_MAX_ if is_text(key, b"maxMsgBytes", 11) else NOBODYS
    if key.size == 12:
        if is_text(key, b"commitOffset", 12):
            return COMMIT_OFFSET
        return EXPRESSION if is_text(key, b"subscription", 12) else NOBODYS
    if key.size == 13:
        if is_text(key, b"consumerGroup", 13):
            return GROUP
        if is_text(key, b"bolideBulkMax", 13):
            return SOURCE  # rare like it, and left to others like it
        return SOURCE if is_text(key, b"requestSource", 13) else NOBODYS
    if key.size == 14:
        return EXPRESSION_TYPE if is_text(key, b"expressionType", 14) else NOBODYS
    if key.size == 20:
        return SUSPEND_MS if is_text(key, b"suspendTimeoutMillis", 20) else NOBODYS
    return NOBODYS


cdef bint put_number(Fields* fields, int field, int64_t value) noexcept nogil:
    if (field == QUEUE_ID or field == COUNT_MAX or field == SIZE_MAX_ or field == SYS_FLAG) and (
        value < INT32_MIN or value > INT32_MAX
    ):
        return False
    fields.numbers[field] = value
    fields.seen |= 1 << field
    return True


cdef bint put_decimal(Fields* fields, int field, const char* at, Py_ssize_t size) noexcept nogil:
    """A number in a text: a sign that is a minus, and up to 18 digits."""
    cdef int64_t value = 0
    cdef bint is_negative = size > 0 and at[0] == 45
    cdef Py_ssize_t i = 1 if is_negative else 0
    if size - i < 1 or size - i > DIGITS_MAX:
        return False
    while i < size:
        if at[i] < 48 or at[i] > 57:
            return False
        value = value * 10 + (at[i] - 48)
        i += 1
    return put_number(fields, field, -value if is_negative else value)


cdef inline bint put_text(Fields* fields, int field, const Text* text) noexcept nogil:
    """Whoever says a thing twice is irregular: what is passed over here would not be looked at."""
    if fields.seen >> field & 1:
        return False
    fields.texts[field - NUMBER_COUNT] = text[0]
    fields.seen |= 1 << field
    return True


# JSON

cdef const char* scan_field(const char* at, const char* end, const Text* key, Fields* fields) noexcept nogil:
    cdef Text text
    cdef int64_t number
    cdef int field
    if key.is_escaped or not key.is_ascii:
        return NULL
    field = field_of(key)
    if field == SOURCE:
        return NULL
    if field == NOBODYS:
        return skip_scalar(at, end)
    if at < end and at[0] == 34:
        at = scan_text(at, end, &text)
        if at == NULL or text.is_escaped:
            return NULL
        if field < NUMBER_COUNT:
            return at if put_decimal(fields, field, text.at, text.size) else NULL
        return at if put_text(fields, field, &text) else NULL
    if field >= NUMBER_COUNT:
        return NULL
    at = scan_integer(at, end, &text, &number)
    if at == NULL or not put_number(fields, field, number):
        return NULL
    return at


cdef const char* scan_fields(const char* at, const char* end, Fields* fields) noexcept nogil:
    """`at` is the opening brace of the ext fields; the result is behind the closing one."""
    cdef Text key
    cdef bint is_last = False
    if at >= end or at[0] != 123:
        return NULL
    at = skip_blanks(at + 1, end)
    if at < end and at[0] == 125:
        return at + 1
    while at != NULL and not is_last:
        at = scan_key(at, end, &key)
        if at == NULL:
            return NULL
        at = scan_field(at, end, &key, fields)
        if at == NULL:
            return NULL
        at = next_member(at, end, &is_last)
    return at


cdef int read_json(const char* at, const char* end, Fields* fields) noexcept nogil:
    """The whole of a header; as soon as its code is another's, the rest is not looked at."""
    cdef Text key, text
    cdef int64_t number
    cdef bint is_last = False, has_code = False, has_fields = False
    at = skip_blanks(at, end)
    if at >= end or at[0] != 123:
        return IRREGULAR
    at = skip_blanks(at + 1, end)
    while not is_last:
        at = scan_key(at, end, &key)
        if at == NULL or key.is_escaped or not key.is_ascii:
            return IRREGULAR
        if is_text(&key, b"code", 4):
            at = scan_integer(at, end, &text, &number)
            if at == NULL or has_code:
                return IRREGULAR
            if number != PULL_REQUEST and number != LITE_PULL_REQUEST:
                return OTHERS
            fields.code = number
            has_code = True
        elif is_text(&key, b"extFields", 9):
            if has_fields:
                return IRREGULAR
            at = scan_fields(at, end, fields)
            has_fields = True
        elif is_text(&key, b"opaque", 6) or is_text(&key, b"flag", 4) or is_text(&key, b"version", 7):
            at = scan_integer(at, end, &text, &number)
            if at == NULL or number < INT32_MIN or number > INT32_MAX:
                return IRREGULAR
            if key.size == 6:
                fields.opaque = number
            elif key.size == 4 and number & 3:
                return IRREGULAR
        elif is_text(&key, b"remark", 6):
            # Text or null; anything else makes the header none.
            if at < end and at[0] != 34 and at[0] != 110:
                return IRREGULAR
            at = skip_scalar(at, end)
        else:
            at = skip_scalar(at, end)
        if at == NULL:
            return IRREGULAR
        at = next_member(at, end, &is_last)
        if at == NULL:
            return IRREGULAR
    if skip_blanks(at, end) != end or not has_code:
        return IRREGULAR
    return READ


# Binary

cdef int read_binary(const uint8_t* at, const uint8_t* end, Fields* fields) noexcept nogil:
    cdef int64_t size
    cdef Text key, text
    cdef int field
    cdef const uint8_t* value
    if end - at < BINARY_FIXED_SIZE + 4:
        return IRREGULAR
    fields.code = read_i16(at)
    if fields.code != PULL_REQUEST and fields.code != LITE_PULL_REQUEST:
        return OTHERS
    fields.opaque = <int32_t>read_u32(at + 5)
    if read_u32(at + 9) & 3 or read_u32(at + 13) != 0:
        return IRREGULAR
    at += BINARY_FIXED_SIZE
    if <int64_t>read_u32(at) != end - at - 4:
        return IRREGULAR
    at += 4
    while at < end:
        if end - at < 6:
            return IRREGULAR
        key.size = read_i16(at)
        key.at = <const char*>at + 2
        key.is_escaped = False
        if key.size <= 0 or end - at < 6 + key.size:
            return IRREGULAR
        value = at + 2 + key.size
        size = <int32_t>read_u32(value)
        value += 4
        if size <= 0 or end - value < size:
            return IRREGULAR
        field = field_of(&key)
        if field == SOURCE:
            return IRREGULAR
        if field < NUMBER_COUNT:
            if not put_decimal(fields, field, <const char*>value, size):
                return IRREGULAR
        elif field < FIELD_COUNT:
            text.at = <const char*>value
            text.size = size
            if not put_text(fields, field, &text):
                return IRREGULAR
        elif not is_plain(key.at, key.size) or not is_plain(<const char*>value, size):
            return IRREGULAR
        at = value + size
    return READ


cdef bint is_plain(const char* at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if <uint8_t>at[i] >= 128:
            return False
    return True


cdef object text_of(const Fields* fields, int field):
    cdef const Text* text = &fields.texts[field - NUMBER_COUNT]
    if not fields.seen >> field & 1:
        return None
    return PyUnicode_DecodeUTF8(text.at, text.size, NULL)


cdef object pull_of(int codec, Fields* fields):
    cdef int64_t* numbers = fields.numbers
    return (
        codec,
        fields.code,
        fields.opaque,
        (
            text_of(fields, GROUP),
            text_of(fields, TOPIC),
            numbers[QUEUE_ID],
            numbers[OFFSET],
            numbers[COUNT_MAX],
            numbers[SIZE_MAX_] if fields.seen >> SIZE_MAX_ & 1 else 0,
            numbers[SYS_FLAG],
            numbers[COMMIT_OFFSET],
            numbers[SUSPEND_MS],
            numbers[VERSION],
            text_of(fields, EXPRESSION),
            text_of(fields, EXPRESSION_TYPE),
        ),
    )


cdef object read_one(const uint8_t* stream, Py_ssize_t start, Py_ssize_t end, object whole):
    cdef Fields fields
    cdef int became
    cdef Py_ssize_t header_end = start + 4 + (read_u32(stream + start) & 0xFFFFFF)
    if header_end > end:
        return None
    fields.seen = 0
    fields.opaque = 0
    if stream[start] == JSON_CODEC:
        became = read_json(<const char*>stream + start + 4, <const char*>stream + header_end, &fields)
    elif stream[start] == BINARY_CODEC:
        became = read_binary(stream + start + 4, stream + header_end, &fields)
    else:
        return None
    if became == OTHERS:
        return None
    if became == READ and fields.seen & REQUIRED == REQUIRED:
        try:
            return pull_of(stream[start], &fields)
        except UnicodeDecodeError:
            return None
    return plain_pulls.read_pulls(whole, [start, end])[0]


def read_pulls(stream, bounds):
    cdef Py_buffer view
    cdef Py_ssize_t i, start, end
    cdef list frames = <list?>bounds
    cdef list pulls = []
    if len(frames) & 1:
        raise ValueError(f"{len(frames)} bounds, they come in pairs")
    PyObject_GetBuffer(stream, &view, PyBUF_SIMPLE)
    try:
        for i in range(0, len(frames), 2):
            start, end = frames[i], frames[i + 1]
            if not 0 <= start <= end - 4 <= view.len - 4:
                raise ValueError(f"a frame from {start} to {end} is outside a stream of {view.len} bytes")
            pulls.append(read_one(<const uint8_t*>view.buf, start, end, stream))
    finally:
        PyBuffer_Release(&view)
    return pulls


# The answer

cdef struct Choice:
    int64_t log_min
    int64_t near_from
    int64_t count_max
    int64_t size_max
    int64_t near_size
    int64_t near_count
    int64_t far_size
    int64_t far_count
    int32_t* wanted
    Py_ssize_t wanted_count


cdef inline bint is_chosen(const Choice* choice, const uint8_t* entry) noexcept nogil:
    cdef int64_t tag
    cdef int32_t size = <int32_t>read_u32(entry + 8)
    cdef Py_ssize_t i
    if read_i64(entry) < choice.log_min or size <= 0 or size == PRE_BLANK_SIZE_:
        return False
    if choice.wanted == NULL:
        return True
    tag = read_i64(entry + 12)
    if tag < INT32_MIN:
        return True
    for i in range(choice.wanted_count):
        if <int32_t>tag == choice.wanted[i]:
            return True
    return False


cdef inline bint is_full(const Choice* choice, const uint8_t* entry, int64_t count, int64_t size) noexcept nogil:
    cdef int64_t more = size + <int32_t>read_u32(entry + 8)
    if count >= choice.count_max or more > choice.size_max:
        return True
    if read_i64(entry) >= choice.near_from:
        return count >= choice.near_count or more > choice.near_size
    return count >= choice.far_count or more > choice.far_size


cdef char* put_pair(char* at, const char* key, Py_ssize_t key_size, int64_t value) noexcept nogil:
    """An ext field of a binary header."""
    cdef int size
    at = put_u16(at, <uint16_t>key_size)
    memcpy(at, key, key_size)
    at += key_size
    size = snprintf(at + 4, 24, b"%lld", <long long>value)
    put_u32(at, size)
    return at + 4 + size


cdef Py_ssize_t put_binary(char* start, int32_t opaque, int16_t version, int64_t suggested_id, int64_t next_offset, int64_t min_offset, int64_t max_offset) noexcept nogil:
    cdef char* at = start
    cdef char* fields
    at = put_u16(at, 0)
    at[0] = 3
    at = put_u16(at + 1, <uint16_t>version)
    at = put_u32(at, <uint32_t>opaque)
    at = put_u32(at, 1)
    at = put_u32(at, 5)
    memcpy(at, b"FOUND", 5)
    fields = at + 5
    at = put_pair(fields + 4, b"suggestWhichBrokerId", 20, suggested_id)
    at = put_pair(at, b"nextBeginOffset", 15, next_offset)
    at = put_pair(at, b"minOffset", 9, min_offset)
    at = put_pair(at, b"maxOffset", 9, max_offset)
    put_u32(fields, <uint32_t>(at - fields - 4))
    return at - start


cdef Py_ssize_t put_json(char* at, int32_t opaque, int32_t version, int64_t suggested_id, int64_t next_offset, int64_t min_offset, int64_t max_offset) noexcept nogil:
    return snprintf(
        at,
        HEAD_SIZE_MAX,
        b'{"code":0,"extFields":{"suggestWhichBrokerId":"%lld","nextBeginOffset":"%lld","minOffset":"%lld",'
        b'"maxOffset":"%lld"},"flag":1,"language":"PYTHON","opaque":%d,"remark":"FOUND",'
        b'"serializeTypeCurrentRPC":"JSON","version":%d}',
        <long long>suggested_id,
        <long long>next_offset,
        <long long>min_offset,
        <long long>max_offset,
        opaque,
        version,
    )


cdef object lay_answer(const Choice* choice, const uint8_t* entries, Py_ssize_t entry_count, const uint8_t* log, int64_t log_base, int64_t log_size, int codec, int32_t opaque, int32_t version, int64_t suggested_id, int64_t offset, int64_t min_offset, int64_t max_offset):
    cdef char head[HEAD_SIZE_MAX]
    cdef Py_ssize_t head_size, scanned = 0, i
    cdef int64_t count = 0, size = 0, at
    cdef const uint8_t* entry
    cdef char* target
    cdef bytes frame
    while scanned < entry_count:
        entry = entries + scanned * ENTRY_SIZE_
        if count and is_full(choice, entry, count, size):
            break
        scanned += 1
        if is_chosen(choice, entry):
            at = read_i64(entry) - log_base
            if at < 0 or at + <int32_t>read_u32(entry + 8) > log_size:
                return None
            count += 1
            size += <int32_t>read_u32(entry + 8)
    if count == 0:
        return None
    if codec == BINARY_CODEC:
        head_size = put_binary(head, opaque, <int16_t>version, suggested_id, offset + scanned, min_offset, max_offset)
    else:
        head_size = put_json(head, opaque, version, suggested_id, offset + scanned, min_offset, max_offset)
    if 4 + head_size + size > INT32_MAX:
        raise ValueError(f"a body of {size} bytes does not fit a frame")
    frame = PyBytes_FromStringAndSize(NULL, 8 + head_size + size)
    target = PyBytes_AS_STRING(frame)
    target = put_u32(target, <uint32_t>(4 + head_size + size))
    target = put_u32(target, (<uint32_t>codec << 24) | <uint32_t>head_size)
    memcpy(target, head, head_size)
    target += head_size
    for i in range(scanned):
        entry = entries + i * ENTRY_SIZE_
        if is_chosen(choice, entry):
            memcpy(target, log + (read_i64(entry) - log_base), read_u32(entry + 8))
            target += read_u32(entry + 8)
    return frame, count, size, scanned


def answer_pull(codec, opaque, version, suggested_id, offset, min_offset, max_offset, entries, tag_hashes, log_min, near_from, count_max, size_max, near_limits, far_limits, log, log_base):
    cdef Choice choice
    cdef Py_buffer entries_view, log_view
    cdef Py_ssize_t i
    choice.log_min, choice.near_from, choice.count_max, choice.size_max = log_min, near_from, count_max, size_max
    choice.near_size, choice.near_count = near_limits[0], near_limits[1]
    choice.far_size, choice.far_count = far_limits[0], far_limits[1]
    choice.wanted, choice.wanted_count = NULL, 0
    if tag_hashes is not None:
        choice.wanted_count = len(tag_hashes)
        choice.wanted = <int32_t*>malloc((choice.wanted_count + 1) * sizeof(int32_t))
        if choice.wanted == NULL:
            raise MemoryError
    try:
        if tag_hashes is not None:
            for i, hashed in enumerate(tag_hashes):
                choice.wanted[i] = hashed
        PyObject_GetBuffer(entries, &entries_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(log, &log_view, PyBUF_SIMPLE)
            try:
                return lay_answer(
                    &choice, <const uint8_t*>entries_view.buf, entries_view.len // ENTRY_SIZE_,
                    <const uint8_t*>log_view.buf, log_base, log_view.len,
                    codec, opaque, version, suggested_id, offset, min_offset, max_offset,
                )
            finally:
                PyBuffer_Release(&log_view)
        finally:
            PyBuffer_Release(&entries_view)
    finally:
        free(choice.wanted)
