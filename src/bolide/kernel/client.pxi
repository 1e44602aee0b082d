"""plain_client.py with types: the same functions, the same answers.

An answer that is not regular JSON is given to the plain function for that one frame.
"""

cdef enum:
    NUMBERS_SIZE_MAX = 160  # all numbers of a send and what stands between them
    END_SIZE_MAX = 256  # of names and numbers
    APART = 0xF1
    PORT_MAX = 0xFFFF
    ANSWERED = 13  # HAS_CODE, HAS_OPAQUE, HAS_FLAG
    RECEIPT = 1  # what became of a frame

cdef const char* HEX_LOW = b"0123456789abcdef"


# Out

def unique_ids(prefix, at_ms, first, count):
    cdef Py_ssize_t i, prefix_size, total = count
    cdef const char* start = PyUnicode_AsUTF8AndSize(prefix, &prefix_size)
    cdef char text[96]
    cdef uint64_t number = first, time_ms = at_ms
    cdef int digit
    cdef list ids = []
    if prefix_size > 64 or not prefix.isascii() or not 0 <= at_ms <= 0xFFFFFFFF:
        return plain_client.unique_ids(prefix, at_ms, first, count)
    memcpy(text, start, prefix_size)
    for digit in range(8):
        text[prefix_size + 7 - digit] = HEX[time_ms >> 4 * digit & 15]
    for i in range(total):
        for digit in range(4):
            text[prefix_size + 11 - digit] = HEX[number >> 4 * digit & 15]
        ids.append(PyUnicode_DecodeASCII(text, prefix_size + 12, NULL))
        number += 1
    return ids


cdef Py_ssize_t properties_size(Py_ssize_t extra_size, Py_ssize_t id_size) except -1:
    cdef Py_ssize_t size = extra_size + literal(b"UNIQ_KEY\x01").size + id_size + 1
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(f"the properties take {size} bytes, at most {PROPERTIES_SIZE_MAX} fit")
    return size


cdef char* put_properties(
    char* at, const char* extra, Py_ssize_t extra_size, const char* key, Py_ssize_t key_size
) noexcept nogil:
    memcpy(at, extra, extra_size)
    at += extra_size
    at = put_span(at, literal(b"UNIQ_KEY\x01"))
    memcpy(at, key, key_size)
    at += key_size
    at[0] = 2
    return at + 1


cdef char* put_escaped(char* at, const char* text, Py_ssize_t size) noexcept nogil:
    """Text as JSON has it, without the quotes; at most six times as long."""
    cdef Py_ssize_t i = 0
    cdef int dull
    cdef uint8_t byte
    while i < size:
        if size - i >= DULL_STEP:
            dull = dull_size(text + i)
            memcpy(at, text + i, DULL_STEP)
            at += dull
            i += dull
            if dull == DULL_STEP:
                continue
        byte = <uint8_t>text[i]
        i += 1
        if byte == 34 or byte == 92:
            at[0] = 92
            at[1] = <char>byte
            at += 2
        elif byte >= 32:
            at[0] = <char>byte
            at += 1
        elif byte == 8 or byte == 9 or byte == 10 or byte == 12 or byte == 13:
            at[0] = 92
            at[1] = b"btn fr"[byte - 8]
            at += 2
        else:
            put_span(at, literal(b"\\u00"))
            at[4] = HEX_LOW[byte >> 4]
            at[5] = HEX_LOW[byte & 15]
            at += 6
    return at


def write_sends(head, tail, born_ms, opaque, queue_ids, items, ids):
    cdef list item_list = <list?>items, id_list = <list?>ids, queue_list = <list?>queue_ids
    cdef bytes head_bytes = head, tail_bytes = tail, body, extra, frames
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head_bytes), tail_size = PyBytes_GET_SIZE(tail_bytes)
    cdef Py_ssize_t i, id_size, body_size, room = 0, count = len(item_list)
    cdef int64_t born = born_ms, number = opaque, flag, queue_id
    cdef const char* id_text
    cdef char properties[PROPERTIES_SIZE_MAX + 1]
    cdef char* start
    cdef char* at
    cdef char* header
    cdef tuple item
    if len(id_list) < count or len(queue_list) < count:
        raise IndexError("list index out of range")
    for i in range(count):
        item = <tuple?>item_list[i]
        body, extra = item[0], item[1]
        PyUnicode_AsUTF8AndSize(id_list[i], &id_size)
        room += 8 + head_size + tail_size + NUMBERS_SIZE_MAX + PyBytes_GET_SIZE(body) + 8
        room += 6 * properties_size(PyBytes_GET_SIZE(extra), id_size)
    frames = PyBytes_FromStringAndSize(NULL, room)
    start = at = PyBytes_AS_STRING(frames)
    for i in range(count):
        item = <tuple>item_list[i]
        body, extra, flag, queue_id = item[0], item[1], item[2], queue_list[i]
        id_text = PyUnicode_AsUTF8AndSize(id_list[i], &id_size)
        body_size = PyBytes_GET_SIZE(body)
        header = at + 8
        memcpy(header, PyBytes_AS_STRING(head_bytes), head_size)
        at = header + head_size
        at += snprintf(
            at, NUMBERS_SIZE_MAX, b'%lld","g":"%lld","h":"%lld","i":"', <long long>queue_id, <long long>born,
            <long long>flag
        )
        put_properties(properties, PyBytes_AS_STRING(extra), PyBytes_GET_SIZE(extra), id_text, id_size)
        at = put_escaped(at, properties, properties_size(PyBytes_GET_SIZE(extra), id_size))
        at += snprintf(at, NUMBERS_SIZE_MAX, b'"},"flag":0,"language":"PYTHON","opaque":%lld', <long long>(number + i))
        memcpy(at, PyBytes_AS_STRING(tail_bytes), tail_size)
        at += tail_size
        write32(write32(header - 8, <uint32_t>(4 + at - header + body_size)), <uint32_t>(at - header))
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        at += body_size
    return frames[: at - start]


