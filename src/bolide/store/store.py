"""The store: opens the rooms beside it, and is the only public door.

One thread writes. `append` never awaits: it lays a batch out, writes it to the log with one system call, and feeds the
queues in the same turn. What must wait does so outside: `durable` for the disk, `open_store` for everything periodic.
Synchronous callers (tools, tests, Spark) use the same object without a loop and call `flush` themselves.

Left by an error, the store keeps its abort file, so that the next start recovers in full.
"""

import asyncio
import logging
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.kernel.layout import ENTRY_SIZE, Run
from bolide.model.host import Host
from bolide.model.message import StoredMessage
from bolide.model.names import path_problem, shown
from bolide.model.queue import QueueKey
from bolide.protocol.codes import ResponseCode
from bolide.store.checkpoint import AbortFile, Checkpoint, StoreLock
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.disk import Disk
from bolide.store.dispatch import Arrival, Dispatch
from bolide.store.entrycheck import watch
from bolide.store.extension import remove_expired
from bolide.store.flush import LogFlush, begin_queue_flush
from bolide.store.mishaps import Mishaps
from bolide.store.progress import Progress
from bolide.store.read import PULL_SIZE_MAX, Reader, Sieve, Slices
from bolide.store.record import Appended, Draft, decode, store_ms_of, with_room_for_seal
from bolide.store.recovery import Recovered, Recovery
from bolide.store.retention import DiskState, SegmentAge, disk_state, to_delete
from bolide.store.segments import allow_many_files

log = logging.getLogger(__name__)


