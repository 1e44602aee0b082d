"""Scanning JSON in place: no object is made, no byte behind `end` is read.

Each step returns where it stopped, or NULL for anything irregular.
"""

cdef enum:
    DIGITS_MAX = 18


cdef struct Text:
    const char* at
    Py_ssize_t size
    bint is_escaped
    bint is_ascii


cdef inline const char* skip_blanks(const char* at, const char* end) noexcept nogil:
    while at < end and (at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9):
        at += 1
    return at


cdef extern from *:
    """
    /* How many of DULL_STEP bytes come before the first that is a quote, a backslash, a control character or beyond
       ASCII: texts are skipped by words where nothing is to be seen. */
    #if defined(__SSE2__)
    #include <emmintrin.h>
    enum { DULL_STEP = 16 };
    static inline int dull_size(const char *at) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x22));
        __m128i slashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x5C));
        __m128i odd = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)); /* with their signs: beyond ASCII is below zero */
        return __builtin_ctz(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, slashes), odd)) | 0x10000);
    }
    /* The same for backslashes alone; copies the bytes meanwhile. */
    static inline int copy_unescaped(const char *at, char *target) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        _mm_storeu_si128((__m128i *)target, bytes);
        return __builtin_ctz(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x5C))) | 0x10000);
    }
    #else
    enum { DULL_STEP = 8 };
    static inline int copy_unescaped(const char *at, char *target) {
        int size = 0;
        for (; size < DULL_STEP && at[size] != 0x5C; size++) target[size] = at[size];
        return size;
    }
    /* Such a byte borrows from its top bit when more is taken off than it has; the lowest one found is a true one, for
       a borrow only spreads upwards. */
    static inline int dull_size(const char *at) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = 0x0101010101010101ull, tops = 0x8080808080808080ull;
        uint64_t word, quotes, slashes, found;
        memcpy(&word, at, 8);
        quotes = word ^ ones * 0x22;
        slashes = word ^ ones * 0x5C;
        found = (word | (word - ones * 0x20) | (quotes - ones) | (slashes - ones)) & tops;
        return found ? __builtin_ctzll(found) >> 3 : 8;
    #else
        int size = 0;
        while (size < 8 && at[size] >= 0x20 && at[size] < 0x7F && at[size] != 0x22 && at[size] != 0x5C) size++;
        return size;
    #endif
    }
    #endif
    """
    int DULL_STEP
    int dull_size(const char* at) nogil
    int copy_unescaped(const char* at, char* target) nogil


cdef const char* scan_text(const char* at, const char* end, Text* text) noexcept nogil:
    """`at` is the opening quote; the result is behind the closing one."""
    cdef uint8_t byte
    cdef int dull
    if at >= end or at[0] != 34:
        return NULL
    at += 1
    text.at = at
    text.is_escaped = False
    text.is_ascii = True
    while at < end:
        if end - at >= DULL_STEP:
            dull = dull_size(at)
            at += dull
            if dull == DULL_STEP:
                continue
        byte = <uint8_t>at[0]
        if byte == 34:
            text.size = at - text.at
            return at + 1
        if byte < 32:
            return NULL
        if byte == 92:
            text.is_escaped = True
            at += 1
            if at >= end:
                return NULL
        elif byte >= 128:
            text.is_ascii = False
        at += 1
    return NULL


cdef const char* scan_integer(const char* at, const char* end, Text* text, int64_t* value) noexcept nogil:
    """A JSON integer of at most 18 digits; a fraction, an exponent, -0 and leading zeros are irregular."""
    cdef bint is_negative = False
    cdef int64_t number = 0
    cdef const char* first
    text.at = at
    if at < end and at[0] == 45:
        is_negative = True
        at += 1
    first = at
    while at < end and 48 <= at[0] <= 57:
        if at - first == DIGITS_MAX:
            return NULL
        number = number * 10 + (at[0] - 48)
        at += 1
    if at == first or (first[0] == 48 and (at - first > 1 or is_negative)):
        return NULL
    if at < end and (at[0] == 46 or at[0] == 101 or at[0] == 69):
        return NULL
    text.size = at - text.at
    value[0] = -number if is_negative else number
    return at


