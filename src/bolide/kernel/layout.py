"""What lies where: every struct, size and position, and the shape of every tuple that the kernel takes or gives.

Drawn once, here; the kernels and all rooms above read it. Everything is big-endian, as Java writes it.

A frame on the wire:

    total length  int32   the bytes that follow: 4 + header + body
    header word   int32   top byte the codec (0 JSON, 1 binary), low 24 bits the header length
    header, body

A record of the commit log, both hosts IPv4 (each grows by 12 bytes when its bit in the system flag says IPv6):

      0 total size   i32     20 queue offset    i64     64 store host          4 or 16 bytes, port i32
      4 magic        i32     28 physical offset i64     72 reconsume times     i32
      8 body CRC     i32     36 system flag     i32     76 prepared offset     i64
     12 queue id     i32     40 born            i64     84 body size i32, body
     16 flag         i32     48 born host               .. topic size i8 (V1) or i16 (V2), topic
                             56 stored          i64     .. properties size i16, properties

A queue entry is physical offset i64, size i32, tag hash i64. A key, on its way to the hash index, is the hash of
`topic#key` i32, physical offset i64, store time i64. Both are 20 bytes.

An index file: begin and end (store time i64, then physical offset i64), used slots i32, number of the next entry i32;
then the slots, each the number of the newest entry of its chain i32; then the entries: key hash i32, physical offset
i64, seconds since the file's begin i32, number of the entry before it in the chain i32.

A unit of the timer's log: size i32, place of the unit before it in the same slot i64 (-1 without one), kind i32, filed
i64, milliseconds from then to its slot i32, place of the message in the commit log i64 and its size i32, hash of its
topic i32, 0 i64. A slot of its wheel: time in steps i64, places of its first and last unit i64, count i32, 0 i32.

A message in a batch: size i32, magic i32, CRC i32, flag i32, body size i32, body, properties size i16, properties.
"""

import struct
from typing import Any, NamedTuple

Buffer = bytes | bytearray | memoryview

# Frames

JSON_CODEC = 0
BINARY_CODEC = 1
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
PYTHON = LANGUAGES.index("PYTHON")
OTHER = LANGUAGES.index("OTHER")

# Binary header: code, language, version, opaque, flag, remark length; then the remark, the ext length, the ext entries.
BINARY_FIXED = struct.Struct(">hBhiii")
BINARY_SIZE_MIN = 21
HEADER_SIZE_MAX = (1 << 24) - 1

# codec, code, language, version, opaque, flag, remark, ext fields, position of the body
Header = tuple[int, int, int, int, int, int, str | None, dict[str, str], int]
# codec, code, language, version, opaque, flag, remark, ext fields, body
Frame = tuple[int, int, int, int, int, int, str | None, dict[str, str] | None, Buffer]

# Records

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_SIZE = 8
RECORD_SIZE_MIN = 91  # nothing in it has a length, both hosts IPv4
RECORD_HEAD = struct.Struct(">IIIiiqqiq")  # total size … born: 48 bytes
RECORD_TAIL = struct.Struct(">iqi")  # reconsume times, prepared offset, body size
RECORD_PLACE = struct.Struct(">iI20xq")  # its size, magic, and its own place
RECORD_FIXED = struct.Struct(">iIIiiqqiq4siq4siiqi")  # all of it up to its body, both hosts IPv4: 88 bytes
PAGE_SIZE = 4096

# The system flag.
COMPRESSED = 0x1
PREPARED = 0x4  # and rolled back, of a transaction: in no queue
COMMITTED = 0x8
ROLLED_BACK = 0xC
TRANSACTION = 0xC
IPV6_BORN = 0x10
IPV6_STORE = 0x20
INNER_BATCH = 0x80
IN_QUEUE = (0x0, COMMITTED)  # of the transaction's types

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
RETRY_PREFIX = b"%RETRY%"
TOPIC_SIZE_MAX = 127
RETRY_TOPIC_SIZE_MAX = 255
PROPERTIES_SIZE_MAX = 0x7FFF

