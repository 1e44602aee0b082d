"""Which entries of a queue lead to records that pass a filter: a program (`filter_layout.py`) is run over each.

A program is checked as a whole before it is run, so that evaluation need not look where it steps. The properties it
names are found in one walk over the record's text, from pair to pair, and nothing is made of the rest. Where the
program cannot tell, the predicate that it was made from is asked, and decides.
"""

cdef extern from "pair_ends.h":
    uint64_t pair_ends(const uint8_t* at) nogil  # of 64 bytes
    int lowest_bit(uint64_t bits) nogil
    void fetch(const uint8_t* at) nogil

cdef extern from "string.h" nogil:
    void* memmem(const void* text, size_t text_size, const void* part, size_t size)  # linear, whatever the part


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
    STOPPED = 5  # so far, for now
    IS_TEXT = 6
    IS_INTEGER = 7
    IS_DOUBLE = 8

    CONTAINS = 0
    STARTS = 1

    HEADER_SIZE = 12
    NAME_SIZE = 8
    NODE_SIZE = 24
    NAMES_MAX = 64
    NODES_MAX = 4096
    DEPTH_LIMIT = 200
    EXACT_DIGITS_MAX = 15
    WORK_STEP = 0x10000
    RECORD_WORK_MAX = 0x20000  # of one record, before what became of its nodes is noted
    RECORD_WORK = 512
    STALLED_MAX = 16
    RECORDS_AHEAD = 8

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


cdef struct Name:
    Span text
    uint64_t head  # as a pair begins with it: the name and its 1, eight bytes at most, with zeros behind
    uint64_t mask  # what of eight bytes the head has
    uint8_t first


cdef struct Program:
    const uint8_t* data
    Py_ssize_t size
    int32_t name_count
    int32_t node_count
    int32_t root
    uint64_t firsts  # bit i: a name's first byte has i as its last six bits
    Name names[NAMES_MAX]
    const uint8_t* value_at[NAMES_MAX]
    Py_ssize_t value_size[NAMES_MAX]
    Node* nodes
    uint8_t* memo  # 1 + what became of each node of a record that takes long, 0 for those not yet looked at
    int64_t work
    int64_t work_max


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


cdef int depth_of_list(
    const Program* program, const uint8_t* depths, int32_t i, int32_t position, int32_t count
) noexcept nogil:
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