T = TypeVar("T")
# Records, the entries and the keys that follow from them, and anything else.
Laid = tuple[bytes, list[Run], bytes, T]
# From a physical offset on, with a store time; a queue without an offset begins at 0.
Lay = Callable[[int, int, Mapping[tuple[str, int], int]], Laid[T]]


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
        self._asked_cleanings = 0
        self._slow_until_s = 0.0
        self._last_store_ms = 0
        self.took_s = 0.0  # how long the last write to the log took
        self.recovered: Recovered
        self.progress: Progress
        self.log_flush: LogFlush
        self._next_offsets: dict[tuple[str, int], int]

    @classmethod
    def open(
        cls, config: StoreConfig, clock: Clock, store_host: bytes | None = None, disk: Disk | None = None
    ) -> "Store":
        """Lock the directory, recover what is in it, and be ready to append."""
        allow_many_files()
        disk = disk or Disk()
        for directory in (config.root, *config.log_directories):
            disk.make_directories(directory)
        store = cls(config, clock, store_host or Host("127.0.0.1", 10911).packed(), disk)
        store._lock.take()
        try:
            store._recover()
        except BaseException:
            store._release()
            raise
        return store

    def _recover(self) -> None:
        self.checkpoint.load()
        files, is_clean = (self.commitlog, self.dispatch, self.checkpoint), not self._abort.exists()
        recovery = Recovery(self.disk, self.config, *files, is_clean, self._clock.now_ms())
        self._abort.create()  # before the first change: a crash in the middle of recovery is a crash
        self.recovered = recovery.run()
        self._last_store_ms = self.recovered.last_store_ms
        self.progress = Progress(self.recovered.end, self.config.is_sync)
        self.log_flush = LogFlush(self.commitlog, self.progress)
        self._next_offsets = self.dispatch.next_offsets()
        watch(self.disk, self.config, self.commitlog, self.dispatch)
        self.commitlog.open_at(self.recovered.end)
        # What was read from the page cache of a dead process need not be on the disk yet.
        self.commitlog.unsynced = [self.commitlog.segments.open(base) for base in self.commitlog.segments.bases[-2:]]
        self.log_flush.flush()
        self.checkpoint.durable = self.progress.flushed
        self.checkpoint.log_ms = self._last_store_ms
        self.checkpoint.save()  # now there is room for it; a disk that fills up later must not keep it from being there
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

    def append(self, drafts: Sequence[Draft]) -> Appended:
        """Store a batch, whole or not at all, in one segment. Refusals say why; nothing was stored then."""
        if self.config.sealed:
            drafts = [with_room_for_seal(draft) for draft in drafts]
        (places, queue_offsets), store_ms = self._append(partial(self._lay, drafts))
        return Appended(places, queue_offsets, store_ms, self.commitlog.end)

    def append_laid(self, lay: Lay[T]) -> tuple[T, int]:
        """The same for records that `lay` lays out; it is called again when they need another segment.

        Returns what it gave besides, and the store time. Where it lays out nothing, nothing is written.
        """
        if self.config.sealed:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "enabledAppendPropCRC: only `append` seals records")
        return self._append(lay)

    def _append(self, lay: Lay[T]) -> tuple[T, int]:
        self._check_writable()
        store_ms = max(self._clock.now_ms(), self._last_store_ms)  # never back, for searches rely on its order
        commitlog = self.commitlog
        try:
            laid = lay(commitlog.end, store_ms, self._next_offsets)
            if not laid[0]:
                return laid[3], store_ms
            if len(laid[0]) > commitlog.room:
                self._roll(len(laid[0]))
                laid = lay(commitlog.end, store_ms, self._next_offsets)
            records, runs, keys, more = laid
            self._check_topics(runs)
            started_s = self._clock.monotonic_s()
            commitlog.append(records)
            self.took_s = self._clock.monotonic_s() - started_s
        except OSError as error:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"the log cannot be written: {error}") from error
        self._last_store_ms = store_ms
        for topic, queue_id, first_offset, entries in runs:
            self._next_offsets[topic, queue_id] = first_offset + len(entries) // ENTRY_SIZE
        end = commitlog.end
        self.progress.append(end)
        if not self.config.pool_enabled:
            self.progress.commit(end)
        if self.dispatch.take(end, store_ms, runs, keys, self.progress.visible):
            self.progress.dispatch(end)
        if self.took_s * 1000 > self.config.busy_timeout_ms:
            self._slow_until_s = started_s + 2 * self.took_s
        return more, store_ms

    def _check_topics(self, runs: list[Run]) -> None:
        """Topics are checked where they come in; this is for one that was made up in between, from a record."""
        for topic, _, _, _ in runs:
            if (problem := path_problem(topic)) is not None:
                remark = f"a topic named {shown(topic)} cannot be stored: {problem}"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _lay(
        self, drafts: Sequence[Draft], at: int, store_ms: int, next_offsets: Mapping[tuple[str, int], int]
    ) -> Laid[tuple["array[int]", "array[int]"]]:
        try:
            records, places, queue_offsets, runs, keys = kernel.lay_records(
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
        elif self.config.role == "SLAVE":
            reason = "this broker is a slave, it takes no messages of its own"
        elif self.is_disk_full:
            reason = "the disk is full beyond diskSpaceWarningLevelRatio; delete something or raise the ratio"
        elif self.dispatch.problem is not None:
            self._advance()  # space may have come back
            if self.dispatch.problem is not None:
                reason = f"consume queues or index cannot be written: {self.dispatch.problem}"
        if reason:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        if self._slow_until_s and self._clock.monotonic_s() < self._slow_until_s:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, a write to the log took too long")
        if self.config.pool_enabled:
            limit = self.config.pool_buffers_max * self.config.segment_size
            if self.commitlog.gathered_size > limit:
                raise Refusal(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]the transient store pool is used up")

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
            self.checkpoint.durable = self.progress.flushed
            self.checkpoint.log_ms = store_ms
        self._advance()
        self.log_flush.serve()

    async def durable(self, end: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until the log is durable up to end, or as it is now; false if that takes too long (all is stored)."""
        return await self.log_flush.is_done(end, timeout_s or self.config.sync_flush_timeout_ms / 1000)

    def begin_queue_flush(self, pages_min: int) -> Callable[[], None]:
        """Choose what to sync of the queues; the returned function does it, in any thread, and saves the checkpoint."""
        return begin_queue_flush(self.disk, self.dispatch, self.checkpoint, pages_min)

    def flush_queues(self) -> None:
        """Make queues durable and note in the checkpoint how far they may be trusted."""
        self.begin_queue_flush(0)()

    # Reading

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

    def min_offset(self, key: QueueKey) -> int:
        """The first queue offset that can be read; 0 for a queue that is not here."""
        queue = self.queue(key)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, key: QueueKey) -> int:
        """One more than the last queue offset that can be read; 0 for a queue that is not here."""
        queue = self.queue(key)
        return 0 if queue is None else queue.next_offset

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
        record = self.commitlog.view(physical_offset, size) if size > 0 else None
        if record is None:
            return None
        columns, _, _ = kernel.scan_records(record, 0, size, physical_offset, False)
        return record if len(columns[0]) else None

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
        """Messages of a topic that have a key (or a unique key), in log order."""
        count_max = min(count_max, self.config.query_count_max)
        found: list[StoredMessage] = []
        # Other keys may share the hash, so more are asked for than are wanted.
        for physical_offset in sorted(set(self.dispatch.index.query(topic, key, 4 * count_max, begin_ms, end_ms))):
            view = self.record_at(physical_offset)
            if view is None or not begin_ms <= store_ms_of(view) <= end_ms:
                continue
            record = decode(view)
            keys = (record.properties.get("UNIQ_KEY"), *record.properties.get("KEYS", "").split(" "))
            if record.topic == topic and key in keys:
                found.append(record)
        return found[-count_max:]

    def listen(self, on_arrival: Callable[[Arrival], None] | None) -> None:
        """Have a function told of every arrival, in the turn in which it may be read."""
        self.dispatch.on_arrival = on_arrival

    # Letting go

    def remove_topic(self, topic: str) -> None:
        """Delete a topic's queues, for good: made again, it starts at offset 0. Its records expire with the log."""
        self.dispatch.remove_topic(topic)
        for key in [key for key in self._next_offsets if key[0] == topic]:
            del self._next_offsets[key]

    def ask_for_cleaning(self) -> None:
        """An administrator's wish: the next 20 runs delete what has expired, whatever the hour."""
        self._asked_cleanings = 20

    def look_at_disk(self) -> DiskState:
        """See how full the disk is; one that is too full takes no messages until there is room again."""
        of_log = min(self.disk.used_percent(directory) for directory in self.config.log_directories)
        used = max(of_log, self.disk.used_percent(self.config.root))
        state = disk_state(used, self.config)
        if state is DiskState.FULL and not self.is_disk_full:
            log.error(
                "disk of %s is %d %% full, no messages are taken: more than diskSpaceWarningLevelRatio=%d",
                self.config.root,
                used,
                self.config.disk_percent_full,
            )
        if state is DiskState.FULL:
            self.is_disk_full = True
        elif state is not DiskState.FORCE:
            self.is_disk_full = False
        self.disk_percent = used
        return state

    def clean(self) -> list[int]:
        """One run of retention; returns the bases of the log segments that went."""
        state = self.look_at_disk()
        is_asked, self._asked_cleanings = self._asked_cleanings > 0, max(self._asked_cleanings - 1, 0)
        now_ms = self._clock.now_ms()
        local_hour = datetime.fromtimestamp(now_ms / 1000).astimezone().hour
        gone = [age.base for age in to_delete(self._ages(), now_ms, local_hour, state, self.config, is_asked)]
        for base in gone:
            log.info("segment deleted base=%d disk=%s", base, state.value)
            self.commitlog.remove_first()
        if gone:
            self.dispatch.raise_min(self.commitlog.start)
            remove_expired(self.disk, self.config.root / "consumequeue_ext", self.earliest_ms())
        return gone

    def _ages(self) -> list[SegmentAge]:
        """The segments that are durable and dispatched, and the one being written."""
        segments = self.commitlog.segments
        safe = min(self.progress.flushed, self.progress.dispatched)
        ages = []
        for base in segments.bases:
            written_ms = os.stat(segments.home(base) / f"{base:020d}").st_mtime_ns // 1_000_000
            ages.append(SegmentAge(base, segments.segment_size, written_ms))
            if base + segments.segment_size > safe:
                break
        return ages

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
