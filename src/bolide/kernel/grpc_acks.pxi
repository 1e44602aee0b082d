"""An acknowledgement of RocketMQ's gRPC protocol that needs no thought; above it stands `proxy/settling.py`."""

cdef enum:
    A_GROUP = 1
    A_TOPIC = 2
    A_ENTRY = 3
    A_MESSAGE_ID = 1
    A_HANDLE = 2
    HANDLE_NUMBERS = 9  # the sixth token is a name
    HANDLE_NAME_AT = 5

ctypedef struct PlainHandle:
    int64_t numbers[HANDLE_NUMBERS]
    Span broker


cdef bint read_handle(Span text, PlainHandle* handle) noexcept nogil:
    """Eight tokens, and one that says where the message lies."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef const uint8_t* start
    cdef int token
    for token in range(HANDLE_NUMBERS):
        start = at
        while at < end and at[0] != 32:
            at += 1
        if token == HANDLE_NAME_AT:
            handle.broker.at, handle.broker.size = start, at - start
            if not handle.broker.size or not is_graphic(handle.broker):
                return False
        else:
            handle.numbers[token] = number_of(start, at - start, 18)
            if handle.numbers[token] < 0:
                return False
        if at >= end:
            return token == HANDLE_NUMBERS - 1
        at += 1
    return False


cdef bint read_ack_entry(Span left, Span* message_id, Span* handle) noexcept nogil:
    cdef ProtoField field
    cdef uint64_t seen = 0
    while left.size:
        if not read_field(&left, &field) or not field.is_text or not is_new(field.number, &seen):
            return False
        if field.number == A_MESSAGE_ID and is_graphic(field.text):
            message_id[0] = field.text
        elif field.number == A_HANDLE:
            handle[0] = field.text
        else:
            return False
    return message_id.size > 0 and handle.size > 0


cdef str ascii_text(Span text):
    return PyUnicode_DecodeASCII(<const char*>text.at, text.size, NULL)


def read_grpc_ack(bytes content not None):
    cdef Span left = span_of(content)
    cdef Span group, topic, message_id, text
    cdef ProtoField field
    cdef PlainHandle handle
    cdef uint64_t seen = 0
    group.size = topic.size = message_id.size = text.size = 0
    while left.size:
        if not read_field(&left, &field) or not field.is_text or not is_new(field.number, &seen):
            return None
        if field.number == A_GROUP:
            if not read_topic(field.text, &group):
                return None
        elif field.number == A_TOPIC:
            if not read_topic(field.text, &topic):
                return None
        elif field.number != A_ENTRY or not read_ack_entry(field.text, &message_id, &text):
            return None
    if not group.size or not topic.size or not text.size or not read_handle(text, &handle):
        return None
    if handle.numbers[4] > 2:
        return None
    return (
        ascii_text(group),
        ascii_text(topic),
        ascii_text(message_id),
        ascii_text(text),
        handle.numbers[0],
        handle.numbers[1],
        handle.numbers[2],
        handle.numbers[3],
        handle.numbers[4],
        ascii_text(handle.broker),
        handle.numbers[6],
        handle.numbers[7],
    )
