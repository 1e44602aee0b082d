"""Messages with a delay level: one queue a level in the schedule topic, delivered in order when due.

All messages of a level wait equally long, so the first of its queue is the next one due, and how far each level has
come is one number: delayOffset.json, as RocketMQ keeps it. What is due is stored again where it belongs, a batch at a
time, a level after the other, and the loop has a turn after each batch. Between, we sleep until the next one is due,
and no longer than a second, in case somebody sets the clock; with nothing waiting, until something arrives.

Store times never go back, so after the clock was set back they stand still, and what they say of new messages is too
late. For those we note how long they have to wait, by the steady clock (`_Note`); a start forgets that, and delivers
them at once, as RocketMQ delivers what it finds from before.

The number moves when a batch is in the log, and is written soon after, once the batch is durable and where replicas
count with them: after a crash messages of the last moment may come twice, and none is missing. A lost file delivers
again whatever the log still has. A master that is replaced goes back to what is written (`forget`): the end of its log,
with what it delivered last, may be cut off.
"""

import asyncio
import logging
import math
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from bolide.broker.later.outlet import Outlet
from bolide.broker.state import BrokerState
from bolide.broker.tables.offsets import quote_keys
from bolide.broker.tables.table_files import Pace, TableWriter
from bolide.errors import Refusal
from bolide.files import read_whole
from bolide.kernel.layout import DELAYED_MESSAGE, ENTRY_SIZE
from bolide.model.queue import QueueKey
from bolide.model.topics import SCHEDULE_TOPIC
from bolide.protocol.bodies import DataVersion, DelayOffsets
from bolide.protocol.bodies.body import read
from bolide.store.config import delays_ms_of
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.dispatch import Arrival
from bolide.store.redelivery import BATCH_COUNT_MAX

FILE_NAME = "delayOffset.json"
_SOON_S = 0.25
_SLEEP_MAX_MS = 1_000
_RETRY_MS = 1_000
_NOTES_MAX = 60  # of a level at a time
_NO_LIMIT = 1 << 62
_DUE_AT = struct.Struct(">12xq")
log = logging.getLogger(__name__)


class _Note(NamedTuple):
    """Messages of a level from an offset on, up to that of the next note: when they may go, by the steady clock.

    None is for those that came when store times went on.
    """

    offset: int
    due_s: float | None


