"""plain_rows.py with types: the same function, the same items. That file has the meaning.

Two passes: the first looks at every row and measures it, so that the second writes into memory of the right size, once.
"""

cdef enum:
    NAMED_SIZE = 6  # TAGS or KEYS and two separators
    NUMBER_SIZE_MAX = 20
    BUFFERS_MAX = 24


cdef struct Texts:
    bint is_there
    const uint8_t* valid
    Py_ssize_t valid_size
    const uint8_t* offsets
    Py_ssize_t count
    const uint8_t* values
    Py_ssize_t values_size


cdef class _Columns:
    """The columns of a batch and the names that are not taken along; released however the call ends."""

    cdef Py_buffer views[BUFFERS_MAX]
    cdef int view_count
    cdef Texts bodies, tags, keys, labels, names, values, maps
    cdef list held
    cdef Span* dropped
    cdef Py_ssize_t dropped_count

    def __cinit__(self):
        self.view_count = 0
        self.dropped = NULL

    def __dealloc__(self):
        cdef int i
        for i in range(self.view_count):
            PyBuffer_Release(&self.views[i])
        free(self.dropped)

    cdef Py_buffer* view(self, given) except NULL:
        PyObject_GetBuffer(given, &self.views[self.view_count], PyBUF_SIMPLE)
        self.view_count += 1
        return &self.views[self.view_count - 1]

    cdef int take(self, Texts* into, tuple column) except -1:
        """A column of texts, or (without the bytes) the places of pairs."""
        cdef Py_buffer* view
        valid, offsets = column[0], column[1]
        into.is_there = True
        into.valid = NULL
        if valid is not None:
            view = self.view(valid)
            into.valid = <const uint8_t*>view.buf
            into.valid_size = view.len
        view = self.view(offsets)
        into.offsets = <const uint8_t*>view.buf
        into.count = view.len // 4 - 1
        if len(column) == 3:
            view = self.view(column[2])
            into.values = <const uint8_t*>view.buf
            into.values_size = view.len
        return 0

    cdef int drop(self, names) except -1:
        cdef Py_ssize_t i
        self.held = list(names)
        self.dropped_count = len(self.held)
        self.dropped = <Span*>malloc((self.dropped_count + 1) * sizeof(Span))
        if self.dropped == NULL:
            raise MemoryError
        for i in range(self.dropped_count):
            self.dropped[i].at = <const uint8_t*>PyBytes_AS_STRING(<bytes?>self.held[i])
            self.dropped[i].size = PyBytes_GET_SIZE(<bytes?>self.held[i])
        return 0

    cdef inline bint is_dropped(self, Span name) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.dropped_count):
            if equals(self.dropped[i], name):
                return True
        return False


cdef inline int bounds_of(Texts* texts, Py_ssize_t row, int32_t* bounds) except -1:
    """1 where the row has a value."""
    if row >= texts.count:
        raise ValueError(f"a column of {texts.count} rows has no row {row}")
    memcpy(bounds, texts.offsets + 4 * row, 8)
    if texts.valid == NULL:
        return 1
    if texts.valid_size <= row >> 3:
        raise ValueError(f"a bitmap of {texts.valid_size} bytes has no row {row}")
    return texts.valid[row >> 3] >> (row & 7) & 1


cdef inline int find_text(Texts* texts, Py_ssize_t row, Span* text) except -1:
    cdef int32_t bounds[2]
    text.size = 0
    if not texts.is_there or not bounds_of(texts, row, bounds):
        return 0
    if not 0 <= bounds[0] <= bounds[1] <= texts.values_size:
        raise ValueError(f"a column of {texts.values_size} bytes has a text from {bounds[0]} to {bounds[1]}")
    text.at = texts.values + bounds[0]
    text.size = bounds[1] - bounds[0]
    return 0


cdef inline int find_pairs(_Columns columns, Py_ssize_t row, int32_t* bounds) except -1:
    cdef Texts* maps = &columns.maps
    if not maps.is_there or not bounds_of(maps, row, bounds):
        bounds[0] = bounds[1] = 0
    elif not 0 <= bounds[0] <= bounds[1] <= min(columns.names.count, columns.values.count):
        raise ValueError(f"a column of properties has pairs from {bounds[0]} to {bounds[1]}")
    return 0


cdef inline bint has_separator(Span text) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(text.size):
        if text.at[i] == 1 or text.at[i] == 2:
            return True
    return False


cdef inline int digits_of(int64_t number, char* digits) noexcept nogil:
    """Written from the end of NUMBER_SIZE_MAX bytes on; how many."""
    cdef int count = 0
    cdef uint64_t rest = 0 - <uint64_t>number if number < 0 else <uint64_t>number
    while True:
        count += 1
        digits[NUMBER_SIZE_MAX - count] = <char>(48 + rest % 10)
        rest //= 10
        if not rest:
            break
    if number < 0:
        count += 1
        digits[NUMBER_SIZE_MAX - count] = 45
    return count


