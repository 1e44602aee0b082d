"""plain_later.py with types: the same functions, the same answers. That file has the meaning."""

cdef enum:
    STAMPS_SIZE_MAX = 160


cdef struct Found:  # the properties that say where a message belongs, and what becomes of it
    Wanted wanted
    Span topic
    Span queue
    Span mark
    Span rolled
    bint is_odd  # an empty pair, or an old stamp of the timer: not to be copied as it is


cdef void find_home(const uint8_t* at, Py_ssize_t size, Found* found) noexcept nogil:
    """One pass over the properties; the last of equal names counts, pairs with an empty side do not."""
    cdef const uint8_t* end = at + size
    cdef Span name, value
    clear_wanted(&found.wanted)
    found.topic.size = found.queue.size = found.mark.size = found.rolled.size = 0
    found.is_odd = False
    while at < end:
        at = next_pair(at, end, &name, &value)
        if name.size == 0 or (name.size == 16 and begins(name.at, literal(b"TIMER_"))):
            found.is_odd = True
        if value.size == 0 or take_wanted(name, value, &found.wanted):
            continue
        if equals(name, literal(b"REAL_QID")):
            found.queue = value
        elif equals(name, literal(b"REAL_TOPIC")):
            found.topic = value
        elif equals(name, literal(b"TIMER_DEL_UNIQKEY")):
            found.mark = value
        elif equals(name, literal(b"TIMER_ROLL_TIMES")):
            found.rolled = value


cdef inline bint is_home(Span topic) noexcept nogil:
    if not is_topic(topic) or not is_ascii(topic.at, topic.size) or leads_elsewhere(topic):
        return False
    return not equals(topic, literal(b"RMQ_SYS_TRANS_HALF_TOPIC"))


cdef Py_ssize_t put_without_stamps(uint8_t* target, const uint8_t* at, Py_ssize_t size, bint rolls) noexcept nogil:
    """Properties pair by pair, without the timer's old stamps; returns their size. Target has a byte to spare."""
    cdef const uint8_t* end = at + size
    cdef const uint8_t* pair
    cdef uint8_t* start = target
    cdef Span name, value
    while at < end:
        pair = at
        at = next_pair(pair, end, &name, &value)
        if at - 1 == pair or equals(name, literal(b"TIMER_ENQUEUE_MS")) or equals(name, literal(b"TIMER_DEQUEUE_MS")):
            continue
        if rolls and equals(name, literal(b"TIMER_ROLL_TIMES")):
            continue
        memcpy(target, pair, at - 1 - pair)
        target += at - 1 - pair
        target[0] = 2
        target += 1
    return target - start


cdef class _Stamps:
    """What the timer writes behind properties; neighbours were mostly filed at the same time."""

    cdef char text[STAMPS_SIZE_MAX]
    cdef Py_ssize_t size
    cdef int64_t filed_ms, times

    def __cinit__(self):
        self.size = 0

    cdef void write(self, int64_t filed_ms, int64_t times, int64_t stamp_ms) noexcept:
        """times is how often the message has rolled with this one, 0 for one that does not roll."""
        if self.size and self.filed_ms == filed_ms and self.times == times:
            return
        self.filed_ms = filed_ms
        self.times = times
        self.size = snprintf(self.text, 48, b"TIMER_ENQUEUE_MS\x01%lld\x02", <long long>filed_ms)
        if times:
            self.size += snprintf(self.text + self.size, 48, b"TIMER_ROLL_TIMES\x01%lld\x02", <long long>times)
        self.size += snprintf(self.text + self.size, 48, b"TIMER_DEQUEUE_MS\x01%lld\x02", <long long>stamp_ms)


cdef bint is_recalled(Span topic, Span key, recalled) except -1:
    cdef bytes name, unique_key
    if not key.size or not recalled:
        return False
    unique_key = PyBytes_FromStringAndSize(<char*>key.at, key.size)
    name = PyBytes_FromStringAndSize(<char*>topic.at, topic.size)
    return unique_key in recalled or name + b"+" + unique_key in recalled