cdef inline const char* scan_word(const char* at, const char* end, Span word) noexcept nogil:
    return at + word.size if end - at >= word.size and begins(at, word) else NULL


cdef inline bint is_text(const Text* text, Span word) noexcept nogil:
    return text.size == word.size and not text.is_escaped and begins(text.at, word)


cdef inline bint is_same_text(const Text* text, const Text* other) noexcept nogil:
    """Whether a text that is not escaped is the other one."""
    return text.size == other.size and not text.is_escaped and memcmp(text.at, other.at, other.size) == 0


cdef inline bint is_plain(const Text* text) noexcept nogil:
    """Whether the text is what its bytes are, to anybody."""
    return text.at != NULL and not text.is_escaped and text.is_ascii


cdef inline bint read_decimal(const char* at, Py_ssize_t size, int64_t* value) noexcept nogil:
    """A number in a text: a sign that is a minus, and up to 18 digits."""
    cdef bint is_negative = size > 0 and at[0] == 45
    cdef int64_t number = number_of(<const uint8_t*>at + is_negative, size - is_negative, DIGITS_MAX)
    value[0] = -number if is_negative else number
    return number >= 0


cdef inline const char* scan_value(const char* at, const char* end, Text* text) noexcept nogil:
    """A value that is no object and no list, as text; null is a text that lies nowhere."""
    cdef int64_t number
    if at >= end:
        return NULL
    if at[0] == 34:
        return scan_text(at, end, text)
    text.is_escaped = False
    text.is_ascii = True
    if at[0] == 45 or 48 <= at[0] <= 57:
        return scan_integer(at, end, text, &number)
    text.at = at
    text.size = 4
    if at[0] == 116:
        return scan_word(at, end, literal(b"true"))
    if at[0] == 102:
        text.size = 5
        return scan_word(at, end, literal(b"false"))
    text.at = NULL
    text.size = 0
    return scan_word(at, end, literal(b"null"))


cdef const char* skip_scalar(const char* at, const char* end) noexcept nogil:
    """Steps over a value nobody asked for; what could hide bytes that are not UTF-8 is irregular."""
    cdef Text text
    at = scan_value(at, end, &text)
    return at if at != NULL and (text.at == NULL or is_plain(&text)) else NULL


cdef inline const char* next_member(const char* at, const char* end, bint* is_last) noexcept nogil:
    """Behind a value: steps to the next key, or behind the closing brace."""
    is_last[0] = False
    at = skip_blanks(at, end)
    if at >= end:
        return NULL
    if at[0] == 125:
        is_last[0] = True
        return at + 1
    if at[0] != 44:
        return NULL
    return skip_blanks(at + 1, end)


cdef inline const char* scan_key(const char* at, const char* end, Text* key) noexcept nogil:
    """A key and its colon; the result is at the value."""
    at = scan_text(at, end, key)
    if at == NULL:
        return NULL
    at = skip_blanks(at, end)
    if at >= end or at[0] != 58:
        return NULL
    return skip_blanks(at + 1, end)


# Scans the value of one member of an object.
ctypedef const char* (*Member)(const char* at, const char* end, const Text* key, void* into) noexcept nogil


cdef inline const char* scan_object(const char* at, const char* end, Member member, void* into) noexcept nogil:
    """`at` is the opening brace, the result is behind the closing one; keys are plain."""
    cdef Text key
    cdef bint is_last = False
    if at >= end or at[0] != 123:
        return NULL
    at = skip_blanks(at + 1, end)
    if at < end and at[0] == 125:
        return at + 1
    while not is_last:
        at = scan_key(at, end, &key)
        if at == NULL or at >= end or not is_plain(&key):
            return NULL
        at = member(at, end, &key, into)
        if at == NULL:
            return NULL
        at = next_member(at, end, &is_last)
        if at == NULL:
            return NULL
    return at