cdef void read_name(Name* name, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint8_t head[8]
    cdef uint8_t mask[8]
    cdef Py_ssize_t i
    memset(head, 0, 8)
    memset(mask, 0, 8)
    memset(mask, 0xFF, min(size + 1, 8))
    memcpy(head, at, min(size, 8))
    if size < 8:
        head[size] = 1
    name.text.at, name.text.size, name.first = at, size, head[0]
    memcpy(&name.head, head, 8)
    memcpy(&name.mask, mask, 8)
    for i in range(size):
        if at[i] == 1 or at[i] == 2:
            name.head, name.mask = 1, 0  # no pair begins so, for no name can have these


cdef bint is_sound(Program* program) noexcept nogil:
    cdef uint8_t depths[NODES_MAX]
    cdef int32_t i
    cdef int depth
    cdef const uint8_t* at
    program.firsts = 0
    for i in range(program.name_count):
        at = program.data + HEADER_SIZE + i * NAME_SIZE
        if not is_inside(program, little(at), little(at + 4)):
            return False
        read_name(&program.names[i], program.data + little(at), little(at + 4))
        program.firsts |= <uint64_t>1 << (program.names[i].first & 63)
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
        elif 48 <= at[0] <= 57 and digit_count < EXACT_DIGITS_MAX:
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

cdef bint says_true(Span text) noexcept nogil:
    return (
        text.size == 4
        and text.at[0] | 32 == 116
        and text.at[1] | 32 == 114
        and text.at[2] | 32 == 117
        and text.at[3] | 32 == 101
    )


cdef int compare(Program* program, const Value* one, const Value* other, int* order) noexcept nogil:
    """Two values as numbers: TRUE with -1, 0 or 1, or why not."""
    cdef int64_t integer = 0
    cdef double first = 0, second = 0
    if one.kind == IS_TEXT and other.kind == IS_TEXT:
        program.work += one.text.size + other.text.size
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
        program.work += one.text.size
        if not read_double(one.text, &first):
            return CANNOT_TELL
    elif one.kind == IS_DOUBLE and other.kind == IS_TEXT:
        first = one.number
        program.work += other.text.size
        if not read_double(other.text, &second):
            return CANNOT_TELL
    else:
        return CANNOT_TELL
    order[0] = (first > second) - (first < second)
    return TRUE


cdef int equal(Program* program, const Node* node, const Value* one, const Value* other) noexcept nogil:
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
        program.work += one.text.size >> 2
        if equals(one.text, other.text):
            return TRUE
        if program.nodes[node.a].operation == PROPERTY and program.nodes[node.b].operation == PROPERTY:
            if not is_ascii(one.text.at, one.text.size) and not is_ascii(other.text.at, other.text.size):
                return CANNOT_TELL
        return FALSE
    became = compare(program, one, other, &order)
    return order == 0 if became == TRUE else became


cdef int has_part(Program* program, const Node* node, const Value* value) noexcept nogil:
    cdef const uint8_t* part = program.data + node.b
    cdef bint holds
    if value.kind != IS_TEXT or node.c == 0:
        return FALSE
    if node.c > value.text.size:
        holds = False
    elif node.number >> 1 == CONTAINS:
        program.work += value.text.size
        holds = memmem(value.text.at, value.text.size, part, node.c) != NULL
    elif node.number >> 1 == STARTS:
        holds = memcmp(value.text.at, part, node.c) == 0
    else:
        holds = memcmp(value.text.at + value.text.size - node.c, part, node.c) == 0
    return holds != (node.number & 1)


cdef int among(Program* program, const Node* node, const Value* value) noexcept nogil:
    cdef int32_t k
    cdef const Node* text
    cdef bint is_there = False
    if value.kind == UNKNOWN:
        return UNKNOWN
    program.work += node.c
    for k in range(node.c):
        text = program.nodes + little(program.data + node.b + 4 * k)
        if value.text.size == text.b and memcmp(value.text.at, program.data + text.a, text.b) == 0:
            is_there = True
            break
    return is_there != (node.number & 1)


cdef inline void load(Program* program, int32_t number, Value* value) noexcept nogil:
    """What a node is worth."""
    cdef const Node* node = program.nodes + number
    if node.operation == PROPERTY:
        value.text.at, value.text.size = program.value_at[node.a], program.value_size[node.a]
        value.kind = UNKNOWN if value.text.at == NULL else IS_TEXT
    elif node.operation == TEXT:
        value.text.at, value.text.size = program.data + node.a, node.b
        value.kind = IS_TEXT
    elif node.operation == INTEGER:
        value.integer = node.number
        value.kind = IS_INTEGER
    elif node.operation == DOUBLE:
        memcpy(&value.number, &node.number, 8)
        value.kind = IS_DOUBLE
    elif program.memo == NULL:
        value.kind = decide(program, node)
    elif program.memo[number]:
        value.kind = program.memo[number] - 1
    else:
        value.kind = decide(program, node)
        if value.kind != STOPPED:
            program.memo[number] = <uint8_t>(value.kind + 1)


cdef int joined(Program* program, const Node* node) noexcept nogil:
    cdef Value value
    cdef int ends_it = TRUE if node.operation == OR else FALSE
    cdef int became = 1 - ends_it
    cdef int32_t k
    for k in range(node.b):
        load(program, little(program.data + node.a + 4 * k), &value)
        if value.kind == ends_it or ERROR <= value.kind <= STOPPED:
            return value.kind
        if value.kind == UNKNOWN:
            became = UNKNOWN
    return became


cdef int test(Program* program, const Node* node) noexcept nogil:
    cdef Value one, other
    cdef int order = 0, became
    load(program, node.a, &one)
    if ERROR <= one.kind <= STOPPED:
        return one.kind
    if node.operation == EQUAL or node.operation == ORDER:
        load(program, node.b, &other)
        if ERROR <= other.kind <= STOPPED:
            return other.kind
        if node.operation == EQUAL:
            return equal(program, node, &one, &other)
        if one.kind == UNKNOWN or other.kind == UNKNOWN:
            return UNKNOWN
        became = compare(program, &one, &other, &order)
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


cdef int decide(Program* program, const Node* node) noexcept nogil:
    """The outcome of a node that is no text and no number; STOPPED where enough was done for once."""
    program.work += 1
    if program.work > program.work_max:
        return STOPPED
    if node.operation == CONSTANT:
        return node.a
    if node.operation == ASK:
        return CANNOT_TELL
    if node.operation == AND or node.operation == OR:
        return joined(program, node)
    return test(program, node)


# Records

cdef inline void fetch_record(const uint8_t* entry, const uint8_t* log, int64_t log_base) noexcept nogil:
    """Have both ends of a record in the cache when its turn comes: its sizes are in one, its properties in the other.

    With bodies of 2 KB between them that takes three quarters of the time away. Nothing is read, so nothing is checked.
    """
    cdef uint64_t at = <uint64_t>log + get64(entry) - <uint64_t>log_base  # no pointer: it may lead anywhere
    cdef uint64_t end = at + get32(entry + 8)
    fetch(<const uint8_t*>at)
    fetch(<const uint8_t*>(at + 64))
    fetch(<const uint8_t*>(end - 128))
    fetch(<const uint8_t*>(end - 64))
    fetch(<const uint8_t*>(end - 1))


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


cdef inline void take_pair(
    Program* program, const uint8_t* at, const uint8_t* end, const uint8_t* limit
) noexcept nogil:
    """Keep the value of a pair whose name the program has; an empty one is none."""
    cdef uint64_t head = 0
    cdef int32_t i
    cdef const Name* name
    if not program.firsts >> (at[0] & 63) & 1:
        return
    if limit - at >= 8:
        memcpy(&head, at, 8)
    else:
        memcpy(&head, at, end - at)
    for i in range(program.name_count):
        name = &program.names[i]
        if head & name.mask == name.head and end - at > name.text.size + 1:
            if name.text.size < 8 or is_long_name(at, &name.text):
                program.value_at[i] = at + name.text.size + 1
                program.value_size[i] = end - program.value_at[i]
                return


cdef bint is_long_name(const uint8_t* pair, const Span* name) noexcept nogil:
    return pair[name.size] == 1 and (name.size == 8 or memcmp(pair + 8, name.at + 8, name.size - 8) == 0)


cdef void spread(Program* program, Span properties, const uint8_t* limit) noexcept nogil:
    """Find the values of the names; of two pairs with one name the later counts, and an empty value does not.

    Where pairs end is found 64 bytes at a time, and the beginning of each is compared with the names eight bytes at a
    time. Bytes up to `limit` may be looked at for that.
    """
    cdef uint8_t last[64]
    cdef const uint8_t* block = properties.at
    cdef const uint8_t* end = properties.at + properties.size
    cdef const uint8_t* pair = block
    cdef const uint8_t* pair_end
    cdef uint64_t bits
    cdef int32_t i
    for i in range(program.name_count):
        program.value_at[i] = NULL
    while block < end:
        if limit - block >= 64:
            bits = pair_ends(block)
        else:
            memset(last, 0, 64)
            memcpy(last, block, end - block)
            bits = pair_ends(last)
        if end - block < 64:
            bits &= (<uint64_t>1 << (end - block)) - 1
        while bits:
            pair_end = block + lowest_bit(bits)
            bits &= bits - 1
            take_pair(program, pair, pair_end, limit)
            pair = pair_end + 1
        block += 64
    if pair < end:
        take_pair(program, pair, end, limit)


cdef int resume(Program* program, bytearray memo, object is_over) except -1:
    """Decide about a record that takes long, some work at a time; STOPPED when the time is over before that."""
    cdef Value value
    program.memo = <uint8_t*>PyByteArray_AS_STRING(memo)
    program.work_max = WORK_STEP
    try:
        while True:
            program.work = 0
            load(program, program.root, &value)
            if value.kind != STOPPED or (is_over is not None and is_over()):
                return value.kind
    finally:
        program.memo = NULL


cdef int decide_heavy(
    Program* program, int64_t physical_offset, bytearray memo, object is_over, dict stalled
) except -1:
    cdef int became = resume(program, memo, is_over)
    if became == STOPPED:
        if len(stalled) >= STALLED_MAX:
            del stalled[next(iter(stalled))]
        stalled[physical_offset] = bytes(memo)
    return became


cdef int passes(
    Program* program, Span properties, const uint8_t* limit, int64_t physical_offset, object ask, object is_over,
    dict stalled
) except -1:
    """TRUE or FALSE, or STOPPED."""
    cdef Value value
    cdef object memo = None
    spread(program, properties, limit)
    if stalled:
        memo = stalled.pop(physical_offset, None)
    program.work = properties.size * (16 + program.name_count) >> 4
    if memo is not None and len(memo) == program.node_count:
        value.kind = decide_heavy(program, physical_offset, bytearray(memo), is_over, stalled)
    else:
        program.work_max = program.work + RECORD_WORK_MAX
        load(program, program.root, &value)
        if value.kind == STOPPED:
            value.kind = decide_heavy(program, physical_offset, bytearray(program.node_count), is_over, stalled)
    if value.kind == CANNOT_TELL:
        program.work += WORK_STEP  # what is asked takes long, and this is looked at before the next record
        return bool(ask(PyBytes_FromStringAndSize(<const char*>properties.at, properties.size)))
    return STOPPED if value.kind == STOPPED else value.kind == TRUE


cdef object match(
    Program* program, object ask, object is_over, dict stalled, const Limits* limits, const uint8_t* entries,
    Py_ssize_t entry_count, const uint8_t* log, int64_t log_base, int64_t log_size, int64_t count, int64_t size
):
    cdef list chosen = []
    cdef Py_ssize_t seen = 0
    cdef int64_t physical_offset, record_size, at, spent = 0
    cdef int became
    cdef const uint8_t* entry
    cdef Span properties
    while seen < entry_count:
        if spent >= WORK_STEP:
            if is_over is not None and is_over():
                return chosen, seen, True
            spent = 0
        spent += RECORD_WORK
        entry = entries + seen * ENTRY
        if seen + RECORDS_AHEAD < entry_count:
            fetch_record(entry + RECORDS_AHEAD * ENTRY, log, log_base)
        physical_offset, record_size = <int64_t>get64(entry), <int32_t>get32(entry + 8)
        if count and is_full(limits, physical_offset, record_size, count, size):
            return chosen, seen, True
        if is_there(limits, physical_offset, record_size):
            if not lies_in(physical_offset, record_size, log_base, log_size):
                return chosen, seen, False
            at = physical_offset - log_base
            if find_properties(log + at, record_size, &properties):
                became = passes(program, properties, log + log_size, physical_offset, ask, is_over, stalled)
                spent += program.work
                if became == STOPPED:
                    return chosen, seen, True
                if became == TRUE:
                    chosen.append(physical_offset)
                    chosen.append(record_size)
                    count += 1
                    size += record_size
        seen += 1
    return chosen, seen, False


def match_entries(
    entries, program, ask, is_over, stalled, log_min, near_from, count_max, size_max, near_limits, far_limits, log,
    log_base, count, size
):
    cdef Program read
    cdef Limits limits
    cdef Py_buffer entries_view, log_view
    read_limits(&limits, log_min, near_from, count_max, size_max, near_limits, far_limits)
    read_program(<bytes?>program, &read)
    read.memo = NULL
    try:
        PyObject_GetBuffer(entries, &entries_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(log, &log_view, PyBUF_SIMPLE)
            try:
                return match(
                    &read, ask, is_over, <dict?>stalled, &limits,
                    <const uint8_t*>entries_view.buf, entries_view.len // ENTRY,
                    <const uint8_t*>log_view.buf, log_base, log_view.len, count, size,
                )
            finally:
                PyBuffer_Release(&log_view)
        finally:
            PyBuffer_Release(&entries_view)
    finally:
        free(read.nodes)
