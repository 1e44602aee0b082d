"""All frames of some reads in; records, queue entries, keys and answers of their sends out.

A send is taken when nothing about it needs thought: its topic is in the table, its queue is there, its properties name
nothing that the broker treats apart, its numbers are plain, its body has a legal size. Everything else is left, by its
bounds, for the broker's general path, which knows all rules and every sentence. Order holds all the same: once a send
was left, later ones of its read and topic are left too, and all of them after a frame that could not be read.

What is stored of a message is what came, with `added` behind its properties; of a batch, each message as it came. A
half message (TRAN_MSG=true) goes to the topic of the rules' `half`, queue 0, and says in its properties where it
belongs. An answer is what `write_frames` would write with these ext fields: region and trace switch (ready in the
rules), then msgId, queueId (the one that was asked for), queueOffset and, where there is one, the unique key as
transactionId.

No object is made for a message: headers are scanned where they lie, and records, keys and answers grow in buffers. A
header that cannot be scanned here is shown to the plain reader, which says whether it is a send at all; if it is, it is
left, and so are the sends behind it.
"""

cdef enum:
    SEND = 10
    SEND_SHORT = 310
    SEND_BATCH = 320
    NEEDS_THOUGHT = 0x88  # system flag: the end of a transaction or an inner batch
    LEFT_TOPICS_MAX = 16
    # places of the fields, the long names SEND_SLOT_COUNT behind the short ones
    SEND_SLOT_COUNT = 13
    SEND_TOPIC = 1
    QUEUE_COUNT = 3
    QUEUE = 4
    SEND_SYS_FLAG = 5
    BORN = 6
    FLAG = 7
    SEND_PROPERTIES = 8
    TIMES = 9
    TIMES_MAX = 11
    BATCH = 12
    SEND_REQUIRED = 0xFF
    SENT = 1  # what a frame is
    SENT_PLAIN = 0  # what a message is, as metrics tell it
    SENT_ORDERED = 1
    SENT_HALF = 3

cdef struct Send:
    Head head
    uint32_t found  # a bit for each slot
    Text slots[26]


cdef struct Placed:
    int32_t run
    int32_t size
    int64_t physical_offset
    int64_t tag


cdef struct Queue:
    PyObject* known  # the topic's entry in the table
    int32_t queue_id
    int64_t first
    int64_t count
    uint8_t* entry


cdef struct SentTally:  # of the requests that are alike in all but the last three
    PyObject* known
    int32_t kind
    int32_t code
    int32_t size_class
    int64_t request_count
    int64_t count
    int64_t size


cdef int32_t size_class_of(int64_t size) noexcept nogil:
    """The place of a size among SIZE_BOUNDS (`layout.py`)."""
    if size <= 1 << 10:
        return 0
    if size <= 1 << 12:
        return 1
    if size <= 1 << 19:
        return 2
    if size <= 1 << 20:
        return 3
    if size <= 1 << 21:
        return 4
    return 5 if size <= 1 << 22 else 6


# Reading headers.

cdef int send_slot_of(const Text* key) noexcept nogil:
    """The place of a field, -1 for one that nobody here asks for."""
    cdef const char* name = key.at
    if key.size == 1:
        return name[0] - 97 if 97 <= name[0] < 97 + SEND_SLOT_COUNT else -1
    if key.size == literal(b"flag").size:
        return SEND_SLOT_COUNT + FLAG if begins(name, literal(b"flag")) else -1
    if key.size == literal(b"topic").size:
        if begins(name, literal(b"topic")):
            return SEND_SLOT_COUNT + SEND_TOPIC
        return SEND_SLOT_COUNT + BATCH if begins(name, literal(b"batch")) else -1
    if key.size == literal(b"queueId").size:
        if begins(name, literal(b"queueId")):
            return SEND_SLOT_COUNT + QUEUE
        return SEND_SLOT_COUNT + SEND_SYS_FLAG if begins(name, literal(b"sysFlag")) else -1
    if key.size == literal(b"unitMode").size:
        return SEND_SLOT_COUNT + 10 if begins(name, literal(b"unitMode")) else -1
    if key.size == literal(b"properties").size:
        return SEND_SLOT_COUNT + SEND_PROPERTIES if begins(name, literal(b"properties")) else -1
    if key.size == literal(b"defaultTopic").size:
        return SEND_SLOT_COUNT + 2 if begins(name, literal(b"defaultTopic")) else -1
    if key.size == literal(b"producerGroup").size:
        if begins(name, literal(b"producerGroup")):
            return SEND_SLOT_COUNT
        return SEND_SLOT_COUNT + BORN if begins(name, literal(b"bornTimestamp")) else -1
    if key.size == literal(b"reconsumeTimes").size:
        return SEND_SLOT_COUNT + TIMES if begins(name, literal(b"reconsumeTimes")) else -1
    if key.size == literal(b"maxReconsumeTimes").size:
        return SEND_SLOT_COUNT + TIMES_MAX if begins(name, literal(b"maxReconsumeTimes")) else -1
    if key.size == literal(b"defaultTopicQueueNums").size:
        return SEND_SLOT_COUNT + QUEUE_COUNT if begins(name, literal(b"defaultTopicQueueNums")) else -1
    return -1