# Why a walk over the log ended.
AT_END, AT_BLANK, AT_INVALID, AT_INNER_BATCH = range(4)

# How much of a record is checked: nothing, its body's checksum, and that of the whole record, which it must have then.
UNCHECKED, BODY_CHECKED, WHOLE_CHECKED = range(3)
CHECKSUM_NAME = b"__CRC32#\x01"
# The property by which a record vouches for all before it: ten digits, the last one first.
BLANK_CHECKSUM = CHECKSUM_NAME + b"0" * 10 + b"\x02"

# topic, queue id, body, properties, flag, system flag, born, born host, reconsume times, prepared offset
Draft = tuple[str, int, Buffer, bytes, int, int, int, bytes, int, int]
# the columns of one record
Row = tuple[int, ...]

COLUMNS = (
    "physical_offset",
    "size",
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",
    "born_ms",
    "store_ms",
    "reconsume_times",
    "prepared_offset",
    "born_host",  # this and what follows are positions in the scanned buffer
    "store_host",
    "body",
    "body_size",
    "topic",
    "topic_size",
    "properties",
    "properties_size",
)

# Queues and the index

ENTRY = struct.Struct(">qiq")
ENTRY_SIZE = 20
NOTHING_SIZE = 0x7FFF_FFFF
# An entry that stands for nothing: it fills a queue's first file below the queue's first offset.
PRE_BLANK = ENTRY.pack(0, NOTHING_SIZE, 0)
KEY = struct.Struct(">iqq")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_HEADER_SIZE = 40
INDEX_ENTRY = struct.Struct(">iqii")
INDEX_ENTRY_SIZE = 20

# topic, queue id, queue offset of the first entry, entries without a gap
Run = tuple[str, int, int, bytes]

# Sends

SEND, SEND_SHORT, SEND_BATCH = 10, 310, 320
# group, topic, default topic, its queue count, queue, system flag, born, flag; then what may be missing: properties,
# reconsume times, unit mode, limit of reconsume times, batch
LONG_NAMES = (
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
)
SHORT_NAMES = tuple("abcdefghijklm")
BATCH_ITEM = struct.Struct(">iiiii")  # a message of a batch, up to its body
BATCH_ITEM_SIZE_MIN = 22


class SendRules(NamedTuple):
    """What holds for every send until the broker's settings change.

    `json_head` begins an answer up to the text of msgId; `binary_head` is the ext entries before it.
    """

    store_host: bytes
    added: bytes
    json_head: bytes
    binary_head: bytes
    version: int
    body_size_max: int
    is_sync: bool
    half: tuple[str, int] | None = None  # the topic of half messages and its queues; without one they are left


# stream, bounds, who sent it
Read = tuple[Buffer, list[int], bytes]
# What a message is, as metrics tell it; the kernel takes no delayed one.
PLAIN_MESSAGE, ORDERED_MESSAGE, DELAYED_MESSAGE, HALF_MESSAGE = range(4)
# Where a class of sizes ends; one more is above the last. A request is in that of its messages' average.
SIZE_BOUNDS = (1 << 10, 1 << 12, 1 << 19, 1 << 20, 1 << 21, 1 << 22)
# topic, messages, their bytes in the log; of requests that are alike in what follows: what the messages are, request
# code, class of sizes; and how many requests they are
SentTally = tuple[str, int, int, int, int, int, int]
# answers and bounds of what is left, for each read; what was stored
Sent = tuple[list[tuple[bytes, list[int]]], list[SentTally]]

# Pulls

PULL_REQUESTS = (11, 361)
# group, topic, queue id, offset, most messages, most bytes (0: not said), flags, offset to commit, how long it may wait
# in ms, version of the subscription, expression, its type
Pull = tuple[str, str, int, int, int, int, int, int, int, int, str | None, str | None]
# codec, code, opaque, the pull
PullRequest = tuple[int, int, int, Pull]

# Transactions

