"""Key → physical offsets: hash slots and chains, in files named by the time they were made.

Keys are compared by hash only, so whoever asks must look at the messages found. Header and slots are reserved when a
file is made, entries in steps, so that writing through the map cannot fail. The file being filled is durable only when
it is full or the store stops cleanly; after a crash it is deleted and made again from the log.
"""

import datetime
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.plain_records import ENTRY_SIZE, INDEX_HEADER_SIZE, key_hash
from bolide.store.disk import Disk
from bolide.store.segment import Segment

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_RESERVE_STEP = 1 << 20
_PAUSE_COUNT = 2_000


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What an index file says of itself. `next_entry` starts at 1."""

    begin_ms: int
    end_ms: int
    begin_physical: int
    end_physical: int
    used_slots: int
    next_entry: int


class IndexFile:
    """One file: header, slots, entries."""

    def __init__(self, disk: Disk, path: Path, slot_count: int, entry_count_max: int, is_new: bool) -> None:
        self.path = path
        self._slot_count = slot_count
        self._entry_count_max = entry_count_max
        size = INDEX_HEADER_SIZE + slot_count * 4 + entry_count_max * ENTRY_SIZE
        fixed_size = INDEX_HEADER_SIZE + slot_count * 4
        if not is_new and path.stat().st_size != size:
            raise StoreError(
                f"{path} has {path.stat().st_size} bytes instead of {size}; "
                "set maxHashSlotNum and maxIndexNum as it was written, or delete it"
            )
        fd = disk.create(path, size) if is_new else disk.open(path)
        try:
            disk.reserve(fd, 0, fixed_size)
        except OSError:
            os.close(fd)
            if is_new:
                disk.remove(path)
            raise
        self._segment = Segment(disk, path, 0, size, fd)
        self._segment.reserved = fixed_size
        if is_new:
            self._segment.map[0:INDEX_HEADER_SIZE] = _HEADER.pack(0, 0, 0, 0, 0, 1)

    def start_after(self, full: "IndexFile") -> None:
        header = full.header()
        content = _HEADER.pack(header.end_ms, header.end_ms, header.end_physical, header.end_physical, 0, 1)
        self._segment.map[0:INDEX_HEADER_SIZE] = content

    def header(self) -> IndexHeader:
        return IndexHeader(*_HEADER.unpack_from(self._segment.view))

    @property
    def is_full(self) -> bool:
        return self.header().next_entry >= self._entry_count_max

    def put(self, keys: bytes) -> int:
        """File packed keys; returns how many were taken."""
        segment = self._segment
        next_entry = int.from_bytes(segment.view[36:40], "big")
        entries_at = INDEX_HEADER_SIZE + self._slot_count * 4
        end = min(entries_at + next_entry * ENTRY_SIZE + len(keys), segment.size)
        if end > segment.reserved:
            segment.reserve(segment.reserved, min(end + _RESERVE_STEP, segment.size))
        return kernel.put_keys(segment.map, keys, self._slot_count, self._entry_count_max)

    def find(self, hashed: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets under a hash, newest first."""
        return list(islice((each for each in self.walk(hashed, begin_ms, end_ms) if each is not None), count_max))

    def walk(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """The same one by one; None after many entries that were none of them."""
        view, header = self._segment.view, self.header()
        entries_at = INDEX_HEADER_SIZE + self._slot_count * 4
        number = int.from_bytes(view[(at := INDEX_HEADER_SIZE + hashed % self._slot_count * 4) : at + 4], "big")
        seen_count = 0
        while 0 < number < header.next_entry:
            entry_hash, physical_offset, seconds, previous = _ENTRY.unpack_from(view, entries_at + number * ENTRY_SIZE)
            stored_ms = header.begin_ms + seconds * 1000
            # Times were cut to seconds, so the entry may be up to one second newer than it says.
            if seconds < 0 or stored_ms + 999 < begin_ms:
                break
            seen_count += 1
            if entry_hash == hashed and stored_ms <= end_ms:
                yield physical_offset
            elif seen_count % _PAUSE_COUNT == 0:
                yield None
            if previous >= number:
                break
            number = previous

    def entries(self) -> list[tuple[int, int, int, int]]:
        """All of them, for who verifies."""
        at = INDEX_HEADER_SIZE + self._slot_count * 4
        count = self.header().next_entry
        return [_ENTRY.unpack_from(self._segment.view, at + number * ENTRY_SIZE) for number in range(1, count)]

    def sync(self) -> None:
        self._segment.sync()

    def close(self) -> None:
        self._segment.close()


class Index:
    """The run of index files, oldest first."""

    def __init__(self, disk: Disk, directory: Path, slot_count: int, entry_count_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._slot_count = slot_count
        self._entry_count_max = entry_count_max
        self.files: list[IndexFile] = []
        self.full_ms = 0  # the end of the newest file that is full and durable

    def load(self) -> None:
        """Open what is there; names that are no numbers are none of ours."""
        if self._directory.is_dir():
            for name in sorted(name for name in os.listdir(self._directory) if name.isdecimal()):
                path = self._directory / name
                if path.stat().st_size == 0:
                    self._disk.remove(path)  # a crash came between making and sizing it
                else:
                    self.files.append(self._open(path, is_new=False))

    def _open(self, path: Path, is_new: bool) -> IndexFile:
        return IndexFile(self._disk, path, self._slot_count, self._entry_count_max, is_new)

    def drop_after(self, trusted_ms: int) -> None:
        """Delete the files that are not full or end after trusted_ms."""
        last_ms = -1
        for file in list(self.files):
            end_ms = file.header().end_ms
            # Of two files that end in the trusted millisecond, the second may not be durable.
            if not file.is_full or end_ms > trusted_ms or end_ms == last_ms == trusted_ms:
                self._remove(file)
            last_ms = end_ms
        if self._directory.is_dir():
            self._disk.sync_directory(self._directory)

    @property
    def physical_end(self) -> int:
        """Records below this offset have their keys here; the one at it may have only some of them."""
        return max((file.header().end_physical for file in self.files if file.header().next_entry > 1), default=-1)

    def put(self, keys: bytes, now_ms: int) -> bytes:
        """File packed keys until a file is full; returns the rest."""
        if not self.files or self.files[-1].is_full:
            self._add_file(now_ms)
        return keys[self.files[-1].put(keys) * ENTRY_SIZE :]

    def _add_file(self, now_ms: int) -> None:
        full = self.files[-1] if self.files else None
        if full is not None:
            full.sync()
            self.full_ms = full.header().end_ms
        self._directory.mkdir(parents=True, exist_ok=True)
        taken = {file.path.name for file in self.files}
        while (name := name_at(now_ms)) in taken:
            now_ms += 1
        file = self._open(self._directory / name, is_new=True)
        if full is not None:
            file.start_after(full)
        self._disk.sync_directory(self._directory)
        self.files.append(file)

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets of messages that may have the key, newest first."""
        found = (each for each in self.walk(topic, key, begin_ms, end_ms) if each is not None)
        return list(islice(found, count_max))

    def walk(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """The same one by one. None stands for a while without a find, in which others may have their turn."""
        hashed = key_hash(topic, key)
        for file in reversed(self.files.copy()):
            if file not in self.files:
                break  # it expired in the meantime, and those before it too
            header = file.header()
            if header.begin_ms <= end_ms and header.end_ms >= begin_ms:
                for each in file.walk(hashed, begin_ms, end_ms):
                    yield each
                    if file not in self.files:
                        return
            if header.begin_ms < begin_ms:
                break

    def remove_below(self, log_start: int) -> None:
        """Delete the files whose messages are gone, never the last."""
        while len(self.files) > 1 and self.files[0].header().end_physical < log_start:
            self._remove(self.files[0])

    def _remove(self, file: IndexFile) -> None:
        file.close()
        self._disk.remove(file.path)
        self.files.remove(file)

    def sync(self) -> None:
        for file in self.files:
            if not file.is_full or file is self.files[-1]:
                file.sync()
        if self.files:
            self._disk.sync_directory(self._directory)

    def close(self) -> None:
        for file in self.files:
            file.close()


def name_at(now_ms: int) -> str:
    """A file name from the local time, seventeen digits."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
    return moment.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"