def redeliver_records(
    log, log_base, entries, store_host, stamp_ms, rolls, recalled, size_max, physical_offset, store_ms, next_offsets
):
    cdef _Redelivery redelivery = _Redelivery()
    cdef _Stamps stamps = _Stamps()
    cdef Py_buffer view, packed
    cdef Span topic, properties
    cdef NewRecord laid
    cdef int64_t base = log_base, stamp = stamp_ms
    cdef int64_t place, position, end, queue_id, times, size, total = 0, most = size_max
    cdef int64_t row[COLUMN_COUNT]
    cdef bint is_rolled = rolls, has_recalls = bool(recalled)
    cdef Py_ssize_t seen = 0, count, stamped_size
    cdef const uint8_t* entry
    cdef const uint8_t* start
    cdef Found found
    cdef Tally* tally
    cdef list unreadable = []
    laid.store_host = span_of(<bytes?>store_host)
    check_host(laid.store_host)
    laid.physical_offset, laid.store_ms, laid.prepared_offset = physical_offset, store_ms, 0
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(entries, &packed, PyBUF_SIMPLE)
        try:
            start = <const uint8_t*>view.buf
            count = packed.len // ENTRY
            while seen < count:
                entry = <const uint8_t*>packed.buf + seen * ENTRY
                place = <int64_t>get64(entry)
                size = <int32_t>get32(entry + 8)
                if not begins_in(place, base, view.len) or (total and total + size > most):
                    break
                position = place - base
                seen += 1
                if size <= 0 or size == PRE_BLANK_SIZE:
                    continue
                total += size
                end = min(position + size, <int64_t>view.len)
                if read_record(start, position, end, base, 1, row) != FOUND or row[1] != size:
                    unreadable.append(place)
                    continue
                properties.at = start + row[16]
                properties.size = row[17]
                find_home(properties.at, properties.size, &found)
                if is_rolled:
                    topic.at = start + row[14]
                    topic.size = row[15]
                    queue_id = row[2] if 0 <= row[2] <= 999_999_999 else -1
                else:
                    topic = found.topic
                    queue_id = number_of(found.queue.at, found.queue.size, 9)
                if (
                    not is_home(topic) or queue_id < 0 or row[5] & INNER_BATCH
                    or has_zero(properties)
                ):
                    unreadable.append(place)
                    continue
                tally = redelivery.tally_of(topic)
                if not is_rolled:
                    if found.mark.size:
                        continue
                    if has_recalls and is_recalled(topic, found.wanted.unique_key, recalled):
                        tally.recalled += 1
                        continue
                if stamp >= 0:
                    times = max(number_of(found.rolled.at, found.rolled.size, 9), <int64_t>0) + 1 if is_rolled else 0
                    stamps.write(<int64_t>get64(entry + 12), times, stamp)
                    redelivery.stamped.size = 0
                    grow(&redelivery.stamped, properties.size + 1 + stamps.size)
                    if found.is_odd:
                        stamped_size = put_without_stamps(
                            redelivery.stamped.data, properties.at, properties.size, is_rolled
                        )
                    else:
                        stamped_size = properties.size
                        memcpy(redelivery.stamped.data, properties.at, stamped_size)
                        if stamped_size and redelivery.stamped.data[stamped_size - 1] != 2:
                            redelivery.stamped.data[stamped_size] = 2
                            stamped_size += 1
                    memcpy(redelivery.stamped.data + stamped_size, stamps.text, stamps.size)
                    stamped_size += stamps.size
                    if stamped_size <= 0x7FFF:
                        properties.at = redelivery.stamped.data
                        properties.size = stamped_size
                take_over(&laid, start, row)
                laid.topic = topic
                laid.queue_id = <int32_t>queue_id
                size = redelivery.put(&laid, &found.wanted, properties, next_offsets)
                laid.physical_offset += size
                tally.count += 1
                tally.size += size
            runs, tallies = redelivery.walk.done(), redelivery.done()
            return taken(&redelivery.records), runs, taken(&redelivery.walk.keys), (seen, tallies, unreadable)
        finally:
            PyBuffer_Release(&packed)
    finally:
        PyBuffer_Release(&view)


cdef enum:
    UNIT = 52
    SLOT = 32
    CHANGE = 36
    KIND_PLAIN = 1
    KIND_ROLL = 2
    KIND_MARK = 4
    KIND_MAX = 15


cdef struct Outing:  # the properties the timer files by
    Span out_ms
    Span topic
    bint is_mark
    bint has_rolled