cdef int64_t offset_in(const char* text, Py_ssize_t size) noexcept nogil:
    """The last 16 of some hexadecimal digits as a number; -1 for anything else."""
    cdef uint64_t number = 0
    cdef uint8_t byte
    cdef Py_ssize_t i
    if size < 16 or not 48 <= text[size - 16] <= 55:
        return -1
    for i in range(size - 16, size):
        byte = <uint8_t>text[i]
        if 48 <= byte <= 57:
            number = number << 4 | (byte - 48)
        elif 65 <= byte & 0xDF <= 70:
            number = number << 4 | ((byte & 0xDF) - 55)
        else:
            return -1
    return <int64_t>number


def write_outcomes(head, tail, opaque, rows):
    cdef list row_list = <list?>rows
    cdef bytes head_bytes = head, tail_bytes = tail, frames
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head_bytes), tail_size = PyBytes_GET_SIZE(tail_bytes)
    cdef Py_ssize_t i, size, room = 0
    cdef int64_t number = opaque, place
    cdef const char* text
    cdef char* start
    cdef char* at
    cdef char* header
    cdef tuple row
    for row in row_list:
        if len(row) != 4:
            raise TypeError("a row is a tuple of four")
        PyUnicode_AsUTF8AndSize(row[3], &size)
        room += 8 + head_size + tail_size + END_SIZE_MAX + 12 * size + 8
    frames = PyBytes_FromStringAndSize(NULL, room)
    start = at = PyBytes_AS_STRING(frames)
    for row in row_list:
        text = PyUnicode_AsUTF8AndSize(row[2], &size)
        place = offset_in(text, size)
        if place < 0:
            raise ValueError(f"{row[2]!r} does not end in an offset of 16 hexadecimal digits")
        text = PyUnicode_AsUTF8AndSize(row[3], &size)
        header = at + 8
        at = put_text(header, PyBytes_AS_STRING(head_bytes), head_size)
        at = put_decimal(put_span(at, literal(b'"commitOrRollback":"')), <int64_t>row[0])
        at = put_decimal(put_span(at, literal(b'","tranStateTableOffset":"')), <int64_t>row[1])
        at = put_decimal(put_span(at, literal(b'","commitLogOffset":"')), place)
        at = put_escaped(put_span(at, literal(b'","msgId":"')), text, size)
        at = put_escaped(put_span(at, literal(b'","transactionId":"')), text, size)
        at = put_decimal(put_span(at, literal(b'"},"flag":2,"language":"PYTHON","opaque":')), number)
        at = put_text(at, PyBytes_AS_STRING(tail_bytes), tail_size)
        write32(write32(header - 8, <uint32_t>(4 + at - header)), <uint32_t>(at - header))
        number += 1
    return frames[: at - start]


def encode_items(items, ids):
    cdef list item_list = <list?>items, id_list = <list?>ids
    cdef Py_ssize_t i, id_size, text_size, body_size, total = 0, count = len(item_list)
    cdef bytes body, extra, batch
    cdef const char* id_text
    cdef char* at
    cdef int32_t flag
    cdef tuple item
    if len(id_list) != count:
        raise ValueError(f"{count} messages and {len(id_list)} ids")
    for i in range(count):
        item = <tuple?>item_list[i]
        body, extra = item[0], item[1]
        PyUnicode_AsUTF8AndSize(id_list[i], &id_size)
        total += BATCH_ITEM_SIZE_MIN + PyBytes_GET_SIZE(body) + properties_size(PyBytes_GET_SIZE(extra), id_size)
    batch = PyBytes_FromStringAndSize(NULL, total)
    at = PyBytes_AS_STRING(batch)
    for i in range(count):
        item = <tuple>item_list[i]
        body, extra, flag = item[0], item[1], item[2]
        id_text = PyUnicode_AsUTF8AndSize(id_list[i], &id_size)
        body_size = PyBytes_GET_SIZE(body)
        text_size = properties_size(PyBytes_GET_SIZE(extra), id_size)
        at = write32(at, <uint32_t>(BATCH_ITEM_SIZE_MIN + body_size + text_size))
        at = write32(write32(at, 0), 0)
        at = write32(write32(at, <uint32_t>flag), <uint32_t>body_size)
        memcpy(at, PyBytes_AS_STRING(body), body_size)
        at += body_size
        at = put_properties(
            write16(at, <uint16_t>text_size), PyBytes_AS_STRING(extra), PyBytes_GET_SIZE(extra), id_text, id_size
        )
    return batch


