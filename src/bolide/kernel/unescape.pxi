"""Resolving the escapes of a JSON text."""


cdef inline int hex_digit(char digit) noexcept nogil:
    if 48 <= digit <= 57:
        return digit - 48
    if 97 <= digit <= 102:
        return digit - 87
    if 65 <= digit <= 70:
        return digit - 55
    return -1


cdef Py_ssize_t unescape(const Text* text, char* target) noexcept nogil:
    """Resolves escapes of ASCII characters into target; -1 for any other."""
    cdef const char* at = text.at
    cdef const char* end = text.at + text.size
    cdef Py_ssize_t size = 0
    cdef int high, low
    cdef char byte
    cdef int whole
    while at < end:
        if end - at >= DULL_STEP:  # there is as much room in the target: what is resolved is never longer
            whole = copy_unescaped(at, target + size)
            at += whole
            size += whole
            if whole == DULL_STEP:
                continue
        byte = at[0]
        at += 1
        if byte == 92:
            byte = at[0]
            at += 1
            if byte == 117:
                if end - at < 4 or at[0] != 48 or at[1] != 48:
                    return -1
                high = hex_digit(at[2])
                low = hex_digit(at[3])
                if high < 0 or high > 7 or low < 0:
                    return -1
                byte = <char>(high * 16 + low)
                at += 4
            elif byte == 110:
                byte = 10
            elif byte == 116:
                byte = 9
            elif byte == 114:
                byte = 13
            elif byte == 98:
                byte = 8
            elif byte == 102:
                byte = 12
            elif byte != 34 and byte != 92 and byte != 47:
                return -1
        target[size] = byte
        size += 1
    return size
