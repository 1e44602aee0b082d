"""plain_faults.py with a handler: a page of a guarded map that cannot be read is zeros and a count, and no signal."""

cdef extern from "faults.h":
    ctypedef struct guarded_map:
        uintptr_t start
        uintptr_t end
        uintptr_t low
        uintptr_t high
    guarded_map guarded[]
    int32_t guarded_used
    uint64_t guarded_faults
    int32_t guarded_add(void* start, size_t size)
    void guarded_drop(int32_t place)
    int guarded_map_again(int32_t place, size_t at, size_t size, int fd)
    uint64_t guarded_touch(const unsigned char* at, size_t size)


cdef int32_t checked(place) except -1:
    cdef int32_t number = place
    if not 0 <= number < guarded_used or not guarded[number].start:
        raise ValueError(f"no map is guarded as {place}")
    return number


def guard_map(content):
    cdef Py_buffer view
    cdef int32_t place
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    place = guarded_add(view.buf, view.len)
    PyBuffer_Release(&view)
    return place


def unguard_map(place):
    guarded_drop(checked(place))


def fault_count():
    return guarded_faults


def touch(content):
    cdef Py_buffer view
    cdef uint64_t count
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    count = guarded_touch(<const unsigned char*>view.buf, view.len)
    PyBuffer_Release(&view)
    return count


def patched_span(place):
    cdef int32_t number = checked(place)
    if not guarded[number].high:
        return None
    return guarded[number].low - guarded[number].start, guarded[number].high - guarded[number].start


def forget_span(place):
    cdef int32_t number = checked(place)
    guarded[number].low = guarded[number].high = 0


def map_again(place, at, size, fd):
    cdef int32_t number = checked(place)
    if not 0 <= at < at + size <= guarded[number].end - guarded[number].start + 65536:
        whole = guarded[number].end - guarded[number].start
        raise ValueError(f"a map of {whole} bytes has none from {at} to {at + size}")
    if not guarded_map_again(number, at, size, fd):
        raise OSError(c_errno, os.strerror(c_errno))
