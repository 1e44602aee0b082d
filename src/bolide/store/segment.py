"""One fixed-size file of a run, mapped for reading, named by the offset of its first byte.

The log's segments are written with pwrite (`write`), because touching fresh pages through the map costs page faults and
a full disk would be a signal. Queue and index files are written through the map (`put`): their entries are small, and a
store into memory is cheaper than a system call. What is put is reserved first, in steps.

A page that cannot be read would be a signal too. The compiled kernel makes zeros of it in a map that is under guard
(`guard`); who reads a part touches it first, and has it looked at where faults were counted: a log's by `is_readable`,
a queue's by `restore`.

A removed segment lives on for anyone who holds a view of it: the kernel keeps the pages until the last view is gone.
"""

import contextlib
import errno
import logging
import mmap
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from bolide import kernel
from bolide.store.config import PAGE_SIZE
from bolide.store.disk import Disk

log = logging.getLogger(__name__)

RESERVE_STEP_MAX = 1 << 18
MAPPED_SIZE_MAX = 1 << 14
_LOOKED_SIZE = 1 << 18
_ZEROS = bytes(_LOOKED_SIZE)


def segment_name(base: int) -> str:
    return f"{base:020d}"


def sync_file(disk: Disk, path: Path) -> None:
    """With a descriptor of our own, for the segment may be closed to make room; one at a time: queues are many."""
    fd = disk.open(path)
    try:
        disk.sync(fd)
    finally:
        os.close(fd)