END_TRANSACTION = 37
# What became of a half message: nothing yet, or nothing and no round looks at it.
UNDECIDED, WAITING = 0, 2
# physical offset and queue offset of the half message, what becomes of it, whether its producer was asked, its group
Outcome = tuple[int, int, int, bool, bytes]
# Records, entries, keys; then how many ends were looked at, what became of which half offset, how many messages of how
# many bytes each topic got, and the ends that were left.
EncodedOutcomes = tuple[bytes, list[Run], bytes, tuple[int, dict[int, int], list[tuple[str, int, int]], list[Outcome]]]

# What waits

UNIT = struct.Struct(">iqiqiqiiq")
UNIT_SIZE = 52
SLOT = struct.Struct(">qqqii")
SLOT_SIZE = 32
CHANGE = struct.Struct(">iqqqii")  # the slot's number, then its 32 bytes
CHANGE_SIZE = 36
KIND_PLAIN, KIND_ROLL, KIND_MARK = 1, 2, 4
KIND_MAX = 15
NEVER_FILED = (1 << 63) - 1  # when a message was filed that was due already

# Of one topic: how many messages were laid out, their bytes, and how many were recalled instead.
Tally = tuple[str, int, int, int]
# Records, entries, keys; then how many entries were looked at, the tallies, and the places that hold nothing readable.
Redelivered = tuple[bytes, list[Run], bytes, tuple[int, list[Tally], list[int]]]
# Units, changes of slots, entries of messages that are due already; then how many entries were looked at, what became
# more of each topic (one that rolled is not new), and the places that hold nothing readable.
Filed = tuple[bytes, bytes, bytes, int, list[tuple[str, int]], list[int]]

# The client

# body, properties without the id, flag
Item = tuple[bytes, bytes, int]
# how a transaction ended, offset in the half queue, the broker's id of the half message, its own
OutcomeRow = tuple[int, int, str, str]
# opaque, queue, offset in it, the broker's ids
ReceiptRow = tuple[int, int, int, str]
# A send of the gRPC protocol: topic, message id, properties as they are stored, body, born_ms.
GrpcSend = tuple[str, str, str, bytes, int]
# A frame of HTTP/2, by its kind: a request (stream, headers by name with their size, headers, data), a ping, a window.
Http2Item = tuple[Any, ...]
# An acknowledgement of one message by gRPC: group, topic, message id, handle, and what the handle says.
GrpcAck = tuple[str, str, str, str, int, int, int, int, int, str, int, int]
# A popped message as gRPC carries it: the encoded answer, its handle, its tag.
GrpcReceived = tuple[bytes, str, str | None]
# position in the buffer, queue offset, body
RecordRow = tuple[int, int, bytes]

# Columns, as Arrow has them

UNPLACED = -1  # instead of a physical base: records that may lie anywhere, as in a pull answer

# out: a bitmap of the rows that have one (None if all do), int32 offsets, the bytes
Text = tuple[bytes | None, bytes, bytes]
# int32 offsets of rows into pairs; offsets and bytes of the names, and of the values
Properties = tuple[bytes, bytes, bytes, bytes, bytes]
Column = bytes | Text | Properties
# in: a bitmap, int32 offsets, the bytes
TextColumn = tuple[Buffer | None, Buffer, Buffer]
# a bitmap, int32 offsets of rows into pairs, the names, the values
MapColumn = tuple[Buffer | None, Buffer, TextColumn, TextColumn]

# Headers of HTTP/2 (RFC 7541): how many bits of code each octet has, and the end; and the pairs that everybody knows.

HUFFMAN_SIZES = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b080606060505"
    "050606060606060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f050605"
    "06050606060507070606060506070605050607070707070f0b0e0d1c14161414161616171617171717171817181816171817"
    "1717171516171617171816151416161717151716161815161717151516151716171714161616171616171a1a141316171619"
    "1a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c"
    "1b1b1b1b1b1a1e"
)
_STATIC_TEXT = """
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
"""
STATIC_HEADERS = tuple(
    (name, value) for name, _, value in (line.encode().partition(b" ") for line in _STATIC_TEXT.strip().splitlines())
)
