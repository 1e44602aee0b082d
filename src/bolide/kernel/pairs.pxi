"""Walking the properties of a record, name \\x01 value \\x02, pair by pair.

The filter has a walk of its own.
"""


cdef struct Wanted:  # the properties that queues and index look at
    Span tags
    Span keys
    Span unique_key


cdef inline const uint8_t* next_pair(const uint8_t* at, const uint8_t* end, Span* name, Span* value) noexcept nogil:
    """Step over one pair, or what stands for one; without a value there is one of no size.

    The bytes are looked at one by one: pairs are short, and a call to look for a byte costs more than looking.
    """
    name.at = at
    while at < end and at[0] != 1 and at[0] != 2:
        at += 1
    name.size = at - name.at
    value.at = at
    value.size = 0
    if at < end and at[0] == 1:
        at += 1
        value.at = at
        while at < end and at[0] != 2:
            at += 1
        value.size = at - value.at
    return at + 1


cdef inline bint take_wanted(Span name, Span value, Wanted* wanted) noexcept nogil:
    """False for a name that queues and index do not look at."""
    if equals(name, literal(b"TAGS")):
        wanted.tags = value
    elif equals(name, literal(b"KEYS")):
        wanted.keys = value
    elif equals(name, literal(b"UNIQ_KEY")):
        wanted.unique_key = value
    else:
        return False
    return True


cdef inline void clear_wanted(Wanted* wanted) noexcept nogil:
    memset(wanted, 0, sizeof(Wanted))


cdef inline void find_wanted(const uint8_t* at, Py_ssize_t size, Wanted* wanted) noexcept nogil:
    """The last of equal names counts, pairs with an empty side do not."""
    cdef const uint8_t* end = at + size
    cdef Span name, value
    clear_wanted(wanted)
    while at < end:
        at = next_pair(at, end, &name, &value)
        if value.size:
            take_wanted(name, value, wanted)
