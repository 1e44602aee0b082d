"""What queue files say of the log: where records begin, how long they are, and which offset of which queue they have.

Witnesses, not truth: they are asked only where the log itself cannot be read. After a crash recovery cuts the queues
before it walks the log, so what is to be cut is looked at first and kept here, as it lies on the disk and up to a
bound; after a clean stop the files are there to be read when they are needed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bolide.kernel.layout import ENTRY, ENTRY_SIZE, PRE_BLANK
from bolide.store.segment import segment_name

_KEPT_SIZE_MAX = 64 << 20
_HELD_MAX = 256
_NOTHING = 0x7FFF_FFFF
_SIZE_MIN = 91
_ZEROS = bytes(ENTRY_SIZE << 8)


class Named(NamedTuple):
    """A record as its queue entry describes it."""

    place: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int

    @property
    def end(self) -> int:
        return self.place + self.size


class NamedPlaces:
    """Queue entries of a store's directory that point to some part of the log."""

    def __init__(self, directory: Path, file_size: int) -> None:
        self._directory = directory
        self._file_size = file_size
        self._runs: list[tuple[str, int, int, bytes]] | None = None
        self._held: list[tuple[str, int, int, int]] = []  # files that are about to be removed, by descriptor
        self._left = _KEPT_SIZE_MAX

    @classmethod
    def nowhere(cls) -> "NamedPlaces":
        """For a log of which no queue can know more than it says itself."""
        nothing = cls(Path(), ENTRY_SIZE)
        nothing._runs = []
        return nothing

    def gather(self, start: int) -> None:
        """Keep what points to start or later, before it is cut."""
        self._runs = []
        for topic, queue_id, path in _queue_directories(self._directory):
            for base in sorted((int(name) for name in os.listdir(path) if name.isdecimal()), reverse=True):
                if self._is_last_needed(topic, queue_id, path / segment_name(base), start):
                    break

    def _is_last_needed(self, topic: str, queue_id: int, path: Path, start: int) -> bool:
        """Keep a file; true for one that begins before start. What will be removed is held by its descriptor alone."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        head = _read(fd, ENTRY_SIZE)
        is_cut = len(head) < ENTRY_SIZE or (_is_message(head, 0) and ENTRY.unpack(head)[0] < start)
        held = topic, queue_id, int(path.name) // ENTRY_SIZE, fd
        if is_cut or len(self._held) >= _HELD_MAX:
            self._load(*held)
        else:
            self._held.append(held)
        return is_cut

    def _load(self, topic: str, queue_id: int, first: int, fd: int) -> None:
        content = b""
        if self._left > 0:
            content = _read(fd, self._file_size)
            self._left -= len(content)
        os.close(fd)
        assert self._runs is not None
        self._runs.append((topic, queue_id, first, content))

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop()[3])

    def between(self, low: int, high: int) -> list[Named]:
        """The records that begin from low on and before high, in the order of the log."""
        if self._runs is None:
            self.gather(low)
        while self._held:
            self._load(*self._held.pop())
        found = []
        for topic, queue_id, first, entries in self._runs or ():
            number, count = first_from(entries, low), len(entries) // ENTRY_SIZE
            while number < count:
                place, size, _ = ENTRY.unpack_from(entries, number * ENTRY_SIZE)
                if place >= high and 0 < size != _NOTHING:
                    break
                if low <= place < high and _SIZE_MIN <= size != _NOTHING:
                    found.append(Named(place, size, topic, queue_id, first + number))
                number += 1
        return sorted(found)

    def offset_of(self, topic: str, queue_id: int, place: int) -> int | None:
        """The queue offset that the record at a place had in a queue, None if that is not known."""
        for each in self.between(place, place + 1):
            if (each.topic, each.queue_id) == (topic, queue_id):
                return each.queue_offset
        return None

    def trailing_blanks(self) -> Iterator[tuple[str, int, int, int]]:
        """Queues whose last entries stood for nothing already: the first such offset, and the end."""
        newest: dict[tuple[str, int], tuple[int, bytes]] = {}
        for topic, queue_id, first, entries in self._runs or ():
            newest[topic, queue_id] = max(newest.get((topic, queue_id), (first, entries)), (first, entries))
        for key, (first, entries) in newest.items():
            end = count = len(entries) // ENTRY_SIZE
            while count and entries[(count - 1) * ENTRY_SIZE : count * ENTRY_SIZE] == PRE_BLANK:
                count -= 1
            if count < end:
                yield *key, first + count, first + end


def first_from(entries: bytes | memoryview, place: int) -> int:
    """The number of the first entry that points to a place or behind it; what stands for nothing is gone round."""
    low, high = 0, len(entries) // ENTRY_SIZE
    while low < high:
        middle = number = (low + high) // 2
        while number < high and not _is_message(entries, number):
            number += 1
        if number < high and ENTRY.unpack_from(entries, number * ENTRY_SIZE)[0] < place:
            low = number + 1
        else:
            high = middle
    return low


def _read(fd: int, size_max: int) -> bytes:
    """The entries of a file up to its end of data; none where a page of it cannot be read."""
    try:
        if not os.fstat(fd).st_size:
            return b""
        content = os.pread(fd, min(os.lseek(fd, 0, os.SEEK_HOLE), size_max), 0)
    except OSError:
        return b""
    count = len(content) // ENTRY_SIZE
    for step in (_ZEROS, _ZEROS[:ENTRY_SIZE]):
        while count * ENTRY_SIZE >= len(step) and content.endswith(step, 0, count * ENTRY_SIZE):
            count -= len(step) // ENTRY_SIZE
    return content[: count * ENTRY_SIZE]


def _is_message(entries: bytes | memoryview, number: int) -> bool:
    _, size, _ = ENTRY.unpack_from(entries, number * ENTRY_SIZE)
    return bool(0 < size != _NOTHING)


def _queue_directories(root: Path) -> Iterator[tuple[str, int, Path]]:
    if root.is_dir():
        for topic in sorted(path for path in root.iterdir() if path.is_dir()):
            for path in sorted(topic.iterdir()):
                if path.name.isdecimal() and path.is_dir():
                    yield topic.name, int(path.name), path