class Delays:
    """How far each level is delivered: `table`, level → queue offset of the next message."""

    def __init__(self, state: BrokerState, outlet: Outlet, table_writer: TableWriter) -> None:
        self._outlet = outlet
        self._path = state.settings.now.directory / FILE_NAME
        self._store = state.store
        self._table_writer = table_writer
        self._clock = state.clock
        self._delays_ms = delays_ms_of(state.store.config.delay_levels)
        self._arrived = asyncio.Event()
        self._is_changed = False
        self._is_moved = False  # by us: then it is another version than the one that was copied
        self._state = state
        self._is_stopped = False
        self._is_refused = False
        self._notes: dict[int, deque[_Note]] = {}
        self._end = 0  # the log must be kept up to here before the table is written
        content = read_whole(self._path, parse, DelayOffsets())
        self.table = dict(content.offset_table)
        self._kept = dict(self.table)  # what a change of masters cannot take back
        self.version = content.data_version or DataVersion()  # older than any that says something
        self.resume()

    def resume(self) -> None:
        """Go on where the table says, as far as the queues have it; before the first delivery of a master."""
        self._notes.clear()
        for level in self._levels:
            queue = self._queue(level)
            if queue is None:
                self.table.pop(level, None)  # its first message will have offset 0
            elif level in self.table:
                self._correct(level, queue)

    def adopt(self, offsets: DelayOffsets) -> None:
        """A slave goes by its master's table, and has its version as long as nothing moves here."""
        self._kept = dict(offsets.offset_table)
        if offsets.data_version is not None:
            self.version = offsets.data_version
        if self.table != offsets.offset_table:
            self.table = dict(offsets.offset_table)
            self._end, self._is_changed, self._is_moved = self._store.log_end, True, False

    def bring_home(self, told: DelayOffsets) -> int:
        """A master that was away takes over what its slave delivered elsewhere; returns how many levels moved.

        Never beyond the end of our queue. A slave that moved nothing itself since it copied our table knows nothing.
        """
        version, own = told.data_version, self.version
        if version is None or (version.timestamp, version.counter) <= (own.timestamp, own.counter):
            return 0
        moved = 0
        for level in self._levels:
            queue = self._queue(level)
            offset = min(told.offset_table.get(level, 0), 0 if queue is None else queue.next_offset)
            if offset > self.table.get(level, 0):
                self._move(level, offset)
                moved += 1
        return moved

    def cut(self) -> None:
        """The end of a slave's log was cut off: others will be stored there, and are not passed over."""
        for table in (self.table, self._kept):
            for level, offset in table.items():
                if offset > (end := self._store.next_offset(QueueKey(SCHEDULE_TOPIC, level - 1))):
                    log.warning("delay level %d goes on at %d: %d is cut off", level, end, offset)
                    table[level], self._is_changed = end, True

    def forget(self) -> None:
        """Another broker is the master now: what was delivered here last may be cut off."""
        self.table, self._is_changed = dict(self._kept), False

    @property
    def _levels(self) -> range:
        return range(1, len(self._delays_ms) + 1)

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._store.queue(QueueKey(SCHEDULE_TOPIC, level - 1))

    def on_arrival(self, arrival: Arrival) -> None:
        """Something has to wait: if it is the first of its level, it may be the next one due."""
        level, notes = arrival.queue_id + 1, self._notes.get(arrival.queue_id + 1)
        if arrival.store_ms > self._clock.now_ms() and level in self._levels:
            self._note(level, arrival.queue_offset)
        elif notes and notes[-1].due_s is not None:
            notes.append(_Note(arrival.queue_offset, None))
        if arrival.queue_offset <= self.table.get(level, 0):
            self._arrived.set()

    def _note(self, level: int, offset: int) -> None:
        """Those that come within a step of each other share a note, and go when the last of them may: notes are few."""
        notes, delay_s = self._notes.setdefault(level, deque()), self._delays_ms[level - 1] / 1000
        due_s = self._clock.monotonic_s() + delay_s
        last_s = notes[-1].due_s if notes else None
        if last_s is None or due_s > last_s:
            notes.append(_Note(offset, due_s + max(delay_s / _NOTES_MAX, 1.0)))

    def _noted(self, level: int, offset: int) -> tuple[int, float | None]:
        """Up to which offset one rule counts, and in how many seconds those may go; None by what their entries say."""
        notes = self._notes.get(level)
        if not notes:
            return _NO_LIMIT, None
        while len(notes) > 1 and notes[1].offset <= offset:
            notes.popleft()
        if notes[0].offset > offset:
            return notes[0].offset, None
        limit, due_s = notes[1].offset if len(notes) > 1 else _NO_LIMIT, notes[0].due_s
        if due_s is not None:
            return limit, due_s - self._clock.monotonic_s()
        if len(notes) == 1:
            del self._notes[level]
        return limit, None

    @property
    def _is_delivering(self) -> bool:
        """A slave leaves it to its master, while there is one."""
        return self._state.is_delivering and not self._is_stopped

    async def deliver_forever(self) -> None:
        """Deliver what is due, until cancelled."""
        while self._is_delivering:
            self._arrived.clear()
            wait_ms = await self.deliver_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait_ms is None else min(wait_ms, _SLEEP_MAX_MS) / 1000):
                    await self._arrived.wait()

    async def deliver_due(self) -> int | None:
        """Deliver all that is due now; returns in how many milliseconds more is, None where nothing waits."""
        while self._is_delivering:
            waits_ms = []
            for level in self._levels:
                wait_ms: int | None = _RETRY_MS  # where a level fails, the others go on
                with self._store.mishaps.passing_over("broker.delays", partial("level {}".format, level)):
                    wait_ms = await self._deliver_some(level)
                if wait_ms is not None:
                    waits_ms.append(wait_ms)
                if wait_ms == 0:
                    await asyncio.sleep(0)
            if 0 not in waits_ms:
                return min(waits_ms, default=None)
        return None

    async def _deliver_some(self, level: int) -> int | None:
        """Deliver a batch of a level; returns how long its next message has to wait, None without one."""
        queue = self._queue(level)
        if queue is None or not self._is_delivering:
            return None
        offset = self._correct(level, queue)
        if offset >= queue.next_offset:
            return None
        limit, noted_s = self._noted(level, offset)
        if noted_s is not None and noted_s > 0:
            return math.ceil(1000 * noted_s)
        entries = queue.read(offset, min(BATCH_COUNT_MAX, limit - offset))
        if not entries:
            log.error("entries of delay level %d are gone, from %d on", level, offset)
            self._move(level, offset + 1)
            return 0
        if noted_s is not None:
            due_count, wait_ms = len(entries) // ENTRY_SIZE, 0
        else:
            due_count, wait_ms = count_due(entries, self._clock.now_ms(), self._delays_ms[level - 1])
        if not due_count:
            return wait_ms
        try:
            redelivered = await self._outlet.redeliver(entries[: due_count * ENTRY_SIZE])
        except Refusal as refusal:
            if not self._is_refused:
                log.error("due messages cannot be stored, tried again until they are problem=%s", refusal.remark)
            self._is_refused = True
            return _RETRY_MS
        self._is_refused = False
        if self._state.meter is not None:
            for topic, count, size, _ in redelivered.tallies:
                if count:
                    self._state.meter.delivered(topic, DELAYED_MESSAGE, count, size)
        self._end = redelivered.end
        self._move(level, offset + redelivered.seen)
        return 0

    def _correct(self, level: int, queue: ConsumeQueue) -> int:
        """Where to go on in a queue, which may have lost its beginning, or its end in a crash."""
        offset = self.table.get(level, 0)
        corrected = min(max(offset, queue.min_offset), queue.next_offset)
        if corrected != offset:
            log.warning("delay level %d goes on at %d: %d is not in its queue", level, corrected, offset)
            self._move(level, corrected)
        return corrected

    def _move(self, level: int, offset: int) -> None:
        self.table[level] = offset
        self._is_changed = self._is_moved = True

    # The file

    async def save_forever(self, interval_s: Callable[[], float]) -> None:
        """Have the file follow the table, soon after each change: what is not in it, a kill delivers again."""
        pace = Pace(self._clock, _SOON_S)
        while True:
            await asyncio.sleep(pace.pause_s(interval_s()))
            if self._is_changed:
                with pace.timed():
                    await self.save()

    async def stop(self) -> None:
        """Deliver nothing more, and have written how far it went."""
        self._is_stopped = True
        await self.save()

    async def save(self) -> None:
        """Have the file written, once what was delivered is kept; until then nothing is."""
        if not self._is_changed:
            return
        table = dict(self.table)
        self._is_changed = False
        try:
            is_kept = await self._state.safety.kept(self._store, self._end)
        except Refusal:
            is_kept = False
        if not is_kept:
            self._is_changed = True
            return
        self._kept = table
        self._step()
        version = self.version
        self._table_writer.save(self._path, lambda: text_of(version, table))

    def _step(self) -> None:
        """A new version for what moved here; what was copied keeps the version it came with."""
        if self._is_moved:
            self._is_moved = False
            self.version = msgspec.structs.replace(
                self.version, counter=self.version.counter + 1, timestamp=self._clock.now_ms()
            )

    def encoded(self) -> bytes:
        """The table as a slave asks for it, or a master that is back, which must see by the version what is new.

        A master tells its slaves what no change of masters can take back: their log may be cut after they took it over.
        """
        if self._state.is_slave:
            self._step()
        version = msgspec.json.encode(self.version).decode()
        table = self.table if self._state.is_slave else self._kept
        return f'{{"dataVersion":{version},"offsetTable":{{{_entries(table)}}}}}'.encode()


