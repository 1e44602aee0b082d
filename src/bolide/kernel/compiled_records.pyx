# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""plain_records.py with types: the same functions, the same answers. That file has the byte tables and the meaning.

What is rare goes to the plain function for that one item: text beyond ASCII, and the delay topic.
"""

from array import array

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from bolide.kernel import plain_records
from bolide.kernel.plain_records import COLUMNS, key_hash, tag_hash

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

include "record_parts.pxi"

cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194
    TRANSACTION = 0xC
    IPV6_BORN = 0x10
    IPV6_STORE = 0x20
    INNER_BATCH = 0x80
    AT_END = 0
    AT_BLANK = 1
    AT_INVALID = 2
    AT_INNER_BATCH = 3
    FOUND = -1
    COLUMN_COUNT = 18
    PAGE = 4096
    PRE_BLANK_SIZE = 0x7FFFFFFF

cdef const char* RETRY = b"%RETRY%"


cdef struct Run:
    Span topic
    int32_t queue_id
    int64_t first
    Blob entries


cdef void find_wanted(const uint8_t* at, Py_ssize_t size, Wanted* wanted) noexcept nogil:
    """One pass over the bytes: pairs are short, and a call to look for a byte costs more than looking."""
    cdef const uint8_t* end = at + size
    cdef const uint8_t* name
    cdef const uint8_t* value
    cdef Py_ssize_t name_size
    cdef Span found
    wanted.tags.size = wanted.keys.size = wanted.unique_key.size = 0
    while at < end:
        name = at
        while at < end and at[0] != 1 and at[0] != 2:
            at += 1
        if at == end or at[0] == 2:
            at += 1
            continue
        name_size = at - name
        value = at + 1
        at = value
        while at < end and at[0] != 2:
            at += 1
        if at > value:
            found.at = value
            found.size = at - value
            if name_size == 4 and memcmp(name, b"TAGS", 4) == 0:
                wanted.tags = found
            elif name_size == 4 and memcmp(name, b"KEYS", 4) == 0:
                wanted.keys = found
            elif name_size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
                wanted.unique_key = found
        at += 1


def body_crc(body):
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        crc = crc32_of(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc & 0x7FFFFFFF


cdef Py_ssize_t check_draft(tuple draft, Span topic, Py_ssize_t store_host_size, int64_t body_size_max) except -1:
    """The size its record will have; what may not be stored raises as the plain kernel does."""
    cdef Py_ssize_t limit = 127
    cdef Py_ssize_t body_size, size
    cdef bytes properties = <bytes?>draft[3]
    cdef Py_ssize_t born_host_size = PyBytes_GET_SIZE(<bytes?>draft[7])
    if topic.size >= 7 and memcmp(topic.at, RETRY, 7) == 0:
        limit = 255
    body_size = PyBytes_GET_SIZE(draft[2]) if type(draft[2]) is bytes else len(draft[2])
    if (
        topic.size == 0 or topic.size > limit or body_size > body_size_max or PyBytes_GET_SIZE(properties) > 0x7FFF
        or memchr(topic.at, 0, topic.size) != NULL
        or memchr(PyBytes_AS_STRING(properties), 0, PyBytes_GET_SIZE(properties)) != NULL
        or <int64_t>draft[5] & INNER_BATCH or (born_host_size != 8 and born_host_size != 20)
        or (store_host_size != 8 and store_host_size != 20)
    ):
        # The plain kernel owns the sentences, and refuses exactly this draft.
        plain_records.lay_records([draft], 0, 0, bytes(store_host_size), {}, (), body_size_max)
        raise AssertionError("the two kernels disagree on what may be stored")
    size = 88 + born_host_size + store_host_size - 16 + body_size + (2 if topic.size > 127 else 1) + topic.size
    return size + 2 + PyBytes_GET_SIZE(properties)


cdef class _Layout:
    """Memory of one lay_records call, freed however it ends."""

    cdef Py_ssize_t* sizes
    cdef int32_t* run_of
    cdef int64_t* next_of_run
    cdef Py_ssize_t* count_of_run
    cdef uint8_t** entry_of_run
    cdef Blob keys

    def __cinit__(self, Py_ssize_t count):
        self.sizes = <Py_ssize_t*>malloc((count + 1) * sizeof(Py_ssize_t))
        self.run_of = <int32_t*>malloc((count + 1) * sizeof(int32_t))
        self.next_of_run = <int64_t*>malloc((count + 1) * sizeof(int64_t))
        self.entry_of_run = <uint8_t**>malloc((count + 1) * sizeof(uint8_t*))
        self.count_of_run = <Py_ssize_t*>calloc(count + 1, sizeof(Py_ssize_t))
        if not (self.sizes and self.run_of and self.next_of_run and self.entry_of_run and self.count_of_run):
            raise MemoryError

    def __dealloc__(self):
        free(self.sizes)
        free(self.run_of)
        free(self.next_of_run)
        free(self.count_of_run)
        free(self.entry_of_run)
        free(self.keys.data)


cdef Py_ssize_t plan(
    _Layout layout, list drafts, Py_ssize_t store_host_size, next_offsets, int64_t body_size_max, list runs
) except -1:
    """First pass: check each draft, size it, give it a run. Returns the size of all records."""
    cdef dict numbers = {}
    cdef object last_topic = None
    cdef object key, number, item
    cdef int64_t last_queue = 0, queue_id
    cdef int32_t last_run = -1
    cdef Py_ssize_t i, total = 0
    cdef Span topic
    cdef tuple draft
    for i in range(PyList_GET_SIZE(drafts)):
        item = drafts[i]
        if not isinstance(item, tuple) or len(item) != 10:
            raise TypeError("a draft is a tuple of ten")
        draft = <tuple>item  # or of a class derived from it, whose items lie in the same places
        topic.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(draft[0], &topic.size)
        layout.sizes[i] = check_draft(draft, topic, store_host_size, body_size_max)
        total += layout.sizes[i]
        if <int64_t>draft[5] & 0x4:  # prepared and rollback: no queue
            layout.run_of[i] = -1
            continue
        queue_id = draft[1]
        if draft[0] is not last_topic or queue_id != last_queue or last_run < 0:
            last_topic, last_queue = draft[0], queue_id
            key = (last_topic, queue_id)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(runs)
                layout.next_of_run[len(runs)] = next_offsets.get(key, 0)
                runs.append([last_topic, queue_id, next_offsets.get(key, 0), None])
            last_run = number
        layout.run_of[i] = last_run
        layout.count_of_run[last_run] += 1
    return total


cdef void put_fixed(uint8_t* at, Py_ssize_t size, bint is_long, int32_t queue_id, int32_t flag, int64_t queue_offset, int64_t physical_offset, int32_t sys_flag, int64_t born_ms) noexcept nogil:
    put32(at, <uint32_t>size)
    put32(at + 4, <uint32_t>(MAGIC_V2 if is_long else MAGIC_V1))
    put32(at + 12, queue_id)
    put32(at + 16, flag)
    put64(at + 20, queue_offset)
    put64(at + 28, physical_offset)
    put32(at + 36, sys_flag)
    put64(at + 40, born_ms)


cdef inline uint8_t* put_host(uint8_t* at, bytes host) noexcept:
    if PyBytes_GET_SIZE(host) == 8:
        memcpy(at, PyBytes_AS_STRING(host), 8)  # a known size is one move
    else:
        memcpy(at, PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
    return at + PyBytes_GET_SIZE(host)


cdef int put_record(uint8_t* at, Py_ssize_t size, tuple draft, Span topic, int32_t sys_flag, int64_t queue_offset, int64_t physical_offset, int64_t store_ms, bytes store_host) except -1:
    cdef bytes born_host = <bytes>draft[7]
    cdef bytes properties = <bytes>draft[3]
    cdef bint is_long = topic.size > 127
    cdef uint8_t* start = at
    cdef Py_buffer body
    cdef const uint8_t* content
    cdef Py_ssize_t content_size
    cdef bint is_bytes = type(draft[2]) is bytes
    put_fixed(at, size, is_long, draft[1], draft[4], queue_offset, physical_offset, sys_flag, draft[6])
    at += 48
    at = put_host(at, born_host)
    put64(at, store_ms)
    at += 8
    at = put_host(at, store_host)
    put32(at, <int32_t>draft[8])
    put64(at + 4, <int64_t>draft[9])
    if is_bytes:  # the usual case, and a buffer's ceremony costs as much as copying a small body
        content = <const uint8_t*>PyBytes_AS_STRING(draft[2])
        content_size = PyBytes_GET_SIZE(draft[2])
    else:
        PyObject_GetBuffer(draft[2], &body, PyBUF_SIMPLE)
        content = <const uint8_t*>body.buf
        content_size = body.len
    if at - start + 16 + content_size + (2 if is_long else 1) + topic.size + 2 + PyBytes_GET_SIZE(properties) != size:
        if not is_bytes:
            PyBuffer_Release(&body)
        raise ValueError("a body that is not a buffer of single bytes")
    put32(at + 12, <uint32_t>content_size)
    at += 16
    memcpy(at, content, content_size)
    put32(start + 8, crc32_of(content, content_size) & 0x7FFFFFFF)
    at += content_size
    if not is_bytes:
        PyBuffer_Release(&body)
    if is_long:
        at[0] = <uint8_t>(topic.size >> 8)
        at += 1
    at[0] = <uint8_t>topic.size
    memcpy(at + 1, topic.at, topic.size)
    at += 1 + topic.size
    put16(at, <uint16_t>PyBytes_GET_SIZE(properties))
    memcpy(at + 2, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
    return 0


cdef inline int put_number(list numbers, Py_ssize_t i, int64_t value) except -1:
    """Fill a place of a list that was made with empty ones."""
    cdef object number = value
    Py_INCREF(number)  # the list takes over one reference
    PyList_SET_ITEM(numbers, i, number)
    return 0


def lay_records(drafts, physical_offset, store_ms, store_host, next_offsets, delays_ms, body_size_max):
    cdef list items = list(drafts)  # nobody else can change this one between the two passes
    cdef Py_ssize_t count = PyList_GET_SIZE(items)
    cdef _Layout layout = _Layout(count)
    cdef list runs = []
    cdef list places = PyList_New(count), queue_offsets = PyList_New(count)
    cdef bytes host = <bytes?>store_host
    cdef Py_ssize_t host_size = PyBytes_GET_SIZE(host)
    cdef Py_ssize_t total = plan(layout, items, host_size, next_offsets, body_size_max, runs)
    cdef bytes records = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(records)
    cdef int64_t place = physical_offset, stored = store_ms, queue_offset
    cdef int32_t sys_flag, run
    cdef Py_ssize_t i, size
    cdef Span topic
    cdef Wanted wanted
    cdef bytes properties, entries
    cdef tuple draft
    for i in range(len(runs)):
        entries = PyBytes_FromStringAndSize(NULL, layout.count_of_run[i] * ENTRY)
        runs[i][3] = entries
        layout.entry_of_run[i] = <uint8_t*>PyBytes_AS_STRING(entries)
    for i in range(count):
        draft = <tuple>items[i]
        size = layout.sizes[i]
        topic.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(draft[0], &topic.size)
        properties = <bytes>draft[3]
        sys_flag = <int32_t>draft[5] & ~(IPV6_BORN | IPV6_STORE)
        if PyBytes_GET_SIZE(<bytes>draft[7]) == 20:
            sys_flag |= IPV6_BORN
        if host_size == 20:
            sys_flag |= IPV6_STORE
        find_wanted(<uint8_t*>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties), &wanted)
        run = layout.run_of[i]
        queue_offset = 0
        if run >= 0:
            queue_offset = layout.next_of_run[run]
            layout.next_of_run[run] = queue_offset + 1
            put_entry(
                layout.entry_of_run[run], place, <int32_t>size,
                hash_tags(topic, wanted.tags, <uint8_t*>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties), stored, delays_ms),
            )
            layout.entry_of_run[run] += ENTRY
        if sys_flag & TRANSACTION != TRANSACTION:
            put_all_keys(&layout.keys, topic, &wanted, place, stored)
        put_record(at, size, draft, topic, sys_flag, queue_offset, place, stored, host)
        put_number(places, i, place)
        put_number(queue_offsets, i, queue_offset)
        at += size
        place += size
    return records, places, queue_offsets, [tuple(item) for item in runs], taken(&layout.keys)


cdef bint is_torn(const uint8_t* log, int64_t position, int64_t size, int64_t physical_base) noexcept nogil:
    cdef int64_t end = position + size
    cdef int64_t edge = position + (-(physical_base + position) & (PAGE - 1))
    if size == 0 or log[end - 1] == 0:
        return True
    while edge < end:
        if log[edge] == 0 or (edge > position and log[edge - 1] == 0):
            return True
        edge += PAGE
    return False


cdef int read_record(const uint8_t* log, int64_t position, int64_t end, int64_t physical_base, bint check, int64_t* row) noexcept nogil:
    """Fill a row of COLUMNS; FOUND, or why there is no record."""
    cdef const uint8_t* at = log + position
    cdef int64_t left = end - position
    cdef int64_t record_end, store_host, tail, body, body_size, topic, topic_size, properties, properties_size
    cdef int32_t size, sys_flag
    cdef uint32_t magic
    cdef int topic_width
    if left < 8:
        return AT_END if left == 0 else AT_INVALID
    size = <int32_t>get32(at)
    magic = get32(at + 4)
    if magic == MAGIC_BLANK:
        return AT_BLANK
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < 91 or size > left:
        return AT_INVALID
    row[0] = <int64_t>get64(at + 28)
    if row[0] != physical_base + position:
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
    if check and (
        crc32_of(log + body, body_size) & 0x7FFFFFFF != get32(at + 8)
        or is_torn(log, topic, topic_size, physical_base)
        or (properties_size and is_torn(log, properties, properties_size, physical_base))
    ):
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
    return FOUND


cdef class _Walk:
    """The runs of one walk, found by queue through open addressing; freed however the walk ends."""

    cdef Run* runs
    cdef Py_ssize_t count, room
    cdef int32_t* slots  # 1 + number of a queue's latest run
    cdef Py_ssize_t slot_count
    cdef Blob keys
    cdef int32_t last

    def __cinit__(self):
        self.slot_count = 1024
        self.slots = <int32_t*>calloc(self.slot_count, sizeof(int32_t))
        self.last = -1
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            free(self.runs[i].entries.data)
        free(self.runs)
        free(self.slots)
        free(self.keys.data)

    cdef inline bint is_of(self, int32_t number, Span topic, int32_t queue_id) noexcept nogil:
        cdef Run* run = &self.runs[number]
        return run.queue_id == queue_id and run.topic.size == topic.size and memcmp(run.topic.at, topic.at, topic.size) == 0

    cdef Py_ssize_t slot_for(self, Span topic, int32_t queue_id) noexcept nogil:
        cdef uint64_t hashed = (<uint64_t>queue_id ^ <uint64_t>topic.size) * <uint64_t>0x9E3779B97F4A7C15
        cdef Py_ssize_t i = 0
        while i + 8 <= topic.size:
            hashed = (hashed ^ get64(topic.at + i)) * <uint64_t>0x9E3779B97F4A7C15
            hashed ^= hashed >> 32
            i += 8
        while i < topic.size:
            hashed = (hashed ^ topic.at[i]) * <uint64_t>0x100000001B3
            i += 1
        hashed ^= hashed >> 32
        i = hashed & (self.slot_count - 1)
        while self.slots[i] and not self.is_of(self.slots[i] - 1, topic, queue_id):
            i = (i + 1) & (self.slot_count - 1)
        return i

    cdef int widen(self) except -1:
        """Twice the slots, and only the latest run of each queue in them."""
        cdef int32_t* old = self.slots
        cdef Py_ssize_t old_count = self.slot_count, i
        cdef int32_t* slots = <int32_t*>calloc(2 * old_count, sizeof(int32_t))
        if slots == NULL:
            raise MemoryError
        self.slots = slots
        self.slot_count = 2 * old_count
        for i in range(old_count):
            if old[i]:
                self.slots[self.slot_for(self.runs[old[i] - 1].topic, self.runs[old[i] - 1].queue_id)] = old[i]
        free(old)
        return 0

    cdef Run* run_for(self, Span topic, int32_t queue_id, int64_t queue_offset) except NULL:
        cdef Py_ssize_t slot
        cdef Run* run
        cdef Run* runs
        if self.last >= 0 and self.is_of(self.last, topic, queue_id):
            run = &self.runs[self.last]
            if run.first + run.entries.size // ENTRY == queue_offset:
                return run
        slot = self.slot_for(topic, queue_id)
        if self.slots[slot]:
            self.last = self.slots[slot] - 1
            run = &self.runs[self.last]
            if run.first + run.entries.size // ENTRY == queue_offset:
                return run
        if self.count == self.room:
            runs = <Run*>realloc(self.runs, max(2 * self.room, 64) * sizeof(Run))
            if runs == NULL:
                raise MemoryError
            self.runs = runs
            self.room = max(2 * self.room, 64)
        run = &self.runs[self.count]
        run.topic = topic
        run.queue_id = queue_id
        run.first = queue_offset
        run.entries.data = NULL
        run.entries.size = run.entries.room = 0
        self.last = <int32_t>self.count
        self.count += 1
        self.slots[slot] = self.last + 1
        if 2 * self.count > self.slot_count:
            self.widen()
        return run

    cdef list done(self):
        cdef Py_ssize_t i
        cdef Run* run
        cdef list runs = []
        for i in range(self.count):
            run = &self.runs[i]
            topic = PyUnicode_DecodeUTF8(<char*>run.topic.at, run.topic.size, b"replace")
            runs.append((topic, run.queue_id, run.first, taken(&run.entries)))
        return runs


cdef int derive(_Walk walk, const uint8_t* log, int64_t* row, delays_ms) except -1:
    """Add what queues and index say of one record."""
    cdef Span topic
    cdef Wanted wanted
    cdef int64_t tag
    cdef Run* run
    topic.at = log + row[14]
    topic.size = row[15]
    find_wanted(log + row[16], row[17], &wanted)
    if not row[5] & 0x4:
        tag = hash_tags(topic, wanted.tags, log + row[16], row[17], row[7], delays_ms)
        run = walk.run_for(topic, <int32_t>row[2], row[4])
        put_entry(grow(&run.entries, ENTRY), row[0], <int32_t>row[1], tag)
    if row[5] & TRANSACTION != TRANSACTION:
        put_all_keys(&walk.keys, topic, &wanted, row[0], row[7])
    return 0


def walk_records(log, position, end, physical_base, check, delays_ms):
    cdef _Walk walk = _Walk()
    cdef Py_buffer view
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t at = position, limit = end, base = physical_base, count = 0, last_store_ms = -1
    cdef bint checked = check
    cdef int reason
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        limit = min(limit, view.len)
        while True:
            reason = read_record(<const uint8_t*>view.buf, at, limit, base, checked, row)
            if reason != FOUND:
                break
            if row[5] & INNER_BATCH:
                reason = AT_INNER_BATCH
                break
            derive(walk, <const uint8_t*>view.buf, row, delays_ms)
            count += 1
            last_store_ms = row[7]
            at += row[1]
        return walk.done(), taken(&walk.keys), count, last_store_ms, at, reason
    finally:
        PyBuffer_Release(&view)


def scan_records(log, position, end, physical_base, check):
    cdef Py_buffer view
    cdef Blob columns[COLUMN_COUNT]
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t at = position, limit = end, base = physical_base
    cdef bint checked = check
    cdef int reason, i
    for i in range(COLUMN_COUNT):
        columns[i].data = NULL
        columns[i].size = columns[i].room = 0
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        limit = min(limit, view.len)
        while True:
            reason = read_record(<const uint8_t*>view.buf, at, limit, base, checked, row)
            if reason != FOUND:
                break
            for i in range(COLUMN_COUNT):
                (<int64_t*>grow(&columns[i], 8))[0] = row[i]
            at += row[1]
        arrays = [array("q") for _ in COLUMNS]
        for i in range(COLUMN_COUNT):
            arrays[i].frombytes(taken(&columns[i]))
        return arrays, at, reason
    finally:
        for i in range(COLUMN_COUNT):
            free(columns[i].data)
        PyBuffer_Release(&view)


def count_entries(entries, physical_limit):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef int64_t limit = physical_limit, previous_end = 0, physical_offset
    cdef int32_t size
    cdef Py_ssize_t count = 0, all_entries
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    all_entries = view.len // ENTRY
    while count < all_entries:
        at = <const uint8_t*>view.buf + count * ENTRY
        physical_offset = <int64_t>get64(at)
        size = <int32_t>get32(at + 8)
        if size <= 0 or physical_offset < 0 or physical_offset >= limit:
            break
        if not (size == PRE_BLANK_SIZE and physical_offset == 0):
            if physical_offset < previous_end:
                break
            previous_end = physical_offset + size
        count += 1
    PyBuffer_Release(&view)
    return count


cdef inline bint is_wanted(int64_t tag, const int32_t* wanted, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    if tag < INT32_MIN:
        return True  # an address in the extension file
    for i in range(count):
        if wanted[i] == <int32_t>tag:
            return True
    return False


def select_entries(entries, tag_hashes, log_min, near_from, count_max, size_max, near_limits, far_limits):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef int64_t floor = log_min, near = near_from, most = count_max, size_limit = size_max
    cdef int64_t near_size = near_limits[0], near_count = near_limits[1]
    cdef int64_t far_size = far_limits[0], far_count = far_limits[1]
    cdef int64_t physical_offset, taken_count = 0, taken_size = 0
    cdef int32_t size
    cdef Py_ssize_t scanned = 0, all_entries, wanted_count = 0, i
    cdef int32_t* wanted = NULL
    cdef list chosen = []
    if tag_hashes is not None:
        wanted_count = len(tag_hashes)
        wanted = <int32_t*>malloc((wanted_count + 1) * sizeof(int32_t))
        if wanted == NULL:
            raise MemoryError
        for i, hashed in enumerate(tag_hashes):
            wanted[i] = hashed
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    all_entries = view.len // ENTRY
    try:
        while scanned < all_entries:
            at = <const uint8_t*>view.buf + scanned * ENTRY
            physical_offset = <int64_t>get64(at)
            size = <int32_t>get32(at + 8)
            if taken_count:
                if taken_count >= most or taken_size + size > size_limit:
                    break
                if physical_offset >= near:
                    if taken_count >= near_count or taken_size + size > near_size:
                        break
                elif taken_count >= far_count or taken_size + size > far_size:
                    break
            scanned += 1
            if physical_offset < floor or size <= 0 or size == PRE_BLANK_SIZE:
                continue
            if wanted != NULL and not is_wanted(<int64_t>get64(at + 12), wanted, wanted_count):
                continue
            chosen.append(physical_offset)
            chosen.append(size)
            taken_count += 1
            taken_size += size
        return chosen, scanned
    finally:
        PyBuffer_Release(&view)
        free(wanted)


def put_keys(index, keys, slot_count, entry_count_max):
    cdef Py_buffer view
    cdef bytes packed = <bytes?>keys
    cdef const uint8_t* key = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef const uint8_t* keys_end = key + PyBytes_GET_SIZE(packed)
    cdef uint8_t* head
    cdef uint8_t* slot
    cdef uint8_t* entry
    cdef int64_t slots = slot_count, most = entry_count_max, seconds, begin_ms, store_ms
    cdef int32_t number, previous, used_slots
    cdef Py_ssize_t taken_count = 0
    PyObject_GetBuffer(index, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        head = <uint8_t*>view.buf
        begin_ms = <int64_t>get64(head)
        used_slots = <int32_t>get32(head + 32)
        number = <int32_t>get32(head + 36)
        while key < keys_end and number < most:
            slot = head + 40 + get32(key) % slots * 4
            previous = <int32_t>get32(slot)
            if previous <= 0 or previous > number:
                previous = 0
            store_ms = <int64_t>get64(key + 12)
            if number <= 1:
                begin_ms = store_ms
                put64(head, store_ms)
                memcpy(head + 16, key + 4, 8)
            seconds = 0
            if begin_ms > 0 and store_ms > begin_ms:
                seconds = min((store_ms - begin_ms) // 1000, <int64_t>INT32_MAX)
            entry = head + 40 + slots * 4 + <int64_t>number * ENTRY
            if entry + ENTRY > head + view.len:
                raise ValueError("an index file that is too short for its count of entries")
            memcpy(entry, key, 12)
            put32(entry + 12, <uint32_t>seconds)
            put32(entry + 16, previous)
            put32(slot, number)
            used_slots += previous == 0
            number += 1
            put64(head + 8, store_ms)
            memcpy(head + 24, key + 4, 8)
            key += ENTRY
            taken_count += 1
        put32(head + 32, used_slots)
        put32(head + 36, number)
        return taken_count
    finally:
        PyBuffer_Release(&view)
