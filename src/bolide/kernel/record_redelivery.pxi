"""Records that are laid out again from the log, where they belong."""


cdef struct Tally:
    Span topic
    int64_t count
    int64_t size
    int64_t recalled


cdef class _Redelivery:
    """Memory of one call, freed however it ends."""

    cdef _Walk walk
    cdef Blob records
    cdef Blob stamped
    cdef Tally* tallies
    cdef Py_ssize_t tally_count, tally_room, last_tally

    def __cinit__(self):
        self.walk = _Walk()

    def __dealloc__(self):
        free(self.records.data)
        free(self.stamped.data)
        free(self.tallies)

    cdef Tally* tally_of(self, Span topic) except NULL:
        cdef Tally* tallies
        cdef Py_ssize_t i
        if self.tally_count and equals(self.tallies[self.last_tally].topic, topic):
            return &self.tallies[self.last_tally]
        for i in range(self.tally_count):
            if equals(self.tallies[i].topic, topic):
                self.last_tally = i
                return &self.tallies[i]
        if self.tally_count == self.tally_room:
            tallies = <Tally*>realloc(self.tallies, max(2 * self.tally_room, 16) * sizeof(Tally))
            if tallies == NULL:
                raise MemoryError
            self.tallies = tallies
            self.tally_room = max(2 * self.tally_room, 16)
        self.tallies[self.tally_count].topic = topic
        self.tallies[self.tally_count].count = 0
        self.tallies[self.tally_count].size = 0
        self.tallies[self.tally_count].recalled = 0
        self.last_tally = self.tally_count
        self.tally_count += 1
        return &self.tallies[self.last_tally]

    cdef list done(self):
        cdef Py_ssize_t i
        cdef list tallies = []
        for i in range(self.tally_count):
            topic = PyUnicode_DecodeUTF8(<char*>self.tallies[i].topic.at, self.tallies[i].topic.size, b"replace")
            tallies.append((topic, self.tallies[i].count, self.tallies[i].size, self.tallies[i].recalled))
        return tallies

    cdef Run* run_of(self, Span topic, int32_t queue_id, next_offsets) except NULL:
        """The run that a message goes to; its queue's next offset is asked for once."""
        cdef _Walk walk = self.walk
        cdef Py_ssize_t slot
        if walk.last >= 0 and walk.is_of(walk.last, topic, queue_id):
            return &walk.runs[walk.last]
        slot = walk.slot_for(topic, queue_id)
        if walk.slots[slot]:
            walk.last = walk.slots[slot] - 1
            return &walk.runs[walk.last]
        name = PyUnicode_DecodeUTF8(<char*>topic.at, topic.size, b"replace")
        return walk.new_run(slot, topic, queue_id, next_offsets.get((name, queue_id), 0))

    cdef Py_ssize_t put(self, NewRecord* laid, Wanted* wanted, Span properties, next_offsets) except -1:
        """Lay one record out, which may get a place in a queue; returns its size."""
        cdef Py_ssize_t size = size_of(laid, properties.size)
        cdef Run* run
        laid.queue_offset = 0
        if not laid.sys_flag & PREPARED:
            run = self.run_of(laid.topic, laid.queue_id, next_offsets)
            laid.queue_offset = run.first + run.entries.size // ENTRY
            put_entry(
                grow(&run.entries, ENTRY), laid.physical_offset, <int32_t>size,
                hash_tags(laid.topic, wanted.tags, properties.at, properties.size, laid.store_ms, ()),
            )
        if laid.sys_flag & TRANSACTION != TRANSACTION:
            put_all_keys(&self.walk.keys, laid.topic, wanted, laid.physical_offset, laid.store_ms)
        memcpy(encode_record(grow(&self.records, size), laid, size, properties.size), properties.at, properties.size)
        return size


cdef inline void take_over(NewRecord* laid, const uint8_t* log, const int64_t* row) noexcept nogil:
    """What a record keeps of the one it comes from; the checksum of the body was looked at when that was read."""
    laid.body.at = log + row[12]
    laid.body.size = row[13]
    laid.born_host.at = log + row[10]
    laid.born_host.size = row[11] - 8 - row[10]
    laid.body_crc = get32(log + row[10] - 40)
    laid.flag = <int32_t>row[3]
    laid.sys_flag = with_hosts(<int32_t>row[5], laid.born_host, laid.store_host)
    laid.reconsume_times = <int32_t>row[8]
    laid.born_ms = row[6]
