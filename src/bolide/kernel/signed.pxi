"""Which frames of a read may be answered in bulk although access is checked: signed rightly, and judged before.

The signature covers the values of all ext fields but itself, in the order of their names, and then the body
(`protocol/signature.py`). A frame is admitted if it is a send or a pull, its header is regular, its signature is that
of its access key's secret, and the verdicts have what it asks for: the access key and the topic, of a pull the group
too, with a zero byte between them. Everything else is left for the general path, which says why.

Once a frame was left, later sends of the read are left too: what it stands for may have to be stored before them.
"""

cdef extern from "sha1.h":
    ctypedef struct Sha1:
        pass
    int HMAC_STATE_SIZE
    int sha1_prepare(int wants_instructions)
    void hmac_key(const uint8_t* key, size_t size, uint8_t* state) nogil
    void hmac_start(Sha1* sum, const uint8_t* state) nogil
    void hmac_end(Sha1* sum, const uint8_t* state, uint8_t* digest) nogil
    void sha1_add(Sha1* sum, const void* bytes, size_t size) nogil

sha1_prepare(1)

cdef enum:
    SIGNED_FIELDS_MAX = 48
    PULL_CODE = 11
    SIGNATURE_SIZE = 28  # of 20 bytes, in base 64
    NAMES_SIZE_MAX = 1024


cdef struct Field:
    Text key
    Text text


cdef struct Signed:
    Head head
    int count
    Field fields[SIGNED_FIELDS_MAX]
    uint8_t order[SIGNED_FIELDS_MAX]  # of the fields, by their names


cdef bint take_signed_field(const Text* key, const Text* text, void* into) noexcept nogil:
    cdef Signed* frame = <Signed*>into
    if frame.count == SIGNED_FIELDS_MAX or not is_plain(key) or text.at == NULL:
        return False
    frame.fields[frame.count].key = key[0]
    frame.fields[frame.count].text = text[0]
    frame.count += 1
    return True


cdef inline int key_order(const Text* key, const Text* other) noexcept nogil:
    cdef Py_ssize_t size = key.size if key.size < other.size else other.size
    cdef int order
    # Most names are one letter, and most pairs differ in the first.
    if size and key.at[0] != other.at[0]:
        return <uint8_t>key.at[0] - <uint8_t>other.at[0]
    order = memcmp(key.at, other.at, size)
    if order:
        return order
    return (key.size > other.size) - (key.size < other.size)


cdef bint sort_fields(Signed* frame) noexcept nogil:
    """By name; false if a name is there twice."""
    cdef int i, j, order
    for i in range(frame.count):
        j = i
        while j:
            order = key_order(&frame.fields[frame.order[j - 1]].key, &frame.fields[i].key)
            if order == 0:
                return False
            if order < 0:
                break
            frame.order[j] = frame.order[j - 1]
            j -= 1
        frame.order[j] = <uint8_t>i
    return True


cdef Text* signed_field(Signed* frame, Span name) noexcept nogil:
    """A field that is what its bytes are; NULL without it."""
    cdef int i
    for i in range(frame.count):
        if is_text(&frame.fields[i].key, name):
            return &frame.fields[i].text if is_plain(&frame.fields[i].text) else NULL
    return NULL


cdef bint read_signed(const uint8_t* at, Py_ssize_t size, Py_ssize_t* body_at, Signed* frame) noexcept nogil:
    cdef Py_ssize_t header_end = 4 + header_size_of(at)
    cdef Head* head = &frame.head
    clear_head(head, take_signed_field, frame)
    frame.count = 0
    body_at[0] = header_end
    if header_end > size:
        return False
    if at[0] == BINARY_CODEC:
        if not scan_binary_head(at + 4, header_end - 4, head):
            return False
    elif at[0] != JSON_CODEC or not scan_json_head(
        <const char*>at + 4, <const char*>at + header_end, head, scan_head_member
    ):
        return False
    return not head.flag & RESPONSE_FLAG and not head.is_twice and sort_fields(frame)


cdef bint is_same_signature(const uint8_t* digest, const Text* claimed) noexcept nogil:
    """Takes as long for every wrong one."""
    cdef const char* letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef uint8_t expected[SIGNATURE_SIZE]
    cdef uint32_t bits
    cdef int i, j, different = 0
    if claimed.size != SIGNATURE_SIZE:
        return False
    for i in range(7):
        bits = <uint32_t>digest[3 * i] << 16 | <uint32_t>digest[3 * i + 1] << 8
        bits |= <uint32_t>digest[3 * i + 2] if i < 6 else 0
        for j in range(4):
            expected[4 * i + j] = letters[bits >> (18 - 6 * j) & 63]
    expected[SIGNATURE_SIZE - 1] = 61
    for i in range(SIGNATURE_SIZE):
        different |= expected[i] ^ <uint8_t>claimed.at[i]
    return different == 0


cdef int is_signed(Signed* frame, const uint8_t* state, Blob* room, const uint8_t* body, Py_ssize_t size) except -1:
    cdef Sha1 sum
    cdef uint8_t digest[20]
    cdef const Text* claimed = signed_field(frame, literal(b"Signature"))
    cdef Text* text
    cdef Py_ssize_t resolved
    cdef int i
    if claimed == NULL:
        return 0
    hmac_start(&sum, state)
    for i in range(frame.count):
        text = &frame.fields[frame.order[i]].text
        if text == claimed:
            continue
        if text.is_escaped:
            room.size = 0
            grow(room, text.size)
            resolved = unescape(text, <char*>room.data)
            if resolved < 0:
                return 0
            sha1_add(&sum, room.data, resolved)
        else:
            sha1_add(&sum, text.at, text.size)
    sha1_add(&sum, body, size)
    hmac_end(&sum, state, digest)
    return is_same_signature(digest, claimed)


