"""Headers of HTTP/2; `plain_hpack.py` has the meaning."""

cdef enum:
    STATIC_COUNT = 61
    HEADER_ENTRY_SIZE = 32
    HUFFMAN_SIZE_MAX = 30
    HUFFMAN_END = 256
    PREFIX_OCTETS_MAX = 4

cdef tuple KNOWN_HEADERS = STATIC_HEADERS
assert len(STATIC_HEADERS) == STATIC_COUNT and len(HUFFMAN_SIZES) == HUFFMAN_END + 1

# Codes of one size follow each other: the first of them, how many there are, and where their symbols begin.
cdef uint32_t huffman_first[HUFFMAN_SIZE_MAX + 1]
cdef int huffman_count[HUFFMAN_SIZE_MAX + 1]
cdef int huffman_symbols_at[HUFFMAN_SIZE_MAX + 1]
cdef uint16_t huffman_symbols[HUFFMAN_END + 1]
# What the next eight bits say, if their code has no more than eight: symbol and size; else size 0.
cdef uint8_t octet_symbols[256]
cdef uint8_t octet_sizes[256]


cdef void make_huffman():
    cdef uint32_t code = 0
    cdef int size, size_before = 0, place = 0, symbol, more
    memset(huffman_count, 0, sizeof(huffman_count))
    memset(octet_sizes, 0, sizeof(octet_sizes))
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(HUFFMAN_SIZES)):
        code <<= size - size_before
        if not huffman_count[size]:
            huffman_first[size], huffman_symbols_at[size] = code, place
        huffman_count[size] += 1
        huffman_symbols[place] = <uint16_t>symbol
        if size <= 8:
            for more in range(1 << (8 - size)):
                octet_symbols[(code << (8 - size)) + more] = <uint8_t>symbol
                octet_sizes[(code << (8 - size)) + more] = <uint8_t>size
        code, size_before, place = code + 1, size, place + 1


make_huffman()


cdef bint read_prefixed(const uint8_t** at, const uint8_t* end, int bits, uint32_t* value) noexcept nogil:
    """A number in the low bits of an octet and, if they are all set, in those behind it."""
    cdef uint32_t mask = (<uint32_t>1 << bits) - 1
    cdef uint8_t octet
    cdef int i
    value[0] = at[0][0] & mask
    at[0] += 1
    if value[0] < mask:
        return True
    for i in range(PREFIX_OCTETS_MAX):
        if at[0] >= end:
            return False
        octet = at[0][0]
        at[0] += 1
        value[0] += <uint32_t>(octet & 0x7F) << (7 * i)
        if not octet & 0x80:
            return True
    return False


cdef Py_ssize_t unpack_huffman(const uint8_t* at, Py_ssize_t size, uint8_t* text) noexcept nogil:
    """The size of the text, at most 8 / 5 of what was packed; -1 for what is none."""
    cdef const uint8_t* end = at + size
    cdef uint8_t* start = text
    cdef uint64_t bits = 0  # the lowest `count` of them are ahead
    cdef uint32_t code, place
    cdef int count = 0, length
    while True:
        while count <= 48 and at < end:
            bits = bits << 8 | at[0]
            count += 8
            at += 1
        if not count:
            return text - start
        if count >= 8:
            code = <uint32_t>(bits >> (count - 8)) & 0xFF
            length = octet_sizes[code]
            if length:
                text[0] = octet_symbols[code]
                text += 1
                count -= length
                continue
        for length in range(5, HUFFMAN_SIZE_MAX + 1):
            if length > count:  # less than a symbol is left: ones, and fewer than eight
                code = <uint32_t>(bits & ((<uint64_t>1 << count) - 1))
                return text - start if count < 8 and code == (<uint32_t>1 << count) - 1 else -1
            code = <uint32_t>(bits >> (count - length) & ((<uint64_t>1 << length) - 1))
            if not huffman_count[length] or code < huffman_first[length]:
                continue
            place = code - huffman_first[length]
            if place < <uint32_t>huffman_count[length]:
                place += huffman_symbols_at[length]
                if huffman_symbols[place] == HUFFMAN_END:
                    return -1
                text[0] = <uint8_t>huffman_symbols[place]
                text += 1
                count -= length
                break
        else:
            return -1


