"""plain_columns.py with types: the same function, the same buffers. That file has the meaning.

Two passes: the first reads, checks and chooses the records and measures every column, so that the second writes each
into memory of the right size, once. Text beyond ASCII goes through Python, one item at a time.
"""

cdef enum:
    COMPRESSED = 0x1

# What each column is asked for by, as a bit.
cdef enum:
    TOPIC = 1
    MSG_ID = 2
    KEYS = 4
    TAGS = 8
    PROPERTIES = 16
    BODY = 32
    LABELS = 30  # what has to be looked for in the properties

_BITS = {"topic": TOPIC, "msg_id": MSG_ID, "keys": KEYS, "tags": TAGS, "properties": PROPERTIES, "body": BODY}


cdef struct Pair:
    Span name
    Span value


cdef struct Record:
    const uint8_t* at
    const uint8_t* store_host
    const uint8_t* body
    int32_t body_size
    int32_t pair_count
    int64_t store_ms
    Span topic
    Wanted labels


cdef class _Rows:
    """What the first pass found, freed however the call ends."""

    cdef Record* records
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef Pair* pairs
    cdef Py_ssize_t pair_count
    cdef Py_ssize_t pair_room
    cdef list held  # texts that were not UTF-8, as they are now
    cdef Span last_topic  # the text that was last looked at, and what it was found to be
    cdef Span last_found
    cdef bint last_is_wanted
    cdef Span* topics
    cdef Py_ssize_t topic_count
    cdef Span* tags
    cdef Py_ssize_t tag_count

    def __cinit__(self):
        self.held = []
        self.records = NULL
        self.pairs = NULL
        self.topics = self.tags = NULL
        self.count = self.room = self.pair_count = self.pair_room = 0
        self.last_topic.at = NULL
        self.last_topic.size = -1

    def __dealloc__(self):
        free(self.records)
        free(self.pairs)
        free(self.topics)
        free(self.tags)

    cdef Span* spans_of(self, names, Py_ssize_t* count) except? NULL:
        cdef list texts = list(names)
        cdef Span* spans = <Span*>malloc((len(texts) + 1) * sizeof(Span))
        cdef Py_ssize_t i
        if spans == NULL:
            raise MemoryError
        self.held.append(texts)
        for i in range(len(texts)):
            spans[i].at = <const uint8_t*>PyBytes_AS_STRING(<bytes?>texts[i])
            spans[i].size = PyBytes_GET_SIZE(<bytes?>texts[i])
        count[0] = len(texts)
        return spans

    cdef Span repaired(self, Span text) except *:
        """The text in UTF-8, where it had bytes beyond ASCII."""
        cdef bytes given = PyBytes_FromStringAndSize(<char*>text.at, text.size)
        cdef bytes sound = PyUnicode_DecodeUTF8(<char*>text.at, text.size, b"replace").encode()
        if sound != given:
            self.held.append(sound)
            text.at = <const uint8_t*>PyBytes_AS_STRING(sound)
            text.size = PyBytes_GET_SIZE(sound)
        return text

    cdef Record* new_record(self) except NULL:
        cdef Record* records
        cdef Py_ssize_t room
        if self.count == self.room:
            room = max(2 * self.room, 256)
            records = <Record*>realloc(self.records, room * sizeof(Record))
            if records == NULL:
                raise MemoryError
            self.records = records
            self.room = room
        self.count += 1
        return &self.records[self.count - 1]

    cdef inline Pair* new_pair(self) except NULL:
        cdef Pair* pairs
        cdef Py_ssize_t room
        if self.pair_count == self.pair_room:
            room = max(2 * self.pair_room, 1024)
            pairs = <Pair*>realloc(self.pairs, room * sizeof(Pair))
            if pairs == NULL:
                raise MemoryError
            self.pairs = pairs
            self.pair_room = room
        self.pair_count += 1
        return &self.pairs[self.pair_count - 1]

    cdef inline int take_pairs(self, Record* record, Span text) except -1:
        """The pairs of one record: of equal names the first has the place and the last has the value."""
        cdef const uint8_t* at = text.at
        cdef const uint8_t* end = at + text.size
        cdef Span name, value
        cdef Pair* pair
        cdef Py_ssize_t first = self.pair_count, i
        while at < end:
            at = next_pair(at, end, &name, &value)
            if not name.size or not value.size:
                continue
            for i in range(first, self.pair_count):
                pair = &self.pairs[i]
                if equals(pair.name, name):
                    pair.value = value
                    break
            else:
                pair = self.new_pair()
                pair.name = name
                pair.value = value
        record.pair_count = <int32_t>(self.pair_count - first)
        return 0

    cdef inline bint is_wanted_topic(self, Span* topic) except -1:
        """Whether rows of the topic are wanted; makes it UTF-8. Records of one topic often follow each other."""
        cdef Span raw = topic[0]
        if equals(self.last_topic, raw):
            topic[0] = self.last_found
            return self.last_is_wanted
        if not is_ascii(raw.at, raw.size):
            topic[0] = self.repaired(raw)
        self.last_topic = raw
        self.last_found = topic[0]
        self.last_is_wanted = self.topics == NULL or is_among(topic[0], self.topics, self.topic_count)
        return self.last_is_wanted


