"""The timer's files, opened together and brought into agreement after whatever happened.

The wheel and the log are written by filing, the check every second: first the commit log is made durable as far as
messages were delivered, then the timer's log, then the wheel, then the check. At a start the units behind the check are
looked at: slots are pointed at them, and behind the last good one the log is cut. A slot that points behind the cut has
lost units; then everything since its first unit is looked at once more.

Wheel and log follow from the timer's topic, so where they are missing, of a wrong length, or do not agree (`_damage`),
both are emptied and all that is left in the topic is filed again. What was due before the check's time is delivered and
is left out then; a message that had rolled comes once for each time it is in the topic.

A slave files nothing, and keeps nothing of what it filed as a master before: that may be cut off, and what its master
files is not among it. It knows its master's check, and when it leads it files again what was not delivered by that.
What is told to slaves is the check that was last written, for no change of masters can take back what that speaks of.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from bolide.broker.tables.table_files import TableWriter
from bolide.clock import Clock
from bolide.errors import CorruptRecord
from bolide.files import read_whole
from bolide.kernel.layout import UNIT_SIZE
from bolide.model.queue import QueueKey
from bolide.model.topics import TIMER_TOPIC
from bolide.protocol.bodies import DataVersion
from bolide.store import timercheck
from bolide.store.config import StoreConfig
from bolide.store.record import decode
from bolide.store.store import Store
from bolide.store.timercheck import TimerCheck
from bolide.store.timerlog import TimerLog
from bolide.store.timerwheel import SLOTS_AHEAD, Slot, TimerWheel

_BLANK_STEPS = 60  # at the far end of the wheel, which are never used
_QUEUE = QueueKey(TIMER_TOPIC, 0)
Kept = Callable[[int], Awaitable[bool]]
log = logging.getLogger(__name__)


class TopicCount(msgspec.Struct, frozen=True, gc=False):
    """How many messages of a topic wait, and since when it is so."""

    count: int = 0
    timeStamp: int = 0  # noqa: N815 (as it is written)


class Metrics(msgspec.Struct, frozen=True):
    """The file, without its version."""

    timingCount: dict[str, TopicCount] = {}  # noqa: N815 (as it is written)


class TimerCounts:
    """How many timed messages of each topic wait: RocketMQ's config/timermetrics."""

    def __init__(self, config: StoreConfig, table_writer: TableWriter, clock: Clock) -> None:
        self._path = config.root / "config" / "timermetrics"
        self._table_writer = table_writer
        self._clock = clock
        self._is_changed = False
        self.version = DataVersion(timestamp=clock.now_ms())
        self.table = dict(read_whole(self._path, parse_counts, Metrics()).timingCount)

    def add(self, topic: str, change: int) -> None:
        """This many more of a topic wait."""
        if change:
            before = self.table.get(topic, TopicCount())
            self.table[topic] = TopicCount(before.count + change, self._clock.now_ms())
            self._is_changed = True

    def adopt(self, told: "Metrics") -> None:
        """A slave has its master's counts."""
        if self.table != told.timingCount:
            self.table = dict(told.timingCount)
            self._is_changed = True
            self.save()

    def save(self) -> None:
        """Have the file follow."""
        if self._is_changed:
            self._is_changed = False
            self.version = msgspec.structs.replace(
                self.version, counter=self.version.counter + 1, timestamp=self._clock.now_ms()
            )
            self._table_writer.save(self._path, lambda: self.encoded().decode())

    def encoded(self) -> bytes:
        """The file's text, which is what a slave asks for too."""
        version = msgspec.json.encode(self.version).decode()
        counts = msgspec.json.encode(self.table).decode()
        return f'{{"dataVersion":{version},"timingCount":{counts}}}'.encode()


def parse_counts(text: str) -> Metrics:
    """What a file or a master says; raises ValueError."""
    return msgspec.json.decode(text.encode(), type=Metrics)


