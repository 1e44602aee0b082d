"""The store: opens the rooms beside it, and is the only public door.

One thread writes. `append` never awaits: it lays a batch out, writes it to the log with one system call, and feeds the
queues in the same turn. What must wait does so outside: `durable` for the disk, `open_store` for everything periodic.
Synchronous callers (tools, tests, Spark) use the same object without a loop and call `flush` themselves.

Left by an error, the store keeps its abort file, so that the next start recovers in full.

Nobody outside reaches through to the rooms: what is asked of the log, the queues or the index has a name here.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import Refusal, StoreError
from bolide.kernel.layout import ENTRY_SIZE, Buffer, Run
from bolide.model.host import Host
from bolide.model.names import path_problem, shown
from bolide.model.queue import QueueKey
from bolide.protocol.codes import ResponseCode
from bolide.store.checkpoint import AbortFile, Checkpoint, StoreLock
from bolide.store.commitlog import CommitLog
from bolide.store.config import SLAVE, StoreConfig, delays_ms_of
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.cut import LogCut
from bolide.store.disk import Disk
from bolide.store.dispatch import Arrival, Dispatch
from bolide.store.entrycheck import watch
from bolide.store.extension import remove_expired
from bolide.store.flush import LogFlush, begin_queue_flush
from bolide.store.follower import Follower
from bolide.store.mishaps import Mishaps
from bolide.store.progress import NO_CEILING, Progress
from bolide.store.read import PULL_SIZE_MAX, Reader, Sieve, Slices
from bolide.store.record import Appended, Draft, store_ms_of, with_room_for_seal
from bolide.store.recovery import Recovered, Recovery
from bolide.store.retention import DiskState, disk_state, segment_ages, tell_full, to_delete, used_percent
from bolide.store.segments import allow_many_files

log = logging.getLogger(__name__)


T = TypeVar("T")
# Records, the entries and the keys that follow from them, and anything else.
Encoded = tuple[bytes, list[Run], bytes, T]
# From a physical offset on, with a store time; a queue without an offset begins at 0.
Encode = Callable[[int, int, Mapping[tuple[str, int], int]], Encoded[T]]


class Store:
    """Messages on disk. Made by `Store.open`, closed by leaving its `with` block."""

    def __init__(self, config: StoreConfig, clock: Clock, store_host: bytes, disk: Disk) -> None:
        self.config = config
        self._clock = clock
        self.disk = disk
        self.mishaps = Mishaps()  # of all background work on this store
        self.store_host = store_host
        self._delays_ms = delays_ms_of(config.delay_levels)
        self.worker = ThreadPoolExecutor(1, "store.flush")
        self.queue_worker = ThreadPoolExecutor(1, "store.queues")  # of their own: senders wait for the log's flush
        self._maker = ThreadPoolExecutor(1, "store.segment")
        self._committer = ThreadPoolExecutor(1, "store.commit")
        self._lock = StoreLock(config.root / "lock")
        self._abort = AbortFile(disk, config.root / "abort")
        self.checkpoint = Checkpoint(disk, config.root / "checkpoint")
        self.commitlog = CommitLog(disk, config, self._maker)
        self.dispatch = Dispatch(disk, config)
        self.reader = Reader(config, self.commitlog, self.mishaps)
        self.disk_percent = 0  # how full the fuller of the two partitions was when last looked at
        self.is_disk_full = False
        self.is_closed = False
        self.is_follower = False  # it takes no messages of its own; what is appended is copied
        self._is_controlled = False
        self._written_listeners: list[Callable[[], None]] = []
        self._asked_cleanings = 0
        self._slow_until_s = 0.0
        self._last_store_ms = 0
        self.took_s = 0.0  # how long the last write to the log took
        # Asked with every pull, so by the rooms' own functions; each says there what it does.
        self.find_queue = self.dispatch.queues.get
        self.stretch = self.reader.stretch
        self.note_passed = self.reader.note_passed
        self.is_far = self.reader.is_far
        self.any_passes = self.reader.any_passes
        self.store_ms = self.reader.store_ms
        self.view = self.commitlog.view
        self.segment_at = self.commitlog.segments.find
        self.is_worth_another_look = self.commitlog.is_worth_another_look
        self.search = self.dispatch.index.walk
        self.recovered: Recovered
        self.progress: Progress
        self.log_flush: LogFlush
        self._next_offsets: dict[tuple[str, int], int]

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        clock: Clock,
        store_host: bytes | None = None,
        disk: Disk | None = None,
        is_controlled: bool = False,
    ) -> "Store":
        """Lock the directory and recover what is in it. With a controller it follows, and shows what was confirmed."""
        allow_many_files()
        disk = disk or Disk()
        for directory in config.directories:
            disk.make_directories(directory)
        store = cls(config, clock, store_host or Host("127.0.0.1", 10911).packed(), disk)
        store._is_controlled = is_controlled
        store.is_follower = is_controlled or config.role == SLAVE
        store._lock.take()
        try:
            store._recover()
        except BaseException:
            store._release()
            raise
        return store

    def _recover(self) -> None:
        self.checkpoint.load()
        confirmed = self.checkpoint.confirmed if self._is_controlled and self.checkpoint.has_confirmed else None
        cut = LogCut(self.disk, self.config, self.checkpoint)
        if cut.resume(CommitLog(self.disk, self.config, self._maker)):
            self._abort.create()
        files, is_clean = (self.commitlog, self.dispatch, self.checkpoint), not self._abort.exists()
        recovery = Recovery(self.disk, self.config, *files, is_clean, self._clock.now_ms(), self.is_follower)
        self._abort.create()  # before the first change: a crash in the middle of recovery is a crash
        self.recovered = recovery.run()
        self._last_store_ms = self.recovered.last_store_ms
        self.progress = Progress(self.recovered.end, self.config.is_sync)
        self.log_flush = LogFlush(self.commitlog, self.progress)
        self.sync_times = self.log_flush.times
        self._next_offsets = self.dispatch.next_offsets()
        parts = self.commitlog, self.dispatch, self.progress
        self._follower = Follower(*parts, self._next_offsets, self._delays_ms, self._clock)
        if confirmed is not None:
            self._follower.hold_back(confirmed, self.checkpoint.index_ms)
        watch(self.disk, self.config, self.commitlog, self.dispatch)
        self.commitlog.open_at(self.recovered.end)
        # What was read from the page cache of a dead process need not be on the disk yet.
        self.commitlog.unsynced = [self.commitlog.segments.open(base) for base in self.commitlog.segments.bases[-2:]]
        self.log_flush.flush()
        self.checkpoint.durable, self.checkpoint.log_ms = self.progress.flushed, self._last_store_ms
        self.checkpoint.save()  # now there is room for it; a disk that fills up later must not keep it from being there
        cut.end()
        if self.is_follower:
            self._follower.begin(self._last_store_ms)
        else:
            self.commitlog.prepare_next()
        self.look_at_disk()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # Writing

    def be_found_at(self, host: bytes) -> None:
        """Records say from now on that they are kept there."""
        self.store_host = host

    def append(self, drafts: Sequence[Draft]) -> Appended:
        """Store a batch, whole or not at all, in one segment. Refusals say why; nothing was stored then."""
        if self.config.sealed:
            drafts = [with_room_for_seal(draft) for draft in drafts]
        (places, queue_offsets), store_ms = self._append(partial(self._encode, drafts))
        return Appended(places, queue_offsets, store_ms, self.commitlog.end)

    def append_encoded(self, encode: Encode[T]) -> tuple[T, int]:
        """The same for records that `encode` lays out; it is called again when they need another segment.

        Returns what it gave besides, and the store time. Where it lays out nothing, nothing is written.
        """
        if self.config.sealed:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "enabledAppendPropCRC: only `append` seals records")
        return self._append(encode)

    def _append(self, encode: Encode[T]) -> tuple[T, int]:
        self._check_writable()
        store_ms = max(self._clock.now_ms(), self._last_store_ms)  # never back, for searches rely on its order
        commitlog = self.commitlog
        try:
            encoded = encode(commitlog.end, store_ms, self._next_offsets)
            if not encoded[0]:
                return encoded[3], store_ms
            if len(encoded[0]) > commitlog.room:
                self._roll(len(encoded[0]))
                encoded = encode(commitlog.end, store_ms, self._next_offsets)
            records, runs, keys, more = encoded
            self._check_topics(runs)
            started_s = self._clock.monotonic_s()
            commitlog.append(records)
            self.took_s = self._clock.monotonic_s() - started_s
        except OSError as error:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"the log cannot be written: {error}") from error
        self._last_store_ms = store_ms
        for topic, queue_id, first_offset, entries in runs:
            self._next_offsets[topic, queue_id] = first_offset + len(entries) // ENTRY_SIZE
        end, progress = commitlog.end, self.progress
        advance = progress.append if commitlog.is_pooled else progress.write
        advance(end)
        if self.dispatch.take(end, store_ms, runs, keys, progress.visible):
            progress.dispatch(end)
        if self.took_s * 1000 > self.config.busy_timeout_ms:
            self._slow_until_s = started_s + 2 * self.took_s
        for tell in self._written_listeners:
            tell()
        return more, store_ms

    def _check_topics(self, runs: list[Run]) -> None:
        """Topics are checked where they come in; this is for one that was made up in between, from a record.

        A queue that has messages was checked with its first one.
        """
        for topic, queue_id, _, _ in runs:
            if (topic, queue_id) not in self._next_offsets and (problem := path_problem(topic)) is not None:
                remark = f"a topic named {shown(topic)} cannot be stored: {problem}"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _encode(
        self, drafts: Sequence[Draft], at: int, store_ms: int, next_offsets: Mapping[tuple[str, int], int]
    ) -> Encoded[tuple["array[int]", "array[int]"]]:
        try:
            records, places, queue_offsets, runs, keys = kernel.encode_records(
                drafts,
                at,
                store_ms,
                self.store_host,
                next_offsets,
                self._delays_ms,
                self.config.body_size_max,
            )
        except ValueError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if self.config.sealed:
            records = kernel.seal_records(records)
        return records, runs, keys, (places, queue_offsets)

    def _roll(self, size: int) -> None:
        if size > self.config.segment_size - 8:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {size} bytes does not fit a log segment of {self.config.segment_size}",
            )
        try:
            self.commitlog.roll()
        except OSError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"CREATE_MAPPED_FILE_FAILED, no new log segment: {error}"
            ) from error

    def _check_writable(self) -> None:
        reason = ""
        if self.log_flush.failure is not None:
            raise self.log_flush.refusal()
        if self.is_closed:
            reason = "the store is shut down"
        elif self.is_follower:
            reason = "this broker is a slave, it takes no messages of its own"
        elif self.is_disk_full:
            reason = "the disk is full beyond diskSpaceWarningLevelRatio; delete something or raise the ratio"
        elif self.dispatch.problem is not None and self._queues_fail():
            reason = f"consume queues or index cannot be written: {self.dispatch.problem}"
        if reason:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        if self._slow_until_s and self._clock.monotonic_s() < self._slow_until_s:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, a write to the log took too long")
        if self.config.pool_enabled:
            limit = self.config.pool_buffers_max * self.config.segment_size
            if self.commitlog.gathered_size > limit:
                raise Refusal(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]the transient store pool is used up")

    def _queues_fail(self) -> bool:
        if self.dispatch.problem is not None:
            self._advance()  # space may have come back
        return self.dispatch.problem is not None

    def _advance(self) -> None:
        reached = self.dispatch.advance(self.progress.visible)
        if reached is not None:
            self.progress.dispatch(reached)

    def commit(self) -> None:
        """With the transient pool: write what it has gathered to the log's files."""
        if self.progress.committed < self.progress.appended:
            try:
                self.commitlog.commit()
            except OSError as error:
                log.error("the pool cannot be written to the log error=%s", error)
            self._settle()

    async def commit_in_thread(self) -> None:
        """The same without holding up the loop."""
        if self.progress.committed < self.progress.appended:
            try:
                await asyncio.get_running_loop().run_in_executor(self._committer, self.commitlog.commit)
            except OSError as error:
                log.error("the pool cannot be written to the log error=%s", error)
            self._settle()

    def _settle(self) -> None:
        end = self.commitlog.settle()
        if end is not None:
            # A blank record may be committed whose successor was refused: it is nobody's yet.
            self.progress.commit(min(end, self.progress.appended))
            self._advance()
            for tell in self._written_listeners:
                tell()

    # Copying and being copied

    def follow(self) -> None:
        """From now on take no messages, but bytes of another store's log."""
        if self.is_follower:
            return
        self.commit()
        if self.commitlog.gathered_size:
            raise StoreError("the transient pool cannot be written to the log; free some space on its disk")
        self.is_follower = True
        self._follower.begin(self._last_store_ms)

    def lead(self) -> int:
        """From now on take messages behind what was copied, all of which is seen now; returns where the log ends."""
        if not self.is_follower:
            return self.progress.appended
        end = self.cut_incomplete()
        self.progress.confirm(NO_CEILING)
        if self.config.is_sync:
            self.flush()
        self._follower.finish()
        self._advance()
        self._follower.end(self.config.pool_enabled)
        self.is_follower = False
        return end

    def append_copy(self, offset: int, content: Buffer, on_written: Callable[[], None] | None = None) -> None:
        """Write bytes of the log that is followed at the end of this one, in one file; cut anywhere.

        Then, after `on_written`, records that are whole go to queues and index. Raises CopyGap for bytes that do not
        follow, StoreError where they cannot be taken; nothing was written then.
        """
        self._check_follows()
        try:
            self._follower.append(offset, content, on_written)
        except OSError as error:
            raise StoreError(f"the copy of the log cannot be written: {error}") from error
        self._last_store_ms = self._follower.last_store_ms
        for tell in self._written_listeners:
            tell()

    def _check_follows(self) -> None:
        if not self.is_follower or self.is_closed:
            raise StoreError("this store is closed" if self.is_closed else "this store leads, it takes no copies")
        if self.log_flush.failure is not None:
            raise StoreError(self.log_flush.refusal().remark)
        if self._queues_fail():
            raise StoreError(f"consume queues or index cannot be written: {self.dispatch.problem}")

    def cut_incomplete(self) -> int:
        """Overwrite a record that is not whole at the end of the log with zeros; returns where the log ends now."""
        if self.progress.whole < self.progress.appended:
            self.log_flush.forget_beyond(self.progress.whole)
            self._follower.cut_incomplete()
        return self.progress.appended

    def cut_to(self, offset: int) -> None:
        """Have the log end at a record's start from now on; what lies behind is kept in `cutoffs/`, and in no queue.

        Readers may lose what they saw. A crash leaves the log as it was, or cut.
        """
        self._check_follows()
        self._follower.check_cut(offset, self.recovered.damaged_from)
        if offset == self.progress.appended:
            return
        try:
            self._follower.finish()
            self.flush()
            self.log_flush.forget_beyond(offset)
            for worker in (self.worker, self.queue_worker, self._committer):
                worker.submit(int).result()  # what they are about would bring back what is cut
            self.commitlog.discard_next()
            cut = LogCut(self.disk, self.config, self.checkpoint)
            cut.begin(offset)
            cut.run(self.commitlog.segments, offset)
            self._follower.cut(offset, self.checkpoint.index_ms)
            cut.end()
            self.recovered.healed.append(offset)
        except OSError as error:
            raise StoreError(f"the log cannot be cut at {offset}: {error}; restart the broker") from error
        self._last_store_ms = self._follower.last_store_ms
        self.commitlog.prepare_next()

    def confirm(self, end: int | None) -> None:
        """Readers see nothing beyond from now on, but for what they see already; None lifts the limit."""
        self.progress.confirm(NO_CEILING if end is None else end)
        self._advance()

    def log_view(self, offset: int, size_max: int) -> memoryview | None:
        """Bytes of one file of the log as another store may copy them; none at the end, None where nothing is."""
        return self.commitlog.bytes_from(offset, self.progress.committed, size_max)

    def listen_written(self, tell: Callable[[], None]) -> None:
        """Have a function told whenever `written_end` has moved, in the same turn."""
        self._written_listeners.append(tell)

    @property
    def written_end(self) -> int:
        """Up to where the log is in its files, and may be copied by others."""
        return self.progress.committed

    @property
    def reported_end(self) -> int:
        """What a follower says it has: under synchronous flush only what outlives a power cut."""
        return self.progress.flushed if self.config.is_sync else self.progress.appended

    # Making durable

    def flush(self) -> None:
        """Make everything appended durable and visible, in the caller's thread."""
        store_ms, end = self._last_store_ms, self.progress.appended
        self.commit()
        self.log_flush.flush()
        self._flushed(store_ms, end)

    async def flush_in_thread(self) -> None:
        """The same without holding up the loop; errors reach those who wait for `durable`."""
        store_ms, end = self._last_store_ms, self.progress.appended
        await self.commit_in_thread()
        await self.log_flush.flush_in(self.worker)
        if self.log_flush.failure is None:
            self._flushed(store_ms, end)

    def _flushed(self, store_ms: int, end: int) -> None:
        """All that was appended before the flush began is durable, unless the pool could not be written."""
        if self.progress.flushed >= end:
            # Half a record is no loss: the next start cuts it off.
            self.checkpoint.durable = min(self.progress.flushed, self.progress.whole)
            self.checkpoint.log_ms = store_ms
        self._advance()
        self.log_flush.serve()

    def when_durable(self, end: int) -> asyncio.Future[None]:
        """A future that is done when the log is durable up to end; it fails if that can no longer be."""
        return self.log_flush.wait(end)

    async def durable(self, end: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until the log is durable up to end, or as it is now; false if that takes too long (all is stored)."""
        return await self.log_flush.is_done(end, timeout_s or self.config.sync_flush_timeout_ms / 1000)

    def begin_queue_flush(self, pages_min: int) -> Callable[[], None]:
        """Choose what to sync of the queues; the returned function does it, in any thread, and saves the checkpoint."""
        if self._is_controlled:
            self.checkpoint.confirmed = self.progress.dispatched
        return begin_queue_flush(self.disk, self.dispatch, self.checkpoint, pages_min)

    def flush_queues(self) -> None:
        """Make queues durable and note in the checkpoint how far they may be trusted."""
        self.begin_queue_flush(0)()

    # Reading

    @property
    def log_start(self) -> int:
        """The first physical offset that is here."""
        return self.commitlog.start

    @property
    def log_end(self) -> int:
        """Where the newest record ends."""
        return self.progress.appended

    @property
    def durable_end(self) -> int:
        """Up to where the log outlives a power cut."""
        return self.progress.flushed

    @property
    def is_failed(self) -> bool:
        """Whether the disk failed to keep the log: it takes nothing more until it is restarted."""
        return self.log_flush.failure is not None

    @property
    def visible_end(self) -> int:
        """Up to where readers may see the log: what is confirmed, where replicas confirm it."""
        return self.progress.visible

    @property
    def queue_keys(self) -> list[QueueKey]:
        return [QueueKey(*key) for key in self.dispatch.queues]

    @property
    def topics(self) -> set[str]:
        """The topics that have a queue."""
        return {topic for topic, _ in self.dispatch.queues}

    def queue(self, key: QueueKey) -> ConsumeQueue | None:
        return self.dispatch.queues.get((key.topic, key.queue_id))

    def read(
        self,
        key: QueueKey,
        offset: int,
        count_max: int,
        tag_hashes: frozenset[int] | None = None,
        size_max: int = PULL_SIZE_MAX,
        sieve: Sieve | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> Slices:
        """Messages of a queue from an offset on, as views of the log."""
        queue = self.dispatch.queues.get((key.topic, key.queue_id))
        return self.reader.read(queue, offset, count_max, tag_hashes, size_max, sieve, is_over)

    def walk(self, key: QueueKey, offset: int, end: int | None = None, count_max: int = 32) -> Iterator[Slices]:
        """What a queue has from an offset on, some messages at a time, up to an end or to where it ends now.

        What cannot be read is passed over: each slice goes on behind the one before, unless the queue is gone.
        """
        offset = max(offset, self.min_offset(key))
        end = self.max_offset(key) if end is None else end
        while offset < end:
            slices = self.read(key, offset, min(count_max, end - offset))
            if slices.next_offset <= offset:
                return
            yield slices
            offset = slices.next_offset

    def min_offset(self, key: QueueKey) -> int:
        """The first queue offset that can be read; 0 for a queue that is not here."""
        queue = self.queue(key)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, key: QueueKey) -> int:
        """One more than the last queue offset that can be read; 0 for a queue that is not here."""
        queue = self.queue(key)
        return 0 if queue is None else queue.next_offset

    def next_offset(self, key: QueueKey) -> int:
        """Which offset the next message of a queue gets; readers may not see all before it yet."""
        return self._next_offsets.get((key.topic, key.queue_id), 0)

    def earliest_ms(self, key: QueueKey | None = None) -> int:
        """When the oldest message still here was stored, of a queue or of the whole log; -1 without one."""
        if key is None:
            oldest = self.record_at(self.commitlog.start)
            return -1 if oldest is None else store_ms_of(oldest)
        queue = self.queue(key)
        if queue is None or queue.min_offset >= queue.next_offset:
            return -1
        return self.reader.store_ms(queue, queue.min_offset)

    @property
    def dispatch_behind(self) -> int:
        """Bytes of log that are not in queues and index yet, so that no reader finds them."""
        return self.progress.appended - self.progress.dispatched

    @property
    def dispatched_ms(self) -> int:
        """When the newest record was stored that is in its queue."""
        return self.dispatch.store_ms

    @property
    def indexed_to(self) -> tuple[int, int]:
        """When the newest message in the index was stored, and where it lies; zeros without one."""
        files = self.dispatch.index.files
        return (files[-1].header().end_ms, files[-1].header().end_physical) if files else (0, 0)

    @property
    def pooled_size(self) -> int:
        """Bytes that the transient pool has gathered and not written."""
        return self.commitlog.gathered_size

    def offset_at(self, key: QueueKey, time_ms: int, is_upper: bool = False) -> int:
        """The queue offset for a store time; 0 for a queue that is not here."""
        queue = self.queue(key)
        return 0 if queue is None else self.reader.offset_at(queue, time_ms, is_upper)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at an offset of the log, None where none does."""
        if not self.commitlog.start <= physical_offset < self.progress.visible:
            return None
        head = self.commitlog.view(physical_offset, 4)
        size = 0 if head is None else int.from_bytes(head, "big", signed=True)
        is_seen = 0 < size <= self.progress.visible - physical_offset
        record = self.commitlog.view(physical_offset, size) if is_seen else None
        if record is None:
            return None
        columns, _, _ = kernel.scan_records(record, 0, size, physical_offset, False)
        return record if len(columns[0]) else None

    def listen(self, on_arrival: Callable[[Arrival], None] | None) -> None:
        """Have a function told of every arrival, in the turn in which it may be read."""
        self.dispatch.on_arrival = on_arrival

    # Letting go

    def remove_topic(self, topic: str) -> None:
        """Delete a topic's queues, for good: made again, it starts at offset 0. Its records expire with the log."""
        self.dispatch.remove_topic(topic)
        for key in [key for key in self._next_offsets if key[0] == topic]:
            del self._next_offsets[key]

    def drop_expired(self) -> None:
        """Delete queue and index files that point below the log."""
        self.dispatch.raise_min(self.commitlog.start)

    def ask_for_cleaning(self) -> None:
        """An administrator's wish: the next 20 runs delete what has expired, whatever the hour."""
        self._asked_cleanings = 20

    def look_at_disk(self) -> DiskState:
        """See how full the disk is; one that is too full takes no messages until there is room again."""
        used = used_percent(self.disk, self.config)
        state = disk_state(used, self.config)
        if state is not DiskState.FORCE:  # in between it stays as it was
            if state is DiskState.FULL and not self.is_disk_full:
                tell_full(self.config, used)
            self.is_disk_full = state is DiskState.FULL
        self.disk_percent = used
        return state

    def clean(self) -> list[int]:
        """One run of retention; returns the bases of the log segments that went."""
        state = self.look_at_disk()
        is_asked, self._asked_cleanings = self._asked_cleanings > 0, max(self._asked_cleanings - 1, 0)
        now_ms = self._clock.now_ms()
        local_hour = datetime.fromtimestamp(now_ms / 1000).astimezone().hour
        ages = segment_ages(self.commitlog.segments, min(self.progress.flushed, self.progress.dispatched))
        gone = [age.base for age in to_delete(ages, now_ms, local_hour, state, self.config, is_asked)]
        for base in gone:
            log.info("segment deleted base=%d disk=%s", base, state.value)
            self.commitlog.remove_first()
        if gone:
            self.drop_expired()
            remove_expired(self.disk, self.config.root / "consumequeue_ext", self.earliest_ms())
        return gone

    # Ending

    def close(self) -> None:
        """Make everything durable and say so, by removing the abort file."""
        if self.is_closed:
            return
        try:
            if self.log_flush.failure is None:
                self.flush()
                self._advance()
            self.is_closed = True
            self.commitlog.discard_next()
            is_whole = self.log_flush.failure is None and self.dispatch.is_idle and self.dispatch.problem is None
            if is_whole and self._sync_derived():
                self._abort.remove()
            else:
                log.error("store closed with work undone, the next start recovers in full")
        finally:
            self._release()

    def _sync_derived(self) -> bool:
        """Make queues, index and checkpoint durable; false where that failed, now or before."""
        self.queue_worker.shutdown()  # a flush that is under way saves the checkpoint too
        try:
            self.flush_queues()
            self.dispatch.index.sync()
            self.checkpoint.save()
            self.dispatch.seal(self.checkpoint.encoded())
        except OSError as problem:
            log.error("queues, index or checkpoint not synced problem=%s", problem)
            return False
        return not self.checkpoint.has_doubtful_queues and not self.dispatch.index.is_doubtful

    def abandon(self) -> None:
        """Let go of the files as they are; the next start recovers in full."""
        self.is_closed = True
        self._release()

    def _release(self) -> None:
        self.worker.shutdown()
        self.queue_worker.shutdown()
        self._committer.shutdown()
        self._maker.shutdown()
        self.commitlog.close()
        self.dispatch.close()
        self._lock.release()
