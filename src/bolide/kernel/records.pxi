"""plain_records.py with types: the same functions, the same answers. That file has the byte tables and the meaning.

What is rare goes to the plain function for that one item: text beyond ASCII, and the delay topic.
"""

cdef enum:
    KEYS_AHEAD = 12  # how many keys before its turn a slot of the index is fetched

cdef array _NUMBERS = array("q")


def body_crc(body):
    cdef Py_buffer view
    cdef uint32_t crc
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        crc = crc32_of(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return crc & 0x7FFFFFFF


cdef struct DraftItem:  # a draft, without an object in it
    NewRecord laid
    Span properties
    int32_t run
    int32_t size


cdef struct Entries:  # of one queue in a batch
    int64_t next_offset
    Py_ssize_t count
    uint8_t* at


cdef class _Layout:
    """Memory of one encode_records call, freed however it ends."""

    cdef DraftItem* items
    cdef Entries* entries
    cdef Blob keys
    cdef list held  # what keeps bodies that are not bytes in their place

    def __cinit__(self, Py_ssize_t count):
        self.held = []
        self.items = <DraftItem*>malloc((count + 1) * sizeof(DraftItem))
        self.entries = <Entries*>malloc((count + 1) * sizeof(Entries))
        if not (self.items and self.entries):
            raise MemoryError

    def __dealloc__(self):
        free(self.items)
        free(self.entries)
        free(self.keys.data)


cdef int read_draft(_Layout layout, DraftItem* item, tuple draft, Span store_host, int64_t body_size_max) except -1:
    """Everything but the topic; what may not be stored raises as the plain kernel does."""
    cdef object body = draft[2]
    cdef NewRecord* laid = &item.laid
    cdef Py_buffer* view
    if type(body) is bytes:  # the usual case, and a buffer's ceremony costs as much as copying a small body
        laid.body = span_of(body)
    else:
        body = memoryview(body)
        view = PyMemoryView_GET_BUFFER(body)
        if view.itemsize != 1 or not PyBuffer_IsContiguous(view, b"C"):
            raise ValueError("a body that is not a buffer of single bytes")
        layout.held.append(body)
        laid.body.at = <const uint8_t*>view.buf
        laid.body.size = view.len
    item.properties = span_of(<bytes?>draft[3])
    laid.born_host = span_of(<bytes?>draft[7])
    laid.store_host = store_host
    laid.queue_id = draft[1]
    laid.flag = draft[4]
    laid.sys_flag = draft[5]
    laid.born_ms = draft[6]
    laid.reconsume_times = draft[8]
    laid.prepared_offset = draft[9]
    if (
        laid.body.size > body_size_max or item.properties.size > 0x7FFF or has_zero(item.properties)
        or laid.sys_flag & INNER_BATCH or not is_host(laid.born_host) or not is_host(store_host)
    ):
        refuse(draft, store_host.size, body_size_max)
    laid.sys_flag = with_hosts(laid.sys_flag, laid.born_host, store_host)
    return 0


cdef int refuse(tuple draft, Py_ssize_t host_size, int64_t body_size_max) except -1:
    """The plain kernel owns the sentences, and refuses exactly this draft."""
    plain_records.encode_records([draft], 0, 0, bytes(host_size), {}, (), body_size_max)
    raise AssertionError("the two kernels disagree on what may be stored")


cdef Py_ssize_t plan(
    _Layout layout, list drafts, Span store_host, next_offsets, int64_t body_size_max, list runs
) except -1:
    """First pass, over the objects: check each draft, size it, give it a run. Returns the size of all records."""
    cdef dict numbers = {}
    cdef object topic = None, key, number, draft
    cdef int32_t run = -1, run_queue = 0
    cdef Py_ssize_t i, total = 0
    cdef Span name
    cdef DraftItem* item
    for i in range(PyList_GET_SIZE(drafts)):
        draft = drafts[i]
        if not isinstance(draft, tuple) or len(<tuple>draft) != 10:
            raise TypeError("a draft is a tuple of ten")
        item = &layout.items[i]
        # or of a class derived from it, whose items lie in the same places
        read_draft(layout, item, <tuple>draft, store_host, body_size_max)
        if (<tuple>draft)[0] is not topic:
            topic = (<tuple>draft)[0]
            run = -1
            name.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(topic, &name.size)
            if not is_topic(name):
                refuse(<tuple>draft, store_host.size, body_size_max)
        item.laid.topic = name
        item.size = <int32_t>size_of(&item.laid, item.properties.size)
        total += item.size
        if item.laid.sys_flag & PREPARED:
            item.run = -1
            continue
        if run < 0 or item.laid.queue_id != run_queue:
            run_queue = item.laid.queue_id
            key = (topic, run_queue)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(runs)
                layout.entries[len(runs)].count = 0
                layout.entries[len(runs)].next_offset = next_offsets.get(key, 0)
                runs.append((topic, run_queue, layout.entries[len(runs)].next_offset))
            run = number
        item.run = run
        layout.entries[run].count += 1
    return total


def encode_records(drafts, physical_offset, store_ms, store_host, next_offsets, delays_ms, body_size_max):
    cdef list items = list(drafts)  # nobody else can change this one between the two passes
    cdef Py_ssize_t count = PyList_GET_SIZE(items), i
    cdef _Layout layout = _Layout(count)
    cdef list heads = [], runs = []
    cdef Span host = span_of(<bytes?>store_host), properties
    cdef bytes records = PyBytes_FromStringAndSize(NULL, plan(layout, items, host, next_offsets, body_size_max, heads))
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(records)
    cdef array places = clone(_NUMBERS, count, False), queue_offsets = clone(_NUMBERS, count, False)
    cdef int64_t place = physical_offset, stored = store_ms
    cdef bytes entries
    cdef Entries* of_run
    cdef DraftItem* item
    cdef NewRecord* laid
    cdef Wanted wanted
    for i in range(PyList_GET_SIZE(heads)):
        entries = PyBytes_FromStringAndSize(NULL, layout.entries[i].count * ENTRY)
        layout.entries[i].at = <uint8_t*>PyBytes_AS_STRING(entries)
        topic, queue_id, first = <tuple>heads[i]
        runs.append((topic, queue_id, first, entries))
    for i in range(count):
        item = &layout.items[i]
        laid = &item.laid
        properties = item.properties
        find_wanted(properties.at, properties.size, &wanted)
        laid.physical_offset = place
        laid.store_ms = stored
        laid.body_crc = body_crc_of(laid.body)
        laid.queue_offset = 0
        if item.run >= 0:
            of_run = &layout.entries[item.run]
            laid.queue_offset = of_run.next_offset
            of_run.next_offset += 1
            put_entry(
                of_run.at, place, item.size,
                hash_tags(laid.topic, wanted.tags, properties.at, properties.size, stored, delays_ms),
            )
            of_run.at += ENTRY
        if laid.sys_flag & TRANSACTION != TRANSACTION:
            put_all_keys(&layout.keys, laid.topic, &wanted, place, stored)
        memcpy(encode_record(at, laid, item.size, properties.size), properties.at, properties.size)
        places.data.as_longlongs[i] = place
        queue_offsets.data.as_longlongs[i] = laid.queue_offset
        at += item.size
        place += item.size
    return records, places, queue_offsets, runs, taken(&layout.keys)


def seal_records(records):
    cdef bytes plain = <bytes?>records
    cdef bytes sealed = PyBytes_FromStringAndSize(PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(sealed)
    cdef uint8_t* end = at + PyBytes_GET_SIZE(sealed)
    cdef Py_ssize_t size
    while at < end:
        size = get32(at) if end - at >= 4 else 0
        if size < CHECKSUM_SIZE or size > end - at:
            raise ValueError(f"a record of {size} bytes, of {end - at} that are there")
        put_checksum_of(at + size - CHECKSUM_SIZE, at, size - CHECKSUM_SIZE)
        at += size
    return sealed


cdef inline int derive(_Walk walk, const uint8_t* log, int64_t* row, delays_ms) except -1 nogil:
    """Add what queues and index say of one record."""
    cdef Span topic
    cdef Wanted wanted
    cdef int64_t tag
    cdef Run* run
    topic.at = log + row[14]
    topic.size = row[15]
    find_wanted(log + row[16], row[17], &wanted)
    if not row[5] & PREPARED:
        tag = hash_tags(topic, wanted.tags, log + row[16], row[17], row[7], delays_ms)
        run = walk.run_for(topic, <int32_t>row[2], row[4])
        put_entry(grow(&run.entries, ENTRY), row[0], <int32_t>row[1], tag)
    if row[5] & TRANSACTION != TRANSACTION:
        put_all_keys(&walk.keys, topic, &wanted, row[0], row[7])
    return 0


cdef int64_t walk_on(
    _Walk walk, const uint8_t* log, int64_t* position, int64_t end, int64_t base, int check, delays_ms, int* reason
) except -2 nogil:
    """Derive from record after record; moves position, says why it ended and returns the last store time."""
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t last_store_ms = -1
    while True:
        reason[0] = read_record(log, position[0], end, base, check, row)
        if reason[0] != FOUND:
            return last_store_ms
        if row[5] & INNER_BATCH:
            reason[0] = AT_INNER_BATCH
            return last_store_ms
        derive(walk, log, row, delays_ms)
        walk.record_count += 1
        last_store_ms = row[7]
        position[0] += row[1]


def walk_records(log, position, end, physical_base, check, delays_ms):
    cdef _Walk walk = _Walk()
    cdef Py_buffer view
    cdef int64_t at = position, limit = end, base = physical_base, last_store_ms
    cdef int checked = check
    cdef int reason = AT_END
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        limit = min(limit, view.len)
        check_stretch(at, limit)
        with nogil:  # recovery walks two stretches at a time
            last_store_ms = walk_on(walk, <const uint8_t*>view.buf, &at, limit, base, checked, delays_ms, &reason)
        return walk.done(), taken(&walk.keys), walk.record_count, last_store_ms, at, reason
    finally:
        PyBuffer_Release(&view)


def find_record(log, position, end, physical_base):
    cdef Py_buffer view
    cdef int64_t at = position, limit = end, base = physical_base
    cdef const uint8_t* found
    cdef const uint8_t* start
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        limit = min(limit, view.len)
        check_stretch(at, limit)
        limit -= 36
        while at <= limit:
            found = <const uint8_t*>memchr(start + at + 4, MAGIC_V1 >> 24, limit - at + 1)
            if found == NULL:
                break
            at = found - start - 4
            if get32(found) in (
                <uint32_t>MAGIC_V1, <uint32_t>MAGIC_V2
            ) and get64(start + at + 28) == place_of(base, at):
                return at
            at += 1
        return -1
    finally:
        PyBuffer_Release(&view)


def scan_records(log, position, end, physical_base, check):
    cdef Py_buffer view
    cdef Blob columns[COLUMN_COUNT]
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t at = position, limit = end, base = physical_base
    cdef int checked = check
    cdef int reason, i
    for i in range(COLUMN_COUNT):
        columns[i].data = NULL
        columns[i].size = columns[i].room = 0
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        limit = min(limit, view.len)
        check_stretch(at, limit)
        while True:
            reason = read_record(<const uint8_t*>view.buf, at, limit, base, checked, row)
            if reason != FOUND:
                break
            for i in range(COLUMN_COUNT):
                (<int64_t*>grow(&columns[i], 8))[0] = row[i]
            at += row[1]
        arrays = [array("q") for _ in COLUMNS]
        for i in range(COLUMN_COUNT):
            arrays[i].frombytes(taken(&columns[i]))
        return arrays, at, reason
    finally:
        for i in range(COLUMN_COUNT):
            free(columns[i].data)
        PyBuffer_Release(&view)


def count_entries(entries, physical_limit):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef int64_t limit = physical_limit, previous = 0, physical_offset
    cdef int32_t size, previous_size = 0
    cdef Py_ssize_t count = 0, all_entries
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    all_entries = view.len // ENTRY
    while count < all_entries:
        at = <const uint8_t*>view.buf + count * ENTRY
        physical_offset = <int64_t>get64(at)
        size = <int32_t>get32(at + 8)
        if size <= 0 or physical_offset < 0 or physical_offset >= limit:
            break
        if not (size == PRE_BLANK_SIZE and physical_offset == 0):
            if physical_offset - previous < previous_size:  # none is below zero, so that this cannot wrap
                break
            previous = physical_offset
            previous_size = size
        count += 1
    PyBuffer_Release(&view)
    return count


cdef bint is_fitting(
    const uint8_t* entry, const uint8_t* log, int64_t log_size, int64_t base, Span topic, int64_t queue_id,
    int64_t queue_offset, int64_t number, bint has_tags
) except -1:
    """Whether an entry is what its record makes of it; `number` counts from the queue offset on."""
    cdef int64_t row[COLUMN_COUNT]
    cdef int64_t place = <int64_t>get64(entry), tag = <int64_t>get64(entry + 12), at
    cdef int32_t size = <int32_t>get32(entry + 8)
    cdef Wanted wanted
    if place == 0 and size == PRE_BLANK_SIZE and tag == 0:
        return True
    if not lies_in(place, size, base, log_size):
        return False
    at = place - base
    if read_record(log, at, at + size, base, 0, row) != FOUND or row[1] != size or row[2] != queue_id:
        return False
    if row[4] < queue_offset or <uint64_t>row[4] - <uint64_t>queue_offset != <uint64_t>number:
        return False
    if row[5] & (INNER_BATCH | PREPARED) or row[15] != topic.size or not is_same(log + row[14], topic.at, topic.size):
        return False
    if not has_tags or tag < INT32_MIN:
        return True
    find_wanted(log + row[16], row[17], &wanted)
    topic.size = 0  # its tag is that of any topic
    return tag == hash_tags(topic, wanted.tags, log + row[16], row[17], 0, ())


def fitting_entries(entries, log, physical_base, topic, queue_id, queue_offset, has_tags):
    cdef Py_buffer view, records
    cdef Span name = span_of(<bytes?>topic)
    cdef int64_t base = physical_base, of_queue = queue_id, first = queue_offset
    cdef Py_ssize_t count = 0, all_entries
    cdef bint are_tags = has_tags
    cdef const uint8_t* at
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(log, &records, PyBUF_SIMPLE)
        try:
            all_entries = view.len // ENTRY
            at = <const uint8_t*>view.buf
            while count < all_entries:
                if not is_fitting(
                    at, <const uint8_t*>records.buf, records.len, base, name, of_queue, first, count, are_tags
                ):
                    break
                at += ENTRY
                count += 1
        finally:
            PyBuffer_Release(&records)
    finally:
        PyBuffer_Release(&view)
    return count


def select_entries(entries, tag_hashes, log_min, near_from, count_max, size_max, near_limits, far_limits):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef Limits limits
    cdef int64_t physical_offset, taken_count = 0, taken_size = 0
    cdef int32_t size
    cdef Py_ssize_t scanned = 0, all_entries, wanted_count = 0
    cdef int32_t* wanted
    cdef list chosen = []
    read_limits(&limits, log_min, near_from, count_max, size_max, near_limits, far_limits)
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    all_entries = view.len // ENTRY
    try:
        wanted = hashes_of(tag_hashes, &wanted_count)
        try:
            while scanned < all_entries:
                at = <const uint8_t*>view.buf + scanned * ENTRY
                physical_offset = <int64_t>get64(at)
                size = <int32_t>get32(at + 8)
                if taken_count and is_full(&limits, physical_offset, size, taken_count, taken_size):
                    break
                scanned += 1
                if not is_there(&limits, physical_offset, size):
                    continue
                if not is_wanted(<int64_t>get64(at + 12), wanted, wanted_count):
                    continue
                chosen.append(physical_offset)
                chosen.append(size)
                taken_count += 1
                taken_size += size
            return chosen, scanned
        finally:
            free(wanted)
    finally:
        PyBuffer_Release(&view)


def heading_records(log, physical_base, chosen):
    cdef Py_buffer view
    cdef int64_t base = physical_base, place, size
    cdef Py_ssize_t number = 0, count = len(chosen) // 2
    cdef const uint8_t* at
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        while number < count:
            place = chosen[2 * number]
            size = chosen[2 * number + 1]
            if size < 36 or not lies_in(place, size, base, view.len):
                break
            at = <const uint8_t*>view.buf + (place - base)
            if <int32_t>get32(at) != size or <int64_t>get64(at + 28) != place:
                break
            if get32(at + 4) not in (<uint32_t>MAGIC_V1, <uint32_t>MAGIC_V2):
                break
            number += 1
        return number
    finally:
        PyBuffer_Release(&view)


cdef int check_index(const Py_buffer* view, int64_t slots, int64_t most) except -1:
    """Refuse a file whose entries would lie outside of it, and one that says it has more of them than fit, or fewer
    than none: what its first bytes say was once on a disk."""
    cdef int32_t number
    if slots <= 0 or slots > INT32_MAX or most < 0 or most > INT32_MAX or view.len < 40 + 4 * slots + ENTRY * most:
        raise ValueError(f"an index file of {view.len} bytes, too short for {slots} slots and {most} entries")
    number = <int32_t>get32(<const uint8_t*>view.buf + 36)
    if number < 0 or number > most:
        raise ValueError(f"a damaged index file: it says that entry {number} comes next, and has {most}")
    return 0


def put_keys(index, keys, slot_count, entry_count_max):
    cdef Py_buffer view
    cdef bytes packed = <bytes?>keys
    cdef const uint8_t* key = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef const uint8_t* keys_end = key + PyBytes_GET_SIZE(packed)
    cdef uint8_t* head
    cdef uint8_t* slot
    cdef uint8_t* entry
    cdef int64_t slots = slot_count, most = entry_count_max, seconds, begin_ms, store_ms
    cdef uint32_t modulus
    cdef int32_t number, previous, used_slots
    cdef Py_ssize_t taken_count = 0
    if PyBytes_GET_SIZE(packed) % ENTRY:
        raise ValueError(f"{PyBytes_GET_SIZE(packed)} bytes of keys, each has {ENTRY}")
    PyObject_GetBuffer(index, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        check_index(&view, slots, most)
        modulus = <uint32_t>slots
        head = <uint8_t*>view.buf
        begin_ms = <int64_t>get64(head)
        used_slots = <int32_t>get32(head + 32)
        number = max(<int32_t>get32(head + 36), 1)
        while key < keys_end and number < most:
            if key + KEYS_AHEAD * ENTRY < keys_end:  # slots are all over the file: have them fetched before their turn
                prefetch(head + 40 + <int64_t>(get32(key + KEYS_AHEAD * ENTRY) % modulus) * 4)
            slot = head + 40 + <int64_t>(get32(key) % modulus) * 4
            previous = <int32_t>get32(slot)
            if previous <= 0 or previous > number:
                previous = 0
            store_ms = <int64_t>get64(key + 12)
            if number <= 1:
                begin_ms = store_ms
                put64(head, store_ms)
                memcpy(head + 16, key + 4, 8)
            seconds = 0
            if begin_ms > 0 and store_ms > begin_ms:
                seconds = min((store_ms - begin_ms) // 1000, <int64_t>INT32_MAX)
            entry = head + 40 + slots * 4 + <int64_t>number * ENTRY
            memcpy(entry, key, 12)
            put32(entry + 12, <uint32_t>seconds)
            put32(entry + 16, previous)
            put32(slot, number)
            if previous == 0 and used_slots < INT32_MAX:
                used_slots += 1
            number += 1
            put64(head + 8, store_ms)
            memcpy(head + 24, key + 4, 8)
            key += ENTRY
            taken_count += 1
        put32(head + 32, used_slots)
        put32(head + 36, number)
        return taken_count
    finally:
        PyBuffer_Release(&view)
