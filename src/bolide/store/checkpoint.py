"""How far the log is durable and each derived file may be trusted; the abort file; the lock.

The checkpoint's times may lag, and never lead: recovery starts at the newest file that begins before all of them, so a
time that is ahead of what is durable would leave queue entries missing. That is why they are set after a sync only.

Behind RocketMQ's 40 bytes, where a Java broker neither reads nor writes, lies how far the log was durable: what is bad
below it is rot and no torn write. It counts with the log time it was written for: not once a Java broker has gone on.

    byte 64: "bolideDP", log time i64, durable position i64, CRC-32 of these 24 bytes u32
"""

import contextlib
import fcntl
import os
import struct
import zlib
from pathlib import Path
from typing import ClassVar

from bolide.errors import StoreError
from bolide.store.disk import Disk

FILE_SIZE = 4096
MARGIN_MS = 3000
_FIELDS = struct.Struct(">5q")
_DURABLE = struct.Struct(">8sqq")
_DURABLE_AT = 64
_DURABLE_NAME = b"bolideDP"


class Checkpoint:
    """Store times of the newest record that is durable in the log, in the queues, and in full index files."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.log_ms = self.queue_ms = self.index_ms = self.master_flushed = self.confirmed = 0
        self.durable = 0  # the log is durable up to here at least; 0 where nobody knows
        # A sync of a queue failed: what it was for may never reach the disk, and a later success does not tell.
        # From then on the queues' time stands still, and the next start looks at everything after it.
        self.has_doubtful_queues = False
        self._saved = b""

    def load(self) -> None:
        """A missing or short file reads as zeros: everything is checked then."""
        with contextlib.suppress(FileNotFoundError):
            content = self._path.read_bytes()[:FILE_SIZE].ljust(FILE_SIZE, b"\0")
            fields = _FIELDS.unpack_from(content)
            self.log_ms, self.queue_ms, self.index_ms, self.master_flushed, self.confirmed = fields
            name, log_ms, durable = _DURABLE.unpack_from(content, _DURABLE_AT)
            end = _DURABLE_AT + _DURABLE.size
            is_whole = content[end : end + 4] == zlib.crc32(content[_DURABLE_AT:end]).to_bytes(4, "big")
            if name == _DURABLE_NAME and is_whole and log_ms == self.log_ms and durable >= 0:
                self.durable = durable

    def encoded(self) -> bytes:
        return _FIELDS.pack(self.log_ms, self.queue_ms, self.index_ms, self.master_flushed, self.confirmed)

    def save(self) -> None:
        fields = self.encoded()
        # Of the time that was just written: another thread may be about to move both.
        durable = _DURABLE.pack(_DURABLE_NAME, _FIELDS.unpack(fields)[0], self.durable)
        content = fields.ljust(_DURABLE_AT, b"\0") + durable + zlib.crc32(durable).to_bytes(4, "big")
        if content == self._saved:
            return
        is_new = not self._path.exists()
        fd = self._disk.create(self._path, FILE_SIZE) if is_new else self._disk.open(self._path)
        try:
            # One sector: it is written whole or not at all.
            self._disk.write(fd, content, 0)
            self._disk.sync(fd)
        finally:
            os.close(fd)
        if is_new:
            self._disk.sync_directory(self._path.parent)
        self._saved = content

    @property
    def has_confirmed(self) -> bool:
        """Whether `confirmed` counts: a store without a controller makes queues durable and leaves it at 0."""
        return self.confirmed > 0 or self.queue_ms == 0

    @property
    def trusted_ms(self) -> int:
        """Records stored up to this time are durable, in the log and in their queues."""
        return max(0, min(self.log_ms, self.queue_ms) - MARGIN_MS)


class AbortFile:
    """Exists while a store is open, so that its presence at a start means: the last one did not end well."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def exists(self) -> bool:
        return self._path.exists()

    def create(self) -> None:
        self._path.write_text(str(os.getpid()))
        fd = self._disk.open(self._path)
        try:
            self._disk.sync(fd)
        finally:
            os.close(fd)
        self._disk.sync_directory(self._path.parent)

    def remove(self) -> None:
        if self._path.exists():
            self._disk.remove(self._path)
            self._disk.sync_directory(self._path.parent)


class StoreLock:
    """One broker a directory: a POSIX lock on byte 0 of `lock`, which is what Java takes too.

    It is taken before anything is loaded, while Java recovers first and locks after. POSIX drops the lock when any
    descriptor of the file is closed in this process, so nobody else may open it here.
    """

    _held: ClassVar[set[Path]] = set()  # POSIX locks do not stop the process that holds them

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._fd = -1

    def take(self) -> None:
        if self._path in self._held:
            raise StoreError(f"{self._path.parent} is already open in this process")
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(fd)
            raise StoreError(f"{self._path.parent} is in use by another broker; stop it first") from error
        os.pwrite(fd, b"lock", 0)
        self._fd = fd
        self._held.add(self._path)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._held.discard(self._path)