class TimerFiles:
    """Opens and recovers them. `latest_ms` is the latest slot with something in it, 0 without one.

    `waiting_count` is what waits in slots that are not delivered: counted from the wheel at the start, for the counts
    by topic may be off by a second's messages after a kill.
    """

    def __init__(
        self, config: StoreConfig, store: Store, table_writer: TableWriter, clock: Clock, kept: Kept | None = None
    ) -> None:
        """`kept` waits until nothing can take the log back up to an offset; without it, until that is durable."""
        self._store = store
        self._kept = kept or store.durable
        self._clock = clock
        self._disk = store.disk
        self._step_ms = config.timer_step_ms
        self._check_path = config.root / "config" / "timercheck"
        self.roll_steps = config.timer_roll_steps
        if not 2 <= self.roll_steps <= SLOTS_AHEAD - _BLANK_STEPS:
            self.roll_steps = SLOTS_AHEAD - _BLANK_STEPS
        self.counts = TimerCounts(config, table_writer, clock)
        self.log = TimerLog(self._disk, config.root / "timerlog", config.timer_file_size)
        self.wheel = TimerWheel(self._disk, config.root / "timerwheel", self._step_ms)
        self.is_changed = False
        self.delivered_end = 0  # the commit log must be kept up to here before the check is written
        self.latest_ms = 0
        self.waiting_count = 0
        self._saving = asyncio.Lock()
        self.filed_before = 0  # messages before this offset of the topic are being filed again
        self.delivered_ms = 0  # those of them that were due before this are delivered
        self.log.load()
        known = timercheck.load(self._check_path)
        self.check = known or TimerCheck()
        if known is None:
            self._begin_anew()
        elif store.is_follower:
            self.empty()
        else:
            filed_to, read_ms = known.queue_offset, known.read_ms
            self._recover()
            odd = self._damage(filed_to, timercheck.waiting_count(self._check_path))
            if odd:
                self.check.queue_offset = filed_to
                self.file_again(odd, read_ms)
        self.wheel.believe()
        self._first_check, self.told = replace(self.check), replace(self.check)

    def load_at(self, due_ms: int) -> int:
        """How many messages wait in the slot of a time."""
        return self.wheel.slot(due_ms).load

    def _begin_anew(self) -> None:
        """Without a check nobody knows what was delivered: file everything that is left in the timer's topic."""
        if self.log.end:
            log.warning("config/timercheck is lost: timed messages are filed again, and past ones come again")
            self.log.clear()
            self.wheel.clear()
            self.counts.table.clear()
        self.check.read_ms = self._now_in_steps()
        self.is_changed = True

    def _now_in_steps(self) -> int:
        now_ms = self._clock.now_ms()
        return now_ms - now_ms % self._step_ms

    def _recover(self) -> None:
        check = self.check
        self._point_slots(self._without_gap(self.log.recover(check.log_end)))
        lost = [slot for slot in self.wheel.occupied() if slot.last >= self.log.end]
        for slot in lost:
            self.wheel.put(Slot(slot.time_ms, -1, -1, 0))
        if lost:
            log.warning("%d slots of the timer wheel pointed behind its log, and are put right", len(lost))
            self._point_slots(self.log.recover(min(slot.first for slot in lost)))
        check.queue_offset = self._filed_to()
        if self.are_slots_in_use(check.read_ms, self._now_in_steps()):
            log.warning("the timer stood still for more than a week: what is left of it is delivered first")
            due = (slot.time_ms for slot in self.wheel.occupied() if slot.time_ms >= check.read_ms)
            check.read_ms = min(due, default=self._now_in_steps())
        for slot in self.wheel.occupied():
            self.latest_ms = max(self.latest_ms, slot.time_ms)
            if slot.time_ms >= check.read_ms:
                self.waiting_count += slot.load
        self.is_changed = True

    def _damage(self, filed_to: int, waiting_count: int) -> str:
        """What is wrong with wheel or log, nothing if each slot has the units that it counts."""
        if (self.wheel.odd or self.log.odd) and filed_to:
            return self.wheel.odd or self.log.odd
        if self.log.end < self.check.log_end:
            return f"the timer's log ends at {self.log.end}, and was durable up to {self.check.log_end}"
        for slot in self.wheel.occupied():
            if slot.time_ms >= self.check.read_ms and self.log.load_of(slot, self._step_ms) != slot.load:
                return f"the slot of {slot.time_ms} ms has not the units that it counts"
        if self.waiting_count < waiting_count:
            return f"{self.waiting_count} messages wait in the wheel, and {waiting_count} did"
        return ""

    def forget(self) -> None:
        """Another broker is the master now. What is filed, and what was delivered since the check, may be cut off."""
        self.check = timercheck.load(self._check_path) or replace(self._first_check)
        self.told = replace(self.check)
        self.filed_before = self.delivered_ms = 0
        self.empty()

    def empty(self) -> None:
        """Nothing is filed here: a slave leaves that to its master, and goes by its check."""
        self.log.clear()
        self.wheel.clear()
        self.counts.table.clear()
        self.latest_ms = self.waiting_count = 0

    def adopt(self, check: TimerCheck) -> None:
        """A slave's check is its master's, on disk too. What that filed is not in our log: a promotion files it again.

        So the log ends before the check says, be it that a master has not noted yet where its own does. Raises OSError
        where it cannot be written.
        """
        check.log_end = max(check.log_end, UNIT_SIZE)
        if self.log.end:
            self.empty()
        self.check, self.told, self.is_changed = check, replace(check), False
        self.filed_before = self.delivered_ms = 0
        timercheck.save(self._disk, self._check_path, timercheck.with_count(check.encoded(), 0))

    def cut(self) -> None:
        """The end of a slave's log was cut off: others will be stored there, which nobody has filed."""
        end = self._store.next_offset(_QUEUE)
        for check in (self.check, self.told):
            check.queue_offset = min(check.queue_offset, end)
        self.filed_before = min(self.filed_before, end)

    def pass_over(self, read_ms: int, filed_before: int) -> None:
        """Another broker delivered all that was due before a time, of the messages before an offset of the topic."""
        passed = (slot for slot in self.wheel.occupied() if self.check.read_ms <= slot.time_ms < read_ms)
        self.waiting_count -= sum(slot.load for slot in passed)
        self.check.read_ms, self.is_changed = read_ms, True
        self.delivered_ms, self.filed_before = read_ms, filed_before

    def resume(self) -> None:
        """This broker files and delivers from now on: what its log lacks is filed first, from the topic."""
        if self.log.end < self.check.log_end:
            self.file_again("this broker was a slave, and its master filed them", self.check.read_ms)
        # What the check speaks of may have been cut off, and others are stored in its place.
        self.check.queue_offset = min(self.check.queue_offset, self._store.max_offset(_QUEUE))

    def file_again(self, odd: str, read_ms: int) -> None:
        """Empty wheel and log, and have everything filed again that was not due before read_ms."""
        log.warning("what waits for its time is filed again from the timer's topic: %s", odd)
        self.empty()
        self.filed_before, self.delivered_ms = max(self.filed_before, self.check.queue_offset), read_ms
        self.check.queue_offset = self._store.min_offset(_QUEUE)
        self.check.log_end = 0
        self.is_changed = True

    def are_slots_in_use(self, read_ms: int, now_ms: int) -> bool:
        """Whether what is not delivered is so old that something filed now could come to lie in its slots."""
        return now_ms - read_ms > (SLOTS_AHEAD - _BLANK_STEPS) * self._step_ms

    def _point_slots(self, units: list[tuple[int, int]]) -> None:
        """Slots whose units are not all known to them get to know them."""
        for position, due_ms in units:
            slot = self.wheel.slot(due_ms)
            if due_ms >= self.check.read_ms and slot.last < position:
                first = slot.first if slot.first >= 0 else position
                self.wheel.put(Slot(due_ms, first, position, slot.load + 1))

    def _without_gap(self, units: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Of the units behind the check, those before the first message that has none; the others are cut off.

        Such a message was due when it was filed. A power cut may have taken its copy and left the unit of a later one,
        so it is filed again, and with it all that follow.
        """
        if self.log.end < self.check.log_end:
            return units
        next_offset = self.check.queue_offset
        for number, (position, _) in enumerate(units):
            queue_offset = self._queue_offset_at(position)
            if queue_offset is None or queue_offset > next_offset:
                self.log.cut(position)
                return units[:number]
            next_offset = max(next_offset, queue_offset + 1)
        return units

    def _queue_offset_at(self, position: int) -> int | None:
        """Which message of the timer's topic a unit stands for."""
        found = self.log.message_at(position)
        record = None if found is None else self._store.record_at(found[0])
        if record is None:
            return None
        try:
            message = decode(record)
        except CorruptRecord as problem:
            log.error("a filed message cannot be read problem=%s", problem)
            return None
        return message.queue_offset if message.topic == TIMER_TOPIC else None

    def _filed_to(self) -> int:
        """The first message of the timer's topic that is not filed."""
        filed_to = self.check.queue_offset if self.log.end >= self.check.log_end else 0
        last = self._queue_offset_at(self.log.end - UNIT_SIZE)
        if last is not None:
            filed_to = max(filed_to, last + 1)
        return min(max(filed_to, self._store.min_offset(_QUEUE)), self._store.max_offset(_QUEUE))

    async def delivered_is_durable(self) -> None:
        """Wait until the commit log has for good what was delivered."""
        if not await self._kept(self.delivered_end):
            raise OSError("the commit log is not durable in time, here or at the replicas")

    async def save(self, read_ms: int) -> None:
        """Make everything durable in its order, and note how far it is; raises Refusal or OSError."""
        async with self._saving:
            self.is_changed = False
            check = self.check
            check.read_ms, check.log_end, check.master_queue_offset = read_ms, self.log.end, check.queue_offset
            check.counter, check.changed_ms = check.counter + 1, self._clock.now_ms()
            written = replace(check)
            content = timercheck.with_count(written.encoded(), self.waiting_count)
            dirty, is_wheel_dirty = self.log.take_dirty(), self.wheel.take_dirty()

            def sync() -> None:
                self.log.sync(dirty)
                if is_wheel_dirty:
                    self.wheel.sync()
                timercheck.save(self._disk, self._check_path, content)

            try:
                await self.delivered_is_durable()
                await asyncio.get_running_loop().run_in_executor(self._store.queue_worker, sync)
            except BaseException:
                self.log.mark_dirty(dirty)
                self.wheel.is_dirty = self.wheel.is_dirty or is_wheel_dirty
                raise
            self.told = written
            self.counts.save()

    def close(self) -> None:
        """Let go of the files."""
        self.log.close()
        self.wheel.close()