cdef bytes read_header_text(const uint8_t** at, const uint8_t* end):
    cdef uint32_t size
    cdef bint is_packed
    cdef uint8_t small[512]
    cdef uint8_t* text = small
    cdef Py_ssize_t unpacked
    if at[0] >= end:
        raise ValueError("a text is missing")
    is_packed = at[0][0] & 0x80
    if not read_prefixed(at, end, 7, &size) or <Py_ssize_t>size > end - at[0]:
        raise ValueError("a text without an end")
    at[0] += size
    if not is_packed:
        return PyBytes_FromStringAndSize(<const char*>at[0] - size, size)
    if size > sizeof(small) // 2:
        text = <uint8_t*>PyMem_Malloc(<size_t>size * 2)
        if text == NULL:
            raise MemoryError()
    try:
        unpacked = unpack_huffman(at[0] - size, size, text)
        if unpacked < 0:
            raise ValueError("a packed text is none")
        return PyBytes_FromStringAndSize(<const char*>text, unpacked)
    finally:
        if text != small:
            PyMem_Free(text)


cdef inline Py_ssize_t header_size(tuple pair):
    return PyBytes_GET_SIZE(pair[0]) + PyBytes_GET_SIZE(pair[1]) + HEADER_ENTRY_SIZE


cdef Py_ssize_t table_size_of(list table) except -1:
    cdef Py_ssize_t size = 0
    for pair in table:
        size += header_size(<tuple>pair)
    return size


cdef Py_ssize_t evict_headers(list table, Py_ssize_t size, Py_ssize_t size_max) except -1:
    """Make a table of that size no larger than it may be; returns its size then."""
    cdef Py_ssize_t count = 0
    while size > size_max:
        size -= header_size(<tuple>table[count])
        count += 1
    if count:
        del table[:count]
    return size


cdef tuple known_header(list table, Py_ssize_t index):
    if 0 < index <= STATIC_COUNT:
        return <tuple>KNOWN_HEADERS[index - 1]
    if not 0 < index <= STATIC_COUNT + len(table):
        raise ValueError("a header that is not in the table")
    return <tuple>table[len(table) + STATIC_COUNT - index]


def decode_headers(
    bytes block not None,
    list table not None,
    Py_ssize_t table_size_max,
    Py_ssize_t table_size_limit,
    Py_ssize_t list_size_max,
):
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(block)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(block)
    cdef list headers = []
    cdef uint32_t index
    cdef uint8_t first
    cdef Py_ssize_t list_size = 0
    cdef Py_ssize_t table_size = -1  # counted once a block, and only if the table changes
    cdef tuple pair
    while at < end:
        first = at[0]
        if not read_prefixed(&at, end, 7 if first & 0x80 else 6 if first & 0x40 else 5 if first & 0x20 else 4, &index):
            raise ValueError("a number without an end")
        if first & 0xE0 == 0x20:
            if headers:
                raise ValueError("the table is resized behind a header")
            if <Py_ssize_t>index > table_size_limit:
                raise ValueError("the table is made larger than it may be")
            table_size_max = index
            table_size = evict_headers(table, table_size_of(table), table_size_max)
            continue
        if first & 0x80:
            pair = known_header(table, index)
        else:
            name = known_header(table, index)[0] if index else read_header_text(&at, end)
            pair = (name, read_header_text(&at, end))
            if first & 0x40:
                if table_size < 0:
                    table_size = table_size_of(table)
                table.append(pair)
                table_size = evict_headers(table, table_size + header_size(pair), table_size_max)
        headers.append(pair)
        list_size += header_size(pair)
        if list_size > list_size_max:
            raise ValueError("the headers are too large")
    return headers, table_size_max
