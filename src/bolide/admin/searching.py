"""Looking for messages by time, tag and what is in them: the newest first, and with limits that are told.

Queues are read backwards, block by block, and merged by the time of storing. A search ends when enough was found, when
all was read, or at a limit of time, records or bytes; it says which, and `cursor` is where the next one goes on.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bolide.admin.json_paths import parse_json_path
from bolide.client.consuming.subscriptions import EVERYTHING, Expression
from bolide.client.pulling.puller import PullConsumer
from bolide.clock import Clock
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue

EVER_MS = (1 << 62) - 1
_BLOCK_FIRST, _BLOCK_MAX, _PULL_COUNT = 64, 4096, 256
Cursor = Mapping[MessageQueue, int]  # the offset before which a queue is still to be read


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """How much one search may read."""

    time_s: float = 10.0
    record_count: int = 200_000
    size: int = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for; the expression is the broker's to judge, `holds` ours."""

    topic: str
    begin_ms: int = 0
    end_ms: int = EVER_MS
    expression: Expression = EVERYTHING
    holds: Callable[[StoredMessage], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Place:
    """A message, and the queue it lies in."""

    queue: MessageQueue
    message: StoredMessage


@dataclass(slots=True)
class SearchResult:
    """What was found, and what was done for it. `stopped_by` is empty when everything was read."""

    found: list[Place] = field(default_factory=list)
    queue_count: int = 0
    read_count: int = 0
    read_size: int = 0
    stopped_by: str = ""
    cursor: dict[MessageQueue, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """One queue: what lies before `high` is still to be read, down to `low`."""

    queue: MessageQueue
    low: int
    high: int
    block: int = _BLOCK_FIRST
    held: list[Place] = field(default_factory=list)  # matching, newest last, not given yet

    @property
    def is_dry(self) -> bool:
        return not self.held and self.high > self.low


async def search(
    consumer: PullConsumer,
    wanted: Wanted,
    count_max: int,
    limits: SearchLimits,
    clock: Clock,
    cursor: Cursor | None = None,
) -> SearchResult:
    """The newest matching messages, or those before a cursor."""
    result = SearchResult()
    queues = await consumer.queues(wanted.topic)
    result.queue_count = len(queues)
    readings = await asyncio.gather(*(_reading(consumer, queue, wanted, (cursor or {}).get(queue)) for queue in queues))
    deadline_s = clock.monotonic_s() + limits.time_s
    while len(result.found) < count_max:
        dry = [reading for reading in readings if reading.is_dry]
        if dry:
            result.stopped_by = _stop(result, limits, clock.monotonic_s() > deadline_s)
            if result.stopped_by:
                break
            await asyncio.gather(*(_read(consumer, reading, wanted, result) for reading in dry))
            continue
        newest = max(
            (each for each in readings if each.held), key=lambda each: _order(each.held[-1].message), default=None
        )
        if newest is None:
            break
        result.found.append(newest.held.pop())
    # What was read and not given is read again by the next one.
    result.cursor = {
        each.queue: each.held[-1].message.queue_offset + 1 if each.held else each.high for each in readings
    }
    is_more = any(each.held or each.high > each.low for each in readings)
    result.stopped_by = result.stopped_by or ("count" if is_more else "")
    return result


def _order(message: StoredMessage) -> tuple[int, int]:
    """By the time of storing; within a millisecond by the place in the log."""
    return message.stored_at, message.physical_offset


def _stop(result: SearchResult, limits: SearchLimits, is_late: bool) -> str:
    if is_late:
        return "time"
    if result.read_count >= limits.record_count:
        return "records"
    return "size" if result.read_size >= limits.size else ""


async def _reading(consumer: PullConsumer, queue: MessageQueue, wanted: Wanted, before: int | None) -> _Reading:
    low = await consumer.offset_at(queue, wanted.begin_ms) if wanted.begin_ms > 0 else await consumer.min_offset(queue)
    if before is not None:
        return _Reading(queue, low, before)
    end = await consumer.max_offset(queue)
    high = min(end, await consumer.offset_at(queue, wanted.end_ms)) if wanted.end_ms < EVER_MS else end
    return _Reading(queue, low, high)


async def _read(consumer: PullConsumer, reading: _Reading, wanted: Wanted, result: SearchResult) -> None:
    """The block before; the next one is larger while nothing is found."""
    begin, end = max(reading.low, reading.high - reading.block), reading.high
    offset, found = begin, []
    while offset < end:
        pulled = await consumer.pull(reading.queue, offset, min(_PULL_COUNT, end - offset), wanted.expression)
        for received in pulled.messages:
            result.read_size += received.stored.store_size
            if received.queue_offset < end and _is_wanted(received.stored, wanted):
                found.append(Place(reading.queue, received.stored))
        if pulled.next_offset <= offset:
            break
        result.read_count += min(pulled.next_offset, end) - offset
        offset = pulled.next_offset
    reading.high, reading.held = begin, found
    reading.block = _BLOCK_FIRST if found else min(reading.block * 2, _BLOCK_MAX)


def _is_wanted(message: StoredMessage, wanted: Wanted) -> bool:
    return wanted.begin_ms <= message.stored_at < wanted.end_ms and wanted.holds(message)


def holding(text: str) -> Callable[[StoredMessage], bool]:
    """Whether a text is in a message's body, a property or a tag; a path like `$.customer.name = Ada`, in its JSON."""
    path = parse_json_path(text)
    if path is not None:
        return lambda message: path.holds(message.body)
    sought = text.encode()
    return lambda message: sought in message.body or any(text in value for value in message.properties.values())