# In

cdef struct Answer:
    Head head
    int64_t queue_id
    int64_t queue_offset
    Text ids
    bint has_queue_id
    bint has_queue_offset
    bint has_ids


cdef bint take_receipt_field(const Text* key, const Text* text, void* into) noexcept nogil:
    """Anyone who says a thing twice is irregular."""
    cdef Answer* answer = <Answer*>into
    if not is_plain(text):
        return False
    if is_text(key, literal(b"msgId")):
        if answer.has_ids or text.size == 0:
            return False
        answer.ids = text[0]
        answer.has_ids = True
    elif is_text(key, literal(b"queueId")):
        if answer.has_queue_id:
            return False
        answer.queue_id = number_of(<const uint8_t*>text.at, text.size, 9)
        answer.has_queue_id = True
        return answer.queue_id >= 0
    elif is_text(key, literal(b"queueOffset")):
        if answer.has_queue_offset:
            return False
        answer.queue_offset = number_of(<const uint8_t*>text.at, text.size, DIGITS_MAX)
        answer.has_queue_offset = True
        return answer.queue_offset >= 0
    return True


cdef int read_answer(const char* at, const char* end, Answer* answer) noexcept nogil:
    cdef Head* head = &answer.head
    clear_head(head, take_receipt_field, answer)
    answer.has_ids = answer.has_queue_id = answer.has_queue_offset = False
    if not scan_json_head(at, end, head, scan_head_member) or head.is_twice:
        return IRREGULAR
    if head.seen & ANSWERED != ANSWERED or head.code != 0 or not head.flag & RESPONSE_FLAG:
        return IRREGULAR
    return RECEIPT if answer.has_ids and answer.has_queue_id and answer.has_queue_offset else OTHERS


def read_receipts(stream, bounds, expected):
    cdef Py_buffer view
    cdef Py_ssize_t i, start, end, header_end
    cdef const uint8_t* bytes_
    cdef list frames = <list?>bounds, rows = [], left = []
    cdef Answer answer
    cdef int became
    check_pairs(frames)
    PyObject_GetBuffer(stream, &view, PyBUF_SIMPLE)
    try:
        bytes_ = <const uint8_t*>view.buf
        for i in range(0, len(frames), 2):
            start, end = frames[i], frames[i + 1]
            check_bounds(start, end, view.len)
            header_end = start + 4 + header_size_of(bytes_ + start)
            became = IRREGULAR
            if bytes_[start] == JSON_CODEC and header_end <= end:
                became = read_answer(<const char*>bytes_ + start + 4, <const char*>bytes_ + header_end, &answer)
            if became == RECEIPT and answer.head.opaque in expected:
                rows.append((
                    answer.head.opaque, answer.queue_id, answer.queue_offset,
                    PyUnicode_DecodeASCII(answer.ids.at, answer.ids.size, NULL),
                ))
                continue
            if became == IRREGULAR:
                row = plain_client.read_receipts(stream, [start, end], expected)[0]
                if row:
                    rows += row
                    continue
            left.append(start)
            left.append(end)
    finally:
        PyBuffer_Release(&view)
    return rows, left


def cut_records(buffer):
    cdef bytes whole = <bytes?>buffer
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(whole)
    cdef const uint8_t* at = start
    cdef const uint8_t* record_end
    cdef const uint8_t* topic
    cdef const uint8_t* text
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(whole)
    cdef int32_t size, body_size, text_size
    cdef list rows = []
    while at < end:
        if end - at < RECORD_FIXED_SIZE:
            return None
        size, body_size = <int32_t>get32(at), <int32_t>get32(at + 84)
        if get32(at + 4) != MAGIC_V1 or get32(at + 36) & APART or size < RECORD_FIXED_SIZE or size > end - at:
            return None
        if get32(at + 52) > PORT_MAX or get32(at + 68) > PORT_MAX:
            return None
        record_end = at + size
        if body_size < 0 or body_size > size - RECORD_FIXED_SIZE - 1:
            return None
        topic = at + RECORD_FIXED_SIZE + body_size
        if topic[0] > 127 or record_end - topic < 3 + topic[0]:
            return None
        text = topic + 1 + topic[0]
        text_size = <int16_t>get16(text)
        if text_size < 0 or record_end - text != 2 + text_size or not is_ascii(topic + 1, topic[0]):
            return None
        rows.append((
            at - start, <int64_t>get64(at + 20), PyBytes_FromStringAndSize(
                <const char*>at + RECORD_FIXED_SIZE, body_size
            ),
        ))
        at = record_end
    return rows
