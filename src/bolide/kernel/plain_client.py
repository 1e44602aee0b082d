"""The client's part of the plain kernel: sends and batches out, receipts and pulled records in, many at a time.

What a client does for one message costs less than entering Python for it, so each function takes all there is: the
sends of one turn of the loop, the answers of one read, the records of one pull. Whatever is not everyday is left to who
knows all rules: a record that is compressed, an inner batch, V2 or IPv6 makes `cut_records` say None, an answer that is
no plain receipt stays in the bounds that `read_receipts` gives back.

A message to send is its body, its properties without the id (in UTF-8, each pair ended) and its flag; the id joins the
properties here. The header of a send is `head`, up to the text of the queue number, then what differs, then `tail`,
from behind the opaque number on:

    head 0","g":"1700000000000","h":"0","i":"UNIQ_KEY\\u0001...\\u0002"},"flag":0,"language":"PYTHON","opaque":7 tail

The end of a transaction is written likewise: its `head` ends before the first field that differs.
"""

import re
import struct
from collections.abc import Container
from json.encoder import encode_basestring

from bolide.kernel.layout import (
    BATCH_ITEM,
    BATCH_ITEM_SIZE_MIN,
    PROPERTIES_SIZE_MAX,
    RESPONSE_FLAG,
    Buffer,
    Header,
    Item,
    OutcomeRow,
    ReceiptRow,
)
from bolide.kernel.plain import read_headers

_COUNTER_MAX = 0xFFFF

_is_offset = re.compile("[0-7][0-9A-Fa-f]{15}").fullmatch


def unique_ids(prefix: str, at_ms: int, first: int, count: int) -> list[str]:
    """`count` ids of one time: its milliseconds of the month, and a counter of 16 bits that goes on from `first`."""
    return [f"{prefix}{at_ms:08X}{number & _COUNTER_MAX:04X}" for number in range(first, first + count)]


def write_sends(
    head: bytes, tail: bytes, born_ms: int, opaque: int, queue_ids: list[int], items: list[Item], ids: list[str]
) -> bytes:
    """The frames of many sends, numbered from `opaque` on."""
    frames: list[bytes] = []
    for i, (body, extra, flag) in enumerate(items):
        text = encode_basestring(_properties(extra, ids[i]).decode()).encode()
        numbers = b'%d","g":"%d","h":"%d","i":' % (queue_ids[i], born_ms, flag)
        header = b"".join(
            (head, numbers, text, b'},"flag":0,"language":"PYTHON","opaque":%d' % (opaque + i), tail),
        )
        frames += (struct.pack(">ii", 4 + len(header) + len(body), len(header)), header, body)
    return b"".join(frames)


def write_outcomes(head: bytes, tail: bytes, opaque: int, rows: list[OutcomeRow]) -> bytes:
    """The frames of many one-way ends, numbered from `opaque` on; the broker's ids say where the half messages lie."""
    frames: list[bytes] = []
    for i, (decision, queue_offset, offset_id, unique_id) in enumerate(rows):
        if not _is_offset(offset_id[-16:]):
            raise ValueError(f"{offset_id!r} does not end in an offset of 16 hexadecimal digits")
        text = encode_basestring(unique_id).encode()
        numbers = b'"commitOrRollback":"%d","tranStateTableOffset":"%d","commitLogOffset":"%d"' % (
            *(decision, queue_offset, int(offset_id[-16:], 16)),
        )
        end = b'},"flag":2,"language":"PYTHON","opaque":%d' % (opaque + i)
        header = b"".join((head, numbers, b',"msgId":', text, b',"transactionId":', text, end, tail))
        frames += (struct.pack(">ii", 4 + len(header), len(header)), header)
    return b"".join(frames)


def encode_items(items: list[Item], ids: list[str]) -> bytes:
    """The body of a batch."""
    parts: list[bytes] = []
    for (body, extra, flag), unique_id in zip(items, ids, strict=True):
        properties = _properties(extra, unique_id)
        size = BATCH_ITEM_SIZE_MIN + len(body) + len(properties)
        parts += (BATCH_ITEM.pack(size, 0, 0, flag, len(body)), body)
        parts += (struct.pack(">h", len(properties)), properties)
    return b"".join(parts)


def _properties(extra: bytes, unique_id: str) -> bytes:
    properties = b"%sUNIQ_KEY\x01%s\x02" % (extra, unique_id.encode())
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise ValueError(f"the properties take {len(properties)} bytes, at most {PROPERTIES_SIZE_MAX} fit")
    return properties


def read_receipts(stream: Buffer, bounds: list[int], expected: Container[int]) -> tuple[list[ReceiptRow], list[int]]:
    """The plain receipts for the opaque numbers that are expected, and the bounds of all other frames of one read."""
    rows: list[ReceiptRow] = []
    left: list[int] = []
    for i, header in enumerate(read_headers(stream, bounds)):
        row = None if header is None else _receipt(header)
        if row is None or row[0] not in expected:
            left += bounds[2 * i : 2 * i + 2]
        else:
            rows.append(row)
    return rows, left


def _receipt(header: Header) -> ReceiptRow | None:
    _, code, _, _, opaque, flag, _, fields, _ = header
    if code or not flag & RESPONSE_FLAG:
        return None
    queue_id, queue_offset = _number(fields.get("queueId"), 9), _number(fields.get("queueOffset"), 18)
    offset_ids = fields.get("msgId")
    if queue_id is None or queue_offset is None or not offset_ids or not offset_ids.isascii():
        return None
    return opaque, queue_id, queue_offset, offset_ids


def _number(text: str | None, digit_count_max: int) -> int | None:
    if not text or len(text) > digit_count_max or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
