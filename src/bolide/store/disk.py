"""Every call by which the store changes the disk, in one small class.

A test gives a `Disk` that fails, fills up or forgets what was not synced (`bolide.testing.disk`). Mapped writes do not
pass here: the pages they touch were reserved before, so they cannot fail for want of space.
"""

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from bolide.files import make_directories

# A path in a file system that cannot reserve ahead (some network ones) still works: a full disk is then found later.
_NO_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)

_libc = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 0x01, 0x02, 0x10
_LOOK_SIZE_MAX = 1 << 20
_SYNCS_MAX = 256


_gathering = threading.local()  # of each thread: others that sync meanwhile wait for what they asked


class Disk:
    """The disk of the machine."""

    def create(self, path: Path, size: int) -> int:
        """A new file of zeros; returns its descriptor."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            os.unlink(path)
            raise
        return fd

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def reserve(self, fd: int, position: int, size: int) -> None:
        """Make sure that these bytes can be written; ENOSPC comes from here and not from a mapped write."""
        try:
            os.posix_fallocate(fd, position, size)
        except OSError as error:
            if error.errno not in _NO_RESERVE:
                raise

    def clear(self, fd: int, position: int, size: int, is_reserved: bool) -> bool:
        """Make a range read as zeros: it stays reserved, or is given back. False if it read so already."""
        if _is_clear(fd, position, position + size):
            return False
        mode = _KEEP_SIZE | (_ZERO_RANGE if is_reserved else _PUNCH_HOLE)
        if _libc.fallocate(fd, mode, ctypes.c_long(position), ctypes.c_long(size)) == 0:
            return True
        if ctypes.get_errno() not in _NO_RESERVE:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        zeros = bytes(1 << 20)
        for at in range(position, position + size, len(zeros)):
            part = zeros[: position + size - at]
            if os.pread(fd, len(part), at) != part:
                self.write(fd, part, at)
        return True

    def write(self, fd: int, content: bytes | memoryview, position: int) -> None:
        written, size = os.pwrite(fd, content, position), len(content)
        while written < size:
            more = os.pwrite(fd, memoryview(content)[written:], position + written)
            if more == 0:
                raise OSError(errno.EIO, "a write took no bytes")
            written += more

    def sync(self, fd: int) -> None:
        if not _puts_off(fd):
            os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _puts_off(fd):
                os.fsync(fd)
        finally:
            os.close(fd)

    def make_directories(self, path: Path) -> None:
        """A directory and those above it, as durable as what will lie in them."""
        make_directories(path, self.sync_directory)

    @contextlib.contextmanager
    def syncing_together(self) -> Iterator[None]:
        """What this thread syncs in the block is durable when that ends: a few hundred at once, the rest together.

        Ten thousand queues need as many syncs one after the other; one call syncs a whole file system.
        """
        _gathering.syncs_left, _gathering.put_off = _SYNCS_MAX, {}
        try:
            yield
            for fd in _gathering.put_off.values():
                if _libc.syncfs(fd) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            for fd in _gathering.put_off.values():
                os.close(fd)
            _gathering.put_off = None

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def used_percent(self, path: Path) -> int:
        """How full the partition is, rounded up, without what is kept for the administrator."""
        usage = os.statvfs(path)
        used = usage.f_blocks - usage.f_bfree
        return -(-100 * used // max(used + usage.f_bavail, 1))


def _is_clear(fd: int, position: int, end: int) -> bool:
    """Whether a range reads as zeros; gives up on much data, for clearing is cheaper than reading then."""
    give_up_at = position + _LOOK_SIZE_MAX
    while position < end:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but holes from here on
                return True
            raise
        if position >= end:
            return True
        part = os.pread(fd, min(end - position, 1 << 16), position)
        if position >= give_up_at or part.count(0) != len(part):
            return False
        position += len(part)
    return True


def _puts_off(fd: int) -> bool:
    """Whether this sync is left to the end of the block; a descriptor in its file system is kept for that."""
    put_off = getattr(_gathering, "put_off", None)
    if put_off is None:
        return False
    _gathering.syncs_left -= 1
    if _gathering.syncs_left >= 0:
        return False
    device = os.fstat(fd).st_dev
    if device not in put_off:
        put_off[device] = os.dup(fd)
    return True


class LookingDisk(Disk):
    """A disk on which nothing is changed."""

    def remove(self, path: object) -> None:
        return None

    def reserve(self, fd: int, position: int, size: int) -> None:
        return None

    def sync_directory(self, path: object) -> None:
        return None
