"""The log: whole batches in, their places out.

A batch lies in one segment. If it does not fit, a blank record closes the segment (at least 8 bytes are always left for
it) and the batch goes to the next. Segments are made ahead of need in a thread, so that a roll costs the writer nothing
and a full disk is known before it hurts; if that failed, the roll tries again and the sender hears why.

With the transient pool, batches gather in memory and `commit` writes them, in a thread of its own; the writer's thread
learns of it in `settle`. A crash of the process loses what has gathered.
"""

import logging
import threading
from collections import deque
from collections.abc import Collection
from concurrent.futures import Executor, Future
from pathlib import Path

from bolide import kernel
from bolide.kernel.layout import BLANK_SIZE, ENTRY, MAGIC_BLANK, Buffer
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.segment import Segment
from bolide.store.segments import SegmentPool, Segments

log = logging.getLogger(__name__)


class CommitLog:
    """Written by one thread at `end`, read by anyone below it."""

    def __init__(self, disk: Disk, config: StoreConfig, worker: Executor) -> None:
        self._disk = disk
        self._config = config
        self._pool = SegmentPool(disk, 1 << 16)  # the map of a log segment costs address space only
        self.segment_size = config.segment_size
        first, *more = config.log_directories
        self.segments = Segments(self._pool, first, config.segment_size, is_reserved=True, more_directories=more)
        self.end = 0
        self._worker = worker
        self._next: Future[Segment] | None = None
        self._is_pooled = config.pool_enabled
        self._gathered: deque[tuple[Segment, int, bytes]] = deque()
        self._committed: deque[tuple[Segment, int, bytes]] = deque()
        self._commits = threading.Lock()
        self.gathered_size = 0
        self.unsynced: list[Segment] = []
        self._last: Segment | None = None

    @property
    def start(self) -> int:
        return self.segments.start

    def open_at(self, end: int) -> None:
        """Recovery has decided where the log ends."""
        self.end = end
        base = self.segments.base_of(end)
        self._last = None if base is None else self.segments.open(base)

    @property
    def room(self) -> int:
        """Bytes left in the last segment for a batch: what the blank record needs is not counted."""
        return 0 if self._last is None else self._last.base + self.segment_size - self.end - BLANK_SIZE

    def append(self, records: bytes) -> None:
        """Write a batch at the end; the caller has made sure that it fits. A failure leaves the log as it was."""
        segment, end = self._last, self.end + len(records)
        assert segment is not None
        assert end <= segment.base + self.segment_size - BLANK_SIZE
        self._write(segment, records)
        self.end = end

    def _write(self, segment: Segment, content: bytes) -> None:
        position = self.end - segment.base
        if self._is_pooled:
            self._gathered.append((segment, position, content))
            self.gathered_size += len(content)
            return
        try:
            self._disk.write(segment.fd, content, position)
        except OSError:
            # Whole records may have reached the file. Unless they go, a later recovery could take them for real.
            segment.clear(position)
            raise
        self._to_sync(segment)

    def commit(self) -> None:
        """Write what the pool has gathered by now; may run in another thread than the writer's."""
        with self._commits:
            for _ in range(len(self._gathered)):
                segment, position, content = self._gathered[0]
                self._disk.write(segment.fd, content, position)
                self._committed.append(self._gathered.popleft())

    def settle(self) -> int | None:
        """Take note of what was committed, in the writer's thread; returns up to where, None if nothing was."""
        end = None
        while self._committed:
            segment, position, content = self._committed.popleft()
            self.gathered_size -= len(content)
            self._to_sync(segment)
            end = segment.base + position + len(content)
        return end

    def _to_sync(self, segment: Segment) -> None:
        if not self.unsynced or self.unsynced[-1] is not segment:
            self.unsynced.append(segment)

    def roll(self) -> None:
        """Close the last segment with a blank record and go on in a new one."""
        base = self.end if self._last is None else self._last.base + self.segment_size
        fresh = self._take_next(base)
        if self._last is not None:
            left = base - self.end
            blank = left.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")
            try:
                self._write(self._last, blank)
            except OSError:
                self._abandon(fresh)
                raise
        self.segments.adopt(fresh)
        self._last = fresh
        self.end = base
        log.info("segment rolled base=%d size=%d", base, self.segment_size)
        self.prepare_next()

    def _take_next(self, base: int) -> Segment:
        prepared, self._next = self._next, None
        if prepared is not None:
            try:
                segment = prepared.result()
                if segment.base == base:
                    return segment
                self._abandon(segment)
            except OSError as error:
                log.warning("segment not made ahead base=%d error=%s", base, error)
        return self._make(base)

    def _make(self, base: int) -> Segment:
        home = self._home_for(base)
        self._disk.make_directories(home)
        segment = Segment.create(self._disk, home, base, self.segment_size, self.segment_size)
        try:
            self._disk.sync(segment.fd)
            self._disk.sync_directory(home)
        except OSError:
            self._abandon(segment)
            raise
        return segment

    def _home_for(self, base: int) -> Path:
        """Directories take turns, and one on a disk that is too full is left out while others are not."""
        homes = self.segments.directories
        if len(homes) > 1:
            limit = self._config.disk_percent_forcibly
            homes = tuple(home for home in homes if self._disk.used_percent(home) <= limit) or homes
        return homes[base // self.segment_size % len(homes)]

    def _abandon(self, segment: Segment) -> None:
        segment.close()
        self._disk.remove(segment.path)

    def prepare_next(self) -> None:
        """Have the segment after the last one made in the background, or the first where there is none."""
        if self._next is None:
            base = self.end if self._last is None else self._last.base + self.segment_size
            self._next = self._worker.submit(self._make, base)

    def await_next(self) -> None:
        """Wait until the segment after the last one is made, or could not be."""
        if self._next is not None:
            self._next.exception()

    def sync(self, segments: list[Segment]) -> None:
        """Make the given segments durable; may run in another thread."""
        for segment in segments:
            segment.sync()

    def view(self, physical_offset: int, size: int) -> memoryview | None:
        """Bytes of the log as they lie in the map; None where nothing is, or nothing that can be read."""
        segment = self.segments.find(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.base
        if position + size > self.segment_size:
            return None
        found = segment.view[position : position + size]
        if kernel.touch(found) and not segment.is_readable(position, size):
            return None
        return found

    def is_worth_another_look(self, entries: Buffer, unreadable: Collection[int]) -> bool:
        """Whether records that entries point at, and that could not be read where they lie, can be read now.

        A page that a disk failed to give once is zeros in the map until it is asked for again, which is done here.
        All of them lie in one segment.
        """
        segment = self.segments.find(next(iter(unreadable))) if unreadable and kernel.fault_count() else None
        if segment is None or not segment.is_patched:
            return False
        places = [(place - segment.base, size) for place, size, _ in ENTRY.iter_unpack(entries) if place in unreadable]
        return sum(segment.is_readable(*place) for place in places) > 0  # of each, for asking is what makes it so

    def remove_first(self) -> None:
        """Let the oldest segment go."""
        assert len(self.segments.bases) > 1, "the segment being written stays"
        self.segments.remove_first()

    def discard_next(self) -> None:
        """Delete the segment that was made ahead, so that a clean stop leaves none."""
        prepared, self._next = self._next, None
        if prepared is None:
            return
        try:
            self._abandon(prepared.result())
        except OSError as error:
            log.warning("segment made ahead could not be deleted error=%s", error)

    def close(self) -> None:
        prepared, self._next = self._next, None
        if prepared is not None and prepared.exception() is None:
            prepared.result().close()
        self._pool.close()
