# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True
"""plain_ends.py with types: the same functions, the same answers. That file has the meaning.

Ends are scanned where they lie when they are JSON, as every client writes them; any other header is left.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from bolide.kernel.plain_records import key_hash, tag_hash

include "scan.pxi"
include "record_parts.pxi"
include "record_reader.pxi"

cdef enum:
    END_TRANSACTION = 37
    ONEWAY_FLAG = 2
    COMMITTED = 0x8
    TRANSACTION = 0xC
    # places of the fields
    PHYSICAL = 0
    OFFSET = 1
    DECISION = 2
    GROUP = 3
    ASKED = 4
    ID = 5
    SLOT_COUNT = 6


cdef struct End:
    int64_t code
    int64_t flag
    uint32_t found
    Text slots[6]


cdef int slot_of(const Text* key) noexcept nogil:
    if key.size == 15:
        return PHYSICAL if memcmp(key.at, b"commitLogOffset", 15) == 0 else -1
    if key.size == 20:
        if memcmp(key.at, b"tranStateTableOffset", 20) == 0:
            return OFFSET
        return ASKED if memcmp(key.at, b"fromTransactionCheck", 20) == 0 else -1
    if key.size == 16:
        return DECISION if memcmp(key.at, b"commitOrRollback", 16) == 0 else -1
    if key.size == 13:
        return GROUP if memcmp(key.at, b"producerGroup", 13) == 0 else -1
    if key.size == 5:
        return ID if memcmp(key.at, b"msgId", 5) == 0 else -1
    return -1


cdef const char* scan_fields(const char* at, const char* end, End* found) noexcept nogil:
    """The object behind extFields, of plain texts alone; `at` is its opening brace."""
    cdef Text key, text
    cdef bint is_last
    cdef int slot
    at = skip_blanks(at + 1, end)
    if at < end and at[0] == 125:
        return at + 1
    while True:
        at = scan_key(at, end, &key)
        if at == NULL or key.is_escaped or not key.is_ascii:
            return NULL
        at = scan_text(at, end, &text)
        if at == NULL or text.is_escaped or not text.is_ascii:
            return NULL
        slot = slot_of(&key)
        if slot >= 0:
            found.slots[slot] = text
            found.found |= <uint32_t>1 << slot
        at = next_member(at, end, &is_last)
        if at == NULL or is_last:
            return at


cdef bint scan_end(const char* at, const char* end, End* found) noexcept nogil:
    """Read a JSON header; false if anything about it is irregular."""
    cdef Text key, text
    cdef int64_t number
    cdef bint is_last, has_fields = False
    found.code = found.flag = 0
    found.found = 0
    at = skip_blanks(at, end)
    if at >= end or at[0] != 123:
        return False
    at = skip_blanks(at + 1, end)
    while True:
        at = scan_key(at, end, &key)
        if at == NULL or at >= end or key.is_escaped or not key.is_ascii:
            return False
        if is_text(&key, b"extFields", 9):
            if at[0] != 123 or has_fields:
                return False
            has_fields = True
            at = scan_fields(at, end, found)
        elif is_text(&key, b"code", 4) or is_text(&key, b"opaque", 6) or is_text(&key, b"flag", 4) or is_text(&key, b"version", 7):
            at = scan_integer(at, end, &text, &number)
            if at == NULL or not INT32_MIN <= number <= INT32_MAX:
                return False
            if key.at[0] == 99:
                found.code = number
            elif key.at[0] == 102:
                found.flag = number
        elif is_text(&key, b"language", 8):
            at = scan_text(at, end, &text)
            if at == NULL or text.is_escaped or not text.is_ascii:
                return False
        else:
            at = skip_scalar(at, end)
        if at == NULL:
            return False
        at = next_member(at, end, &is_last)
        if at == NULL:
            return False
        if is_last:
            return skip_blanks(at, end) == end


cdef inline int64_t number_of(const uint8_t* at, Py_ssize_t size, Py_ssize_t size_max) noexcept nogil:
    """Some digits as a number, -1 for anything else."""
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if not 0 < size <= size_max:
        return -1
    for i in range(size):
        if not 48 <= at[i] <= 57:
            return -1
        number = number * 10 + (at[i] - 48)
    return number


cdef inline int64_t slot_number(const End* found, int slot) noexcept nogil:
    if not found.found >> slot & 1:
        return -1
    return number_of(<const uint8_t*>found.slots[slot].at, found.slots[slot].size, 18)


cdef tuple end_of(const End* found):
    """The row of an end; None if it needs thought."""
    cdef int64_t physical_offset = slot_number(found, PHYSICAL), offset = slot_number(found, OFFSET)
    cdef int64_t decision = slot_number(found, DECISION)
    cdef bint was_asked = False
    if physical_offset < 0 or offset < 0 or (decision != COMMITTED and decision != TRANSACTION):
        return None
    if not found.found >> GROUP & 1 or found.slots[GROUP].size == 0 or not found.found >> ID & 1:
        return None
    if found.found >> ASKED & 1:
        was_asked = is_text(&found.slots[ASKED], b"true", 4)
        if not was_asked and not is_text(&found.slots[ASKED], b"false", 5):
            return None
    group = PyBytes_FromStringAndSize(found.slots[GROUP].at, found.slots[GROUP].size)
    return physical_offset, offset, decision, was_asked, group


def read_ends(stream, bounds):
    cdef Py_buffer buffer
    cdef list places = <list?>bounds
    cdef list ends = []
    cdef list left = []
    cdef const uint8_t* frame
    cdef Py_ssize_t i, start, end, header_end
    cdef tuple row
    cdef End found
    if len(places) & 1:
        raise ValueError(f"{len(places)} bounds, they come in pairs")
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        for i in range(0, len(places), 2):
            start = places[i]
            end = places[i + 1]
            if not 0 <= start <= end - 4 <= buffer.len - 4:
                raise ValueError(f"a frame from {start} to {end} is outside a stream of {buffer.len} bytes")
            frame = <const uint8_t*>buffer.buf + start
            header_end = 4 + (get32(frame) & 0xFFFFFF)
            row = None
            if frame[0] == 0 and header_end <= end - start:
                if scan_end(<const char*>frame + 4, <const char*>frame + header_end, &found):
                    if found.code == END_TRANSACTION and found.flag & 3 == ONEWAY_FLAG:
                        row = end_of(&found)
            if row is None:
                left.append(places[i])
                left.append(places[i + 1])
            else:
                ends.append(row)
        return ends, left
    finally:
        PyBuffer_Release(&buffer)


cdef struct Home:  # what the properties of a half message say
    Span topic
    Span queue
    Span group
    bint is_apart


cdef void find_home(const uint8_t* at, Py_ssize_t size, Home* home) noexcept nogil:
    """One pass over the properties; the last of equal names counts, pairs with an empty side do not."""
    cdef const uint8_t* end = at + size
    cdef const uint8_t* name
    cdef Py_ssize_t name_size
    cdef Span value
    home.topic.size = home.queue.size = home.group.size = 0
    home.is_apart = False
    while at < end:
        name = at
        while at < end and at[0] != 1 and at[0] != 2:
            at += 1
        if at == end or at[0] == 2:
            at += 1
            continue
        name_size = at - name
        at += 1
        value.at = at
        while at < end and at[0] != 2:
            at += 1
        value.size = at - value.at
        at += 1
        if name_size == 0 or value.size == 0:
            continue
        if name_size == 10 and memcmp(name, b"REAL_TOPIC", 10) == 0:
            home.topic = value
        elif name_size == 8 and memcmp(name, b"REAL_QID", 8) == 0:
            home.queue = value
        elif name_size == 6 and memcmp(name, b"PGROUP", 6) == 0:
            home.group = value
        elif name_size == 5 and memcmp(name, b"DELAY", 5) == 0:
            home.is_apart = True
        elif name_size == 30 and memcmp(name, b"CHECK_IMMUNITY_TIME_IN_SECONDS", 30) == 0:
            home.is_apart = True
        if name_size >= 6 and memcmp(name, b"TIMER_", 6) == 0:
            home.is_apart = True


cdef inline bint is_plain_topic(Span topic) noexcept nogil:
    cdef Py_ssize_t i
    if not 0 < topic.size <= 127 or topic.at[0] == 46:
        return False
    for i in range(topic.size):
        if topic.at[i] == 47 or topic.at[i] >= 0x80:
            return False
    return True


cdef object draft_of(const uint8_t* log, int64_t base, int64_t limit, tuple end):
    cdef int64_t physical_offset = end[0], queue_offset = end[1], position = physical_offset - base, size, queue_id
    cdef bytes group = <bytes?>end[4]
    cdef int64_t row[COLUMN_COUNT]
    cdef Home home
    cdef Span topic
    if not 0 <= position <= limit - 4:
        return None
    size = <int32_t>get32(log + position)
    if not 0 < size <= limit - position:
        return None
    if read_record(log, position, position + size, base, 1, row) != FOUND:
        return None
    topic.at = log + row[14]
    topic.size = row[15]
    if not equals(topic, b"RMQ_SYS_TRANS_HALF_TOPIC", 24) or row[4] != queue_offset or row[5] & INNER_BATCH:
        return None
    find_home(log + row[16], row[17], &home)
    queue_id = number_of(home.queue.at, home.queue.size, 9)
    if home.is_apart or queue_id < 0 or not is_plain_topic(home.topic):
        return None
    if not equals(home.group, PyBytes_AS_STRING(group), PyBytes_GET_SIZE(group)):
        return None
    return (
        PyUnicode_DecodeUTF8(<char*>home.topic.at, home.topic.size, NULL),
        queue_id,
        PyBytes_FromStringAndSize(<char*>log + row[12], row[13]),
        PyBytes_FromStringAndSize(<char*>log + row[16], row[17]),
        row[3],
        (row[5] & ~<int64_t>TRANSACTION) | COMMITTED,
        row[6],
        PyBytes_FromStringAndSize(<char*>log + row[10], row[11] - 8 - row[10]),
        row[8],
        physical_offset,
    )


def commit_drafts(log, log_base, log_end, ends):
    cdef Py_buffer buffer
    cdef int64_t base = log_base, limit
    cdef list drafts = []
    cdef tuple end
    PyObject_GetBuffer(log, &buffer, PyBUF_SIMPLE)
    try:
        limit = min(<int64_t>log_end - base, <int64_t>buffer.len)
        for end in <list?>ends:
            drafts.append(draft_of(<const uint8_t*>buffer.buf, base, limit, end))
        return drafts
    finally:
        PyBuffer_Release(&buffer)
