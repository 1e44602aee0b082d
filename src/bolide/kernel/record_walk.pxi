"""The runs of entries that follow from records."""


cdef struct Run:
    Span topic
    int32_t queue_id
    int64_t first
    Blob entries


cdef inline bint is_same(const uint8_t* one, const uint8_t* other, Py_ssize_t size) noexcept nogil:
    """Names are short: two overlapping words compare most of them without a call."""
    if size < 8 or size > 16:
        return memcmp(one, other, size) == 0
    return get64(one) == get64(other) and get64(one + size - 8) == get64(other + size - 8)


cdef inline bint goes_on(const Run* run, int64_t queue_offset) noexcept nogil:
    """Whether an offset is the next of a run; it was read from a disk, and may be any number."""
    return queue_offset >= run.first and (
        <uint64_t>queue_offset - <uint64_t>run.first == <uint64_t>(run.entries.size // ENTRY)
    )


cdef class _Walk:
    """The runs of one walk, found by queue through open addressing; freed however the walk ends."""

    cdef Run* runs
    cdef Py_ssize_t count, room
    cdef int32_t* slots  # 1 + number of a queue's latest run
    cdef Py_ssize_t slot_count
    cdef Blob keys
    cdef int32_t last
    cdef int64_t record_count

    def __cinit__(self):
        self.slot_count = 1024
        self.slots = <int32_t*>calloc(self.slot_count, sizeof(int32_t))
        self.last = -1
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            free(self.runs[i].entries.data)
        free(self.runs)
        free(self.slots)
        free(self.keys.data)

    cdef inline bint is_of(self, int32_t number, Span topic, int32_t queue_id) noexcept nogil:
        cdef Run* run = &self.runs[number]
        return run.queue_id == queue_id and run.topic.size == topic.size and is_same(run.topic.at, topic.at, topic.size)

    cdef inline Py_ssize_t slot_for(self, Span topic, int32_t queue_id) noexcept nogil:
        cdef uint64_t hashed = (<uint64_t>queue_id ^ <uint64_t>topic.size) * <uint64_t>0x9E3779B97F4A7C15
        cdef Py_ssize_t i = 0
        while i + 8 <= topic.size:
            hashed = (hashed ^ get64(topic.at + i)) * <uint64_t>0x9E3779B97F4A7C15
            hashed ^= hashed >> 32
            i += 8
        if i < topic.size and topic.size >= 8:
            hashed = (hashed ^ get64(topic.at + topic.size - 8)) * <uint64_t>0x9E3779B97F4A7C15
            i = topic.size
        while i < topic.size:
            hashed = (hashed ^ topic.at[i]) * <uint64_t>0x100000001B3
            i += 1
        hashed ^= hashed >> 32
        i = hashed & (self.slot_count - 1)
        while self.slots[i] and not self.is_of(self.slots[i] - 1, topic, queue_id):
            i = (i + 1) & (self.slot_count - 1)
        return i

    cdef int widen_slots(self) except -1 nogil:
        """Twice the slots, and only the latest run of each queue in them."""
        cdef int32_t* old = self.slots
        cdef Py_ssize_t old_count = self.slot_count, i
        cdef int32_t* slots = <int32_t*>calloc(2 * old_count, sizeof(int32_t))
        if slots == NULL:
            raise_no_memory()
        self.slots = slots
        self.slot_count = 2 * old_count
        for i in range(old_count):
            if old[i]:
                self.slots[self.slot_for(self.runs[old[i] - 1].topic, self.runs[old[i] - 1].queue_id)] = old[i]
        free(old)
        return 0

    cdef inline Run* run_for(self, Span topic, int32_t queue_id, int64_t queue_offset) except NULL nogil:
        cdef Py_ssize_t slot
        cdef Run* run
        if self.last >= 0 and self.is_of(self.last, topic, queue_id):
            run = &self.runs[self.last]
            if goes_on(run, queue_offset):
                return run
        slot = self.slot_for(topic, queue_id)
        if self.slots[slot]:
            self.last = self.slots[slot] - 1
            run = &self.runs[self.last]
            if goes_on(run, queue_offset):
                return run
        return self.new_run(slot, topic, queue_id, queue_offset)

    cdef Run* new_run(self, Py_ssize_t slot, Span topic, int32_t queue_id, int64_t queue_offset) except NULL nogil:
        cdef Run* run
        cdef Run* runs
        if self.count == self.room:
            runs = <Run*>realloc(self.runs, max(2 * self.room, 64) * sizeof(Run))
            if runs == NULL:
                raise_no_memory()
            self.runs = runs
            self.room = max(2 * self.room, 64)
        run = &self.runs[self.count]
        run.topic = topic
        run.queue_id = queue_id
        run.first = queue_offset
        run.entries.data = NULL
        run.entries.size = run.entries.room = 0
        self.last = <int32_t>self.count
        self.count += 1
        self.slots[slot] = self.last + 1
        if 2 * self.count > self.slot_count:
            self.widen_slots()
        return &self.runs[self.last]

    cdef list done(self):
        cdef Py_ssize_t i
        cdef Run* run
        cdef list runs = []
        for i in range(self.count):
            run = &self.runs[i]
            topic = PyUnicode_DecodeUTF8(<char*>run.topic.at, run.topic.size, b"replace")
            runs.append((topic, run.queue_id, run.first, taken(&run.entries)))
        return runs
