"""The queue files of a store, compared with what the log says of them: by `verify`, and by the tasks of Spark's audit.

They are read as they are. Nothing is mapped, kept open or changed.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolide.kernel.layout import ENTRY, ENTRY_SIZE, PRE_BLANK
from bolide.store.config import StoreConfig
from bolide.store.extension import QueueExtension
from bolide.store.segment import segment_name

_NO_ENTRY = bytes(ENTRY_SIZE)
_CHUNK = bytes(ENTRY_SIZE << 16)  # most of a young store is reserved and empty: that is passed over in one step


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit: in which file, at which byte, and what."""

    file: str
    position: int
    what: str


class QueueFiles:
    """The queues of one store directory."""

    def __init__(self, config: StoreConfig) -> None:
        self._root = config.root
        self._file_size = config.queue_file_bytes
        self._extension_size = config.extension_file_size
        self._known = known_topics(config.root)

    def keys(self) -> list[tuple[str, int]]:
        """Topic and number of every queue that has a directory."""
        found = (self._root / "consumequeue").glob("*/*")
        return sorted((path.parent.name, int(path.name)) for path in found if path.name.isdecimal())

    def directory(self, topic: str, queue_id: int) -> Path:
        return self._root / "consumequeue" / topic / str(queue_id)

    def is_removed(self, topic: str) -> bool:
        """Whether a topic was removed, and is rightly without queues."""
        if self._known is None or topic in self._known:
            return False
        return not (self._root / "consumequeue" / topic).is_dir()

    def finding(self, topic: str, queue_id: int, number: int, what: str) -> Finding:
        """One about the entry of that number."""
        base = number * ENTRY_SIZE // self._file_size * self._file_size
        return Finding(str(self.directory(topic, queue_id) / segment_name(base)), number * ENTRY_SIZE - base, what)

    def differences(self, topic: str, queue_id: int, first: int, entries: bytes) -> Iterator[tuple[int, Finding]]:
        """Entries that are not those which the log gives, each with the place of its record."""
        directory = self.directory(topic, queue_id)
        if self._read(directory, first, len(entries)) == entries:
            return
        extension = QueueExtension(self._root / "consumequeue_ext" / topic / str(queue_id), self._extension_size)
        for at in range(0, len(entries), ENTRY_SIZE):
            number, wanted = first + at // ENTRY_SIZE, entries[at : at + ENTRY_SIZE]
            here = self._read(directory, number, ENTRY_SIZE)
            # An entry may hold the address of its tag hash.
            if here != wanted and extension.resolve(memoryview(here)) != wanted:
                physical_offset = int.from_bytes(wanted[:8], "big")
                what = f"entry {number} is not that of the record at {physical_offset}"
                yield physical_offset, self.finding(topic, queue_id, number, what)

    def _read(self, directory: Path, first: int, size: int) -> bytes:
        """The entries that are there; less where files are missing."""
        parts, at, end = [], first * ENTRY_SIZE, first * ENTRY_SIZE + size
        while at < end:
            base = at - at % self._file_size
            try:
                with open(directory / segment_name(base), "rb", buffering=0) as file:
                    part = os.pread(file.fileno(), min(end, base + self._file_size) - at, at - base)
            except FileNotFoundError:
                part = b""
            if not part:
                break
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def stray(self, topic: str, queue_id: int, end: int, log_start: int) -> Finding | None:
        """The first thing that should not be there.

        After the entries that the log knows of there are zeros, or blanks and entries of messages that are gone.
        """
        for path in sorted(path for path in self.directory(topic, queue_id).iterdir() if not path.is_dir()):
            size = path.stat().st_size
            if not path.name.isdecimal():
                return Finding(str(path), 0, "is no segment: its name is not a number; move it away")
            if size not in (0, self._file_size):
                what = f"has {size} bytes, the configured size is {self._file_size}; set the size it was written with"
                return Finding(str(path), 0, what)
            at = max(end * ENTRY_SIZE - int(path.name), 0)
            found = _stray_entry(path, at, log_start)
            if found is not None:
                at, physical_offset = found
                number = (int(path.name) + at) // ENTRY_SIZE
                return Finding(str(path), at, f"entry {number}: the log has nothing for it at {physical_offset}")
        return None


def _stray_entry(path: Path, start: int, log_start: int) -> tuple[int, int] | None:
    """Where the first entry is that should not be in a file, and where it points."""
    with open(path, "rb", buffering=0) as file:
        for at in range(start, path.stat().st_size, len(_CHUNK)):
            chunk = os.pread(file.fileno(), len(_CHUNK), at)
            if chunk == _CHUNK[: len(chunk)]:
                continue
            for number in range(0, len(chunk) // ENTRY_SIZE * ENTRY_SIZE, ENTRY_SIZE):
                entry = chunk[number : number + ENTRY_SIZE]
                physical_offset, size, _ = ENTRY.unpack(entry)
                is_gone = size > 0 and physical_offset < log_start
                if entry not in (_NO_ENTRY, PRE_BLANK) and not is_gone:
                    return at + number, physical_offset
    return None


def known_topics(root: Path) -> set[str] | None:
    """The topics of the broker that keeps this store, None if it left no table."""
    try:
        table = json.loads((root / "config" / "topics.json").read_bytes())["topicConfigTable"]
        return set(table)
    except (OSError, ValueError, KeyError, TypeError):
        return None
