"""What the derived files should be: a file of our own, `bolide.roster`, against which a start checks what it finds.

Queues and index follow from the log, but a start that had to read the log to know whether one of them is missing would
take minutes. So a clean stop writes down where each queue begins and ends, with its first and last entry, and the
header of each index file. While the store is open, lines are added: a queue that is new, a topic that was removed, how
far queues were when they were last made durable, an index file that is full. Each line has its checksum; one that fails
ends the reading, for what it says is a promise, and less of it is checked then.

After a clean stop the roster is exact, if the checkpoint is still the one it was sealed with: a Java broker, which does
not know this file, has been here otherwise. After that or a crash it is a lower bound: a queue must be there, and must
go at least so far. A topic that a Java broker removed meanwhile comes back with what the log has of it.
"""

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bolide.kernel.layout import ENTRY, PRE_BLANK
from bolide.store.disk import Disk

FILE_NAME = "bolide.roster"
Key = tuple[str, int]
_SIZE_MAX = 4 << 20
_GROWTH_MAX = 8


class Extent(NamedTuple):
    """Where a queue begins and ends. Without a `first` entry only its end is known."""

    min_offset: int
    next_offset: int
    first: bytes
    last: bytes

    @property
    def physical_end(self) -> int:
        """The log is in this queue up to here; 0 without a message."""
        place, size, _ = ENTRY.unpack(self.last)
        return 0 if self.last == PRE_BLANK else int(place + size)


_NEW = Extent(0, 0, b"", PRE_BLANK)


class Roster:
    """The file and what it says."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / FILE_NAME
        self.queues: dict[Key, Extent] = {}
        self.index: dict[str, bytes] = {}
        self._seal = b""
        self._fd = -1
        self._end = 0  # of the lines that are whole
        self._written_size = 0  # when it was last written again
        self._lock = threading.Lock()  # queues are made in one thread, and made durable in another

    def load(self) -> None:
        """Read what is there; from the first line on that is not whole, nothing is believed."""
        with contextlib.suppress(FileNotFoundError):
            for fact, end in _facts(self._path.read_bytes()):
                self._take(fact)
                self._end = end

    @property
    def whole_size(self) -> int:
        """Bytes of the file that are believed."""
        return self._end

    def _take(self, fact: dict[str, Any]) -> None:
        self._seal = bytes.fromhex(fact.get("checkpoint", ""))
        for topic, queue_id, low, high, first, last in fact.get("queues", ()):
            self.queues[topic, queue_id] = Extent(low, high, bytes.fromhex(first), bytes.fromhex(last))
        self.index.update((name, bytes.fromhex(header)) for name, header in fact.get("index", {}).items())
        if "removed" in fact:
            self._forget(fact["removed"])

    def _forget(self, topic: str) -> None:
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    def is_sealed_with(self, checkpoint: bytes) -> bool:
        """Whether nobody wrote to the store since this was written."""
        return bool(self._seal) and self._seal == checkpoint

    def add_queue(self, key: Key) -> None:
        """A queue was made. This need not be durable: its first entries are not either."""
        with self._lock:
            self.queues[key] = _NEW
            self._append({"queues": [_row(key, _NEW)]})

    def remove_topic(self, topic: str) -> None:
        """For good, or its queues would be missed."""
        with self._lock:
            if any(key[0] == topic for key in self.queues):
                self._forget(topic)
                self._append({"removed": topic})
                self._disk.sync(self._fd)

    def note(self, extents: Iterable[tuple[Key, Extent]]) -> None:
        """So far these queues are durable."""
        with self._lock:
            known = {key: extent for key, extent in extents if key in self.queues}  # others are removed by now
            self.queues.update(known)
            if known:
                self._append({"queues": [_row(key, extent) for key, extent in known.items()]})
            if self._end > max(_SIZE_MAX, _GROWTH_MAX * self._written_size):
                self._write_anew()

    def add_full_index(self, name: str, header: bytes) -> None:
        """An index file is full and durable."""
        with self._lock:
            self.index[name] = header
            self._append({"index": {name: header.hex()}})

    def _append(self, fact: dict[str, Any]) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        line = _line(fact)
        self._disk.write(self._fd, line, self._end)  # over what is left of one that did not fit the disk
        self._end += len(line)

    def replace(self, queues: dict[Key, Extent], index: dict[str, bytes], checkpoint: bytes = b"") -> None:
        """Write it again, durably: whole or not at all."""
        with self._lock:
            self.queues, self.index, self._seal = queues, index, checkpoint
            self._write_anew(is_durable=True)

    def _write_anew(self, is_durable: bool = False) -> None:
        content = _line(
            {
                "checkpoint": self._seal.hex(),
                "queues": [_row(key, extent) for key, extent in self.queues.items()],
                "index": {name: header.hex() for name, header in self.index.items()},
            }
        )
        self.close()
        fresh = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(fresh)
        fd = self._disk.create(fresh, len(content))
        try:
            self._disk.write(fd, content, 0)
            if is_durable:
                self._disk.sync(fd)
        finally:
            os.close(fd)
        os.replace(fresh, self._path)
        self._end = self._written_size = len(content)
        if is_durable:
            self._disk.sync_directory(self._path.parent)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _row(key: Key, extent: Extent) -> list[Any]:
    return [*key, extent.min_offset, extent.next_offset, extent.first.hex(), extent.last.hex()]


def _line(fact: dict[str, Any]) -> bytes:
    text = json.dumps(fact, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _facts(content: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    """Each line that is whole, and where it ends."""
    end = 0
    for line in content.splitlines(keepends=True):
        checksum, _, text = line[:-1].partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
            return
        end += len(line)
        yield json.loads(text), end
