"""Records into columns: the part of the plain kernel that a data pipeline stands on; compiled_columns.pyx is its twin.

A stretch of the commit log, or the body of a pull answer, becomes the buffers of an Arrow record batch, in one pass and
only for the columns that are asked for. Numbers are in the byte order of the machine, as Arrow has them:

    int32, int64        the values
    text and bytes      a bitmap of the rows that have one (None if all do), int32 offsets, the bytes
    properties          int32 offsets of rows into pairs; offsets and bytes of the names, and of the values

A body comes as it was stored: the rows whose body is compressed are named, and are for the caller.
"""

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence

from bolide.kernel.layout import (
    AT_END,
    AT_INNER_BATCH,
    AT_INVALID,
    COMPRESSED,
    INNER_BATCH,
    PREPARED,
    RECORD_PLACE,
    UNCHECKED,
    UNPLACED,
    Buffer,
    Column,
    Row,
    Text,
)
from bolide.kernel.plain_records import check_stretch, has_whole_body, has_whole_texts, properties_of, read_record

Pairs = dict[bytes, bytes]
Found = tuple[Row, bytes, Pairs]


def spread_records(
    log: Buffer,
    position: int,
    end: int,
    physical_base: int,
    check: int,
    wanted: Sequence[str],
    row_count_max: int,
    size_max: int,
    topics: frozenset[bytes] | None,
    tags: frozenset[bytes] | None,
    from_ms: int,
    until_ms: int,
) -> tuple[list[Column], int, list[int], int, int, int]:
    """Spread the records that begin in log[position:end] into the wanted columns.

    Rows are those of the topics and tags (None is all) that were stored from from_ms and before until_ms. What decides
    about a row is checked of every record, its checksums only if it becomes one: a log is mostly of other topics. Ends
    early with AT_END after row_count_max rows or size_max bytes of records with a row. Returns the columns, how many
    rows, which of them have a compressed body, how many records were seen, where it ended and why.
    """
    check_stretch(log, position, len(log))
    rows: list[Found] = []
    seen, taken_size, reason = 0, 0, AT_END
    has_labels = tags is not None or not _PROPERTY_COLUMNS.isdisjoint(wanted)
    while position < end and len(rows) < row_count_max and taken_size < size_max:
        base = _base_of(log, position) if physical_base < 0 else physical_base
        row = read_record(log, position, len(log), base, UNCHECKED)
        if not isinstance(row, tuple):
            reason = row
            break
        if check and not has_whole_texts(log, row, base):
            reason = AT_INVALID
            break
        if row[5] & INNER_BATCH:
            reason = AT_INNER_BATCH
            break
        topic = _text(log, row[14], row[15])
        is_hidden = physical_base >= 0 and row[5] & PREPARED
        is_wanted = not is_hidden and from_ms <= row[7] < until_ms and (topics is None or topic in topics)
        pairs = properties_of(_text(log, row[16], row[17])) if has_labels and is_wanted else {}
        is_wanted = is_wanted and (tags is None or pairs.get(b"TAGS") in tags)
        if check and is_wanted and not has_whole_body(log, position, row, check):
            reason = AT_INVALID
            break
        seen += 1
        position += row[1]
        if is_wanted:
            rows.append((row, topic, pairs))
            taken_size += row[1]
    packed = [number for number, (row, _, _) in enumerate(rows) if row[5] & COMPRESSED]
    return [_COLUMNS[name](log, rows) for name in wanted], len(rows), packed, seen, position, reason


def _base_of(log: Buffer, position: int) -> int:
    """The physical base by which the record there lies where it says."""
    if len(log) - position < RECORD_PLACE.size:
        return UNPLACED
    at: int = struct.unpack_from(">q", log, position + 28)[0]
    return at - position


def _text(log: Buffer, at: int, size: int) -> bytes:
    """UTF-8; what is not becomes U+FFFD, as Java and our client have it."""
    return bytes(log[at : at + size]).decode("utf-8", "replace").encode()


def _number(index: int, kind: str) -> Callable[[Buffer, list[Found]], Column]:
    return lambda log, rows: array(kind, [row[index] for row, _, _ in rows]).tobytes()


def _microseconds(index: int) -> Callable[[Buffer, list[Found]], Column]:
    """Of milliseconds; a time that no calendar has may be anything, as long as it fits."""
    return lambda log, rows: array("q", [_as_int64(row[index] * 1000) for row, _, _ in rows]).tobytes()


def _as_int64(value: int) -> int:
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)


def _texts(values: Sequence[bytes | None]) -> Text:
    valid = None
    if None in values:
        bits = bytearray((len(values) + 7) // 8)
        for number, value in enumerate(values):
            if value is not None:
                bits[number >> 3] |= 1 << (number & 7)
        valid = bytes(bits)
    offsets, data = _encoded(value or b"" for value in values)
    return valid, offsets, data


def _encoded(values: Iterator[bytes]) -> tuple[bytes, bytes]:
    offsets, parts = array("i", [0]), []
    for value in values:
        parts.append(value)
        offsets.append(offsets[-1] + len(value))
    return offsets.tobytes(), b"".join(parts)


def _label(name: bytes) -> Callable[[Buffer, list[Found]], Column]:
    return lambda log, rows: _texts([pairs.get(name) for _, _, pairs in rows])


def _message_ids(log: Buffer, rows: list[Found]) -> Column:
    """The producer's id; where there is none, where the record lies, as RocketMQ writes it."""
    return _texts([pairs.get(b"UNIQ_KEY") or _offset_id(log, row) for row, _, pairs in rows])


def _offset_id(log: Buffer, row: Row) -> bytes:
    host = bytes(log[row[11] : row[12] - 16])
    return (host + row[0].to_bytes(8, "big", signed=True)).hex().upper().encode()


def _property_maps(log: Buffer, rows: list[Found]) -> Column:
    offsets = array("i", [0])
    for _, _, pairs in rows:
        offsets.append(offsets[-1] + len(pairs))
    names = _encoded(name for _, _, pairs in rows for name in pairs)
    values = _encoded(value for _, _, pairs in rows for value in pairs.values())
    return offsets.tobytes(), *names, *values


_PROPERTY_COLUMNS = {"msg_id", "keys", "tags", "properties"}
_COLUMNS: dict[str, Callable[[Buffer, list[Found]], Column]] = {
    "topic": lambda log, rows: _texts([topic for _, topic, _ in rows]),
    "queue_id": _number(2, "i"),
    "queue_offset": _number(4, "q"),
    "physical_offset": _number(0, "q"),
    "msg_id": _message_ids,
    "keys": _label(b"KEYS"),
    "tags": _label(b"TAGS"),
    "properties": _property_maps,
    "born_us": _microseconds(6),
    "store_us": _microseconds(7),
    "flag": _number(3, "i"),
    "sys_flag": _number(5, "i"),
    "reconsume_times": _number(8, "i"),
    "body": lambda log, rows: _texts([bytes(log[row[12] : row[12] + row[13]]) for row, _, _ in rows]),
    "body_size": _number(13, "i"),
}
SPREAD = tuple(_COLUMNS)