class Segment:
    """An open file with its map. `fd` is -1 where only the map is kept open."""

    __slots__ = ("_disk", "_guarded", "base", "fd", "is_open", "is_sparse", "map", "path", "reserved", "size", "view")

    def __init__(self, disk: Disk, path: Path, base: int, size: int, fd: int) -> None:
        self._disk = disk
        self.path = path
        self.base = base
        self.size = size
        self.fd = fd
        try:
            self.map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError):
            os.close(fd)
            raise
        self.view = memoryview(self.map).toreadonly()
        self.reserved = 0
        self.is_sparse = False
        self.is_open = True
        self._guarded = -1

    @classmethod
    def create(cls, disk: Disk, directory: Path, base: int, size: int, reserve: int = 0) -> "Segment":
        """A new file of zeros, its first `reserve` bytes taken from the disk; leaves nothing behind if that fails."""
        path = directory / segment_name(base)
        fd = disk.create(path, size)
        if reserve:
            try:
                disk.reserve(fd, 0, reserve)
            except OSError:
                os.close(fd)
                disk.remove(path)
                raise
        segment = cls(disk, path, base, size, fd)
        segment.reserved = reserve
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: Path, base: int, size: int) -> "Segment":
        path = directory / segment_name(base)
        return cls(disk, path, base, size, disk.open(path))

    def write(self, content: bytes | memoryview, position: int) -> None:
        if self.fd >= 0:
            self._disk.write(self.fd, content, position)
        else:
            with self._descriptor() as fd:
                self._disk.write(fd, content, position)

    def drop_descriptor(self) -> None:
        """Close our descriptor, and open one when it is needed: the map has its own, and queues are many."""
        os.close(self.fd)
        self.fd = -1

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[int]:
        fd = self.fd if self.fd >= 0 else self._disk.open(self.path)
        try:
            yield fd
        finally:
            if fd != self.fd:
                os.close(fd)

    def put(self, content: bytes | memoryview, position: int) -> None:
        """Write through the map."""
        end = position + len(content)
        if end > self.reserved:
            self.reserve(position, end)
        if len(content) < MAPPED_SIZE_MAX:
            self.map[position:end] = content
        else:
            self.write(content, position)  # one call is cheaper than a fault for each fresh page

    def expect_holes(self, has_holes: bool = True) -> None:
        """Whether most of the file is empty still.

        Its first touch would read megabytes of zeros ahead: 1 ms and 6 MB a queue were measured.
        """
        if self.is_sparse != has_holes:
            self.is_sparse = has_holes
            self.map.madvise(mmap.MADV_RANDOM if has_holes else mmap.MADV_NORMAL)

    def reserve(self, position: int, end: int) -> None:
        """Take the pages up to end, and some more, so that this is seldom called."""
        start = max(self.reserved, position) // PAGE_SIZE * PAGE_SIZE
        step = min(max(end, PAGE_SIZE), RESERVE_STEP_MAX)
        until = min(-(-max(end, start + step) // PAGE_SIZE) * PAGE_SIZE, self.size)
        with self._descriptor() as fd:
            self._disk.reserve(fd, start, until - start)
        self.reserved = until

    def clear(self, position: int) -> None:
        """Make everything from position on read as zeros again, durably."""
        is_reserved = self.reserved == self.size
        with self._descriptor() as fd:
            has_changed = self._disk.clear(fd, position, self.size - position, is_reserved)
        if has_changed:
            if not is_reserved:
                self.reserved = min(self.reserved, position // PAGE_SIZE * PAGE_SIZE)
            self.sync()

    def written_end(self, position: int) -> int:
        """The end of the last byte from position on that is not zero; position itself where there is none.

        Read by calls and not through the map: most of a file may be reserved and never written, and is passed over.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # What is read ahead of a hole counts as data from then on, and would lead through the whole file.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for start, end in reversed(_data_ranges(fd, position, self.size)):
                for at in range(end - (end - start - 1) % _LOOKED_SIZE - 1, start - 1, -_LOOKED_SIZE):
                    size = min(_LOOKED_SIZE, end - at)
                    try:
                        part = os.pread(fd, size, at)
                    except OSError:
                        return at + size  # what cannot be read is not known to be empty
                    if part != _ZEROS[: len(part)]:
                        return at + len(part.rstrip(b"\0"))
                    os.posix_fadvise(fd, at, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        return position

    def guard(self) -> "Segment":
        """Have a page that cannot be read be zeros from here on, and no signal."""
        if self._guarded < 0:
            self._guarded = kernel.guard_map(self.map)
        return self

    @property
    def is_patched(self) -> bool:
        """Whether some of it is zeros because it could not be read."""
        return self._guarded >= 0 and kernel.patched_span(self._guarded) is not None

    def is_readable(self, position: int, size: int) -> bool:
        """Whether this part of a file that is written by calls is as on the disk; pages that can be read again are."""
        span = None if self._guarded < 0 else kernel.patched_span(self._guarded)
        if span is None:
            return True
        low, high = max(position - position % mmap.PAGESIZE, span[0]), min(position + size, span[1])
        for at in range(low, high, mmap.PAGESIZE):
            wanted_size = min(mmap.PAGESIZE, position + size - at)
            try:
                with self._descriptor() as fd:
                    if len(os.pread(fd, wanted_size, at)) < wanted_size:
                        return False
                    kernel.map_again(self._guarded, at, mmap.PAGESIZE, fd)
            except OSError:
                return False
        if low <= span[0] and high >= span[1]:
            kernel.forget_span(self._guarded)
        return True

    def restore(self) -> bool:
        """Write pages of a file that is written through the map again, where they could not be read; false if all
        could.

        What was put there since is kept; the rest is zeros, and for others to fill. Raises OSError.
        """
        span = None if self._guarded < 0 else kernel.patched_span(self._guarded)
        if span is None:
            return False
        with self._descriptor() as fd:
            if os.fstat(fd).st_size < self.size:
                os.ftruncate(fd, self.size)
            for at in range(*span, mmap.PAGESIZE):
                size = min(mmap.PAGESIZE, self.size - at)
                self._disk.write(fd, _joined(bytes(self.view[at : at + size]), _read(fd, size, at)), at)
            kernel.map_again(self._guarded, span[0], span[1] - span[0], fd)
        log.warning("pages could not be read, and are made again file=%s from=%d to=%d", self.path, *span)
        kernel.forget_span(self._guarded)
        self.reserved = min(self.reserved, span[0])
        return True

    def sync(self) -> None:
        with self._descriptor() as fd:
            self._disk.sync(fd)

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self.fd >= 0:
            self.drop_descriptor()
        self.view.release()
        guarded, self._guarded = self._guarded, -1
        if guarded >= 0:
            kernel.unguard_map(guarded)
        try:
            self.map.close()
        except BufferError:
            # Views that readers still hold keep the map; it goes with the last of them, and so does its guard.
            if guarded >= 0:
                weakref.finalize(self.map, kernel.unguard_map, kernel.guard_map(self.map)).atexit = False


def _read(fd: int, size: int, at: int) -> bytes:
    """What can be read, and zeros for the rest."""
    try:
        return os.pread(fd, size, at).ljust(size, b"\0")
    except OSError:
        return bytes(size)


def _joined(ours: bytes, theirs: bytes) -> bytes:
    """Of two versions of a page in which the one has zeros where the other has something."""
    both = int.from_bytes(ours, "little") | int.from_bytes(theirs, "little")
    return both.to_bytes(len(ours), "little")


def _data_ranges(fd: int, position: int, size: int) -> list[tuple[int, int]]:
    """The parts of a file that are not holes."""
    ranges = []
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but holes from here on
                break
            raise
        position = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        if start < position:
            ranges.append((start, position))
    return ranges
