# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True
"""plain_filter.py with types: the same function, the same answers.

A program is checked as a whole before it is run, so that evaluation need not look where it steps. The properties it
names are found in one walk over the record's text, and nothing is made of the rest.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "string.h" nogil:
    void* memmem(const void* text, size_t text_size, const void* part, size_t size)  # linear, whatever the part

from bolide.kernel import plain_filter

include "bytes.pxi"
include "entries.pxi"

cdef enum:
    CONSTANT = 0
    PROPERTY = 1
    INTEGER = 2
    DOUBLE = 3
    TEXT = 4
    AND = 5
    OR = 6
    NOT = 7
    IS_NULL = 8
    EQUAL = 9
    ORDER = 10
    AMONG = 11
    PART = 12
    PRESENT = 13
    ASK = 14

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    ERROR = 3
    # beyond the four outcomes, what a node may be worth
    CANNOT_TELL = 4
    IS_TEXT = 5
    IS_INTEGER = 6
    IS_DOUBLE = 7

    CONTAINS = 0
    STARTS = 1

    HEADER_SIZE = 12
    NAME_SIZE = 8
    NODE_SIZE = 24
    NAMES_MAX = 64
    NODES_MAX = 4096
    DEPTH_LIMIT = 200
    DIGITS_MAX = 15

cdef double POWERS[16]
POWERS[:] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15]


cdef struct Node:
    int32_t operation
    int32_t a
    int32_t b
    int32_t c
    int64_t number


cdef struct Value:
    int kind
    Span text
    int64_t integer
    double number


cdef struct Program:
    const uint8_t* data
    Py_ssize_t size
    int32_t name_count
    int32_t node_count
    int32_t root
    Span names[NAMES_MAX]
    Span values[NAMES_MAX]
    Node* nodes


cdef inline int32_t little(const uint8_t* at) noexcept nogil:
    cdef int32_t value
    memcpy(&value, at, 4)
    return value


# The program

cdef inline bint is_inside(const Program* program, int64_t position, int64_t size) noexcept nogil:
    return 0 <= position <= program.size and 0 <= size <= program.size - position


cdef int depth_below(const Program* program, const uint8_t* depths, int32_t i, int32_t operand) noexcept nogil:
    """The depth of an operand; -1 if it does not come before its node."""
    return depths[operand] if 0 <= operand < i else -1


cdef int depth_of_list(const Program* program, const uint8_t* depths, int32_t i, int32_t position, int32_t count) noexcept nogil:
    cdef int deepest = 0, depth
    cdef int32_t k
    if not is_inside(program, position, 4 * <int64_t>count):
        return -1
    for k in range(count):
        depth = depth_below(program, depths, i, little(program.data + position + 4 * k))
        if depth < 0:
            return -1
        deepest = max(deepest, depth)
    return deepest


cdef int depth_of(const Program* program, const uint8_t* depths, int32_t i) noexcept nogil:
    """How deep the operands of a node are; -1 for a node that points where it may not."""
    cdef const Node* node = program.nodes + i
    cdef int one, other
    cdef int32_t k
    if node.operation == PROPERTY:
        return 0 if 0 <= node.a < program.name_count else -1
    if node.operation == CONSTANT:
        return 0 if 0 <= node.a <= ERROR else -1
    if node.operation == TEXT:
        return 0 if is_inside(program, node.a, node.b) else -1
    if node.operation == AND or node.operation == OR:
        return depth_of_list(program, depths, i, node.a, node.b)
    if node.operation == NOT or node.operation == IS_NULL or node.operation == PRESENT:
        return depth_below(program, depths, i, node.a)
    if node.operation == PART:
        return depth_below(program, depths, i, node.a) if is_inside(program, node.b, node.c) else -1
    if node.operation == EQUAL or node.operation == ORDER:
        if node.operation == ORDER and not 0 <= node.c <= 3:
            return -1
        one = depth_below(program, depths, i, node.a)
        other = depth_below(program, depths, i, node.b)
        return -1 if one < 0 or other < 0 else max(one, other)
    if node.operation == AMONG:
        one = depth_below(program, depths, i, node.a)
        other = depth_of_list(program, depths, i, node.b, node.c)
        if one < 0 or other < 0 or program.nodes[node.a].operation != PROPERTY:
            return -1
        for k in range(node.c):
            if program.nodes[little(program.data + node.b + 4 * k)].operation != TEXT:
                return -1
        return max(one, other)
    return 0 if 0 <= node.operation <= ASK else -1


cdef bint is_sound(Program* program) noexcept nogil:
    cdef uint8_t depths[NODES_MAX]
    cdef int32_t i
    cdef int depth
    cdef const uint8_t* at
    for i in range(program.name_count):
        at = program.data + HEADER_SIZE + i * NAME_SIZE
        if not is_inside(program, little(at), little(at + 4)):
            return False
        program.names[i].at = program.data + little(at)
        program.names[i].size = little(at + 4)
    for i in range(program.node_count):
        depth = depth_of(program, depths, i)
        if depth < 0 or depth + 1 > DEPTH_LIMIT:
            return False
        depths[i] = <uint8_t>(depth + 1)
    return True


cdef Node* read_program(bytes data, Program* program) except NULL:
    """Fill in the program; its nodes are the caller's to free."""
    cdef Py_ssize_t start
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
    program.data, program.size = at, PyBytes_GET_SIZE(data)
    if program.size >= HEADER_SIZE:
        program.name_count, program.node_count, program.root = little(at), little(at + 4), little(at + 8)
        start = HEADER_SIZE + <Py_ssize_t>program.name_count * NAME_SIZE
        if 0 <= program.name_count <= NAMES_MAX and 0 <= program.root < program.node_count <= NODES_MAX:
            if start + <Py_ssize_t>program.node_count * NODE_SIZE <= program.size:
                program.nodes = <Node*>malloc(program.node_count * sizeof(Node))
                if program.nodes == NULL:
                    raise MemoryError
                memcpy(program.nodes, at + start, program.node_count * sizeof(Node))
                if is_sound(program):
                    return program.nodes
                free(program.nodes)
    plain_filter._read_program(data)  # says what is wrong
    raise ValueError(f"a program of {program.size} bytes is none")