cdef Py_ssize_t row_size(_Columns columns, Py_ssize_t row, int64_t number, Py_ssize_t fixed) except -1:
    """What the item of a row takes; `fixed` is the size of what all have, with the id and the number."""
    cdef Span body, text, name, value
    cdef Py_ssize_t i, size = fixed
    cdef int32_t bounds[2]
    cdef bint is_broken
    find_text(&columns.bodies, row, &body)
    if not body.size:
        raise ValueError(f"row {number} has an empty body; RocketMQ keeps no message without one")
    find_text(&columns.tags, row, &text)
    is_broken = has_separator(text)
    size += text.size + NAMED_SIZE if text.size else 0
    find_text(&columns.keys, row, &text)
    is_broken = is_broken or has_separator(text)
    size += text.size + NAMED_SIZE if text.size else 0
    if columns.maps.is_there:
        find_pairs(columns, row, bounds)
        for i in range(bounds[0], bounds[1]):
            find_text(&columns.names, i, &name)
            find_text(&columns.values, i, &value)
            if name.size and value.size and not columns.is_dropped(name):
                is_broken = is_broken or has_separator(name) or has_separator(value)
                size += name.size + value.size + 2
    if is_broken:
        raise ValueError(f"row {number}: tags, keys and properties may not hold the characters 1 and 2")
    find_text(&columns.labels, row, &text)
    size += text.size
    if size > PROPERTIES_SIZE_MAX:
        raise ValueError(f"row {number}: the properties take {size} bytes, at most {PROPERTIES_SIZE_MAX} fit")
    return BATCH_ITEM_SIZE_MIN + body.size + size


cdef inline char* put_any(char* at, const void* text, Py_ssize_t size) noexcept nogil:
    if size:  # an empty text lies nowhere
        memcpy(at, text, size)
    return at + size


cdef inline char* put_property(char* at, Span name, Span value) noexcept nogil:
    at = put_span(at, name)
    at[0] = 1
    at = put_any(at + 1, value.at, value.size)
    at[0] = 2
    return at + 1


cdef char* put_labels(char* at, _Columns columns, Py_ssize_t row) except NULL:
    cdef Span text, name
    cdef int32_t bounds[2]
    cdef Py_ssize_t i
    find_text(&columns.tags, row, &text)
    if text.size:
        at = put_property(at, literal(b"TAGS"), text)
    find_text(&columns.keys, row, &text)
    if text.size:
        at = put_property(at, literal(b"KEYS"), text)
    if columns.maps.is_there:
        find_pairs(columns, row, bounds)
        for i in range(bounds[0], bounds[1]):
            find_text(&columns.names, i, &name)
            find_text(&columns.values, i, &text)
            if name.size and text.size and not columns.is_dropped(name):
                at = put_property(at, name, text)
    find_text(&columns.labels, row, &text)
    return put_any(at, text.at, text.size)


cdef _Columns columns_of(bodies, tags, keys, properties, labels, dropped):
    cdef _Columns columns = _Columns()
    columns.tags.is_there = columns.keys.is_there = columns.labels.is_there = columns.maps.is_there = False
    columns.take(&columns.bodies, bodies)
    if tags is not None:
        columns.take(&columns.tags, tags)
    if keys is not None:
        columns.take(&columns.keys, keys)
    if labels is not None:
        columns.take(&columns.labels, labels)
    if properties is not None:
        columns.take(&columns.maps, properties[:2])
        columns.take(&columns.names, properties[2])
        columns.take(&columns.values, properties[3])
    columns.drop(dropped)
    return columns


def encode_rows(order, first, identity, bodies, tags, keys, properties, labels, dropped, ids):
    cdef _Columns columns = columns_of(bodies, tags, keys, properties, labels, dropped)
    cdef const uint8_t* order_at = NULL
    cdef Py_ssize_t count = columns.bodies.count, i, id_size, digit_count
    cdef int64_t row, first_number = first, total = 0
    cdef bytes name = identity, ends, laid
    cdef Py_ssize_t name_size = PyBytes_GET_SIZE(name)
    cdef list id_list = list(ids)
    cdef char digits[NUMBER_SIZE_MAX]
    cdef char* at
    cdef int64_t* end
    cdef Py_buffer* view
    cdef Span body, key
    if order is not None:
        view = columns.view(order)
        order_at = <const uint8_t*>view.buf
        count = view.len // 8
    if len(id_list) != count:
        raise ValueError(f"{count} rows and {len(id_list)} ids")
    ends = PyBytes_FromStringAndSize(NULL, 8 * count)
    end = <int64_t*>PyBytes_AS_STRING(ends)
    for i in range(count):
        row = i
        if order_at != NULL:
            memcpy(&row, order_at + 8 * i, 8)
            if not 0 <= row < columns.bodies.count:
                raise ValueError(f"row {row} of {columns.bodies.count}")
        PyUnicode_AsUTF8AndSize(id_list[i], &id_size)
        digit_count = digits_of(first_number + row, digits)
        total += row_size(
            columns, row, first_number + row,
            name_size + digit_count + literal(b"\x02UNIQ_KEY\x01\x02").size + id_size
        )
        end[i] = total
    laid = PyBytes_FromStringAndSize(NULL, total)
    at = PyBytes_AS_STRING(laid)
    for i in range(count):
        row = i
        if order_at != NULL:
            memcpy(&row, order_at + 8 * i, 8)
        find_text(&columns.bodies, row, &body)
        total = end[i] - (end[i - 1] if i else 0)
        at = write32(write32(write32(at, <uint32_t>total), 0), 0)
        at = write32(write32(at, 0), <uint32_t>body.size)
        at = put_any(at, body.at, body.size)
        at = write16(at, <uint16_t>(total - BATCH_ITEM_SIZE_MIN - body.size))
        at = put_labels(at, columns, row)
        at = put_any(at, PyBytes_AS_STRING(name), name_size)
        digit_count = digits_of(first_number + row, digits)
        at = put_any(at, digits + NUMBER_SIZE_MAX - digit_count, digit_count)
        at[0] = 2
        key.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(id_list[i], &key.size)
        at = put_property(at + 1, literal(b"UNIQ_KEY"), key)
    return laid, ends
