"""Where a query is, as JSON: pure functions between Spark's documents and positions by queue.

    {"v": 1, "topics": {"orders": {"broker-a": {"0": 123, "1": 9}}}, "from": {...}}

Spark compares these documents as texts, so they are built in one order, of whole numbers. It asks for the first
position more than once and keeps none of the answers; with `latest` a second answer would skip what came in between.
Hence the first offset that goes into Spark's log carries where it began (`from`), and that counts. The form of
rocketmq-spark (`{"topic": {"broker": {"0": 23}}}`) is read too; -2 stands for the earliest and -1 for the latest.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bolide.model.queue import MessageQueue

EARLIEST, LATEST = -2, -1
_FORM = 1


Offsets = Mapping[MessageQueue, int]
Document = dict[str, Any]


class Range(NamedTuple):
    """What is read of one queue: [first, end)."""

    queue: MessageQueue
    first: int
    end: int

    @property
    def row_count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a user wants to begin or to end: a word for all queues, a time, or a number for each named queue."""

    word: int | None = None
    time_ms: int | None = None
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)


class Assignment(NamedTuple):
    """Queues a user named: of a broker, or of every broker that has the topic (None)."""

    queues: frozenset[tuple[str, str | None, int]]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for topic, _, _ in self.queues}))

    def has(self, queue: MessageQueue) -> bool:
        topic, broker_name, queue_id = queue.topic, queue.broker_name, queue.queue_id
        return (topic, broker_name, queue_id) in self.queues or (topic, None, queue_id) in self.queues


def write(offsets: Offsets, start: Offsets | None = None) -> Document:
    """The document of some positions, and of where the query began if it is the first one."""
    document: Document = {"v": _FORM, "topics": _tree(offsets)}
    if start is not None:
        document["from"] = _tree(start)
    return document


def read(document: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """The positions of a document."""
    if document.get("v") != _FORM or not isinstance(document.get("topics"), dict):
        raise ValueError(f"an offset of another form than {_FORM}: {json.dumps(document)[:200]}")
    return _leaves(document["topics"])


def start_of(document: Mapping[str, Any]) -> dict[MessageQueue, int] | None:
    """Where the query began, if the document says it."""
    tree = document.get("from")
    return None if tree is None else _leaves(tree)


def _tree(offsets: Offsets) -> Document:
    tree: Document = {}
    for queue in sorted(offsets):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = int(offsets[queue])
    return tree


def _leaves(tree: object) -> dict[MessageQueue, int]:
    shape = 'expected {"topic": {"broker": {"0": 23}}}'
    if not isinstance(tree, dict):
        raise ValueError(f"{shape}, found {json.dumps(tree)[:80]}")
    found: dict[MessageQueue, int] = {}
    for topic, brokers in tree.items():
        for broker_name, queues in _members(brokers, shape):
            for number, offset in _members(queues, shape):
                if not str(number).isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                    raise ValueError(f"{shape}, found {number!r}: {offset!r} under {topic}")
                found[MessageQueue(topic, broker_name, int(number))] = offset
    return found


def _members(value: object, shape: str) -> Iterable[tuple[str, object]]:
    if not isinstance(value, dict):
        raise ValueError(f"{shape}, found {json.dumps(value)[:80]} where an object belongs")
    return value.items()


def parse_position(text: str) -> Position:
    """`earliest`, `latest` or JSON; ValueError says what is wrong with it."""
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if word is not None:
        return Position(word=word)
    tree = _json(text, "must be earliest, latest or JSON")
    if isinstance(tree, dict) and "v" in tree:
        return Position(offsets=read(tree))
    return Position(offsets=_leaves(tree))


def parse_assignment(text: str) -> Assignment:
    """`{"topic": {"broker": [0, 1]}}`, or `{"topic": [0, 1]}` for every broker that has it."""
    shape = 'must be JSON like {"orders": {"broker-a": [0, 1]}} or {"orders": [0, 1]}'
    tree = _json(text, shape)
    found: set[tuple[str, str | None, int]] = set()
    for topic, brokers in _members(tree, shape):
        named: Iterable[tuple[str | None, object]] = brokers.items() if isinstance(brokers, dict) else [(None, brokers)]
        for broker_name, numbers in named:
            if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError(f"{shape}, found {json.dumps(numbers)[:80]} under {topic}")
            found |= {(topic, broker_name, number) for number in numbers}
    if not found:
        raise ValueError(f"{shape}, and name at least one queue")
    return Assignment(frozenset(found))


def _json(text: str, otherwise: str) -> object:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise ValueError(f"{otherwise}: {problem}") from None


def advanced(start: Offsets, latest: Offsets, target: Offsets | None = None) -> dict[MessageQueue, int]:
    """How far a query may go: never back, never beyond the target, and no queue is forgotten while it is away."""
    limit = latest if target is None else {queue: min(end, latest.get(queue, end)) for queue, end in target.items()}
    return {queue: max(start.get(queue, 0), limit.get(queue, 0)) for queue in sorted({*start, *limit})}


def limited(start: Offsets, end: Offsets, rows_max: int) -> dict[MessageQueue, int]:
    """At most rows_max rows from start on, shared by how much each queue has; every queue moves on in the end."""
    counts = {queue: max(end[queue] - start.get(queue, 0), 0) for queue in end}
    total = sum(counts.values())
    if total <= rows_max:
        return dict(end)
    shares = {queue: count * rows_max // total for queue, count in counts.items()}
    left = rows_max - sum(shares.values())
    # What rounding left goes to those who lag most, one row each: the sum stays within the limit.
    for queue in sorted(counts, key=lambda each: (-(counts[each] - shares[each]), each)):
        if left <= 0:
            break
        if counts[queue] > shares[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: start.get(queue, 0) + shares[queue] for queue in end}


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """What lies between two positions; anyone who calls has put the queues that are new in `end` into `start` too."""
    return [Range(queue, start.get(queue, 0), end[queue]) for queue in sorted(end) if end[queue] > start.get(queue, 0)]
