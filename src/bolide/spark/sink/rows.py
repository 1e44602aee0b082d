"""Rows of a DataFrame → messages, laid together as brokers take them: pure but for the ids.

Arrow's columns stay columns: the kernel encodes a whole record batch at once (`kernel.encode_rows`), sorted by where
its rows go, and a bundle is a slice of that.

A row needs a body, and a topic unless the option names one. What it may have besides: tags, keys (a text or a list),
properties, delay (in seconds), shard (rows of one shard keep their order: they go to one queue). The columns of our own
source that a message does not take along (its old offsets and times) are passed over, so that a topic can be copied;
any other column is refused, since its values would be lost without a word.

Every message carries who wrote it, `BOLIDE_TXN = query/batch/partition/number`: the same row of a batch that was
repeated has the same query and batch, so a consumer can tell a repetition.
"""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from bolide import kernel
from bolide.client.routes import Route
from bolide.client.sending.selection import shard_queue
from bolide.errors import ClientError, ConfigError
from bolide.kernel.layout import Buffer, MapColumn, TextColumn
from bolide.model import properties as names
from bolide.model.queue import MessageQueue
from bolide.protocol.ids import UniqueIds
from bolide.protocol.staging import IDENTITY
from bolide.spark.schema import COLUMNS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql.types import StructType

MESSAGE_SIZE_MAX = 4 << 20
_BUNDLE_SIZE = 256 * 1024
BUNDLE_COUNT_MAX = 4096
STAGE_COUNT_MAX = 256  # a broker carries over a stage at a time, and serves nobody else meanwhile
_TYPES = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "delay": ("tinyint", "smallint", "int", "bigint", "float", "double"),
    "shard": ("string",),
}
# RocketMQ's levels in milliseconds: a delay that is one of them is understood by every version.
_LEVELS_MS = [1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)]


def check_sink(schema: "StructType", topic: str | None) -> None:
    """Refuse rows that could not become messages."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in found.items():
        if name not in _TYPES and name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), _TYPES, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"a message takes {', '.join(_TYPES)}"
            raise ConfigError("column", name, f"is no part of a message; {advice}")
        if name in _TYPES and kind not in _TYPES[name]:
            raise ConfigError("column", f"{name} {kind}", f"must be of type {' or '.join(_TYPES[name])}; cast it")
    if "body" not in found:
        raise ConfigError("column", "body", "is missing: every message needs one, binary or string")
    if topic is None and "topic" not in found:
        raise ConfigError("topic", None, "is missing: give the option, or a column of that name")


class Run(NamedTuple):
    """Messages of one place, one behind another."""

    topic: str
    shard: str | None
    is_delayed: bool
    encoded: memoryview
    ends: "np.ndarray[Any, np.dtype[np.int64]]"  # where each ends in `encoded`


def runs_of(batch: "pa.RecordBatch", topic: str | None, identity: str, first: int, ids: UniqueIds) -> Iterator[Run]:
    """The messages of a batch by topic and shard; `identity` begins their names, they are numbered from `first` on."""
    import numpy as np

    if not batch.num_rows:
        return
    columns = {name: batch.column(name) for name in batch.schema.names if name in _TYPES}
    for name, column in columns.items():
        _check_texts(name, column)
    if topic is None and (row := _first_without(columns["topic"])) >= 0:
        raise ClientError(f"row {first + row} has no topic; fill the column, or name one in the option topic")
    order, starts = _sorted(columns, is_topic_given=topic is not None)
    try:
        encoded, ends = _encode(columns, order, f"{IDENTITY}\x01{identity}/".encode(), first, ids.many(batch.num_rows))
    except ValueError as problem:
        raise ClientError(str(problem)) from None
    places = np.concatenate(([0], np.frombuffer(ends, np.int64)))
    sizes = np.diff(places)
    if sizes.max() > MESSAGE_SIZE_MAX:
        row = int(sizes.argmax() if order is None else order[sizes.argmax()])
        raise ClientError(f"row {first + row}: a message of {sizes.max()} bytes, at most {MESSAGE_SIZE_MAX} are taken")
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        row = start if order is None else int(order[start])
        yield Run(
            topic if topic is not None else columns["topic"][row].as_py(),
            columns["shard"][row].as_py() if "shard" in columns else None,
            "delay" in columns and bool(columns["delay"][row].as_py()),
            memoryview(encoded)[places[start] : places[end]],
            places[start + 1 : end + 1] - places[start],
        )


def _check_texts(name: str, column: "pa.Array") -> None:
    """Spark takes any bytes for a string, and a body may be any; but other programs read the rest."""
    import pyarrow as pa

    if name == "body":
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise ClientError(f"column {name} is no text: {problem}") from None


def _first_without(texts: "pa.Array") -> int:
    """The first row that has no text; -1 if all have."""
    import pyarrow.compute as pc

    found: int = pc.index(pc.fill_null(texts, ""), "").as_py()
    return found


def _sorted(columns: dict[str, Any], *, is_topic_given: bool) -> tuple[Any, list[int]]:
    """The rows' numbers by where they go, and where each place begins; None for rows of one place as they lie."""
    import numpy as np
    import pyarrow.compute as pc

    keys: Any = None
    for name in ("topic", "shard", "delay"):
        if name not in columns or (name == "topic" and is_topic_given):
            continue
        column = columns[name]
        # Of a delay it only counts whether there is one.
        values = pc.not_equal(pc.fill_null(column, 0), 0) if name == "delay" else column
        encoded = values.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy().astype(np.int64)
        keys = indices if keys is None else keys * len(encoded.dictionary) + indices
    if keys is None or (keys == keys[0]).all():
        return None, [0]
    order = np.argsort(keys, kind="stable")
    changes = np.flatnonzero(np.diff(keys[order])) + 1
    return order, [0, *changes.tolist()]


