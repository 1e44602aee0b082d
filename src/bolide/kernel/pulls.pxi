"""Pulls: the requests of one read taken apart without a header of each, and an answer laid out in one piece.

A pull is small and its answer is many records, so both ends of it are done here at once. A request that is not regular
(escapes, odd numbers, nested values) is left to `Pulls.pull`. A header whose first `code` is another's is left at once:
most frames of a broker are sends.
"""

cdef enum:
    PULL_REQUEST = 11
    LITE_PULL_REQUEST = 361
    HEAD_SIZE_MAX = 512
    # fields, in the order of the numbers below
    QUEUE_ID = 0
    PULL_OFFSET = 1
    COUNT_MAX = 2
    SIZE_MAX_ = 3
    PULL_SYS_FLAG = 4
    COMMIT_OFFSET = 5
    SUSPEND_MS = 6
    VERSION = 7
    NUMBER_COUNT = 8
    PULL_GROUP = 8
    PULL_TOPIC = 9
    EXPRESSION = 10
    EXPRESSION_TYPE = 11
    NOBODYS = 12
    SOURCE = 13
    # all but the size, the expression and its type must be there
    PULL_REQUIRED = 0x3F7


cdef struct Fields:
    int64_t numbers[NUMBER_COUNT]
    Text texts[4]
    uint32_t seen
    Head head


cdef int field_of(const Text* key) noexcept nogil:
    """Which field a key names."""
    if key.size == literal(b"topic").size:
        return PULL_TOPIC if is_text(key, literal(b"topic")) else NOBODYS
    if key.size == literal(b"queueId").size:
        if is_text(key, literal(b"queueId")):
            return QUEUE_ID
        return PULL_SYS_FLAG if is_text(key, literal(b"sysFlag")) else NOBODYS
    if key.size == literal(b"maxMsgNums").size:
        if is_text(key, literal(b"maxMsgNums")):
            return COUNT_MAX
        return VERSION if is_text(key, literal(b"subVersion")) else NOBODYS
    if key.size == literal(b"queueOffset").size:
        if is_text(key, literal(b"queueOffset")):
            return PULL_OFFSET
        return SIZE_MAX_ if is_text(key, literal(b"maxMsgBytes")) else NOBODYS
    if key.size == literal(b"commitOffset").size:
        if is_text(key, literal(b"commitOffset")):
            return COMMIT_OFFSET
        return EXPRESSION if is_text(key, literal(b"subscription")) else NOBODYS
    if key.size == literal(b"consumerGroup").size:
        if is_text(key, literal(b"consumerGroup")):
            return PULL_GROUP
        if is_text(key, literal(b"bolideBulkMax")):
            return SOURCE  # rare like it, and left to others like it
        return SOURCE if is_text(key, literal(b"requestSource")) else NOBODYS
    if key.size == literal(b"expressionType").size:
        return EXPRESSION_TYPE if is_text(key, literal(b"expressionType")) else NOBODYS
    if key.size == literal(b"suspendTimeoutMillis").size:
        return SUSPEND_MS if is_text(key, literal(b"suspendTimeoutMillis")) else NOBODYS
    return NOBODYS


cdef bint keep_number(Fields* fields, int field, int64_t value) noexcept nogil:
    if (field == QUEUE_ID or field == COUNT_MAX or field == SIZE_MAX_ or field == PULL_SYS_FLAG) and (
        value < INT32_MIN or value > INT32_MAX
    ):
        return False
    fields.numbers[field] = value
    fields.seen |= 1 << field
    return True


cdef inline bint keep_text(Fields* fields, int field, const Text* text) noexcept nogil:
    """Anyone who says a thing twice is irregular: what is passed over here would not be looked at."""
    if fields.seen >> field & 1:
        return False
    fields.texts[field - NUMBER_COUNT] = text[0]
    fields.seen |= 1 << field
    return True


cdef bint take_pull_field(const Text* key, const Text* text, void* into) noexcept nogil:
    cdef Fields* fields = <Fields*>into
    cdef int field = field_of(key)
    cdef int64_t number
    if field == NOBODYS:
        return text.at == NULL or is_plain(text)
    if field == SOURCE or text.at == NULL or text.is_escaped:
        return False
    if field < NUMBER_COUNT:
        return read_decimal(text.at, text.size, &number) and keep_number(fields, field, number)
    return keep_text(fields, field, text)


cdef inline bint is_pull(int64_t code) noexcept nogil:
    return code == PULL_REQUEST or code == LITE_PULL_REQUEST


cdef const char* scan_member(const char* at, const char* end, const Text* key, void* into) noexcept nogil:
    """As soon as the code is another's, the rest is not looked at."""
    cdef Head* head = <Head*>into
    at = scan_head_member(at, end, key, into)
    if head.seen & HAS_CODE and not is_pull(head.code):
        return NULL
    return at


