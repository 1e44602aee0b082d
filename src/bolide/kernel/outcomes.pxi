"""Ends of transactions out of reads, and what they commit out of the log, a batch at a time.

An end (request 37) is taken when it is one-way, so that nobody waits for an answer, its numbers are plain and it is
JSON, as every client writes it; others are left, by their bounds. It is carried out when nothing about its half message
needs thought: it lies where the end says, the half queue has it there, nothing became of it yet, it is whole, is of the
group that ends it, and asks for neither delay nor time. Otherwise it is left, and the general path knows the reason.
"""

cdef enum:
    END_TRANSACTION = 37
    COMMITTED = 0x8
    # places of the fields
    PHYSICAL = 0
    END_OFFSET = 1
    DECISION = 2
    END_GROUP = 3
    ASKED = 4
    ID = 5
    END_SLOT_COUNT = 6
    # what became of a half message: nothing yet, or nothing and no round looks at it
    UNDECIDED = 0
    WAITING = 2


cdef struct OutcomeFields:
    Head head
    uint32_t found
    Text slots[END_SLOT_COUNT]


cdef int outcome_slot_of(const Text* key) noexcept nogil:
    if key.size == literal(b"commitLogOffset").size:
        return PHYSICAL if begins(key.at, literal(b"commitLogOffset")) else -1
    if key.size == literal(b"tranStateTableOffset").size:
        if begins(key.at, literal(b"tranStateTableOffset")):
            return END_OFFSET
        return ASKED if begins(key.at, literal(b"fromTransactionCheck")) else -1
    if key.size == literal(b"commitOrRollback").size:
        return DECISION if begins(key.at, literal(b"commitOrRollback")) else -1
    if key.size == literal(b"producerGroup").size:
        return END_GROUP if begins(key.at, literal(b"producerGroup")) else -1
    if key.size == literal(b"msgId").size:
        return ID if begins(key.at, literal(b"msgId")) else -1
    return -1


cdef bint take_outcome_field(const Text* key, const Text* text, void* into) noexcept nogil:
    cdef OutcomeFields* found = <OutcomeFields*>into
    cdef int slot = outcome_slot_of(key)
    if slot >= 0:
        found.slots[slot] = text[0]
        found.found |= <uint32_t>1 << slot
    return is_plain(text)


cdef inline bint is_other(const char* at, const char* end) noexcept nogil:
    """Whether the first bytes tell already that it is another request: half messages come with the ends."""
    return end - at > 11 and begins(at, literal(b'{"code":')) and not begins(at + 8, literal(b"37,"))


cdef bint scan_end(const char* at, const char* end, OutcomeFields* found) noexcept nogil:
    """False for a header that is irregular, or no end that nobody waits for."""
    if is_other(at, end):
        return False
    clear_head(&found.head, take_outcome_field, found)
    found.found = 0
    if not scan_json_head(at, end, &found.head, scan_head_member):
        return False
    return found.head.code == END_TRANSACTION and found.head.flag & (RESPONSE_FLAG | ONEWAY_FLAG) == ONEWAY_FLAG


cdef inline int64_t slot_number(const OutcomeFields* found, int slot) noexcept nogil:
    if not found.found >> slot & 1:
        return -1
    return number_of(<const uint8_t*>found.slots[slot].at, found.slots[slot].size, 18)


cdef tuple end_of(const OutcomeFields* found):
    """The row of an end; None if it needs thought."""
    cdef int64_t physical_offset = slot_number(found, PHYSICAL), offset = slot_number(found, END_OFFSET)
    cdef int64_t decision = slot_number(found, DECISION)
    cdef bint was_asked = False
    if physical_offset < 0 or offset < 0 or (decision != COMMITTED and decision != TRANSACTION):
        return None
    if not found.found >> END_GROUP & 1 or found.slots[END_GROUP].size == 0 or not found.found >> ID & 1:
        return None
    if found.found >> ASKED & 1:
        was_asked = is_text(&found.slots[ASKED], literal(b"true"))
        if not was_asked and not is_text(&found.slots[ASKED], literal(b"false")):
            return None
    group = PyBytes_FromStringAndSize(found.slots[END_GROUP].at, found.slots[END_GROUP].size)
    return physical_offset, offset, decision, was_asked, group