# Numbers

cdef int read_integer(Span text, int64_t beside, int64_t* number) noexcept nogil:
    """As Integer.valueOf, or Long.valueOf where the other number needs it: 0 if it is none."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef bint is_negative = False
    cdef uint64_t value = 0, limit
    if at < end and (at[0] == 43 or at[0] == 45):
        is_negative = at[0] == 45
        at += 1
    if at == end or end - at > 20:
        return 0
    limit = INT32_MAX if INT32_MIN <= beside <= INT32_MAX else INT64_MAX
    limit += is_negative
    while at < end:
        if at[0] < 48 or at[0] > 57:
            return 0
        if value > limit // 10:
            return 0
        value = 10 * value + (at[0] - 48)
        if value > limit:
            return 0
        at += 1
    number[0] = <int64_t>(0 - value) if is_negative else <int64_t>value
    return 1


cdef int read_double(Span text, double* number) noexcept nogil:
    """Decimal numbers that a double holds exactly; 0 for all others."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef bint is_negative = False, has_point = False
    cdef int64_t digits = 0
    cdef int digit_count = 0, fraction_count = 0
    while at < end and at[0] <= 32:
        at += 1
    while end > at and (end - 1)[0] <= 32:
        end -= 1
    if at < end and (at[0] == 43 or at[0] == 45):
        is_negative = at[0] == 45
        at += 1
    while at < end:
        if at[0] == 46 and not has_point:
            has_point = True
        elif 48 <= at[0] <= 57 and digit_count < DIGITS_MAX:
            digits = 10 * digits + (at[0] - 48)
            digit_count += 1
            fraction_count += has_point
        else:
            return 0
        at += 1
    if digit_count == 0:
        return 0
    number[0] = digits / POWERS[fraction_count]
    if is_negative:
        number[0] = -number[0]
    return 1


# Evaluation

cdef inline int outcome(Value* out, int kind) noexcept nogil:
    out.kind = kind
    return kind


cdef bint says_true(Span text) noexcept nogil:
    return (
        text.size == 4
        and text.at[0] | 32 == 116
        and text.at[1] | 32 == 114
        and text.at[2] | 32 == 117
        and text.at[3] | 32 == 101
    )


cdef int compare(const Value* one, const Value* other, int* order) noexcept nogil:
    """Two values as numbers: TRUE with -1, 0 or 1, or why not."""
    cdef int64_t integer = 0
    cdef double first = 0, second = 0
    if one.kind == IS_TEXT and other.kind == IS_TEXT:
        if not read_double(one.text, &first) or not read_double(other.text, &second):
            return CANNOT_TELL
        if first == 0 and second == 0:
            return CANNOT_TELL
    elif one.kind == IS_TEXT and other.kind == IS_INTEGER:
        if not read_integer(one.text, other.integer, &integer):
            return ERROR
        order[0] = (integer > other.integer) - (integer < other.integer)
        return TRUE
    elif one.kind == IS_INTEGER and other.kind == IS_TEXT:
        if not read_integer(other.text, one.integer, &integer):
            return ERROR
        order[0] = (one.integer > integer) - (one.integer < integer)
        return TRUE
    elif one.kind == IS_TEXT and other.kind == IS_DOUBLE:
        second = other.number
        if not read_double(one.text, &first):
            return CANNOT_TELL
    elif one.kind == IS_DOUBLE and other.kind == IS_TEXT:
        first = one.number
        if not read_double(other.text, &second):
            return CANNOT_TELL
    else:
        return CANNOT_TELL
    order[0] = (first > second) - (first < second)
    return TRUE


