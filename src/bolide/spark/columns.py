"""Records as Arrow record batches, with the columns that both formats have.

Spark prunes no columns for a Python source, so the user's projection is taken literally here: what is not asked for is
not built. The schema is exactly the one Spark expects (order, widths, `timestamp[us, tz=UTC]`, `string`), for it
compares.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bolide import kernel
from bolide.errors import CorruptRecord
from bolide.kernel.layout import AT_BLANK, AT_END, AT_INNER_BATCH, UNCHECKED, UNPLACED, Buffer, Column
from bolide.protocol.compression import BODY_SIZE_MAX, compression_of, decompress
from bolide.spark.schema import TYPES

ROW_COUNT_MAX = 20_000
SIZE_MAX = 16 << 20
_EVER = 1 << 62

_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True)),
}
_IN_KERNEL = {"born_ts": "born_us", "store_ts": "store_us"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are wanted: None is all topics, all tags. Times are [from, until)."""

    topics: frozenset[bytes] | None = None
    tags: frozenset[bytes] | None = None
    from_ms: int = -_EVER
    until_ms: int = _EVER


EVERYTHING = Wanted()


@dataclass(frozen=True, slots=True)
class Spread:
    """One batch, how many records were seen for it, where it ended and why (`AT_END`, `AT_BLANK`, `AT_INVALID`)."""

    batch: pa.RecordBatch
    seen: int
    position: int
    reason: int


class Columns:
    """Spreads records into the named columns."""

    def __init__(self, names: Sequence[str], broker_name: str | None = None) -> None:
        self.names = tuple(names)
        self.schema = pa.schema([pa.field(name, _ARROW[TYPES[name]]) for name in names])
        self._broker_name = broker_name
        self._asked = tuple(_IN_KERNEL.get(name, name) for name in names if name != "broker_name")
        if "body" in names and "sys_flag" not in names:
            self._asked += ("sys_flag",)

    def spread(
        self,
        log: Buffer,
        position: int,
        end: int,
        physical_base: int = UNPLACED,
        *,
        check: int = UNCHECKED,
        wanted: Wanted = EVERYTHING,
        row_count_max: int = ROW_COUNT_MAX,
        size_max: int = SIZE_MAX,
    ) -> Spread:
        """The records that begin in log[position:end], as many as fit one batch."""
        built, count, packed, seen, position, reason = kernel.spread_records(
            log,
            position,
            end,
            physical_base,
            check,
            self._asked,
            row_count_max,
            size_max,
            wanted.topics,
            wanted.tags,
            wanted.from_ms,
            wanted.until_ms,
        )
        if reason == AT_INNER_BATCH:
            raise CorruptRecord(f"the record at {position} is an inner batch, which no consumer of 4.9 can read either")
        return Spread(self._batch(built, count, packed), seen, position, reason)

    def batch_of(self, body: Buffer) -> pa.RecordBatch:
        """All records of a pull answer."""
        spread = self.spread(body, 0, len(body), row_count_max=_EVER, size_max=_EVER)
        if spread.reason != AT_END:
            what = "a blank" if spread.reason == AT_BLANK else "no whole record"
            raise CorruptRecord(f"a pull answer of {len(body)} bytes has {what} at byte {spread.position}")
        return spread.batch

    def _batch(self, built: list[Column], count: int, packed: list[int]) -> pa.RecordBatch:
        found = dict(zip(self._asked, built, strict=True))
        arrays = []
        for name in self.names:
            if name == "broker_name":
                arrays.append(pa.repeat(pa.scalar(self._broker_name, pa.string()), count))
            else:
                array = _array(_ARROW[TYPES[name]], found[_IN_KERNEL.get(name, name)], count)
                arrays.append(_unpacked(array, found["sys_flag"], packed) if name == "body" and packed else array)
        if not arrays:  # nothing but the count is wanted
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _array(kind: pa.DataType, column: Column, count: int) -> pa.Array:
    if isinstance(column, bytes):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)])
    if len(column) == 3:
        valid, offsets, values = column
        buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(kind, count, buffers)
    offsets, name_offsets, names, value_offsets, values = column
    pair_count = len(name_offsets) // 4 - 1
    keys = pa.Array.from_buffers(pa.string(), pair_count, [None, pa.py_buffer(name_offsets), pa.py_buffer(names)])
    items = pa.Array.from_buffers(pa.string(), pair_count, [None, pa.py_buffer(value_offsets), pa.py_buffer(values)])
    places = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(offsets)])
    return pa.MapArray.from_arrays(places, keys, items, type=kind)


def _unpacked(bodies: pa.Array, sys_flags: Column, packed: list[int]) -> pa.Array:
    """The bodies as they were sent."""
    assert isinstance(sys_flags, bytes)
    values = bodies.to_pylist()
    for row in packed:
        sys_flag = int.from_bytes(sys_flags[4 * row : 4 * row + 4], sys.byteorder, signed=True)
        compression = compression_of(sys_flag)
        if compression is not None:
            values[row] = decompress(values[row], compression, BODY_SIZE_MAX)
    return pa.array(values, pa.binary())