cdef bint is_everyday(const uint8_t* header, Py_ssize_t size, int codec, Fields* fields) noexcept nogil:
    """Whether a header is a regular pull with all it needs."""
    cdef Head* head = &fields.head
    clear_head(head, take_pull_field, fields)
    fields.seen = 0
    if codec == BINARY_CODEC:
        if size >= 2 and not is_pull(<int16_t>get16(header)) or not scan_binary_head(header, size, head):
            return False
    elif not scan_json_head(<const char*>header, <const char*>header + size, head, scan_member):
        return False
    elif not head.seen & HAS_CODE:
        return False
    return not head.is_twice and not head.flag & 3 and fields.seen & PULL_REQUIRED == PULL_REQUIRED


cdef object pull_text(const Fields* fields, int field):
    cdef const Text* text = &fields.texts[field - NUMBER_COUNT]
    if not fields.seen >> field & 1:
        return None
    return PyUnicode_DecodeUTF8(text.at, text.size, NULL)


cdef object pull_of(int codec, Fields* fields):
    cdef int64_t* numbers = fields.numbers
    return (
        codec,
        fields.head.code,
        fields.head.opaque,
        (
            pull_text(fields, PULL_GROUP),
            pull_text(fields, PULL_TOPIC),
            numbers[QUEUE_ID],
            numbers[PULL_OFFSET],
            numbers[COUNT_MAX],
            numbers[SIZE_MAX_] if fields.seen >> SIZE_MAX_ & 1 else 0,
            numbers[PULL_SYS_FLAG],
            numbers[COMMIT_OFFSET],
            numbers[SUSPEND_MS],
            numbers[VERSION],
            pull_text(fields, EXPRESSION),
            pull_text(fields, EXPRESSION_TYPE),
        ),
    )


cdef object read_one(const uint8_t* stream, Py_ssize_t start, Py_ssize_t end):
    cdef Fields fields
    cdef Py_ssize_t header_size = header_size_of(stream + start)
    if start + 4 + header_size > end or stream[start] > BINARY_CODEC:
        return None
    if not is_everyday(stream + start + 4, header_size, stream[start], &fields):
        return None
    try:
        return pull_of(stream[start], &fields)
    except UnicodeDecodeError:
        return None


def read_pulls(stream, bounds):
    cdef Py_buffer view
    cdef Py_ssize_t i, start, end
    cdef list frames = <list?>bounds
    cdef list pulls = []
    check_pairs(frames)
    PyObject_GetBuffer(stream, &view, PyBUF_SIMPLE)
    try:
        for i in range(0, len(frames), 2):
            start, end = frames[i], frames[i + 1]
            check_bounds(start, end, view.len)
            pulls.append(read_one(<const uint8_t*>view.buf, start, end))
    finally:
        PyBuffer_Release(&view)
    return pulls


# The answer

cdef struct Choice:
    Limits limits
    int32_t* wanted
    Py_ssize_t wanted_count


cdef inline bint is_chosen(const Choice* choice, const uint8_t* entry) noexcept nogil:
    if not is_there(&choice.limits, <int64_t>get64(entry), <int32_t>get32(entry + 8)):
        return False
    return is_wanted(<int64_t>get64(entry + 12), choice.wanted, choice.wanted_count)


cdef char* put_ext_number(char* at, Span key, int64_t value) noexcept nogil:
    """An ext field of a binary header."""
    cdef int size
    at = put_span(write16(at, <uint16_t>key.size), key)
    size = snprintf(at + 4, 24, b"%lld", <long long>value)
    write32(at, size)
    return at + 4 + size


cdef Py_ssize_t put_binary(
    char* start, int32_t opaque, int16_t version, int64_t suggested_id, int64_t next_offset, int64_t min_offset,
    int64_t max_offset
) noexcept nogil:
    cdef char* at = start
    cdef char* fields
    at = write16(at, 0)
    at[0] = 3
    at = write16(at + 1, <uint16_t>version)
    at = write32(at, <uint32_t>opaque)
    at = write32(at, 1)
    at = write32(at, <uint32_t>literal(b"FOUND").size)
    fields = put_span(at, literal(b"FOUND"))
    at = put_ext_number(fields + 4, literal(b"suggestWhichBrokerId"), suggested_id)
    at = put_ext_number(at, literal(b"nextBeginOffset"), next_offset)
    at = put_ext_number(at, literal(b"minOffset"), min_offset)
    at = put_ext_number(at, literal(b"maxOffset"), max_offset)
    write32(fields, <uint32_t>(at - fields - 4))
    return at - start


cdef Py_ssize_t put_json(
    char* at, int32_t opaque, int32_t version, int64_t suggested_id, int64_t next_offset, int64_t min_offset,
    int64_t max_offset
) noexcept nogil:
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


cdef struct PulledQueue:
    Span topic
    int32_t queue_id
    int64_t offset  # of the first entry


