"""Rows of a DataFrame → messages, laid together as brokers take them: pure but for the ids.

A row needs a body, and a topic unless the option names one. What it may have besides: tags, keys (a text or a list),
properties, delay (in seconds), shard (rows of one shard keep their order: they go to one queue). The columns of our own
source that a message does not take along (its old offsets and times) are passed over, so that a topic can be copied;
any other column is refused, since its values would be lost without a word.

Every message carries who wrote it, `BOLIDE_TXN = query/batch/partition/number`: the same row of a batch that was
repeated has the same query and batch, so a consumer can tell a repetition.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bolide import kernel
from bolide.client.routes import Route
from bolide.client.selection import shard_queue
from bolide.errors import ClientError, ConfigError
from bolide.kernel.plain_client import Item
from bolide.model import properties as names
from bolide.model.queue import MessageQueue
from bolide.protocol.ids import UniqueIds
from bolide.protocol.staging import IDENTITY
from bolide.spark.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BODY_SIZE_MAX = 4 << 20
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
_SEPARATORS = ("\x01", "\x02")
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


class Row(NamedTuple):
    """A message before its queue is chosen."""

    topic: str
    item: Item
    shard: str | None
    is_delayed: bool


def rows_of(batch: "pa.RecordBatch", topic: str | None, identity: str, first: int) -> Iterator[Row]:
    """The messages of a batch; `identity` begins their names, and they are numbered from `first` on."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in _TYPES}
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    topics = [topic] * count if topic is not None else columns["topic"]
    tags, keys, shards = (columns.get(name, nothing) for name in ("tags", "keys", "shard"))
    delays, properties = columns.get("delay", nothing), columns.get("properties")
    identity = f"{IDENTITY}\x01{identity}/"
    for i, body in enumerate(columns["body"]):
        if not topics[i]:
            raise ClientError(f"row {first + i} has no topic; fill the column, or name one in the option topic")
        labels = f"TAGS\x01{tags[i]}\x02" if tags[i] else ""
        if keys[i]:
            labels += f"KEYS\x01{keys[i] if isinstance(keys[i], str) else ' '.join(keys[i])}\x02"
        if properties is not None and properties[i]:
            labels += _own(dict(properties[i]), has_tags="tags" in columns, has_keys="keys" in columns)
        if delays[i]:
            labels += _delay(delays[i])
        extra = f"{labels}{identity}{first + i}\x02"
        if extra.count("\x01") != extra.count("\x02") or (labels and _is_broken(tags[i], keys[i])):
            raise ClientError(f"row {first + i}: tags, keys and properties may not hold the characters 1 and 2")
        body = body.encode() if isinstance(body, str) else body
        if not body:
            raise ClientError(f"row {first + i} has an empty body; RocketMQ keeps no message without one")
        yield Row(topics[i], (body, extra.encode(), 0), shards[i], bool(delays[i]))


def _is_broken(tags: str | None, keys: object) -> bool:
    text = f"{tags or ''}{keys or ''}"
    return any(separator in text for separator in _SEPARATORS)


def _own(properties: Mapping[str, str], *, has_tags: bool, has_keys: bool) -> str:
    """The user's properties; those of RocketMQ's own belong to the message that was read, not to the one written."""
    kept = {name: value for name, value in properties.items() if name not in names.RESERVED_NAMES and name != IDENTITY}
    for name, has_column in ((names.TAGS, has_tags), (names.KEYS, has_keys)):
        if not has_column and name in properties:
            kept[name] = properties[name]
    for name, value in kept.items():
        if any(separator in f"{name}{value}" for separator in _SEPARATORS):
            raise ClientError(f"property {name!r} may not hold the characters 1 and 2, RocketMQ's separators")
    return "".join(f"{name}\x01{value}\x02" for name, value in kept.items() if name and value)


def _delay(delay_s: float) -> str:
    delay_ms = round(delay_s * 1000)
    if delay_ms in _LEVELS_MS:
        return f"{names.DELAY}\x01{_LEVELS_MS.index(delay_ms) + 1}\x02"
    return f"{names.TIMER_DELAY_MS}\x01{delay_ms}\x02"


class Bundle(NamedTuple):
    """Messages for one queue as the body of one batch; a delayed one is alone."""

    queue: MessageQueue
    row_count: int
    body: bytes
    is_sharded: bool  # then it belongs to this queue and no other
    alone: Item | None = None


class Bundles:
    """Gathers rows by queue until they are worth a request."""

    def __init__(
        self, route: Callable[[str], Route], ids: UniqueIds, turn: int, count_max: int = BUNDLE_COUNT_MAX
    ) -> None:
        """`turn` is where the queues of rows without a shard begin, so that tasks do not all begin with the first."""
        self._count_max = count_max
        self._route = route
        self._ids = ids
        self._turn = turn
        self._held: dict[tuple[str, MessageQueue | None], tuple[list[Item], int]] = {}

    def add(self, row: Row) -> Iterator[Bundle]:
        """Take a row; gives what has become full."""
        item = row.item
        size = len(item[0]) + len(item[1])
        if size > BODY_SIZE_MAX:
            raise ClientError(f"a message of {size} bytes for {row.topic}, at most {BODY_SIZE_MAX} are taken")
        if row.is_delayed:
            yield Bundle(self._queue(row.topic, row.shard), 1, b"", row.shard is not None, item)
            return
        place = row.topic, None if row.shard is None else self._queue(row.topic, row.shard)
        items, held_size = self._held.get(place) or ([], 0)
        if items and (held_size + size > _BUNDLE_SIZE or len(items) >= self._count_max):
            yield self._bundle(place, items)
            items, held_size = [], 0
        items.append(item)
        self._held[place] = items, held_size + size

    def rest(self) -> Iterator[Bundle]:
        """What is left at the end."""
        held, self._held = self._held, {}
        for place, (items, _) in held.items():
            yield self._bundle(place, items)

    def _bundle(self, place: tuple[str, MessageQueue | None], items: Sequence[Item]) -> Bundle:
        topic, queue = place
        try:
            body = kernel.lay_items(list(items), self._ids.many(len(items)))
        except ValueError as problem:
            raise ClientError(f"a message for {topic}: {problem}") from None
        return Bundle(queue or self._queue(topic, None), len(items), body, queue is not None)

    def _queue(self, topic: str, shard: str | None) -> MessageQueue:
        queues = self._route(topic).publish
        if not queues:
            raise ClientError(f"topic {topic} has no queue that may be written to")
        if shard is not None:
            return shard_queue(queues, shard)
        self._turn += 1
        return queues[self._turn % len(queues)]