cdef bint take_send_field(const Text* key, const Text* text, void* into) noexcept nogil:
    """Only properties may be other than plain."""
    cdef Send* send = <Send*>into
    cdef int slot = send_slot_of(key)
    if slot < 0:
        return text.at == NULL or is_plain(text)
    if text.at == NULL or not (is_plain(text) or slot == SEND_PROPERTIES or slot == SEND_SLOT_COUNT + SEND_PROPERTIES):
        return False
    send.slots[slot] = text[0]
    send.found |= <uint32_t>1 << slot
    return True


cdef int read_frame(const uint8_t* frame, Py_ssize_t size, Py_ssize_t* body_at, Send* send) noexcept nogil:
    """What a frame is; for a send, its fields."""
    cdef Py_ssize_t header_end = 4 + header_size_of(frame)
    cdef Head* head = &send.head
    cdef bint is_regular
    clear_head(head, take_send_field, send)
    send.found = 0
    body_at[0] = header_end
    if header_end > size:
        return IRREGULAR
    if frame[0] == BINARY_CODEC:
        is_regular = scan_binary_head(frame + 4, header_end - 4, head)
    else:
        is_regular = frame[0] == JSON_CODEC and scan_json_head(
            <const char*>frame + 4, <const char*>frame + header_end, head, scan_head_member
        )
    if not is_regular:
        return IRREGULAR
    if head.flag & RESPONSE_FLAG or (head.code != SEND and head.code != SEND_SHORT and head.code != SEND_BATCH):
        return OTHERS
    return SENT