cdef struct SignedFor:
    Text access_key
    Text topic
    Text group  # of a pull; lies nowhere where a send asks
    const uint8_t* state  # of the secret; NULL if the verdicts do not have it


cdef bint read_asked(Signed* frame, SignedFor* asked) noexcept nogil:
    """False for what is neither a send nor a pull, or has not the names of one."""
    cdef const Text* access_key = signed_field(frame, literal(b"AccessKey"))
    cdef const Text* topic
    cdef const Text* group
    if frame.head.code == PULL_CODE or frame.head.code == SEND:
        topic = signed_field(frame, literal(b"topic"))
    else:
        topic = signed_field(frame, literal(b"b"))
    if access_key == NULL or topic == NULL:
        return False
    asked.access_key = access_key[0]
    asked.topic = topic[0]
    memset(&asked.group, 0, sizeof(Text))
    if frame.head.code == PULL_CODE:
        group = signed_field(frame, literal(b"consumerGroup"))
        if group == NULL:
            return False
        asked.group = group[0]
    return asked.access_key.size + asked.topic.size + asked.group.size <= NAMES_SIZE_MAX


cdef inline bint is_same_asked(const SignedFor* asked, const SignedFor* last) noexcept nogil:
    return (
        is_same_text(&asked.topic, &last.topic)
        and is_same_text(&asked.access_key, &last.access_key)
        and (asked.group.at == NULL) == (last.group.at == NULL)
        and is_same_text(&asked.group, &last.group)
    )


cdef bytes names_of(const SignedFor* asked):
    """What a verdict is kept under."""
    cdef Py_ssize_t size = asked.access_key.size + 1 + asked.topic.size
    cdef bytes names
    cdef uint8_t* at
    if asked.group.at != NULL:
        size += 1 + asked.group.size
    names = PyBytes_FromStringAndSize(NULL, size)
    at = put_text(<uint8_t*>PyBytes_AS_STRING(names), asked.access_key.at, asked.access_key.size)
    at[0] = 0
    at = put_text(at + 1, asked.topic.at, asked.topic.size)
    if asked.group.at != NULL:
        at[0] = 0
        put_text(at + 1, asked.group.at, asked.group.size)
    return names


cdef const uint8_t* state_of(const SignedFor* asked, dict states, dict verdicts) except? NULL:
    """NULL for what was not judged. The table keeps the state alive."""
    cdef PyObject* state
    if PyDict_GetItemWithError(verdicts, names_of(asked)) == NULL:
        return NULL
    state = PyDict_GetItemWithError(states, PyBytes_FromStringAndSize(asked.access_key.at, asked.access_key.size))
    if state == NULL or PyBytes_GET_SIZE(<bytes?><object>state) != HMAC_STATE_SIZE:
        return NULL
    return <const uint8_t*>PyBytes_AS_STRING(<object>state)


cdef int is_admitted(
    Signed* frame, SignedFor* last, Blob* room, const uint8_t* body, Py_ssize_t size, dict states, dict verdicts
) except -1:
    """`last` is what the frame before asked for: most frames of a read ask for the same, and are not looked up."""
    cdef SignedFor asked
    if not read_asked(frame, &asked):
        return 0
    if not is_same_asked(&asked, last):
        asked.state = state_of(&asked, states, verdicts)
        last[0] = asked
    return last.state != NULL and is_signed(frame, last.state, room, body, size)


def signing_state(secret):
    cdef bytes state = PyBytes_FromStringAndSize(NULL, HMAC_STATE_SIZE)
    cdef Span key = span_of(<bytes?>secret)
    hmac_key(key.at, key.size, <uint8_t*>PyBytes_AS_STRING(state))
    return state


def admit_signed(stream, bounds, states, verdicts):
    cdef list places = <list?>bounds, admitted = [], left = []
    cdef Py_buffer buffer
    cdef Signed frame
    cdef SignedFor last
    cdef Blob room
    cdef Py_ssize_t i, start, end, body_at = 0
    cdef const uint8_t* data
    cdef bint is_in
    cdef int64_t code
    check_pairs(places)
    memset(&room, 0, sizeof(Blob))
    memset(&last, 0, sizeof(SignedFor))
    PyObject_GetBuffer(stream, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>buffer.buf
        for i in range(0, len(places), 2):
            start = places[i]
            end = places[i + 1]
            check_bounds(start, end, buffer.len)
            is_in = False
            if read_signed(data + start, end - start, &body_at, &frame):
                code = frame.head.code
                if code == PULL_CODE or (not left and (code == SEND or code == SEND_SHORT or code == SEND_BATCH)):
                    is_in = is_admitted(
                        &frame,
                        &last,
                        &room,
                        data + start + body_at,
                        end - start - body_at,
                        <dict?>states,
                        <dict?>verdicts,
                    )
            (admitted if is_in else left).extend((places[i], places[i + 1]))
        return admitted, left
    finally:
        free(room.data)
        PyBuffer_Release(&buffer)