cdef int equal(const Program* program, const Node* node, const Value* one, const Value* other) noexcept nogil:
    cdef int order = 0, became
    if one.kind == UNKNOWN:
        return TRUE if other.kind == UNKNOWN else UNKNOWN
    if other.kind == UNKNOWN:
        return FALSE
    if one.kind <= TRUE:
        if other.kind == IS_TEXT:
            return ERROR
        return one.kind == other.kind
    if other.kind <= TRUE:
        return one.kind == IS_TEXT and says_true(one.text) == (other.kind == TRUE)
    if one.kind == IS_TEXT and other.kind == IS_TEXT:
        if equals(one.text, <const char*>other.text.at, other.text.size):
            return TRUE
        if program.nodes[node.a].operation == PROPERTY and program.nodes[node.b].operation == PROPERTY:
            if not is_ascii(one.text.at, one.text.size) and not is_ascii(other.text.at, other.text.size):
                return CANNOT_TELL
        return FALSE
    became = compare(one, other, &order)
    return order == 0 if became == TRUE else became


cdef int has_part(const Program* program, const Node* node, const Value* value) noexcept nogil:
    cdef const uint8_t* part = program.data + node.b
    cdef bint holds
    if value.kind != IS_TEXT or node.c == 0:
        return FALSE
    if node.c > value.text.size:
        holds = False
    elif node.number >> 1 == CONTAINS:
        holds = memmem(value.text.at, value.text.size, part, node.c) != NULL
    elif node.number >> 1 == STARTS:
        holds = memcmp(value.text.at, part, node.c) == 0
    else:
        holds = memcmp(value.text.at + value.text.size - node.c, part, node.c) == 0
    return holds != (node.number & 1)


cdef int among(const Program* program, const Node* node, const Value* value) noexcept nogil:
    cdef int32_t k
    cdef const Node* text
    cdef bint is_there = False
    if value.kind == UNKNOWN:
        return UNKNOWN
    for k in range(node.c):
        text = program.nodes + little(program.data + node.b + 4 * k)
        if equals(value.text, <const char*>program.data + text.a, text.b):
            is_there = True
            break
    return is_there != (node.number & 1)


cdef int joined(const Program* program, const Node* node) noexcept nogil:
    cdef Value value
    cdef int ends_it = TRUE if node.operation == OR else FALSE
    cdef int became = 1 - ends_it
    cdef int32_t k
    for k in range(node.b):
        evaluate(program, little(program.data + node.a + 4 * k), &value)
        if value.kind == ends_it or value.kind == ERROR or value.kind == CANNOT_TELL:
            return value.kind
        if value.kind == UNKNOWN:
            became = UNKNOWN
    return became


cdef int test(const Program* program, const Node* node) noexcept nogil:
    cdef Value one, other
    cdef int order = 0, became
    evaluate(program, node.a, &one)
    if one.kind == ERROR or one.kind == CANNOT_TELL:
        return one.kind
    if node.operation == EQUAL or node.operation == ORDER:
        evaluate(program, node.b, &other)
        if other.kind == ERROR or other.kind == CANNOT_TELL:
            return other.kind
        if node.operation == EQUAL:
            return equal(program, node, &one, &other)
        if one.kind == UNKNOWN or other.kind == UNKNOWN:
            return UNKNOWN
        became = compare(&one, &other, &order)
        if became != TRUE:
            return became
        if node.c == 0:
            return order > 0
        if node.c == 1:
            return order >= 0
        return order < 0 if node.c == 2 else order <= 0
    if node.operation == NOT:
        return one.kind if one.kind == UNKNOWN else one.kind != TRUE
    if node.operation == IS_NULL:
        return (one.kind == UNKNOWN) != (node.number & 1)
    if node.operation == PRESENT:
        return UNKNOWN if one.kind == UNKNOWN else FALSE
    if node.operation == AMONG:
        return among(program, node, &one)
    return has_part(program, node, &one)


