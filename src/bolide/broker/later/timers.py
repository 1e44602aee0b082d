"""Timed messages: filed by the second in which they are due, delivered when it has passed.

A timed message is stored in the timer's topic. From there it is filed: a unit in the timer's log, chained to its slot
of the wheel (`store/timerwheel.py`). When a slot's time has passed, its units are followed and their messages stored
again where they belong, oldest first, in batches; marks of recalls in the same slot take theirs out. A message that is
farther away than the wheel likes is filed halfway, and then stored in the timer's topic again, with one more roll.

Memory does not grow with what waits: of a slot only the place of every 256th unit is held while it is delivered.

What survives a crash: a message is filed or delivered before the numbers that say so are written (`timercheck`), and
those are written when what they speak of is durable. So a message may be delivered twice, when the broker died within a
second of it or in the middle of a slot, and none is lost. Without that file everything in the timer's topic is filed
again, and what was due by then comes again.

A clock that is set back delivers nothing early: slots that are passed are emptied, and their time comes once more.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from bolide import kernel
from bolide.broker.later.outlet import Outlet
from bolide.broker.later.timer_files import TimerFiles
from bolide.broker.metrics.meter import Meter
from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import Pace
from bolide.errors import CorruptRecord, Refusal
from bolide.kernel.layout import ENTRY_SIZE, KIND_MARK, KIND_PLAIN, KIND_ROLL, UNIT, UNIT_SIZE
from bolide.model import properties as names
from bolide.model.queue import QueueKey
from bolide.model.topics import TIMER_TOPIC
from bolide.store.dispatch import Arrival
from bolide.store.record import decode
from bolide.store.redelivery import BATCH_COUNT_MAX, NOBODY
from bolide.store.timercheck import TimerCheck
from bolide.store.timerwheel import Slot

_QUEUE = QueueKey(TIMER_TOPIC, 0)
_SLEEP_MAX_MS = 1_000
_RETRY_S = 0.5
_SAVE_SOON_S = 0.25
_CLEAN_EVERY_S = 30.0
_EMPTY_SLOTS_MAX = 4096  # are passed in one turn of the loop
_CHUNKS_MAX = 32  # of a slot are looked through in one turn
_KIND_AT = 15  # in a unit: the last byte of its kind, which is all of it that counts
_TASK = "broker.timers"
log = logging.getLogger(__name__)


class Timers:
    """Files and delivers. Slots before `read_ms` are delivered; `write_ms` is the clock's time in whole steps."""

    def __init__(self, state: BrokerState, outlet: Outlet, files: TimerFiles) -> None:
        self._outlet = outlet
        self._settings = state.settings
        self._store = state.store
        self._stats = state.stats
        self._clock = state.clock
        self.files = files
        self._step_ms = state.settings.now.store.timer_step_ms
        self._is_woken = asyncio.Event()
        self._delivering = asyncio.Lock()
        self._state = state
        self._was_stopped = False
        self._is_refused = False
        self._late: set[bytes] = set()  # entries of the batch that is being filed, which are delivered already
        self.read_ms = self.files.check.read_ms
        self.write_ms = max(self._steps(state.clock.now_ms()), self.read_ms)
        state.settings.listen(self.wake)

    @property
    def _is_stopped(self) -> bool:
        """A slave files and delivers nothing: its master does, while there is one."""
        return self._was_stopped or not self._state.is_delivering

    def _steps(self, time_ms: int) -> int:
        return time_ms - time_ms % self._step_ms

    def on_arrival(self, arrival: Arrival) -> None:
        """A timed message is there to be filed."""
        self._is_woken.set()

    def wake(self) -> None:
        """Look again: a setting has changed."""
        self._is_woken.set()

    @property
    def behind_s(self) -> int:
        """By how many whole seconds delivering is late; 0 where nothing waits."""
        is_idle = self.files.latest_ms < self.read_ms
        return 0 if is_idle else max(0, self._clock.now_ms() - self.read_ms) // 1000

    @property
    def unfiled_count(self) -> int:
        """How many timed messages are stored, and not filed yet."""
        return max(0, self._store.max_offset(_QUEUE) - self.files.check.queue_offset)

    # The loop

    async def run_forever(self) -> None:
        """File and deliver, until cancelled."""
        while not self._is_stopped:
            self._is_woken.clear()
            wait_ms: float | None
            try:
                await self._follow_clock()
                if self._is_far_behind:
                    await self.deliver_due()
                await self.file_all()
                await self.deliver_due()
                wait_ms = self._next_look_ms()
                self._is_refused = False
            except (Refusal, OSError) as problem:
                self._tell_once(problem)
                wait_ms = 1000 * _RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._is_woken.wait()

    def _tell_once(self, problem: Refusal | OSError) -> None:
        """A full disk may refuse for hours: the log hears of it when it begins."""
        if not self._is_refused:
            log.error("the timer waits for the store or the disk, and tries again problem=%s", problem)
        self._is_refused = True

    def _next_look_ms(self) -> float | None:
        """When a slot may be due again; None where nothing is filed, or nothing is delivered for now."""
        if self.files.latest_ms < self.read_ms or self._settings.now.store.timer_delivers_nothing:
            return None
        return max(min(self.read_ms + self._step_ms - self._clock.now_ms(), _SLEEP_MAX_MS), 1)

    async def _follow_clock(self) -> None:
        now_ms = self._steps(self._clock.now_ms())
        if now_ms < self.write_ms:
            await self._turn_back(now_ms)
        self.write_ms = now_ms
        if self.files.latest_ms < self.read_ms:
            self.read_ms = max(self.read_ms, self.write_ms)  # nothing is filed: no slot need be looked at

    async def _turn_back(self, now_ms: int) -> None:
        """The clock was set back: what is filed from now on goes to slots that are delivered already, so empty them.

        They are durable elsewhere before that, and nothing is filed before it is noted that these slots count again.
        """
        if now_ms < self.read_ms:
            await self.files.delivered_is_durable()
            for slot in list(self.files.wheel.occupied()):
                if now_ms <= slot.time_ms < self.read_ms:
                    self.files.wheel.put(Slot(slot.time_ms, -1, -1, 0))
            log.warning("the clock was set back by %d s", (self.read_ms - now_ms) // 1000)
            self.read_ms = now_ms
            await self.save()

    # Filing

    async def file_all(self) -> None:
        """File what is in the timer's topic and not in its log."""
        while not (self._is_stopped or self._settings.now.store.timer_files_nothing or self._is_far_behind):
            if not await self._file_some():
                return
            await asyncio.sleep(0)
            self.write_ms = max(self.write_ms, self._steps(self._clock.now_ms()))

    @property
    def _is_far_behind(self) -> bool:
        """The clock is more than a week ahead of what is delivered: what waits in the slots comes first."""
        return self.files.latest_ms >= self.read_ms and self.files.are_slots_in_use(self.read_ms, self.write_ms)

    async def _file_some(self) -> bool:
        """A batch; false if there was none. What is due already is delivered first: it can be refused."""
        files, check = self.files, self.files.check
        queue = self._store.queue(_QUEUE)
        if queue is None:
            return False
        check.queue_offset = max(check.queue_offset, queue.min_offset)
        if check.queue_offset >= queue.next_offset:
            return False
        again_count = files.filed_before - check.queue_offset
        entries = queue.read(
            check.queue_offset, min(again_count, BATCH_COUNT_MAX) if again_count > 0 else BATCH_COUNT_MAX
        )
        segment = self._store.segment_at(int.from_bytes(entries[:8], "big")) if entries else None
        if not entries or segment is None:
            log.error("timed messages are gone from the log queue_offset=%d", check.queue_offset)
            self._filed(1)
            return True
        room = files.log.room  # asked for first: the log may begin another file
        wheel = (files.wheel.map, self._step_ms, self.write_ms, files.roll_steps)
        encode = partial(kernel.encode_units, segment.view, segment.base, entries, *wheel, files.log.end, room)
        units, changes, due, seen, counts, unreadable = encode()
        if self._store.is_worth_another_look(entries, unreadable):
            units, changes, due, seen, counts, unreadable = encode()
        if self._is_wheel_odd():
            return True
        if units:  # before anything is delivered: a disk without room for it must not have that come again and again
            files.wheel.reserve(changes)
            files.log.reserve(len(units))
        await self._deliver_late(self._undelivered(due) if again_count else due)
        if units:
            files.log.append(units)
            files.latest_ms = max(files.latest_ms, files.wheel.apply(changes))
            files.waiting_count += _load(units[_KIND_AT::UNIT_SIZE])
            self._stats.filed_count += len(units) // UNIT_SIZE
        for place in unreadable:
            problem = CorruptRecord("there is no whole record, or no time in it")
            self._store.mishaps.note(_TASK, f"a timed message physical_offset={place}", problem)
        for topic, change in counts:
            files.counts.add(topic, change)
        if self._state.meter is not None:
            _count_units(self._state.meter, units, counts)
        self._filed(seen)
        return True

    def _is_wheel_odd(self) -> bool:
        """Whether slots may seem empty that are not; then everything is filed again."""
        odd = self.files.wheel.odd
        if odd:
            self._file_again(odd)
        return bool(odd)

    def _file_again(self, odd: str) -> None:
        self.files.file_again(odd, self.read_ms)
        self._is_woken.set()

    def _undelivered(self, due: bytes) -> bytes:
        """Of messages that are filed for the second time, those whose slot was not delivered."""
        left = b""
        for entry in _cut(due):
            record = self._store.record_at(int.from_bytes(entry[:8], "big"))
            with self._store.mishaps.passing_over(_TASK, lambda: "a message that is filed again"):
                out_ms = 0 if record is None else int(decode(record).properties[names.TIMER_OUT_AT])
                left += entry if self._steps(out_ms) >= self.files.delivered_ms else b""
        return left

    async def _deliver_late(self, due: bytes) -> None:
        """What was due before it was filed; after a refusal the batch is laid out again, and goes on behind this."""
        if self._late:
            due = b"".join(entry for entry in _cut(due) if entry not in self._late)
        while due:
            count = await self._store_again(due, rolls=False, recalled=NOBODY, is_counted=False)
            size = count * ENTRY_SIZE
            self._late.update(_cut(due[:size]))
            due = due[size:]

    def _filed(self, count: int) -> None:
        self._late.clear()
        self.files.check.queue_offset += count
        self.files.is_changed = True

    # Delivering

    async def deliver_due(self) -> None:
        """Deliver every slot whose time has passed."""
        passed = 0
        while self.read_ms < self.write_ms and not self._is_stopped:
            if self._settings.now.store.timer_delivers_nothing:
                return
            if self.files.latest_ms < self.read_ms:
                self.read_ms = self.write_ms
                return
            slot = self.files.wheel.slot(self.read_ms)
            if self._is_wheel_odd():
                return
            async with self._delivering:
                if slot.last >= 0 and not await self._deliver(slot):
                    return
                self.read_ms += self._step_ms
                self.files.waiting_count -= slot.load
            passed += 1
            if slot.last >= 0 or passed % _EMPTY_SLOTS_MAX == 0:
                self.files.is_changed = True
                await asyncio.sleep(0)

    async def _deliver(self, slot: Slot) -> bool:
        """The messages of a slot, oldest first; false if it was given up: at the stop, or as its chain is broken."""
        starts: list[int] = []
        marks: set[bytes] = set()
        position = slot.last
        while position >= 0:
            starts.append(position)
            entries, kinds, position = self._chunk(slot, position)
            if not _are_plain(kinds):
                marks |= self._marks(entries, kinds)
            if len(starts) % _CHUNKS_MAX == 0:
                await asyncio.sleep(0)
        if position < -1:
            self._file_again(f"no unit at {-2 - position} of the timer's log")
            return False
        recalled = frozenset(marks)
        for start in reversed(starts):
            entries, kinds, position = self._chunk(slot, start)
            if position < -1:  # what was there a moment ago
                self._file_again(f"no unit at {-2 - position} of the timer's log any more")
                return False
            for part, rolls in _parts(entries, kinds):
                if not await self._deliver_part(part, rolls, recalled):
                    return False
        return True

    async def _deliver_part(self, entries: bytes, rolls: bool, recalled: frozenset[bytes]) -> bool:
        """A refusal is waited out: a slot goes on where it was, for begun again it would come twice."""
        while entries:
            try:
                entries = entries[await self._store_again(entries, rolls, recalled) * ENTRY_SIZE :]
                self._is_refused = False
            except Refusal as refusal:
                if self._is_stopped:
                    return False
                self._tell_once(refusal)
                await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(0)
        return True

    async def _store_again(
        self, entries: bytes, rolls: bool, recalled: frozenset[bytes], is_counted: bool = True
    ) -> int:
        """Store the first of the messages again; returns how many entries are done with."""
        redelivered = await self._outlet.redeliver(entries, self._clock.now_ms(), rolls, recalled)
        self.files.delivered_end = redelivered.end
        for topic, count, _, recalled_count in redelivered.tallies:
            self._stats.timed_count += 0 if rolls else count
            if is_counted and not rolls:
                self.files.counts.add(topic, -count - recalled_count)
            if not rolls and self._state.meter is not None:
                self._state.meter.deliver(topic, count)
        self.files.is_changed = True
        return redelivered.seen

    def _chunk(self, slot: Slot, position: int) -> tuple[bytes, bytes, int]:
        """A few units of a slot from a place back, oldest first, and where it goes on, as `kernel.walk_units` says."""
        entries, kinds = b"", b""
        while position >= 0 and len(kinds) < BATCH_COUNT_MAX:
            left = BATCH_COUNT_MAX - len(kinds)
            older, older_kinds, position = self.files.log.walk(position, self._step_ms, slot.time_ms, left)
            entries, kinds = older + entries, older_kinds + kinds
        return entries, kinds, position

    def _marks(self, entries: bytes, kinds: bytes) -> set[bytes]:
        """The unique keys that are recalled by these units; each mark is off the count again."""
        keys: set[bytes] = set()
        for number, kind in enumerate(kinds):
            if kind & (KIND_MARK | KIND_ROLL) != KIND_MARK:
                continue
            record = self._store.record_at(
                int.from_bytes(entries[number * ENTRY_SIZE : number * ENTRY_SIZE + 8], "big")
            )
            properties: Mapping[str, str] = {}
            with self._store.mishaps.passing_over(_TASK, partial("a recall in unit {}".format, number)):
                properties = decode(record).properties if record is not None else {}
            if names.TIMER_DELETE_UNIQUE_KEY in properties:
                topic, key = properties.get(names.REAL_TOPIC, ""), properties[names.TIMER_DELETE_UNIQUE_KEY]
                # Anyone who may send to one topic can name any key: a mark is for messages of its own topic.
                keys.add((key if key.startswith(f"{topic}+") else f"{topic}+{key}").encode())
                self.files.counts.add(topic, 1)
        return keys

    # Keeping

    async def save_forever(self) -> None:
        """Keep on disk how far it has come, and let old files go."""
        cleaned_s, pace = self._clock.monotonic_s(), Pace(self._clock, _SAVE_SOON_S)
        while True:
            await asyncio.sleep(pace.pause_s(max(self._settings.now.store.timer_save_interval_ms, 100) / 1000))
            if self.files.is_changed:
                with pace.timed():
                    await self.save()
            if self._clock.monotonic_s() - cleaned_s >= _CLEAN_EVERY_S:
                cleaned_s = self._clock.monotonic_s()
                self.files.log.remove_below(self._store.log_start)

    async def save(self) -> None:
        """Write how far it has come, once that is durable; a failure is tried again with the next."""
        if not self._state.is_delivering:
            return  # its check is its master's
        try:
            await self.files.save(self.read_ms)
        except (Refusal, OSError) as problem:
            self.files.is_changed = True
            log.error("the timer's progress is not written problem=%s", problem)

    def forget(self) -> None:
        """Another broker is the master now: what is filed here may be cut off, and only the timer's topic knows."""
        self.files.forget()
        self._late.clear()

    def bring_home(self, told: TimerCheck) -> bool:
        """A master that was away takes over what its slave delivered elsewhere; false where that slave knows nothing.

        It must have filed all that is in our topic: a slot that it passed may have had more here than it knew of.
        """
        check = self.files.check
        is_newer = (told.changed_ms, told.counter) > (check.changed_ms, check.counter)
        has_all = told.queue_offset >= self._store.max_offset(_QUEUE)
        if not (is_newer and has_all and told.read_ms > check.read_ms):
            return False
        self.files.pass_over(told.read_ms, told.queue_offset)
        return True

    def resume(self) -> None:
        """Go on where the check says; before the first message is filed or delivered by a master."""
        self.files.resume()
        self.read_ms = self.files.check.read_ms
        self.write_ms = max(self._steps(self._clock.now_ms()), self.read_ms)

    async def stop(self) -> None:
        """File and deliver nothing more, and have written how far it went."""
        self._was_stopped = True
        self._is_woken.set()
        async with self._delivering:  # a slot that is begun is done with first, or it would come twice
            await self.save()

    def close(self) -> None:
        """Let go of the files."""
        self.files.close()


def _count_units(meter: Meter, units: bytes, counts: Sequence[tuple[str, int]]) -> None:
    """Count what was filed: a unit knows its topic by its hash, and how long it waits."""
    topics = {kernel.java_hash(topic): topic for topic, _ in counts}
    for _, _, kind, _, delay_ms, _, _, topic_hash, _ in UNIT.iter_unpack(units):
        topic = topics.get(topic_hash)
        if topic is not None and not kind & (KIND_MARK | KIND_ROLL):
            meter.file(topic, 1)
            meter.wait(topic, delay_ms)


def _cut(entries: bytes) -> Iterator[bytes]:
    return (entries[at : at + ENTRY_SIZE] for at in range(0, len(entries), ENTRY_SIZE))


def _are_plain(kinds: bytes) -> bool:
    """Whether none rolls or recalls; asked in one step, for nearly always it is so."""
    return not kinds.strip(bytes([KIND_PLAIN]))


def _load(kinds: bytes) -> int:
    """What units are in the count of their slot: a recall takes one off."""
    return len(kinds) if _are_plain(kinds) else len(kinds) - 2 * sum(kind & KIND_MARK > 0 for kind in kinds)


def _parts(entries: bytes, kinds: bytes) -> Iterator[tuple[bytes, bool]]:
    """Entries with what becomes of them: delivered, or rolled on."""
    if _are_plain(kinds):
        yield entries, False
        return
    for rolls in (False, True):
        chosen = [number for number, kind in enumerate(kinds) if bool(kind & KIND_ROLL) == rolls]
        yield b"".join(entries[number * ENTRY_SIZE : (number + 1) * ENTRY_SIZE] for number in chosen), rolls
