"""A run of segments in one directory: load, find, roll, truncate, delete.

The rule on loading is RocketMQ's: every file has the one configured size and a decimal name; a last file of length 0 (a
crash between making and sizing it) is deleted; anything else refuses the start, for guessing would lose messages.

Files are opened on demand through a pool with a limit, since ten thousand queues have more files than a process may
open.
"""

import bisect
import logging
import mmap
import os
import resource
from collections import OrderedDict
from pathlib import Path

from bolide.errors import StoreError
from bolide.store.disk import Disk
from bolide.store.segment import Segment, segment_name

log = logging.getLogger(__name__)


def allow_many_files() -> None:
    """Lift this process's own limit on open files to what the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_segments_max() -> int:
    """How many segments may be open at a time: a map holds a descriptor, and connections need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft * 3 // 4, 16)


class SegmentPool:
    """Open segments, least recently used first to go."""

    def __init__(self, disk: Disk, count_max: int, is_sparse: bool = False) -> None:
        self.disk = disk
        self._is_sparse = is_sparse  # many files of little: no descriptors beside those in the maps, nothing read ahead
        self._count_max = count_max
        self._open: OrderedDict[tuple[Path, int], Segment] = OrderedDict()

    def get(self, directory: Path, base: int, size: int) -> Segment:
        segment = self._open.get((directory, base))
        if segment is None:
            segment = Segment.open(self.disk, directory, base, size)
            self.add(directory, segment)
        else:
            self._open.move_to_end((directory, base))
        return segment

    def add(self, directory: Path, segment: Segment) -> None:
        if self._is_sparse:
            segment.drop_descriptor()
            # Or the first touch of an empty queue reads megabytes of zeros ahead: 1 ms and 6 MB a queue were measured.
            segment.map.madvise(mmap.MADV_RANDOM)
        self._open[directory, segment.base] = segment
        while len(self._open) > self._count_max:
            self._open.popitem(last=False)[1].close()

    def drop(self, directory: Path, base: int) -> None:
        segment = self._open.pop((directory, base), None)
        if segment is not None:
            segment.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class Segments:
    """The files of one run, by the offset of their first byte."""

    def __init__(self, pool: SegmentPool, directory: Path, segment_size: int, is_reserved: bool = False) -> None:
        self._pool = pool
        self._is_reserved = is_reserved  # whole files are, when they are made
        self.directory = directory
        self.segment_size = segment_size
        self.bases: list[int] = []

    def load(self, is_whole: bool = True) -> None:
        """List the directory; raises StoreError for what must not be there.

        A run that need not be whole (queues after a crash) is taken up to the first file that never got its size.
        """
        if not self.directory.is_dir():
            return
        with os.scandir(self.directory) as found:
            files = sorted((entry.name, entry) for entry in found if not entry.is_dir())
        while files and files[-1][1].stat().st_size == 0:
            self._pool.disk.remove(self.directory / files.pop()[0])
        for name, entry in files:
            if not is_whole and entry.stat().st_size == 0:
                self._remove_names([late for late, _ in files if late >= name])
                break
            if not name.isdecimal():
                raise StoreError(f"{self.directory / name} is no segment: its name is not a number; move it away")
            size = entry.stat().st_size
            if size != self.segment_size:
                raise StoreError(
                    f"{self.directory / name} has {size} bytes, the configured size is {self.segment_size}; "
                    "set the size it was written with"
                )
            self.bases.append(int(name))
        for before, after in zip(self.bases, self.bases[1:], strict=False):
            if after - before != self.segment_size:
                log.warning("segments do not adjoin directory=%s base=%d next=%d", self.directory, before, after)

    def _remove_names(self, names: list[str]) -> None:
        for name in reversed(names):
            self._pool.disk.remove(self.directory / name)
        self._pool.disk.sync_directory(self.directory)

    @property
    def start(self) -> int:
        """The first offset that is here."""
        return self.bases[0] if self.bases else 0

    def open(self, base: int) -> Segment:
        segment = self._pool.get(self.directory, base, self.segment_size)
        if self._is_reserved:
            segment.reserved = self.segment_size
        return segment

    def base_of(self, offset: int) -> int | None:
        """The base of the segment that holds offset, None if it is not here."""
        i = bisect.bisect_right(self.bases, offset) - 1
        if i < 0 or offset >= self.bases[i] + self.segment_size:
            return None
        return self.bases[i]

    def find(self, offset: int) -> Segment | None:
        base = self.base_of(offset)
        return None if base is None else self.open(base)

    def create(self, base: int, reserve: int = 0) -> Segment:
        """Make the next file of the run."""
        assert not self.bases or base > self.bases[-1], f"{base} does not follow {self.bases[-1]}"
        self.directory.mkdir(parents=True, exist_ok=True)
        segment = Segment.create(self._pool.disk, self.directory, base, self.segment_size, reserve)
        self.adopt(segment)
        return segment

    def adopt(self, segment: Segment) -> None:
        """Take in a segment that was made elsewhere (ahead of need)."""
        self._pool.add(self.directory, segment)
        self.bases.append(segment.base)

    def truncate(self, end: int) -> None:
        """Forget everything from end on: later files go, and the rest of the last one becomes zeros.

        Old bytes after the end would be taken for records or entries at the next recovery. Of the log an empty last
        file stays, for without any the log would start at 0 again; of a queue none may, since Java counts its zeros.
        """
        self.remove_from(end + self._is_reserved)
        if self.bases and end < self.bases[-1] + self.segment_size:
            self.open(self.bases[-1]).clear(end - self.bases[-1])

    def remove(self, base: int) -> None:
        self._pool.drop(self.directory, base)
        self.bases.remove(base)
        self._pool.disk.remove(self.directory / segment_name(base))

    def remove_from(self, end: int) -> None:
        """Delete the files that begin at end or later. The names go for good: one that came back would be believed."""
        if self.bases and self.bases[-1] >= end:
            while self.bases and self.bases[-1] >= end:
                self.remove(self.bases[-1])
            self._pool.disk.sync_directory(self.directory)

    def remove_first(self) -> None:
        """Delete the oldest file, for good."""
        self.remove(self.bases[0])
        self._pool.disk.sync_directory(self.directory)

    def close(self) -> None:
        for base in self.bases:
            self._pool.drop(self.directory, base)