def read_outcomes(stream, bounds):
    cdef Py_buffer buffer
    cdef list places = <list?>bounds
    cdef list ends = []
    cdef list left = []
    cdef const uint8_t* frame
    cdef Py_ssize_t i, start, end, header_end
    cdef tuple row
    cdef OutcomeFields found
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
    Wanted wanted
    Span topic
    Span queue
    Span group
    bint is_apart


cdef void find_half_home(const uint8_t* at, Py_ssize_t size, Home* home) noexcept nogil:
    """One pass over the properties; the last of equal names counts, pairs with an empty side do not."""
    cdef const uint8_t* end = at + size
    cdef Span name, value
    memset(home, 0, sizeof(Home))
    while at < end:
        at = next_pair(at, end, &name, &value)
        if name.size == 0 or value.size == 0 or take_wanted(name, value, &home.wanted):
            continue
        if equals(name, literal(b"REAL_TOPIC")):
            home.topic = value
        elif equals(name, literal(b"REAL_QID")):
            home.queue = value
        elif equals(name, literal(b"PGROUP")):
            home.group = value
        elif equals(name, literal(b"DELAY")) or equals(name, literal(b"CHECK_IMMUNITY_TIME_IN_SECONDS")):
            home.is_apart = True
        elif begins_within(name.at, name.size, literal(b"TIMER_")):
            home.is_apart = True


cdef inline bint is_plain_topic(Span topic) noexcept nogil:
    """Whether this may be the name of a topic (`model/names.py`), and is of one that every message may go to."""
    cdef Py_ssize_t i
    cdef uint8_t letter
    if not 0 < topic.size <= 127 or equals(topic, literal(b"SCHEDULE_TOPIC_XXXX")):
        return False
    for i in range(topic.size):
        letter = topic.at[i]
        if not (c"0" <= letter <= c"9" or c"a" <= letter | 32 <= c"z"
                or letter == c"%" or letter == c"|" or letter == c"_" or letter == c"-"):
            return False
    return True


cdef class _Halves:
    """Where half messages lie, and which of them are open; let go however the call ends."""

    cdef Py_buffer log, entries, marks
    cdef int held
    cdef int64_t base, limit, first_entry, first_mark

    def __cinit__(self, log, log_base, log_end, entries, first_entry, marks, first_mark):
        self.base, self.first_entry, self.first_mark = log_base, first_entry, first_mark
        PyObject_GetBuffer(log, &self.log, PyBUF_SIMPLE)
        self.held = 1
        PyObject_GetBuffer(entries, &self.entries, PyBUF_SIMPLE)
        self.held = 2
        PyObject_GetBuffer(marks, &self.marks, PyBUF_SIMPLE)
        self.held = 3
        self.limit = min(<int64_t>log_end - self.base, <int64_t>self.log.len)

    def __dealloc__(self):
        if self.held > 2:
            PyBuffer_Release(&self.marks)
        if self.held > 1:
            PyBuffer_Release(&self.entries)
        if self.held > 0:
            PyBuffer_Release(&self.log)

    cdef bint is_open(self, int64_t offset, int64_t physical_offset) noexcept:
        """Whether the half queue has this one there, and nothing became of it yet."""
        cdef int64_t entry = offset - self.first_entry, mark = offset - self.first_mark
        cdef uint8_t how
        if not 0 <= entry < self.entries.len // ENTRY or mark < 0:
            return False
        if <int64_t>get64(<const uint8_t*>self.entries.buf + entry * ENTRY) != physical_offset:
            return False
        how = UNDECIDED if mark >= self.marks.len else (<const uint8_t*>self.marks.buf)[mark]
        return how == UNDECIDED or how == WAITING

    cdef bint read(self, tuple end, int64_t* row, Home* home) except -1:
        """Its record and where it belongs; false if something about it needs thought."""
        cdef int64_t position = <int64_t>end[0] - self.base, size
        cdef bytes group = <bytes?>end[4]
        cdef const uint8_t* log = <const uint8_t*>self.log.buf
        cdef Span topic, properties
        if not 0 <= position <= self.limit - 4:
            return False
        size = <int32_t>get32(log + position)
        if not 0 < size <= self.limit - position:
            return False
        if read_record(log, position, position + size, self.base, 1, row) != FOUND:
            return False
        topic.at, topic.size = log + row[14], row[15]
        properties.at, properties.size = log + row[16], row[17]
        if not equals(topic, literal(b"RMQ_SYS_TRANS_HALF_TOPIC")) or row[4] != <int64_t>end[1] or row[5] & INNER_BATCH:
            return False
        find_half_home(properties.at, properties.size, home)
        if home.is_apart or has_zero(properties) or not is_plain_topic(home.topic):
            return False
        if number_of(home.queue.at, home.queue.size, 9) < 0:
            return False
        return home.group.size > 0 and equals(home.group, span_of(group))


