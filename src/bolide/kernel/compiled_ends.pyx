# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True
"""plain_ends.py with types: the same functions, the same answers. That file has the meaning.

Ends are scanned where they lie when they are JSON, as every client writes them; any other header is left.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

include "bytes.pxi"
include "scan.pxi"
include "head.pxi"
include "pairs.pxi"
include "record_base.pxi"
include "record_reader.pxi"

cdef enum:
    END_TRANSACTION = 37
    COMMITTED = 0x8
    # places of the fields
    PHYSICAL = 0
    OFFSET = 1
    DECISION = 2
    GROUP = 3
    ASKED = 4
    ID = 5
    SLOT_COUNT = 6


cdef struct End:
    Head head
    uint32_t found
    Text slots[SLOT_COUNT]


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


cdef bint take_field(const Text* key, const Text* text, void* into) noexcept nogil:
    cdef End* found = <End*>into
    cdef int slot = slot_of(key)
    if slot >= 0:
        found.slots[slot] = text[0]
        found.found |= <uint32_t>1 << slot
    return is_plain(text)


cdef bint scan_end(const char* at, const char* end, End* found) noexcept nogil:
    """False for a header that is irregular, or no end that nobody waits for."""
    clear_head(&found.head, take_field, found)
    found.found = 0
    if not scan_json_head(at, end, &found.head, scan_head_member):
        return False
    return found.head.code == END_TRANSACTION and found.head.flag & (RESPONSE_FLAG | ONEWAY_FLAG) == ONEWAY_FLAG


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
    check_pairs(places)
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        for i in range(0, len(places), 2):
            start = places[i]
            end = places[i + 1]
            check_bounds(start, end, buffer.len)
            frame = <const uint8_t*>buffer.buf + start
            header_end = 4 + header_size_of(frame)
            row = None
            if frame[0] == JSON_CODEC and header_end <= end - start:
                if scan_end(<const char*>frame + 4, <const char*>frame + header_end, &found):
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
    cdef Span name, value
    memset(home, 0, sizeof(Home))
    while at < end:
        at = next_pair(at, end, &name, &value)
        if name.size == 0 or value.size == 0:
            continue
        if equals(name, b"REAL_TOPIC", 10):
            home.topic = value
        elif equals(name, b"REAL_QID", 8):
            home.queue = value
        elif equals(name, b"PGROUP", 6):
            home.group = value
        elif equals(name, b"DELAY", 5) or equals(name, b"CHECK_IMMUNITY_TIME_IN_SECONDS", 30):
            home.is_apart = True
        elif name.size >= 6 and memcmp(name.at, b"TIMER_", 6) == 0:
            home.is_apart = True


cdef inline bint is_plain_topic(Span topic) noexcept nogil:
    return 0 < topic.size <= 127 and is_ascii(topic.at, topic.size) and not leads_elsewhere(topic)


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