cdef int evaluate(const Program* program, int32_t number, Value* out) noexcept nogil:
    cdef const Node* node = program.nodes + number
    if node.operation == PROPERTY:
        out.text = program.values[node.a]
        return outcome(out, UNKNOWN if out.text.at == NULL else IS_TEXT)
    if node.operation == INTEGER:
        out.integer = node.number
        return outcome(out, IS_INTEGER)
    if node.operation == DOUBLE:
        memcpy(&out.number, &node.number, 8)
        return outcome(out, IS_DOUBLE)
    if node.operation == TEXT:
        out.text.at, out.text.size = program.data + node.a, node.b
        return outcome(out, IS_TEXT)
    if node.operation == CONSTANT:
        return outcome(out, node.a)
    if node.operation == ASK:
        return outcome(out, CANNOT_TELL)
    if node.operation == AND or node.operation == OR:
        return outcome(out, joined(program, node))
    return outcome(out, test(program, node))


# Records

cdef bint find_properties(const uint8_t* record, int64_t size, Span* properties) noexcept nogil:
    cdef int64_t at, body_size
    if size < 88:
        return False
    at = 84 + (12 if record[39] & 0x10 else 0) + (12 if record[39] & 0x20 else 0)
    if size < at + 4:
        return False
    body_size = <int32_t>get32(record + at)
    at += 4 + body_size
    if body_size < 0 or at + 1 > size:
        return False
    if record[7] == 0xAB:
        if at + 2 > size:
            return False
        at += 2 + <int64_t>get16(record + at)
    else:
        at += 1 + record[at]
    if at + 2 > size:
        return False
    properties.size = get16(record + at)
    properties.at = record + at + 2
    return at + 2 + properties.size <= size


cdef void spread(Program* program, Span properties) noexcept nogil:
    """Find the values of the names; of two pairs with one name the later counts, and an empty value does not.

    What is filtered by properties has many: here calls that look for a byte pay, measured against a walk byte by byte.
    """
    cdef const uint8_t* at = properties.at
    cdef const uint8_t* end = properties.at + properties.size
    cdef const uint8_t* pair_end
    cdef Span name, value
    cdef int32_t i
    for i in range(program.name_count):
        program.values[i].at = NULL
    while at < end:
        pair_end = <const uint8_t*>memchr(at, 2, end - at)
        if pair_end == NULL:
            pair_end = end
        value.at = <const uint8_t*>memchr(at, 1, pair_end - at)
        if value.at != NULL and value.at + 1 < pair_end:
            name.at = at
            name.size = value.at - at
            value.at += 1
            value.size = pair_end - value.at
            for i in range(program.name_count):
                if equals(name, <const char*>program.names[i].at, program.names[i].size):
                    program.values[i] = value
                    break
        at = pair_end + 1


cdef bint passes(Program* program, Span properties, object ask) except -1:
    cdef Value value
    spread(program, properties)
    evaluate(program, program.root, &value)
    if value.kind == CANNOT_TELL:
        return bool(ask(PyBytes_FromStringAndSize(<const char*>properties.at, properties.size)))
    return value.kind == TRUE


cdef object match(Program* program, object ask, const Limits* limits, const uint8_t* entries, Py_ssize_t entry_count, const uint8_t* log, int64_t log_base, int64_t log_size, int64_t count, int64_t size):
    cdef list chosen = []
    cdef Py_ssize_t seen = 0
    cdef int64_t physical_offset, record_size, at
    cdef const uint8_t* entry
    cdef Span properties
    while seen < entry_count:
        entry = entries + seen * ENTRY
        physical_offset, record_size = <int64_t>get64(entry), <int32_t>get32(entry + 8)
        if count and is_full(limits, physical_offset, record_size, count, size):
            return chosen, seen, True
        if is_there(limits, physical_offset, record_size):
            at = physical_offset - log_base
            if at < 0 or at + record_size > log_size:
                return chosen, seen, False
            if find_properties(log + at, record_size, &properties) and passes(program, properties, ask):
                chosen.append(physical_offset)
                chosen.append(record_size)
                count += 1
                size += record_size
        seen += 1
    return chosen, seen, False


def match_entries(entries, program, ask, log_min, near_from, count_max, size_max, near_limits, far_limits, log, log_base, count, size):
    cdef Program read
    cdef Limits limits
    cdef Py_buffer entries_view, log_view
    read_limits(&limits, log_min, near_from, count_max, size_max, near_limits, far_limits)
    read_program(<bytes?>program, &read)
    try:
        PyObject_GetBuffer(entries, &entries_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(log, &log_view, PyBUF_SIMPLE)
            try:
                return match(
                    &read, ask, &limits, <const uint8_t*>entries_view.buf, entries_view.len // ENTRY,
                    <const uint8_t*>log_view.buf, log_base, log_view.len, count, size,
                )
            finally:
                PyBuffer_Release(&log_view)
        finally:
            PyBuffer_Release(&entries_view)
    finally:
        free(read.nodes)