cdef inline bint is_among(Span text, Span* spans, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if equals(spans[i], text):
            return True
    return False


cdef object numbers32(_Rows rows, int kind):
    """kind is a place in the record, below zero one before its body; 0 stands for the size of the body."""
    cdef object column = PyBytes_FromStringAndSize(NULL, 4 * rows.count)
    cdef int32_t* out = <int32_t*>PyBytes_AS_STRING(column)
    cdef Py_ssize_t i
    if kind == 0:
        for i in range(rows.count):
            out[i] = rows.records[i].body_size
    elif kind < 0:
        for i in range(rows.count):
            out[i] = <int32_t>get32(rows.records[i].body + kind)
    else:
        for i in range(rows.count):
            out[i] = <int32_t>get32(rows.records[i].at + kind)
    return column


cdef object numbers64(_Rows rows, int kind, uint64_t factor):
    """kind is a place in the record; 0 stands for the store time, which lies behind a host of either size."""
    cdef object column = PyBytes_FromStringAndSize(NULL, 8 * rows.count)
    cdef uint64_t* out = <uint64_t*>PyBytes_AS_STRING(column)
    cdef Py_ssize_t i
    if kind == 0:
        for i in range(rows.count):
            out[i] = <uint64_t>rows.records[i].store_ms * factor
    else:
        for i in range(rows.count):
            out[i] = get64(rows.records[i].at + kind) * factor
    return column


cdef inline Span column_text(Record* record, int which) noexcept nogil:
    cdef Span body
    if which == TOPIC:
        return record.topic
    if which == KEYS:
        return record.labels.keys
    if which == TAGS:
        return record.labels.tags
    if which == MSG_ID:
        return record.labels.unique_key
    body.at = record.body
    body.size = record.body_size
    return body


cdef tuple texts(_Rows rows, int which):
    cdef object offsets = PyBytes_FromStringAndSize(NULL, 4 * (rows.count + 1))
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef Py_ssize_t i, size = 0, missing = 0
    cdef bint has_nulls = which == KEYS or which == TAGS
    cdef uint8_t* out
    cdef uint8_t* bits
    cdef Span text
    offset[0] = 0
    for i in range(rows.count):
        text = column_text(&rows.records[i], which)
        if not text.size:
            missing += 1
            if which == MSG_ID:
                text.size = 2 * (rows.records[i].body - 16 - rows.records[i].store_host + 8)
        size += text.size
        if size > INT32_MAX:
            raise ValueError(f"{size} bytes in one column, ask for fewer records at a time")
        offset[i + 1] = <int32_t>size
    column = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t*>PyBytes_AS_STRING(column)
    for i in range(rows.count):
        text = column_text(&rows.records[i], which)
        if which == MSG_ID and not text.size:
            put_offset_id(out + offset[i], &rows.records[i])
        else:
            put_utf8(out + offset[i], text)
    valid = None
    if has_nulls and missing:
        valid = PyBytes_FromStringAndSize(NULL, (rows.count + 7) // 8)
        bits = <uint8_t*>PyBytes_AS_STRING(valid)
        memset(bits, 0, (rows.count + 7) // 8)
        for i in range(rows.count):
            if column_text(&rows.records[i], which).size:
                bits[i >> 3] |= 1 << (i & 7)
    return valid, offsets, column


cdef inline void put_utf8(uint8_t* out, Span text) noexcept nogil:
    memcpy(out, text.at, text.size)


cdef void put_offset_id(uint8_t* out, Record* record) noexcept nogil:
    cdef const uint8_t* at = record.store_host
    cdef const uint8_t* end = record.body - 16
    while at < end:
        out = put_hex_byte(out, at[0])
        at += 1
    at = record.at + 28
    end = at + 8
    while at < end:
        out = put_hex_byte(out, at[0])
        at += 1


cdef inline uint8_t* put_hex_byte(uint8_t* out, uint8_t byte) noexcept nogil:
    cdef const char* digits = b"0123456789ABCDEF"
    out[0] = digits[byte >> 4]
    out[1] = digits[byte & 15]
    return out + 2


cdef tuple property_maps(_Rows rows):
    cdef object offsets = PyBytes_FromStringAndSize(NULL, 4 * (rows.count + 1))
    cdef object name_offsets = PyBytes_FromStringAndSize(NULL, 4 * (rows.pair_count + 1))
    cdef object value_offsets = PyBytes_FromStringAndSize(NULL, 4 * (rows.pair_count + 1))
    cdef int32_t* offset = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef int32_t* name_at = <int32_t*>PyBytes_AS_STRING(name_offsets)
    cdef int32_t* value_at = <int32_t*>PyBytes_AS_STRING(value_offsets)
    cdef Py_ssize_t i, count = 0, names_size = 0, values_size = 0
    cdef uint8_t* out
    offset[0] = name_at[0] = value_at[0] = 0
    for i in range(rows.count):
        count += rows.records[i].pair_count
        offset[i + 1] = <int32_t>count
    for i in range(rows.pair_count):
        names_size += rows.pairs[i].name.size
        values_size += rows.pairs[i].value.size
        if names_size > INT32_MAX or values_size > INT32_MAX:
            raise ValueError(f"{names_size + values_size} bytes of properties, ask for fewer records at a time")
        name_at[i + 1] = <int32_t>names_size
        value_at[i + 1] = <int32_t>values_size
    names = PyBytes_FromStringAndSize(NULL, names_size)
    values = PyBytes_FromStringAndSize(NULL, values_size)
    out = <uint8_t*>PyBytes_AS_STRING(names)
    for i in range(rows.pair_count):
        put_utf8(out + name_at[i], rows.pairs[i].name)
    out = <uint8_t*>PyBytes_AS_STRING(values)
    for i in range(rows.pair_count):
        put_utf8(out + value_at[i], rows.pairs[i].value)
    return offsets, name_offsets, names, value_offsets, values


cdef object column_of(_Rows rows, str name):
    if name in _BITS:
        return property_maps(rows) if name == "properties" else texts(rows, _BITS[name])
    if name == "queue_id":
        return numbers32(rows, 12)
    if name == "flag":
        return numbers32(rows, 16)
    if name == "sys_flag":
        return numbers32(rows, 36)
    if name == "reconsume_times":
        return numbers32(rows, -16)
    if name == "body_size":
        return numbers32(rows, 0)
    if name == "queue_offset":
        return numbers64(rows, 20, 1)
    if name == "physical_offset":
        return numbers64(rows, 28, 1)
    if name == "born_us":
        return numbers64(rows, 40, 1000)
    if name == "store_us":
        return numbers64(rows, 0, 1000)
    raise KeyError(name)


def spread_records(
    log, position, end, physical_base, check, wanted, row_count_max, size_max, topics, tags, from_ms, until_ms
):
    cdef Py_buffer view
    cdef _Rows rows = _Rows()
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t at = position, stop = end, given_base = physical_base, from_time = from_ms, until_time = until_ms
    cdef int64_t base = given_base, here = 0, taken_size = 0, size_limit = size_max, row_limit = row_count_max, seen = 0
    cdef int checked = check, reason = AT_END, bits = 0
    cdef const uint8_t* start
    cdef Record* record
    cdef Span topic, labels
    cdef Py_ssize_t i, limit
    for name in wanted:
        bits |= _BITS.get(name, 0)
    if topics is not None:
        rows.topics = rows.spans_of(topics, &rows.topic_count)
    if tags is not None:
        rows.tags = rows.spans_of(tags, &rows.tag_count)
        bits |= TAGS
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        limit = view.len
        check_stretch(at, limit)
        while at < stop and rows.count < row_limit and taken_size < size_limit:
            if given_base < 0 and limit - at >= 36:
                base = <int64_t>(get64(start + at + 28) - <uint64_t>at)
            reason = read_record(start, at, limit, base, 0, row)
            if reason == FOUND and checked and not has_whole_texts(start, row, base):
                reason = AT_INVALID
            if reason != FOUND:
                break
            reason = AT_END
            if row[5] & INNER_BATCH:
                reason = AT_INNER_BATCH
                break
            here = at
            seen += 1
            at += row[1]
            prefetch(start + at)
            prefetch(start + at + 64)
            if (given_base >= 0 and row[5] & PREPARED) or row[7] < from_time or row[7] >= until_time:
                continue
            topic.at = start + row[14]
            topic.size = row[15]
            if (rows.topics != NULL or bits & TOPIC) and not rows.is_wanted_topic(&topic):
                continue
            record = rows.new_record()
            record.at = start + row[10] - 48
            record.store_host = start + row[11]
            record.body = start + row[12]
            record.body_size = <int32_t>row[13]
            record.store_ms = row[7]
            record.topic = topic
            if bits & LABELS:
                labels.at = start + row[16]
                labels.size = row[17]
                if not is_ascii(labels.at, labels.size):
                    labels = rows.repaired(labels)
                find_wanted(labels.at, labels.size, &record.labels)
                if rows.tags != NULL and not (record.labels.tags.size and is_among(
                    record.labels.tags, rows.tags, rows.tag_count
                )):
                    rows.count -= 1
                    continue
            if checked and not has_whole_body(start, here, row, checked):
                rows.count -= 1
                seen -= 1
                at = here
                reason = AT_INVALID
                break
            if bits & PROPERTIES:
                rows.take_pairs(record, labels)
            taken_size += row[1]
        packed = [i for i in range(rows.count) if get32(rows.records[i].at + 36) & COMPRESSED]
        return [column_of(rows, name) for name in wanted], rows.count, packed, seen, at, reason
    finally:
        PyBuffer_Release(&view)