cdef inline bint says_place(const uint8_t* pair, Py_ssize_t size) noexcept nogil:
    return begins_within(pair, size, literal(b"REAL_TOPIC\x01")) or begins_within(pair, size, literal(b"REAL_QID\x01"))


cdef Py_ssize_t put_without_place(uint8_t* to, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """The properties of a message that has come where it belongs; returns their size."""
    cdef const uint8_t* end = at + size
    cdef const uint8_t* stop
    cdef uint8_t* start = to
    cdef bint is_first = True
    while True:
        stop = <const uint8_t*>memchr(at, 2, end - at) if at < end else end
        if stop == NULL:
            stop = end
        if not says_place(at, stop - at):
            if not is_first:
                to[0] = 2
                to += 1
            memcpy(to, at, stop - at)
            to += stop - at
            is_first = False
        if stop == end:
            return to - start
        at = stop + 1


cdef int commit(
    _Redelivery redelivery, NewRecord* laid, _Halves halves, const int64_t* row, Home* home, next_offsets
) except -1:
    """Lay out what a half message stands for."""
    cdef const uint8_t* log = <const uint8_t*>halves.log.buf
    cdef Tally* tally = redelivery.tally_of(home.topic)
    cdef Span properties
    cdef Py_ssize_t size
    redelivery.stamped.size = 0
    properties.at = grow(&redelivery.stamped, max(row[17], 1))
    properties.size = put_without_place(redelivery.stamped.data, log + row[16], row[17])
    take_over(laid, log, row)
    laid.sys_flag = (laid.sys_flag & ~<int32_t>TRANSACTION) | COMMITTED
    laid.prepared_offset = row[0]
    laid.topic = home.topic
    laid.queue_id = <int32_t>number_of(home.queue.at, home.queue.size, 9)
    size = redelivery.put(laid, &home.wanted, properties, next_offsets)
    laid.physical_offset += size
    tally.count += 1
    tally.size += size
    return 0


def encode_outcomes(
    ends, log, log_base, log_end, entries, first_entry, marks, first_mark, size_max, store_host, physical_offset,
    store_ms, next_offsets
):
    cdef _Halves halves = _Halves(log, log_base, log_end, entries, first_entry, marks, first_mark)
    cdef _Redelivery redelivery = _Redelivery()
    cdef NewRecord laid
    cdef Home home
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t total = 0, most = size_max, offset
    cdef Py_ssize_t seen = 0
    cdef dict decided = {}
    cdef list left = []
    cdef tuple end
    laid.store_host = span_of(<bytes?>store_host)
    check_host(laid.store_host)
    laid.physical_offset, laid.store_ms = physical_offset, store_ms
    for end in <list?>ends:
        if len(end) != 5:
            raise TypeError("an end is a tuple of five")
        offset = end[1]
        if not halves.is_open(offset, end[0]) or end[1] in decided or not halves.read(end, row, &home):
            left.append(end)
        elif end[2] == COMMITTED:
            if total and total + row[1] > most:
                break
            total += row[1]
            commit(redelivery, &laid, halves, row, &home, next_offsets)
            decided[end[1]] = end[2]
        else:
            decided[end[1]] = end[2]
        seen += 1
    tallies = [each[:3] for each in redelivery.done()]
    return taken(&redelivery.records), redelivery.walk.done(), taken(&redelivery.walk.keys), (
        seen, decided, tallies, left
    )