def count_due(entries: memoryview, now_ms: int, delay_ms: int) -> tuple[int, int]:
    """How many of a level's first entries are due, and in how many milliseconds the one after them is.

    One that would be due later than a message that came just now is due at once: the clock was set back since, or the
    level was made shorter.
    """
    if entries and max(_DUE_AT.iter_unpack(entries))[0] <= now_ms:
        return len(entries) // ENTRY_SIZE, 0  # the usual case of many that are due, in one step
    due_count = 0
    for (due_ms,) in _DUE_AT.iter_unpack(entries):
        if now_ms < due_ms <= now_ms + delay_ms:
            return due_count, due_ms - now_ms
        due_count += 1
    return due_count, 0


def parse(text: str) -> DelayOffsets:
    """What a file says; raises ValueError."""
    return read(DelayOffsets, quote_keys(text).encode())


def text_of(version: DataVersion, table: dict[int, int]) -> str:
    """The file as Java's writer indents it, its keys bare."""
    offsets = f"{{{_entries(table)}\n\t}}" if table else "{}"
    return (
        f'{{\n\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"stateVersion":{version.state_version},\n'
        f'\t\t"timestamp":{version.timestamp}\n\t}},\n\t"offsetTable":{offsets}\n}}'
    )


def _entries(table: dict[int, int]) -> str:
    return ",".join(f"{level}:{offset}" for level, offset in sorted(table.items()))
