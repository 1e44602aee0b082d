"""How far the timer has come: which slots are delivered, which messages are filed, and up to where its log is durable.

RocketMQ's config/timercheck, 4,096 bytes of which the first 56 are used. It is written after what it speaks of is on
the disk, so it may be behind and is never ahead. Behind that we note how many messages waited, with a checksum of both:
a wheel that counts fewer at a start has lost some.
"""

import contextlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from bolide.store.disk import Disk

FILE_SIZE = 4096
_FIELDS = struct.Struct(">7q")
_WAITING = struct.Struct(">8xqI")


@dataclass(slots=True)
class TimerCheck:
    """`read_ms` is the first slot that is not delivered, `queue_offset` the first message that is not filed."""

    read_ms: int = 0
    log_end: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0

    def encoded(self) -> bytes:
        """The bytes of the file, and of the answer to a slave."""
        return _FIELDS.pack(
            self.read_ms,
            self.log_end,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.changed_ms,
            self.counter,
        )


def parse_check(content: bytes) -> TimerCheck:
    """What a master tells; raises ValueError."""
    if len(content) < _FIELDS.size:
        raise ValueError(f"a timer check of {len(content)} bytes, it has {_FIELDS.size}")
    return TimerCheck(*_FIELDS.unpack_from(content))


def with_count(content: bytes, waiting_count: int) -> bytes:
    """What is written: the check, and how many messages waited then."""
    return content + _WAITING.pack(waiting_count, zlib.crc32(content + b"%d" % waiting_count))


def waiting_count(path: Path) -> int:
    """How many messages waited when the file was written; 0 if nobody noted it, or a Java broker went on since."""
    with contextlib.suppress(FileNotFoundError):
        content = path.read_bytes()
        if len(content) >= _FIELDS.size + _WAITING.size:
            count, checksum = _WAITING.unpack_from(content, _FIELDS.size)
            if checksum == zlib.crc32(content[: _FIELDS.size] + b"%d" % count):
                return int(count)
    return 0


def load(path: Path) -> TimerCheck | None:
    """What the file says; None where there is none, or an empty one."""
    with contextlib.suppress(FileNotFoundError):
        content = path.read_bytes()[: _FIELDS.size].ljust(_FIELDS.size, b"\0")
        if any(content):
            return TimerCheck(*_FIELDS.unpack(content))
    return None


def save(disk: Disk, path: Path, content: bytes) -> None:
    """Write it, durably; one sector, so whole or not at all. May run in another thread."""
    disk.make_directories(path.parent)
    is_new = not path.exists()
    fd = disk.create(path, FILE_SIZE) if is_new else disk.open(path)
    try:
        if os.fstat(fd).st_size != FILE_SIZE:
            os.ftruncate(fd, FILE_SIZE)
        disk.write(fd, content, 0)
        disk.sync(fd)
    finally:
        os.close(fd)
    if is_new:
        disk.sync_directory(path.parent)
