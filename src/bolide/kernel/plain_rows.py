"""Rows into messages: what a data pipeline writes, in the plain kernel; compiled_rows.pyx is its twin.

Columns come as Arrow has them in memory, and go as items of a batch (`protocol/batch.py`), a whole record batch at a
time. The properties of an item, each with its two separators:

    TAGS, KEYS      from their columns
    those of the row's own, but for the names that RocketMQ gives a meaning
    what was made ready for a row (`labels`)
    the identity of the row, and its number behind it
    UNIQ_KEY

What is null or empty is not there. A text that holds a separator would become another property, so it is refused.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence

from bolide.kernel.layout import BATCH_ITEM, BATCH_ITEM_SIZE_MIN, PROPERTIES_SIZE_MAX, Buffer, MapColumn, TextColumn


def encode_rows(
    order: Buffer | None,
    first: int,
    identity: bytes,
    bodies: TextColumn,
    tags: TextColumn | None,
    keys: TextColumn | None,
    properties: MapColumn | None,
    labels: TextColumn | None,
    dropped: frozenset[bytes],
    ids: Sequence[str],
) -> tuple[bytes, bytes]:
    """The items of all rows one behind another, and as int64 where each ends.

    `order` has int64 numbers of rows, in the order in which they are wanted; None is all as they lie. Rows are called
    by their number from `first` on. ValueError with a sentence for a row that is no message.
    """
    row_count = len(bodies[1]) // 4 - 1
    rows: Sequence[int] = range(row_count) if order is None else memoryview(order).cast("B").cast("q")
    if len(rows) != len(ids):
        raise ValueError(f"{len(rows)} rows and {len(ids)} ids")
    parts: list[bytes] = []
    ends, end = array("q"), 0
    for row, unique_id in zip(rows, ids, strict=True):
        if not 0 <= row < row_count:
            raise ValueError(f"row {row} of {row_count}")
        number = first + row
        body = _text(bodies, row)
        if not body:
            raise ValueError(f"row {number} has an empty body; RocketMQ keeps no message without one")
        pairs = [(b"TAGS", _text(tags, row)), (b"KEYS", _text(keys, row))]
        pairs += [pair for pair in _pairs(properties, row) if pair[0] and pair[0] not in dropped]
        pairs = [(name, value) for name, value in pairs if value]
        if any(separator in text for pair in pairs for text in pair for separator in (b"\x01", b"\x02")):
            raise ValueError(f"row {number}: tags, keys and properties may not hold the characters 1 and 2")
        text = b"".join(b"%s\x01%s\x02" % pair for pair in pairs)
        text += b"%s%s%d\x02UNIQ_KEY\x01%s\x02" % (_text(labels, row), identity, number, unique_id.encode())
        if len(text) > PROPERTIES_SIZE_MAX:
            raise ValueError(f"row {number}: the properties take {len(text)} bytes, at most {PROPERTIES_SIZE_MAX} fit")
        size = BATCH_ITEM_SIZE_MIN + len(body) + len(text)
        parts += (BATCH_ITEM.pack(size, 0, 0, 0, len(body)), body, struct.pack(">h", len(text)), text)
        end += size
        ends.append(end)
    return b"".join(parts), ends.tobytes()


def _text(column: TextColumn | None, row: int) -> bytes:
    if column is None:
        return b""
    valid, offsets, values = column
    start, end = _bounds(offsets, row)
    if not _is_valid(valid, row):
        return b""
    if not 0 <= start <= end <= len(values):
        raise ValueError(f"a column of {len(values)} bytes has a text from {start} to {end}")
    return bytes(values[start:end])


def _pairs(column: MapColumn | None, row: int) -> Iterator[tuple[bytes, bytes]]:
    if column is None:
        return
    valid, offsets, names, values = column
    start, end = _bounds(offsets, row)
    if not _is_valid(valid, row):
        return
    if not 0 <= start <= end <= min(len(names[1]), len(values[1])) // 4 - 1:
        raise ValueError(f"a column of properties has pairs from {start} to {end}")
    for i in range(start, end):
        yield _text(names, i), _text(values, i)


def _bounds(offsets: Buffer, row: int) -> tuple[int, int]:
    if len(offsets) < 4 * (row + 2):
        raise ValueError(f"a column of {len(offsets) // 4 - 1} rows has no row {row}")
    start, end = struct.unpack_from("=ii", offsets, 4 * row)
    return start, end


def _is_valid(valid: Buffer | None, row: int) -> bool:
    if valid is None:
        return True
    if len(valid) <= row >> 3:
        raise ValueError(f"a bitmap of {len(valid)} bytes has no row {row}")
    return bool(valid[row >> 3] >> (row & 7) & 1)
