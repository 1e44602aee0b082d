"""What the properties of a sent message say to the broker, and the messages of a batch."""

cdef struct Judged:  # what the properties of a message say
    Wanted wanted
    bint is_apart
    bint has_half_mark
    bint is_half
    bint has_place
    bint is_rewritten
    bint is_unwaited
    bint is_ordered


cdef struct SendItem:  # one message about to be laid
    Span body
    Span properties
    int32_t flag


cdef inline bint is_true(const char* at, Py_ssize_t size) noexcept nogil:
    return size == 4 and at[0] | 32 == 116 and at[1] | 32 == 114 and at[2] | 32 == 117 and at[3] | 32 == 101


cdef void judge_pair(Span name, Span value, Judged* judged) noexcept nogil:
    cdef Py_ssize_t size = name.size
    if take_wanted(name, value, &judged.wanted):
        return
    if size == literal(b"WAIT").size:
        if equals(name, literal(b"WAIT")):
            judged.is_unwaited = not is_true(<const char*>value.at, value.size)
    elif size == literal(b"TRAN_MSG").size:
        if equals(name, literal(b"TRAN_MSG")):
            judged.has_half_mark = True
            judged.is_half = is_true(<const char*>value.at, value.size)
        elif equals(name, literal(b"REAL_QID")):
            judged.has_place = True
        elif equals(name, literal(b"TRACE_ON")):
            judged.is_rewritten = True
    elif size == literal(b"DELAY").size:
        judged.is_apart |= equals(name, literal(b"DELAY"))
    elif size == literal(b"POP_CK").size:
        judged.is_rewritten |= equals(name, literal(b"POP_CK"))
    elif size == literal(b"CLUSTER").size:
        judged.is_rewritten |= equals(name, literal(b"CLUSTER"))
    elif size == literal(b"INNER_NUM").size:
        judged.is_apart |= equals(name, literal(b"INNER_NUM"))
    elif size == literal(b"MSG_REGION").size:
        judged.is_rewritten |= equals(name, literal(b"MSG_REGION"))
        judged.has_place |= equals(name, literal(b"REAL_TOPIC"))
    elif size == literal(b"__SHARDINGKEY").size:
        judged.is_ordered |= equals(name, literal(b"__SHARDINGKEY"))
    elif size == literal(b"__transactionId__").size:
        judged.has_place |= equals(name, literal(b"__transactionId__"))
    if begins_within(name.at, size, literal(b"TIMER_")):
        judged.is_apart = True


cdef void judge(Span properties, Judged* judged) noexcept nogil:
    cdef const uint8_t* at = properties.at
    cdef const uint8_t* end = at + properties.size
    cdef Span name, value
    clear_wanted(&judged.wanted)
    judged.has_half_mark = judged.is_half = judged.has_place = judged.is_rewritten = judged.is_unwaited = False
    judged.is_ordered = False
    judged.is_apart = has_zero(properties)
    while at < end:
        at = next_pair(at, end, &name, &value)
        if name.size and value.size:
            judge_pair(name, value, judged)


cdef bint is_writable_text(Span text) noexcept nogil:
    """Whether a JSON text holds it as it is."""
    cdef Py_ssize_t i
    for i in range(text.size):
        if text.at[i] < 32 or text.at[i] == 34 or text.at[i] == 92:
            return False
    return True


cdef bint read_item(const uint8_t* at, Py_ssize_t left, SendItem* item, Py_ssize_t* size) noexcept nogil:
    """One message of a batch, its lengths checked against each other; false if they do not add up."""
    cdef int32_t total, body_size
    if left < BATCH_ITEM_SIZE_MIN:
        return False
    total = <int32_t>get32(at)
    body_size = <int32_t>get32(at + 16)
    if total < BATCH_ITEM_SIZE_MIN or total > left or body_size < 0 or body_size > total - BATCH_ITEM_SIZE_MIN:
        return False
    item.flag = <int32_t>get32(at + 12)
    item.body.at = at + 20
    item.body.size = body_size
    item.properties.at = at + 22 + body_size
    item.properties.size = <int16_t>get16(at + 20 + body_size)
    size[0] = total
    return item.properties.size == total - BATCH_ITEM_SIZE_MIN - body_size


cdef bint is_plain_batch(const uint8_t* body, Py_ssize_t size) noexcept nogil:
    cdef SendItem item
    cdef Judged judged
    cdef Py_ssize_t at = 0, item_size
    while at < size:
        if not read_item(body + at, size - at, &item, &item_size):
            return False
        judge(item.properties, &judged)
        if judged.is_apart:
            return False
        at += item_size
    return True
