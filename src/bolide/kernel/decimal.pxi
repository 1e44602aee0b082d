"""Numbers in digits."""

cdef const char* HEX = b"0123456789ABCDEF"


cdef inline Octet* put_decimal(Octet* at, int64_t value) noexcept nogil:
    """A number in digits, at most 20 bytes."""
    cdef uint8_t digits[20]
    cdef int count = 0
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        at[0] = 45
        at += 1
        rest = 0 - rest  # without a sign the lowest number has a twin too
    while True:
        digits[count] = <uint8_t>(48 + rest % 10)
        count += 1
        rest = rest // 10
        if rest == 0:
            break
    while count:
        count -= 1
        at[0] = <Octet>digits[count]
        at += 1
    return at
