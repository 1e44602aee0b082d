"""A run of segments in one directory: load, find, roll, truncate, delete.

The rule on loading is RocketMQ's: every file has the one configured size and a decimal name; a last file of length 0 (a
crash between making and sizing it) is deleted; anything else refuses the start, for guessing would lose messages.

Files are opened on demand through a pool with a limit, since ten thousand queues have more files than a process may
open.
"""

import bisect
import logging
import os
import resource
from collections import OrderedDict
from collections.abc import Sequence
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
        self._is_sparse = is_sparse  # many files of little: no descriptors beside those in the maps
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
        segment.guard()  # who reads knows what a page of zeros may mean
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
    """The files of one run, by the offset of their first byte.

    They lie in one directory; those of a log may be spread over several, on disks of their own.
    """

    __slots__ = ("_homes", "_is_reserved", "_pool", "bases", "directories", "directory", "segment_size")

    def __init__(
        self,
        pool: SegmentPool,
        directory: Path,
        segment_size: int,
        is_reserved: bool = False,
        more_directories: Sequence[Path] = (),
    ) -> None:
        self._pool = pool
        self._is_reserved = is_reserved  # whole files are, when they are made
        self.directory = directory
        self.directories = (directory, *more_directories)
        self._homes: dict[int, Path] | None = {} if more_directories else None
        self.segment_size = segment_size
        self.bases: list[int] = []

    def home(self, base: int) -> Path:
        """The directory that holds a file."""
        return self.directory if self._homes is None else self._homes[base]

    def load(self, is_whole: bool = True) -> None:
        """List the directory; raises StoreError for what must not be there.

        A run that need not be whole (queues after a crash) is taken up to the first file that never got its size.
        """
        files: list[tuple[str, Path]] = []
        for directory in self.directories:
            if directory.is_dir():
                with os.scandir(directory) as found:
                    files += [(entry.name, directory) for entry in found if not entry.is_dir()]
        files.sort()
        while files and (files[-1][1] / files[-1][0]).stat().st_size == 0:
            name, directory = files.pop()
            self._pool.disk.remove(directory / name)
        for i, (name, directory) in enumerate(files):
            size = (directory / name).stat().st_size
            if not is_whole and size == 0:
                self._remove_files(files[i:])
                break
            self._check_file(directory / name, size)
            self.bases.append(int(name))
            if self._homes is not None:
                self._homes[int(name)] = directory
        for before, after in zip(self.bases, self.bases[1:], strict=False):
            if after - before != self.segment_size:
                log.warning("segments do not adjoin directory=%s base=%d next=%d", self.directory, before, after)

    def _check_file(self, path: Path, size: int) -> None:
        if not path.name.isdecimal():
            raise StoreError(f"{path} is no segment: its name is not a number; move it away")
        if size != self.segment_size:
            raise StoreError(
                f"{path} has {size} bytes, the configured size is {self.segment_size}; set the size it was written with"
            )
        if self.bases and self.bases[-1] == int(path.name):
            raise StoreError(f"{path} is in {self.home(int(path.name))} too; one of the two must be moved away")

    def _remove_files(self, files: list[tuple[str, Path]]) -> None:
        for name, directory in reversed(files):
            self._pool.disk.remove(directory / name)
        for directory in self.directories:
            self._pool.disk.sync_directory(directory)

    @property
    def start(self) -> int:
        """The first offset that is here."""
        return self.bases[0] if self.bases else 0

    def open(self, base: int) -> Segment:
        segment = self._pool.get(self.home(base), base, self.segment_size)
        if self._is_reserved:
            segment.reserved = self.segment_size
        else:
            segment.expect_holes(base == self.bases[-1])
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

    def restore(self, offset: int) -> bool:
        """Write pages of the file that holds offset again, where they could not be read; false if all could."""
        segment = self.find(offset)
        return segment is not None and segment.restore()

    def create(self, base: int, reserve: int = 0) -> Segment:
        """Make the next file of the run."""
        assert not self.bases or base > self.bases[-1], f"{base} does not follow {self.bases[-1]}"
        self.directory.mkdir(parents=True, exist_ok=True)  # who syncs the file syncs the names that lead to it
        segment = Segment.create(self._pool.disk, self.directory, base, self.segment_size, reserve)
        self.adopt(segment)
        segment.expect_holes(not self._is_reserved)
        return segment

    def adopt(self, segment: Segment) -> None:
        """Take in a segment that was made elsewhere (ahead of need)."""
        self._pool.add(segment.path.parent, segment)
        self.bases.append(segment.base)
        if self._homes is not None:
            self._homes[segment.base] = segment.path.parent

    def truncate(self, end: int) -> None:
        """Forget everything from end on: later files go, and the rest of the last one becomes zeros.

        Old bytes after the end would be taken for records or entries at the next recovery. Of the log an empty last
        file stays, for without any the log would start at 0 again; of a queue none may, since Java counts its zeros.
        """
        self.remove_from(end + self._is_reserved)
        if self.bases and end < self.bases[-1] + self.segment_size:
            self.open(self.bases[-1]).clear(end - self.bases[-1])

    def forget(self, base: int) -> Path:
        """Take a file out of the run; it stays on the disk, where the result says."""
        home = self.home(base)
        self._pool.drop(home, base)
        self.bases.remove(base)
        if self._homes is not None:
            del self._homes[base]
        return home / segment_name(base)

    def remove(self, base: int) -> Path:
        """Delete a file; returns the directory that must be synced before it is gone for good."""
        path = self.forget(base)
        self._pool.disk.remove(path)
        return path.parent

    def remove_from(self, end: int) -> None:
        """Delete the files that begin at end or later. The names go for good: one that came back would be believed."""
        homes = set()
        while self.bases and self.bases[-1] >= end:
            homes.add(self.remove(self.bases[-1]))
        for home in homes:
            self._pool.disk.sync_directory(home)

    def remove_first(self) -> None:
        """Delete the oldest file, for good."""
        self._pool.disk.sync_directory(self.remove(self.bases[0]))

    def close(self) -> None:
        for base in self.bases:
            self._pool.drop(self.home(base), base)