cdef inline bint read_number(const Send* send, int slot, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    """A plain number of at most 18 digits within its bounds; what is missing and may be is 0."""
    value[0] = 0
    if not send.found >> slot & 1:
        return True
    return read_decimal(send.slots[slot].at, send.slots[slot].size, value) and low <= value[0] <= high


# Writing answers.

cdef inline uint8_t* put_hex(uint8_t* at, const uint8_t* source, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        at[0] = HEX[source[i] >> 4]
        at[1] = HEX[source[i] & 15]
        at += 2
    return at


cdef inline uint8_t* put_sized(uint8_t* at, Span name, uint8_t** size_at) noexcept nogil:
    """A binary ext entry up to its value, whose size is to be put at size_at."""
    put16(at, <uint16_t>name.size)
    size_at[0] = put_span(at + 2, name)
    return size_at[0] + 4


cdef class _Batch:
    """Everything that grows during one call, freed however it ends."""

    cdef Blob records, keys, answers, given, placed, queues, tallies
    cdef Text left_topics[LEFT_TOPICS_MAX]
    cdef int left_count
    cdef bint is_blind
    cdef int64_t physical_offset, store_ms, body_size_max, version
    cdef bint is_sync
    cdef bytes store_host, born_host, added, json_head, binary_head
    cdef object next_offsets
    cdef PyObject* known
    cdef tuple half_entry  # of the topic of half messages
    cdef PyObject* half
    cdef Text known_as  # the topic text that `known` was found by

    def __dealloc__(self):
        free(self.records.data)
        free(self.keys.data)
        free(self.answers.data)
        free(self.given.data)
        free(self.placed.data)
        free(self.queues.data)
        free(self.tallies.data)

    cdef void leave(self, const Text* topic) noexcept:
        """Later sends of this topic are left too."""
        if self.left_count == LEFT_TOPICS_MAX:
            self.is_blind = True
        else:
            self.left_topics[self.left_count] = topic[0]
            self.left_count += 1

    cdef bint is_left(self, const Text* topic) noexcept:
        cdef int i
        for i in range(self.left_count):
            if is_same_text(topic, &self.left_topics[i]):
                return True
        return self.is_blind

    cdef int find(self, const Text* topic, dict topics) except -1:
        """Look the topic up, unless it is that of the send before."""
        if self.known != NULL and is_same_text(topic, &self.known_as):
            return 0
        self.known = PyDict_GetItemWithError(topics, PyBytes_FromStringAndSize(topic.at, topic.size))
        self.known_as = topic[0]
        return 0

    cdef int32_t queue_for(self, int32_t queue_id) except -1:
        cdef Queue* queues = <Queue*>self.queues.data
        cdef int32_t count = <int32_t>(self.queues.size // <Py_ssize_t>sizeof(Queue)), i
        cdef PyObject* found
        cdef Queue* queue
        for i in range(count):
            if queues[i].known == self.known and queues[i].queue_id == queue_id:
                return i
        found = PyDict_GetItemWithError(self.next_offsets, ((<tuple>self.known)[0], queue_id))
        queue = <Queue*>grow(&self.queues, sizeof(Queue))
        queue.known = self.known
        queue.queue_id = queue_id
        queue.first = 0 if found == NULL else <int64_t><object>found
        queue.count = 0
        return count

    cdef int count_in(self, int32_t kind, int32_t code, int64_t count, int64_t size) except -1:
        """One request whose records have this size together."""
        cdef SentTally* tallies = <SentTally*>self.tallies.data
        cdef Py_ssize_t tally_count = self.tallies.size // <Py_ssize_t>sizeof(SentTally), i
        cdef int32_t size_class = size_class_of(size // count)
        cdef SentTally* tally = NULL
        for i in range(tally_count):
            if (
                tallies[i].known == self.known and tallies[i].kind == kind
                and tallies[i].code == code and tallies[i].size_class == size_class
            ):
                tally = &tallies[i]
        if tally == NULL:
            tally = <SentTally*>grow(&self.tallies, sizeof(SentTally))
            tally.known = self.known
            tally.kind = kind
            tally.code = code
            tally.size_class = size_class
            tally.request_count = tally.count = tally.size = 0
        tally.request_count += 1
        tally.count += count
        tally.size += size
        return 0

    cdef int take(self, const Send* send, const uint8_t* body, Py_ssize_t body_size, int codec) except -1:
        """Lay out one send; 0 if it needs thought, and then nothing was laid."""
        cdef int base = SEND_SLOT_COUNT if send.head.code == SEND else 0
        cdef const Text* flagged = &send.slots[base + BATCH]
        cdef int64_t unused, queue_id, sys_flag, born_ms, flag, times
        cdef bint is_batch, is_taken
        cdef SendItem item
        cdef Judged judged, inner
        cdef Py_ssize_t at = 0, size = 0
        if self.known == NULL or (send.found >> base) & SEND_REQUIRED != SEND_REQUIRED:
            return 0
        is_taken = (
            read_number(send, base + QUEUE_COUNT, INT32_MIN, INT32_MAX, &unused)
            and read_number(send, base + QUEUE, 0, <int64_t>(<tuple>self.known)[1] - 1, &queue_id)
            and read_number(send, base + SEND_SYS_FLAG, INT32_MIN, INT32_MAX, &sys_flag)
            and read_number(send, base + BORN, -1000000000000000000, 1000000000000000000, &born_ms)
            and read_number(send, base + FLAG, INT32_MIN, INT32_MAX, &flag)
            and read_number(send, base + TIMES, INT32_MIN, INT32_MAX, &times)
            and read_number(send, base + TIMES_MAX, INT32_MIN, INT32_MAX, &unused)
        )
        if not is_taken or sys_flag & NEEDS_THOUGHT or body_size == 0 or body_size > self.body_size_max:
            return 0
        is_batch = send.found >> base + BATCH & 1 and is_true(flagged.at, flagged.size)
        if not self.read_given(send, base + SEND_PROPERTIES, &item.properties):
            return 0
        judge(item.properties, &judged)
        if judged.is_apart or (judged.is_unwaited and self.is_sync):
            return 0
        if judged.has_half_mark and (not judged.is_half or judged.has_place or is_batch or self.half == NULL):
            return 0
        if sys_flag & PREPARED and not judged.is_half:
            return 0
        if not is_writable_text(judged.wanted.unique_key):
            return 0
        if is_batch:
            if not is_plain_batch(body, body_size):
                return 0
        elif judged.is_rewritten or judged.wanted.unique_key.size == 0 or (
            item.properties.size + (item.properties.at[item.properties.size - 1] != 2) + PyBytes_GET_SIZE(self.added)
            > PROPERTIES_SIZE_MAX
        ):
            return 0
        cdef PyObject* known = self.known
        cdef bytes added = self.added
        cdef int64_t place = queue_id
        if judged.is_half:
            added = self.place_of(judged.wanted.unique_key, queue_id)
            if item.properties.size + 1 + PyBytes_GET_SIZE(added) > PROPERTIES_SIZE_MAX:
                return 0
            sys_flag &= ~<int64_t>TRANSACTION
            place = 0
            self.known = self.half
        cdef int32_t run = self.queue_for(<int32_t>place)
        cdef int64_t queue_offset = (<Queue*>self.queues.data)[run].first + (<Queue*>self.queues.data)[run].count
        cdef Py_ssize_t first = self.placed.size, records_at = self.records.size
        if is_batch:
            while at < body_size:
                read_item(body + at, body_size - at, &item, &size)
                judge(item.properties, &inner)
                self.put_record(run, &item, &inner.wanted, None, sys_flag, born_ms, times)
                at += size
        else:
            item.body.at = body
            item.body.size = body_size
            item.flag = <int32_t>flag
            self.put_record(run, &item, &judged.wanted, added, sys_flag, born_ms, times)
        self.count_in(
            SENT_HALF if judged.is_half else SENT_ORDERED if judged.is_ordered else SENT_PLAIN,
            send.head.code,
            (self.placed.size - first) // <Py_ssize_t>sizeof(Placed),
            self.records.size - records_at,
        )
        self.known = known
        if not send.head.flag & ONEWAY_FLAG:
            self.put_answer(codec, send.head.opaque, first, queue_id, queue_offset, judged.wanted.unique_key)
        return 1

    cdef bytes place_of(self, Span unique_key, int64_t queue_id):
        """What is added to a half message: where it belongs, and what every message gets."""
        cdef Span topic, words
        cdef uint8_t digits[20]
        cdef Py_ssize_t digit_count = put_decimal(digits, queue_id) - digits
        cdef bytes added
        cdef uint8_t* at
        topic.at = <const uint8_t*>PyUnicode_AsUTF8AndSize((<tuple>self.known)[0], &topic.size)
        words = literal(b"__transactionId__\x01\x02REAL_TOPIC\x01\x02REAL_QID\x01\x02")
        added = PyBytes_FromStringAndSize(
            NULL, words.size + unique_key.size + topic.size + digit_count + PyBytes_GET_SIZE(self.added)
        )
        at = put_span(<uint8_t*>PyBytes_AS_STRING(added), literal(b"__transactionId__\x01"))
        at = put_span(at, unique_key)
        at = put_span(at, literal(b"\x02REAL_TOPIC\x01"))
        at = put_span(at, topic)
        at = put_span(at, literal(b"\x02REAL_QID\x01"))
        at = put_text(at, <const char*>digits, digit_count)
        at[0] = 2
        put_span(at + 1, span_of(self.added))
        return added

    cdef int read_given(self, const Send* send, int slot, Span* properties) except -1:
        """The properties as they will lie in the record; 0 for escapes beyond ASCII."""
        cdef const Text* text = &send.slots[slot]
        cdef Py_ssize_t size
        properties.at = <const uint8_t*>text.at
        properties.size = text.size if send.found >> slot & 1 else 0
        if properties.size and text.is_escaped:
            self.given.size = 0
            grow(&self.given, text.size)
            size = unescape(text, <char*>self.given.data)
            if size < 0:
                return 0
            properties.at = self.given.data
            properties.size = size
        return 1

    cdef int put_record(
        self, int32_t run, const SendItem* item, Wanted* wanted, bytes added,
        int64_t sys_flag, int64_t born_ms, int64_t times
    ) except -1:
        """One record, its entry and its keys. `added` goes behind the properties."""
        cdef Queue* queue = &(<Queue*>self.queues.data)[run]
        cdef bint is_open_ended = added is not None and item.properties.at[item.properties.size - 1] != 2
        cdef Py_ssize_t properties_size = item.properties.size + is_open_ended
        cdef Py_ssize_t size
        cdef Placed* placed
        cdef NewRecord laid
        cdef uint8_t* at
        if added is not None:
            properties_size += PyBytes_GET_SIZE(added)
        laid.topic.at = <const uint8_t*>PyUnicode_AsUTF8AndSize((<tuple>self.known)[0], &laid.topic.size)
        laid.body = item.body
        laid.born_host = span_of(self.born_host)
        laid.store_host = span_of(self.store_host)
        laid.body_crc = body_crc_of(item.body)
        laid.queue_id = queue.queue_id
        laid.flag = item.flag
        laid.sys_flag = with_hosts(<int32_t>sys_flag, laid.born_host, laid.store_host)
        laid.reconsume_times = <int32_t>times
        laid.queue_offset = queue.first + queue.count
        laid.physical_offset = self.physical_offset + self.records.size
        laid.born_ms = born_ms
        laid.store_ms = self.store_ms
        laid.prepared_offset = 0
        size = size_of(&laid, properties_size)
        placed = <Placed*>grow(&self.placed, sizeof(Placed))
        placed.run = run
        placed.size = <int32_t>size
        placed.physical_offset = laid.physical_offset
        placed.tag = hash_tags(laid.topic, wanted.tags, item.properties.at, item.properties.size, self.store_ms, ())
        put_all_keys(&self.keys, laid.topic, wanted, laid.physical_offset, self.store_ms)
        at = encode_record(grow(&self.records, size), &laid, size, properties_size)
        at = put_text(at, <const char*>item.properties.at, item.properties.size)
        if is_open_ended:
            at[0] = 2
            at += 1
        if added is not None:
            put_text(at, PyBytes_AS_STRING(added), PyBytes_GET_SIZE(added))
        queue.count += 1
        return 0

    cdef uint8_t* put_ids(self, uint8_t* at, Py_ssize_t first) noexcept:
        """The offset ids of the records placed since, joined by commas."""
        cdef const Placed* placed
        cdef Py_ssize_t position = first
        cdef uint8_t offset[8]
        while position < self.placed.size:
            placed = <const Placed*>(self.placed.data + position)
            if position > first:
                at[0] = 44
                at += 1
            at = put_hex(at, <const uint8_t*>PyBytes_AS_STRING(self.store_host), PyBytes_GET_SIZE(self.store_host))
            put64(offset, placed.physical_offset)
            at = put_hex(at, offset, 8)
            position += sizeof(Placed)
        return at

    cdef int put_answer(
        self, int codec, int64_t opaque, Py_ssize_t first, int64_t queue_id, int64_t queue_offset, Span unique_key
    ) except -1:
        cdef Py_ssize_t count = (self.placed.size - first) // <Py_ssize_t>sizeof(Placed)
        cdef bytes head = self.binary_head if codec == BINARY_CODEC else self.json_head
        cdef Py_ssize_t start = self.answers.size
        cdef Py_ssize_t room = 320 + PyBytes_GET_SIZE(head) + unique_key.size
        room += count * (2 * PyBytes_GET_SIZE(self.store_host) + 17)
        cdef uint8_t* frame = grow(&self.answers, room)
        cdef uint8_t* at
        if codec == BINARY_CODEC:
            at = self.put_binary(frame + 8, opaque, first, queue_id, queue_offset, unique_key)
        else:
            at = self.put_json(frame + 8, opaque, first, queue_id, queue_offset, unique_key)
        put32(frame, <uint32_t>(at - frame - 4))
        put32(frame + 4, (<uint32_t>codec << 24) | <uint32_t>(at - frame - 8))
        self.answers.size = start + (at - frame)
        return 0

    cdef uint8_t* put_json(
        self, uint8_t* at, int64_t opaque, Py_ssize_t first, int64_t queue_id, int64_t queue_offset, Span unique_key
    ) noexcept:
        at = put_text(at, PyBytes_AS_STRING(self.json_head), PyBytes_GET_SIZE(self.json_head))
        at = self.put_ids(at, first)
        at = put_span(at, literal(b'","queueId":"'))
        at = put_decimal(at, queue_id)
        at = put_span(at, literal(b'","queueOffset":"'))
        at = put_decimal(at, queue_offset)
        if unique_key.size:
            at = put_span(at, literal(b'","transactionId":"'))
            at = put_text(at, <const char*>unique_key.at, unique_key.size)
        at = put_span(at, literal(b'"},"flag":1,"language":"PYTHON","opaque":'))
        at = put_decimal(at, opaque)
        at = put_span(at, literal(b',"serializeTypeCurrentRPC":"JSON","version":'))
        at = put_decimal(at, self.version)
        at[0] = 125
        return at + 1

    cdef uint8_t* put_binary(
        self, uint8_t* at, int64_t opaque, Py_ssize_t first, int64_t queue_id, int64_t queue_offset, Span unique_key
    ) noexcept:
        cdef uint8_t* ext_size_at = at + BINARY_FIXED_SIZE
        cdef uint8_t* size_at = NULL
        cdef uint8_t* value
        put16(at, 0)
        at[2] = PYTHON
        put16(at + 3, <uint16_t>self.version)
        put32(at + 5, <uint32_t>opaque)
        put32(at + 9, RESPONSE_FLAG)
        put32(at + 13, 0)
        at = put_text(ext_size_at + 4, PyBytes_AS_STRING(self.binary_head), PyBytes_GET_SIZE(self.binary_head))
        value = put_sized(at, literal(b"msgId"), &size_at)
        at = self.put_ids(value, first)
        put32(size_at, <uint32_t>(at - value))
        value = put_sized(at, literal(b"queueId"), &size_at)
        at = put_decimal(value, queue_id)
        put32(size_at, <uint32_t>(at - value))
        value = put_sized(at, literal(b"queueOffset"), &size_at)
        at = put_decimal(value, queue_offset)
        put32(size_at, <uint32_t>(at - value))
        if unique_key.size:
            value = put_sized(at, literal(b"transactionId"), &size_at)
            at = put_text(value, <const char*>unique_key.at, unique_key.size)
            put32(size_at, <uint32_t>(at - value))
        put32(ext_size_at, <uint32_t>(at - ext_size_at - 4))
        return at

    cdef list runs(self):
        cdef Queue* queues = <Queue*>self.queues.data
        cdef Py_ssize_t count = self.queues.size // <Py_ssize_t>sizeof(Queue), i
        cdef const Placed* placed = <const Placed*>self.placed.data
        cdef bytes entries
        cdef list runs = []
        for i in range(count):
            entries = PyBytes_FromStringAndSize(NULL, queues[i].count * ENTRY)
            queues[i].entry = <uint8_t*>PyBytes_AS_STRING(entries)
            runs.append(((<tuple>queues[i].known)[0], queues[i].queue_id, queues[i].first, entries))
        for i in range(self.placed.size // <Py_ssize_t>sizeof(Placed)):
            put_entry(queues[placed[i].run].entry, placed[i].physical_offset, placed[i].size, placed[i].tag)
            queues[placed[i].run].entry += ENTRY
        return runs

    cdef list counted(self):
        cdef const SentTally* tallies = <const SentTally*>self.tallies.data
        cdef Py_ssize_t i
        cdef list counted = []
        for i in range(self.tallies.size // <Py_ssize_t>sizeof(SentTally)):
            counted.append((
                (<tuple>tallies[i].known)[0], tallies[i].count, tallies[i].size,
                tallies[i].kind, tallies[i].code, tallies[i].size_class, tallies[i].request_count,
            ))
        return counted


cdef int is_unicode(const Text* text) except -1:
    """Whether properties beyond ASCII are text at all; other fields were checked while scanning."""
    if text.is_ascii:
        return 1
    try:
        PyUnicode_DecodeUTF8(text.at, text.size, NULL)
    except UnicodeDecodeError:
        return 0
    return 1


cdef int may_be_send(stream, Py_ssize_t start, Py_ssize_t end) except -1:
    """What the plain reader says of a header that could not be scanned here."""
    header = plain.read_odd_header(stream, start, end)
    return header is None or (header[1] in (SEND, SEND_SHORT, SEND_BATCH) and not header[5] & RESPONSE_FLAG)


cdef int is_text_throughout(const Send* send) except -1:
    if send.found >> SEND_PROPERTIES & 1 and not is_unicode(&send.slots[SEND_PROPERTIES]):
        return 0
    cdef int slot = SEND_SLOT_COUNT + SEND_PROPERTIES
    return not send.found >> slot & 1 or is_unicode(&send.slots[slot])


cdef _Batch new_batch(tuple rules, int64_t physical_offset, int64_t store_ms, dict next_offsets):
    cdef _Batch batch = _Batch()
    batch.store_host = <bytes?>rules[0]
    batch.added = <bytes?>rules[1]
    batch.json_head = <bytes?>rules[2]
    batch.binary_head = <bytes?>rules[3]
    batch.version = rules[4]
    batch.body_size_max = rules[5]
    batch.is_sync = rules[6]
    batch.half_entry = rules[7]
    batch.half = NULL
    if batch.half_entry is not None:
        batch.half = <PyObject*>batch.half_entry
    batch.physical_offset = physical_offset
    batch.store_ms = store_ms
    batch.next_offsets = next_offsets
    check_host(span_of(batch.store_host))
    return batch


cdef tuple encode_read(_Batch batch, stream, list places, bytes born_host, dict known):
    """Lay out the sends of one read; its answers, and the bounds of what is left."""
    cdef Py_buffer buffer
    cdef list left = []
    cdef Send send
    cdef Py_ssize_t i, start, end, body_at = 0
    cdef const uint8_t* data
    cdef int kind, slot
    cdef bint is_taken
    check_host(span_of(born_host))
    check_pairs(places)
    batch.born_host = born_host
    batch.is_blind = False
    batch.left_count = 0
    batch.answers.size = 0
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>buffer.buf
        for i in range(0, len(places), 2):
            start = places[i]
            end = places[i + 1]
            check_bounds(start, end, buffer.len)
            kind = read_frame(data + start, end - start, &body_at, &send)
            is_taken = False
            if kind == IRREGULAR or not is_text_throughout(&send):
                batch.is_blind = batch.is_blind or may_be_send(stream, start, end)
            elif kind == SENT:
                slot = SEND_SLOT_COUNT + SEND_TOPIC if send.head.code == SEND else SEND_TOPIC
                if not send.found >> slot & 1:
                    batch.is_blind = True
                elif not batch.is_left(&send.slots[slot]):
                    batch.find(&send.slots[slot], known)
                    is_taken = batch.take(&send, data + start + body_at, end - start - body_at, data[start])
                    if not is_taken:
                        batch.leave(&send.slots[slot])
            if not is_taken:
                left.append(places[i])
                left.append(places[i + 1])
        return taken(&batch.answers), left
    finally:
        batch.known = NULL  # its name lies in this read
        PyBuffer_Release(&buffer)


def encode_sends(reads, topics, rules, physical_offset, store_ms, next_offsets):
    cdef dict known = <dict?>topics
    cdef list answered = []
    cdef tuple read
    if not isinstance(rules, tuple) or len(rules) != 8:
        raise TypeError("the rules are a tuple of eight")
    cdef _Batch batch = new_batch(<tuple>rules, physical_offset, store_ms, <dict?>next_offsets)
    for read in <list?>reads:
        if len(read) != 3:
            raise TypeError("a read is a tuple of three")
        answered.append(encode_read(batch, read[0], <list?>read[1], <bytes?>read[2], known))
    return taken(&batch.records), batch.runs(), taken(&batch.keys), (answered, batch.counted())
