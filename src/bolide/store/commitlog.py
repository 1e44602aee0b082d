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
from bolide.store.record import store_ms_of
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
        self.is_pooled = config.pool_enabled  # while the log is written by its owner
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

    def begin_at(self, offset: int) -> None:
        """A log without a record begins elsewhere: its files go, and the first one will be that of the offset."""
        self.discard_next()
        self.segments.remove_from(0)
        for directory in self.segments.directories:
            self._disk.sync_directory(directory)  # a file that came back would be taken for the beginning
        self.open_at(offset)
        self.unsynced.clear()

    def truncate(self, end: int) -> None:
        """Nothing that counts lies behind: the rest of its file becomes zeros, durably, and later files go."""
        self.segments.truncate(end)
        self.reopen_at(end)

    def reopen_at(self, end: int) -> None:
        """The log was cut there."""
        self.unsynced = [segment for segment in self.unsynced if segment.is_open]
        self.open_at(end)

    def store_ms(self, place: int) -> int | None:
        """The store time of the record that begins at a place, None if it is not here."""
        head = self.view(place, 88)
        is_record = head is not None and head[28:36] == place.to_bytes(8, "big")
        return store_ms_of(head) if head is not None and is_record else None

    def copy(self, content: Buffer) -> None:
        """Write bytes of another log at the end. They lie in one segment, which is made where there is none yet.

        A failure leaves the log as it was.
        """
        assert not self.is_pooled, "a copy is written at once"
        segment = self._last
        if segment is None or self.end == segment.base + self.segment_size:
            base = self.end - self.end % self.segment_size
            segment = self._take_next(base)
            self._adopt(segment)
        assert self.end + len(content) <= segment.base + self.segment_size
        self._write(segment, memoryview(content))
        self.end += len(content)

    def _write(self, segment: Segment, content: bytes | memoryview) -> None:
        position = self.end - segment.base
        if self.is_pooled:
            self._gathered.append((segment, position, bytes(content)))
            self.gathered_size += len(content)
            return
        try:
            self._disk.write(segment.fd, content, position)
        except OSError:
            # Whole records may have reached the file. Unless they go, a later recovery could take them for real.
            segment.clear(position)
            raise
        if not self.unsynced or self.unsynced[-1] is not segment:
            self.unsynced.append(segment)

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
            if not self.unsynced or self.unsynced[-1] is not segment:
                self.unsynced.append(segment)
            end = segment.base + position + len(content)
        return end

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
        self.end = base
        self._adopt(fresh)

    def _adopt(self, fresh: Segment) -> None:
        self.segments.adopt(fresh)
        self._last = fresh
        log.info("segment rolled base=%d size=%d", fresh.base, self.segment_size)
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

    def bytes_from(self, physical_offset: int, end: int, size_max: int) -> memoryview | None:
        """Bytes of one file as another log may copy them, up to an end; None where nothing is.

        A page that the disk does not give is zeros: a bad stretch there as here.
        """
        segment = self.segments.find(physical_offset)
        if physical_offset >= end or segment is None:
            return memoryview(b"") if physical_offset == end else None
        position = physical_offset - segment.base
        found = segment.view[position : min(position + min(size_max, end - physical_offset), segment.size)]
        if kernel.touch(found) and not segment.is_readable(position, len(found)):
            log.error("pages of the log cannot be read, and are copied as zeros file=%s at=%d", segment.path, position)
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