def _encode(columns: dict[str, Any], order: Any, identity: bytes, first: int, ids: list[str]) -> tuple[bytes, bytes]:
    tags, keys, properties, delays = (columns.get(name) for name in ("tags", "keys", "properties", "delay"))
    # A column says more than a property of its name.
    dropped = _OTHERS | {name for name, column in ((b"TAGS", tags), (b"KEYS", keys)) if column is not None}
    return kernel.encode_rows(
        None if order is None else memoryview(order),
        first,
        identity,
        _text_column(columns["body"]),
        None if tags is None else _text_column(tags),
        None if keys is None else _text_column(_joined(keys)),
        None if properties is None else _map_column(properties),
        None if delays is None else _text_column(_labels(delays)),
        dropped,
        ids,
    )


# RocketMQ's own properties belong to the message that was read, not to the one that is written.
_OTHERS = frozenset(name.encode() for name in {*names.RESERVED_NAMES, IDENTITY} - {names.TAGS, names.KEYS})


def _text_column(column: Any) -> TextColumn:
    """An array of texts or bytes as the kernel takes it, wherever in a larger one it lies."""
    import pyarrow as pa

    column = column.cast(pa.binary())
    _, offsets, values = column.buffers()
    return _bitmap(column), _places(column, offsets), memoryview(values or b"")


def _map_column(column: Any) -> MapColumn:
    places = _places(column, column.buffers()[1])
    return _bitmap(column), places, _text_column(column.keys), _text_column(column.items)


def _places(column: Any, offsets: Any) -> Buffer:
    return memoryview(offsets)[4 * column.offset : 4 * (column.offset + len(column) + 1)]


def _bitmap(column: Any) -> Buffer | None:
    """Which rows are not null, from the first bit on; None if all are."""
    import pyarrow.compute as pc

    return memoryview(pc.is_valid(column).buffers()[1]) if column.null_count else None


def _joined(keys: Any) -> Any:
    """Several keys as RocketMQ has them: one text, a space between two."""
    import pyarrow as pa

    if not pa.types.is_list(keys.type):
        return keys
    return pa.array([None if each is None else " ".join(filter(None, each)) for each in keys.to_pylist()], pa.string())


def _labels(delays: Any) -> Any:
    import pyarrow as pa

    return pa.array([_delay(delay_s) if delay_s else None for delay_s in delays.to_pylist()], pa.string())


def _delay(delay_s: float) -> str:
    delay_ms = round(delay_s * 1000)
    if delay_ms in _LEVELS_MS:
        return f"{names.DELAY}\x01{_LEVELS_MS.index(delay_ms) + 1}\x02"
    return f"{names.TIMER_DELAY_MS}\x01{delay_ms}\x02"


class Bundle(NamedTuple):
    """Messages for one queue as the body of one batch."""

    queue: MessageQueue
    row_count: int
    body: bytes
    is_sharded: bool  # then it belongs to this queue and no other
    is_delayed: bool = False  # then it is one message, and no broker takes it in a batch


@dataclass(slots=True)
class _Held:
    """Messages of a place that are not worth a request yet."""

    parts: list[memoryview] = field(default_factory=list)
    size: int = 0
    count: int = 0


class Bundles:
    """Gathers messages by queue until they are worth a request."""

    def __init__(self, route: Callable[[str], Route], turn: int, count_max: int = BUNDLE_COUNT_MAX) -> None:
        """`turn` is where the queues of rows without a shard begin, so that tasks do not all begin with the first."""
        self._count_max = count_max
        self._route = route
        self._turn = turn
        self._held: dict[tuple[str, MessageQueue | None], _Held] = {}

    def add(self, run: Run) -> Iterator[Bundle]:
        """Take a run; gives what has become full."""
        if run.is_delayed:
            begin = 0
            for end in run.ends.tolist():
                queue = self._queue(run.topic, run.shard)
                yield Bundle(queue, 1, bytes(run.encoded[begin:end]), run.shard is not None, is_delayed=True)
                begin = end
            return
        place = run.topic, None if run.shard is None else self._queue(run.topic, run.shard)
        held = self._held.setdefault(place, _Held())
        count, begin = 0, 0
        while count < len(run.ends):
            fitting = int(run.ends.searchsorted(begin + _BUNDLE_SIZE - held.size, "right"))
            until = min(fitting, count + self._count_max - held.count)
            if until <= count and held.count:
                yield self._bundle(place, held)
                held = self._held[place] = _Held()
                continue
            until = max(until, count + 1)  # one that is larger than a bundle goes alone
            end = int(run.ends[until - 1])
            held.parts.append(run.encoded[begin:end])
            held.size += end - begin
            held.count += until - count
            count, begin = until, end

    def rest(self) -> Iterator[Bundle]:
        """What is left at the end."""
        held, self._held = self._held, {}
        for place, each in held.items():
            if each.count:
                yield self._bundle(place, each)

    def _bundle(self, place: tuple[str, MessageQueue | None], held: _Held) -> Bundle:
        topic, queue = place
        return Bundle(queue or self._queue(topic, None), held.count, b"".join(held.parts), queue is not None)

    def _queue(self, topic: str, shard: str | None) -> MessageQueue:
        queues = self._route(topic).publish
        if not queues:
            raise ClientError(f"topic {topic} has no queue that may be written to")
        if shard is not None:
            return shard_queue(queues, shard)
        self._turn += 1
        return queues[self._turn % len(queues)]