cdef void find_outing(const uint8_t* at, Py_ssize_t size, Outing* found) noexcept nogil:
    cdef const uint8_t* end = at + size
    cdef Span name, value
    found.out_ms.size = found.topic.size = 0
    found.is_mark = found.has_rolled = False
    while at < end:
        at = next_pair(at, end, &name, &value)
        if value.size == 0:
            continue
        if equals(name, literal(b"TIMER_OUT_MS")):
            found.out_ms = value
        elif equals(name, literal(b"REAL_TOPIC")):
            found.topic = value
        elif equals(name, literal(b"TIMER_DEL_UNIQKEY")):
            found.is_mark = True
        elif equals(name, literal(b"TIMER_ROLL_TIMES")):
            found.has_rolled = True


cdef class _Filing:
    """Memory of one call, freed however it ends."""

    cdef Blob units
    cdef Blob due
    cdef Blob changes
    cdef dict slots  # number → position of its change
    cdef dict counts

    def __cinit__(self):
        self.slots = {}
        self.counts = {}

    def __dealloc__(self):
        free(self.units.data)
        free(self.due.data)
        free(self.changes.data)

    cdef uint8_t* slot_of(self, const uint8_t* wheel, int64_t slot_count, int64_t step) except NULL:
        """The slot of a step as it will be, with its number before it; an empty one has its time and no unit yet."""
        cdef int64_t number = step % slot_count
        cdef object known = self.slots.get(number)
        cdef uint8_t* change
        if known is not None:
            change = self.changes.data + <Py_ssize_t>known
        else:
            self.slots[number] = self.changes.size
            change = grow(&self.changes, CHANGE)
            put32(change, <uint32_t>number)
            memcpy(change + 4, wheel + number * SLOT, SLOT)
        if <int64_t>get64(change + 4) != step:
            put64(change + 4, step)
            put64(change + 12, <uint64_t><int64_t>-1)
            put64(change + 20, <uint64_t><int64_t>-1)
            put32(change + 28, 0)
        put32(change + 32, 0)
        return change

    cdef int file(
        self, const uint8_t* wheel, int64_t slot_count, int64_t step_ms, int64_t write_ms, int64_t due_ms, int kind,
        int64_t place, int32_t size, Outing* found, int64_t position
    ) except -1:
        cdef uint8_t* slot = self.slot_of(wheel, slot_count, due_ms // step_ms)
        cdef int64_t here = position + self.units.size
        cdef uint8_t* unit = grow(&self.units, UNIT)
        cdef int change = -1 if kind & KIND_MARK else 1
        cdef uint32_t hashed = 0
        cdef Span topic = found.topic
        name = PyUnicode_DecodeUTF8(<char*>topic.at, topic.size, b"replace") if topic.size else ""
        if not hash_ascii(topic.at, topic.size, &hashed):
            hashed = <uint32_t>(<int64_t>java_hash(name))
        put32(unit, UNIT)
        memcpy(unit + 4, slot + 20, 8)
        put32(unit + 12, kind)
        put64(unit + 16, write_ms)
        put32(unit + 24, <uint32_t>(due_ms - write_ms))
        put64(unit + 28, place)
        put32(unit + 36, size)
        put32(unit + 40, hashed)
        put64(unit + 44, 0)
        if <int64_t>get64(slot + 12) == -1:
            put64(slot + 12, here)
        put64(slot + 20, here)
        put32(slot + 28, get32(slot + 28) + <uint32_t>change)
        self.counts[name] = self.counts.get(name, 0) + (0 if found.has_rolled else change)
        return 0


def encode_units(log, log_base, entries, wheel, step_ms, write_ms, roll_steps, position, room):
    cdef _Filing filing = _Filing()
    cdef Py_buffer view, packed, slots
    cdef int64_t base = log_base, step = step_ms, now = write_ms, roll = roll_steps, first = position, left = room
    cdef int64_t place, at, end, size, out_ms, beyond_ms, steps
    cdef int64_t row[COLUMN_COUNT]
    cdef Py_ssize_t seen = 0, count
    cdef const uint8_t* entry
    cdef const uint8_t* start
    cdef uint8_t* due
    cdef Outing found
    cdef int kind
    cdef list unreadable = []
    PyObject_GetBuffer(log, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(entries, &packed, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(wheel, &slots, PyBUF_SIMPLE)
            try:
                if slots.len < SLOT or step <= 0 or now < 0:
                    raise ValueError(f"a wheel of {slots.len} bytes that turns every {step} ms has no slot for {now}")
                start = <const uint8_t*>view.buf
                count = packed.len // ENTRY
                while seen < count:
                    entry = <const uint8_t*>packed.buf + seen * ENTRY
                    place = <int64_t>get64(entry)
                    if not begins_in(place, base, view.len) or filing.units.size + UNIT > left:
                        break
                    at = place - base
                    seen += 1
                    size = <int32_t>get32(entry + 8)
                    if size <= 0 or size == PRE_BLANK_SIZE:
                        continue
                    end = min(at + size, <int64_t>view.len)
                    out_ms = -1
                    if read_record(start, at, end, base, 1, row) == FOUND and row[1] == size:
                        find_outing(start + row[16], row[17], &found)
                        out_ms = number_of(found.out_ms.at, found.out_ms.size, 18)
                    if out_ms < 0:
                        unreadable.append(place)
                        continue
                    kind = KIND_PLAIN | (KIND_MARK if found.is_mark else 0)
                    beyond_ms = out_ms - now - roll * step
                    if beyond_ms >= 0:
                        steps = roll // 2 if beyond_ms < roll // 3 * step else roll
                        kind |= KIND_ROLL
                        out_ms = now + steps * step
                    if out_ms < now:
                        due = grow(&filing.due, ENTRY)
                        memcpy(due, entry, 12)
                        put64(due + 12, <uint64_t>INT64_MAX)
                        continue
                    filing.file(
                        <const uint8_t*>slots.buf, slots.len // SLOT, step, now, out_ms, kind, place, <int32_t>size,
                        &found, first,
                    )
                return (
                    taken(&filing.units), taken(&filing.changes), taken(&filing.due), seen,
                    list(filing.counts.items()), unreadable,
                )
            finally:
                PyBuffer_Release(&slots)
        finally:
            PyBuffer_Release(&packed)
    finally:
        PyBuffer_Release(&view)


def walk_units(units, base, position, step_ms, slot_ms, count_max):
    cdef Py_buffer view
    cdef int64_t start = base, at = position, step = step_ms, wanted = slot_ms // step_ms, most = count_max
    cdef int64_t before, found = 0
    cdef int32_t kind
    cdef const uint8_t* unit
    cdef uint8_t* entry
    cdef uint8_t* kinds
    cdef bytes entries, all_kinds
    if most < 0:
        most = 0
    PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
    try:
        most = min(most, <int64_t>(view.len // UNIT))
        entries = PyBytes_FromStringAndSize(NULL, most * ENTRY)
        all_kinds = PyBytes_FromStringAndSize(NULL, most)
        entry = <uint8_t*>PyBytes_AS_STRING(entries) + most * ENTRY
        kinds = <uint8_t*>PyBytes_AS_STRING(all_kinds) + most
        while start <= at and at - start <= view.len - UNIT and found < most:
            unit = <const uint8_t*>view.buf + (at - start)
            before = <int64_t>get64(unit + 4)
            kind = <int32_t>get32(unit + 12)
            if (
                get32(unit) != UNIT or not 0 < kind <= KIND_MAX or not -1 <= before < at
                or not is_of_slot(<int64_t>get64(unit + 16), <int32_t>get32(unit + 24), step, wanted)
            ):
                at = -2 - at
                break
            entry -= ENTRY
            memcpy(entry, unit + 28, 12)
            memcpy(entry + 12, unit + 16, 8)
            kinds -= 1
            kinds[0] = <uint8_t>kind
            found += 1
            at = before
        return entries[(most - found) * ENTRY :], all_kinds[most - found :], at
    finally:
        PyBuffer_Release(&view)


cdef inline bint is_of_slot(int64_t filed_ms, int32_t delay_ms, int64_t step, int64_t wanted) noexcept nogil:
    if filed_ms > INT64_MAX - INT32_MAX or filed_ms < -INT64_MAX + INT32_MAX:
        return False  # no time, and their sum might not fit
    return floor_of(filed_ms + delay_ms, step) == wanted


cdef inline int64_t floor_of(int64_t number, int64_t step) noexcept nogil:
    """Division as Python has it: of a damaged unit the sum may be below zero."""
    cdef int64_t quotient = number // step
    return quotient - 1 if number % step < 0 else quotient