cdef inline bint is_of(
    const PulledQueue* queue, int64_t number, const uint8_t* record, const uint8_t* entry
) noexcept nogil:
    """Whether the record that an entry names begins there, at its own place, and is the queue's at this offset."""
    cdef int64_t size = <int32_t>get32(entry + 8), body_size, topic, properties
    cdef uint32_t magic, sys_flag
    cdef int64_t body = RECORD_FIXED_SIZE
    if size < RECORD_SIZE_MIN or <int32_t>get32(record) != size or get64(record + 28) != get64(entry):
        return False
    if <int32_t>get32(record + 12) != queue.queue_id or get64(record + 20) != <uint64_t>queue.offset + <uint64_t>number:
        return False
    magic = get32(record + 4)
    sys_flag = get32(record + 36)
    if sys_flag & (IPV6_BORN | IPV6_STORE):
        body += (12 if sys_flag & IPV6_BORN else 0) + (12 if sys_flag & IPV6_STORE else 0)
        if body > size:
            return False
    body_size = <int32_t>get32(record + body - 4)
    topic = body + body_size + (2 if magic == MAGIC_V2 else 1)
    properties = topic + queue.topic.size + 2
    if body_size < 0 or properties > size or properties + <int16_t>get16(record + properties - 2) != size:
        return False
    if magic == MAGIC_V1:
        if <int8_t>record[topic - 1] != queue.topic.size:
            return False
    elif magic != MAGIC_V2 or <int16_t>get16(record + topic - 2) != queue.topic.size:
        return False
    return memcmp(record + topic, queue.topic.at, queue.topic.size) == 0


cdef inline bint is_blank(const uint8_t* entry) noexcept nogil:
    """Whether an entry stands for nothing, and says so."""
    return get64(entry) == 0 and get32(entry + 8) == PRE_BLANK_SIZE and get64(entry + 12) == 0


cdef object encode_answer(
    const Choice* choice, const PulledQueue* queue, const uint8_t* entries, Py_ssize_t entry_count,
    const uint8_t* log, int64_t log_base, int64_t log_size, int codec, int32_t opaque, int32_t version,
    int64_t suggested_id, int64_t min_offset, int64_t max_offset
):
    cdef char head[HEAD_SIZE_MAX]
    cdef Py_ssize_t head_size, scanned = 0, i
    cdef int64_t count = 0, size = 0
    cdef const uint8_t* entry
    cdef const uint8_t* record
    cdef char* target
    cdef bytes frame
    while scanned < entry_count:
        entry = entries + scanned * ENTRY
        if count and is_full(&choice.limits, <int64_t>get64(entry), <int32_t>get32(entry + 8), count, size):
            break
        scanned += 1
        if not is_there(&choice.limits, <int64_t>get64(entry), <int32_t>get32(entry + 8)):
            if not is_blank(entry):
                return None
        elif is_wanted(<int64_t>get64(entry + 12), choice.wanted, choice.wanted_count):
            if not lies_in(<int64_t>get64(entry), <int32_t>get32(entry + 8), log_base, log_size):
                return None
            count += 1
            size += <int32_t>get32(entry + 8)
    if count == 0:
        return None
    if codec == BINARY_CODEC:
        head_size = put_binary(
            head, opaque, <int16_t>version, suggested_id, queue.offset + scanned, min_offset, max_offset
        )
    else:
        head_size = put_json(head, opaque, version, suggested_id, queue.offset + scanned, min_offset, max_offset)
    if 4 + head_size + size > INT32_MAX:
        raise ValueError(f"a body of {size} bytes does not fit a frame")
    frame = PyBytes_FromStringAndSize(NULL, 8 + head_size + size)
    target = PyBytes_AS_STRING(frame)
    target = write32(target, <uint32_t>(4 + head_size + size))
    target = write32(target, (<uint32_t>codec << 24) | <uint32_t>head_size)
    memcpy(target, head, head_size)
    target += head_size
    for i in range(scanned):
        entry = entries + i * ENTRY
        if is_chosen(choice, entry):
            record = log + (<int64_t>get64(entry) - log_base)
            if not is_of(queue, i, record, entry):
                return None
            memcpy(target, record, get32(entry + 8))
            target += get32(entry + 8)
    return frame, count, size, scanned


def answer_pull(
    codec, opaque, version, suggested_id, topic, queue_id, offset, min_offset, max_offset, entries, tag_hashes,
    log_min, near_from, count_max, size_max, near_limits, far_limits, log, log_base
):
    cdef Choice choice
    cdef PulledQueue queue
    cdef Py_buffer entries_view, log_view
    queue.topic.at, queue.topic.size = <const uint8_t*>PyBytes_AS_STRING(<bytes?>topic), PyBytes_GET_SIZE(topic)
    queue.queue_id, queue.offset = queue_id, offset
    read_limits(&choice.limits, log_min, near_from, count_max, size_max, near_limits, far_limits)
    choice.wanted = hashes_of(tag_hashes, &choice.wanted_count)
    try:
        PyObject_GetBuffer(entries, &entries_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(log, &log_view, PyBUF_SIMPLE)
            try:
                return encode_answer(
                    &choice, &queue, <const uint8_t*>entries_view.buf, entries_view.len // ENTRY,
                    <const uint8_t*>log_view.buf, log_base, log_view.len,
                    codec, opaque, version, suggested_id, min_offset, max_offset,
                )
            finally:
                PyBuffer_Release(&log_view)
        finally:
            PyBuffer_Release(&entries_view)
    finally:
        free(choice.wanted)
