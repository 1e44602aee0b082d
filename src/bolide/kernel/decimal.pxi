"""Numbers in digits. Included after bytes.pxi by sends and client."""


cdef inline uint8_t* put_decimal(uint8_t* at, int64_t value) noexcept nogil:
    """A number in digits, at most 20 bytes."""
    cdef uint8_t digits[20]
    cdef int count = 0
    if value < 0:
        at[0] = 45
        at += 1
        value = -value  # nobody has the one number that has no positive twin
    while True:
        digits[count] = <uint8_t>(48 + value % 10)
        count += 1
        value = value // 10
        if value == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at
