"""What is known of every record: its magic numbers, its flags, and the checksum of its body."""

cdef extern from "crc32.h":
    void crc_prepare()
    uint32_t crc32_of(const uint8_t* data, size_t size) nogil

crc_prepare()

cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194
    # system flags
    PREPARED = 0x4  # and rolled back, of a transaction: in no queue
    TRANSACTION = 0xC
    IPV6_BORN = 0x10
    IPV6_STORE = 0x20
    INNER_BATCH = 0x80
    PROPERTIES_SIZE_MAX = 0x7FFF
    RECORD_SIZE_MIN = 91
    RECORD_FIXED_SIZE = 88  # all of a record up to its body, both hosts IPv4
    BATCH_ITEM_SIZE_MIN = 22


cdef inline uint32_t body_crc_of(Span body) noexcept nogil:
    return crc32_of(body.at, body.size) & 0x7FFFFFFF


cdef inline bint leads_elsewhere(Span topic) noexcept nogil:
    """Whether a topic of this name would have its queues outside of the directory of the queues."""
    return topic.size > 0 and (topic.at[0] == 46 or memchr(topic.at, 47, topic.size) != NULL)
