"""Key → physical offsets: hash slots and chains, in files named by the time they were made.

Keys are compared by hash only, so anyone who asks must look at the messages found. Header and slots are reserved when a
file is made, entries in steps, so that writing through the map cannot fail. The file being filled is durable only when
it is full or the store stops cleanly; after a crash it is deleted and made again from the log.
"""

import datetime
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.layout import ENTRY_SIZE, INDEX_ENTRY, INDEX_HEADER, INDEX_HEADER_SIZE, Buffer
from bolide.store.disk import Disk
from bolide.store.segment import Segment, sync_file

DAMAGED = bytes(INDEX_HEADER_SIZE)
_RESERVE_STEP = 1 << 20
_PAUSE_COUNT = 2_000
_SLOTS_A_PAGE = 1024
_EMPTY_PAGE_CHANCE = 30  # keys are expected in a page of slots: that it has none is one in e**30
_SPARSE = 4096  # keys can be looked through one by one
_SECONDS_MORE = 2 * 86_400  # by which a clock may have gone back while a file was filled


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What an index file says of itself. `next_entry` starts at 1."""

    begin_ms: int
    end_ms: int
    begin_physical: int
    end_physical: int
    used_slots: int
    next_entry: int

    @classmethod
    def read(cls, content: Buffer) -> "IndexHeader":
        return cls(*INDEX_HEADER.unpack_from(content))


log = logging.getLogger(__name__)


class OddIndex(StoreError):
    """A file does not hold what it should."""


class Mending(Protocol):
    """Who makes a file again, and knows whether a record is there."""

    def has_record(self, place: int) -> bool: ...

    def mend(self, file: "IndexFile", odd: str) -> "IndexFile": ...


class IndexFile:
    """One file: header, slots, entries."""

    def __init__(self, disk: Disk, path: Path, slot_count: int, entry_count_max: int, is_new: bool) -> None:
        self.path = path
        self.is_mended = False
        self.is_damaged = False  # and the next start is to make it again
        self.slot_count = slot_count
        self.entry_count_max = entry_count_max
        size = size_of(slot_count, entry_count_max)
        self._entries_at = fixed_size = INDEX_HEADER_SIZE + slot_count * 4
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
        self._segment = Segment(disk, path, 0, size, fd).guard()
        self._segment.reserved = fixed_size
        if is_new:
            self._segment.map[0:INDEX_HEADER_SIZE] = INDEX_HEADER.pack(0, 0, 0, 0, 0, 1)

    def start_after(self, full: "IndexFile") -> None:
        header = full.header()
        content = INDEX_HEADER.pack(header.end_ms, header.end_ms, header.end_physical, header.end_physical, 0, 1)
        self._segment.map[0:INDEX_HEADER_SIZE] = content

    def header(self) -> IndexHeader:
        return IndexHeader.read(self._segment.view)

    def encoded_header(self) -> bytes:
        """For the roster; of a file that is damaged nothing that it could say."""
        return DAMAGED if self.is_damaged else bytes(self._segment.view[:INDEX_HEADER_SIZE])

    @property
    def is_full(self) -> bool:
        return int.from_bytes(self._segment.view[36:40], "big") >= self.entry_count_max

    def put(self, keys: bytes) -> int:
        """File packed keys; returns how many were taken, none where it is full."""
        segment = self._segment
        next_entry = int.from_bytes(segment.view[36:40], "big")
        if next_entry >= self.entry_count_max:
            return 0
        end = self._entries_at + next_entry * ENTRY_SIZE + len(keys)
        if end > segment.reserved and segment.reserved < segment.size:
            segment.reserve(segment.reserved, min(end + _RESERVE_STEP, segment.size))
        return kernel.put_keys(segment.map, keys, self.slot_count, self.entry_count_max)

    def cut(self, end: int, time_at: Callable[[int], int | None]) -> int:
        """Take out the keys of records from a place on, as if they had never been; returns how many stay."""
        index, header = self._segment.map, self.header()
        number, used_slots = header.next_entry, header.used_slots
        while number > 1 and self.entry(number - 1)[1] >= end:
            number -= 1
            hashed, _, _, previous = self.entry(number)
            slot = INDEX_HEADER_SIZE + hashed % self.slot_count * 4
            index[slot : slot + 4] = previous.to_bytes(4, "big")
            at = INDEX_HEADER_SIZE + self.slot_count * 4 + number * ENTRY_SIZE
            index[at : at + ENTRY_SIZE] = bytes(ENTRY_SIZE)
            used_slots -= previous == 0
        if 1 < number < header.next_entry:
            _, place, seconds, _ = self.entry(number - 1)
            time_ms = time_at(place)
            end_ms = header.begin_ms + seconds * 1000 if time_ms is None else time_ms
            fields = header.begin_ms, end_ms, header.begin_physical, place, used_slots, number
            index[0:INDEX_HEADER_SIZE] = INDEX_HEADER.pack(*fields)
        return number - 1

    def walk(self, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Physical offsets under a hash, newest first.

        None stands for many entries that were none of them. Raises OddIndex where it cannot be.
        """
        view, header = self._segment.view, self.header()
        entries_at = INDEX_HEADER_SIZE + self.slot_count * 4
        slot = hashed % self.slot_count
        number = int.from_bytes(view[(at := INDEX_HEADER_SIZE + slot * 4) : at + 4], "big", signed=True)
        if number == 0:
            self._check_empty(slot, hashed)
        seen_count = 0
        while number != 0:
            if not 0 < number < header.next_entry:
                raise OddIndex(f"a chain leads to entry {number} of {header.next_entry - 1}")
            entry_hash, physical_offset, seconds, previous = INDEX_ENTRY.unpack_from(
                view, entries_at + number * ENTRY_SIZE
            )
            if entry_hash % self.slot_count != slot or not 0 <= previous < number:
                raise OddIndex(f"entry {number} is not in the chain of its slot")
            if not 0 <= seconds <= max((header.end_ms - header.begin_ms) // 1000, 0) + _SECONDS_MORE:
                raise OddIndex(f"entry {number} is of {seconds} s after the first")
            stored_ms = header.begin_ms + seconds * 1000
            # Times were cut to seconds, so the entry may be up to one second newer than it says.
            if stored_ms + 999 < begin_ms:
                break
            seen_count += 1
            if entry_hash == hashed and stored_ms <= end_ms:
                yield physical_offset
            elif seen_count % _PAUSE_COUNT == 0:
                yield None
            number = previous

    def _check_empty(self, slot: int, hashed: int) -> None:
        """No key with this slot: believe it, unless so large a gap is unlikely, or a key is there all the same."""
        header = self.header()
        start = slot - slot % _SLOTS_A_PAGE
        end = min(start + _SLOTS_A_PAGE, self.slot_count)
        at = INDEX_HEADER_SIZE
        is_crowded = header.used_slots * (end - start) > _EMPTY_PAGE_CHANCE * self.slot_count
        if is_crowded and not any(self._segment.view[at + start * 4 : at + end * 4]):
            raise OddIndex(f"slots {start} to {end} are all empty")
        if header.next_entry <= _SPARSE:
            at += self.slot_count * 4
            for found, _, _, _ in INDEX_ENTRY.iter_unpack(
                self._segment.view[at + ENTRY_SIZE : at + header.next_entry * ENTRY_SIZE]
            ):
                if found % self.slot_count == slot:
                    raise OddIndex(f"slot {slot} is empty, and entries are of it")

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, place, seconds since the begin, and the number of the entry before it in its chain."""
        at = INDEX_HEADER_SIZE + self.slot_count * 4 + number * ENTRY_SIZE
        hashed, place, seconds, previous = INDEX_ENTRY.unpack_from(self._segment.view, at)
        return hashed, place, seconds, previous

    @property
    def view(self) -> memoryview:
        return self._segment.view

    @property
    def has_unread_pages(self) -> bool:
        """Whether some of it is zeros because it could not be read."""
        return self._segment.is_patched

    def entries(self) -> list[tuple[int, int, int, int]]:
        """All of them, for who verifies."""
        at = INDEX_HEADER_SIZE + self.slot_count * 4
        count = self.header().next_entry
        return [INDEX_ENTRY.unpack_from(self._segment.view, at + number * ENTRY_SIZE) for number in range(1, count)]

    def sync(self) -> None:
        self._segment.sync()

    def close(self) -> None:
        self._segment.close()


class FullFile(NamedTuple):
    """An index file that takes nothing more, as it is to be made durable and noted."""

    path: Path
    end_ms: int
    header: bytes


class Index:
    """The run of index files, oldest first."""

    def __init__(self, disk: Disk, directory: Path, slot_count: int, entry_count_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._slot_count = slot_count
        self._entry_count_max = entry_count_max
        self.files: list[IndexFile] = []
        self.mending: Mending | None = None
        self.odd = ""  # what was found wrong, so that it ends too early and must be made again from there on
        self.on_full: Callable[[str, bytes], None] = lambda name, header: None  # a file was full, and is durable
        self.is_doubtful = False  # a sync failed: files from then on may not be what they seem
        self.full_ms = 0  # the end of the newest file that is full and durable
        self._full: list[IndexFile] = []  # not durable yet: nobody who appends waits for that

    def load(self, mends: bool = False) -> None:
        """Open what is there; names that are no numbers are none of ours.

        A file of a wrong length raises StoreError, or is deleted with those behind it by who mends, for they are made
        again from the log; unless all have one length, which says that another was meant.
        """
        if not self._directory.is_dir():
            return
        wanted = size_of(self._slot_count, self._entry_count_max)
        paths = sorted(path for path in self._directory.iterdir() if path.name.isdecimal())
        sizes = {path: path.stat().st_size for path in paths}
        if len(paths) > 1 and len(set(sizes.values())) == 1 and 0 != sizes[paths[0]] != wanted:
            self._open(paths[0], is_new=False)  # which says what to do
        for path in paths:
            if sizes[path] == 0 and not self.odd:
                self._disk.remove(path)  # a crash came between making and sizing it
            elif mends and (sizes[path] != wanted or self.odd):
                self.odd = self.odd or f"{path} has {sizes[path]} bytes instead of {wanted}"
                self._disk.remove(path)
            else:
                self.files.append(self._open(path, is_new=False))

    def _open(self, path: Path, is_new: bool) -> IndexFile:
        return IndexFile(self._disk, path, self._slot_count, self._entry_count_max, is_new)

    def drop_after(self, trusted_ms: int) -> None:
        """Delete the files from the first on that is not full or ends after trusted_ms."""
        last_ms = -1
        for number, file in enumerate(self.files):
            end_ms = file.header().end_ms
            # Of two files that end in the trusted millisecond, the second may not be durable.
            if not file.is_full or end_ms > trusted_ms or end_ms == last_ms == trusted_ms:
                self._drop(number)
                break
            last_ms = end_ms

    def drop_from(self, name: str, odd: str) -> None:
        """Delete the files from a name on, because that one is odd."""
        self.odd = self.odd or f"{self._directory / name}: {odd}"
        self._drop(sum(file.path.name < name for file in self.files))

    def _drop(self, number: int) -> None:
        for file in self.files[number:]:
            self._remove(file)
        if self._directory.is_dir():
            self._disk.sync_directory(self._directory)

    @property
    def physical_end(self) -> int:
        """Records below this offset have their keys here; the one at it may have only some of them."""
        return max((file.header().end_physical for file in self.files if file.header().next_entry > 1), default=-1)

    def cut(self, end: int, trusted_ms: int, time_at: Callable[[int], int | None]) -> None:
        """Take out the keys of records from a place on. Files that end after a time are not said to be durable."""
        self.full_ms = min(self.full_ms, trusted_ms)
        while self.files and not self.files[-1].cut(end, time_at):
            self._drop(len(self.files) - 1)
        self._full = [file for file in self._full if file in self.files and file.is_full]

    def filed_hashes(self, place: int) -> list[int]:
        """The keys of the last record that are here, by their hashes; they may lie in two files."""
        hashes = []
        for file in reversed(self.files):
            number = file.header().next_entry - 1
            while number > 0 and file.entry(number)[1] == place:
                hashes.append(file.entry(number)[0])
                number -= 1
            if number > 0:
                break
        return hashes

    def put(self, keys: bytes, now_ms: int) -> bytes:
        """File packed keys until a file is full; returns the rest."""
        taken_count = self.files[-1].put(keys) if self.files else 0
        if not taken_count:
            self._add_file(self._made_ms(keys, now_ms))
            taken_count = self.files[-1].put(keys)
        return keys[taken_count * ENTRY_SIZE :]

    def _made_ms(self, keys: bytes, now_ms: int) -> int:
        """The time that names a file: that of its first key, so that a copy of the log gets the same names."""
        low = self.files[-1].header().end_ms if self.files else 0
        return min(max(int.from_bytes(keys[12:20], "big", signed=True), low), now_ms)

    def _add_file(self, now_ms: int) -> None:
        full = self.files[-1] if self.files else None
        self._disk.make_directories(self._directory)
        taken = {file.path.name for file in self.files}
        while (name := name_at(now_ms)) in taken:
            now_ms += 1
        file = self._open(self._directory / name, is_new=True)
        if full is not None:
            file.start_after(full)
            self._full.append(full)
        self.files.append(file)

    def take_full(self) -> list[FullFile]:
        """The files that are full since this was last asked, for `sync_full`."""
        full, self._full = self._full, []
        return [FullFile(file.path, file.header().end_ms, file.encoded_header()) for file in full if file in self.files]

    def sync_full(self, full: list[FullFile]) -> None:
        """Make files durable that are full, and say so; may run in another thread.

        A disk that fails here costs nobody a message: the log has the keys. The next start makes the files again from
        the last one that is durable for sure. A later sync may well succeed, and says nothing of this one.
        """
        for path, end_ms, header in full:
            try:
                sync_file(self._disk, path)
                self._disk.sync_directory(path.parent)
            except FileNotFoundError:  # it has expired
                continue
            except OSError as problem:
                if not self.is_doubtful:
                    log.error("index file not synced, the next start makes it again path=%s problem=%s", path, problem)
                self.is_doubtful = True
            if not self.is_doubtful:
                self.full_ms = end_ms
                self.on_full(path.name, header)

    def walk(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Physical offsets of messages that may have the key, newest first.

        None stands for a while without a find, in which others may have their turn.
        """
        hashed = kernel.key_hash(topic, key)
        for file in reversed(self.files.copy()):
            if file not in self.files:
                break  # it expired in the meantime, and those before it too
            header = file.header()
            if header.begin_ms <= end_ms and header.end_ms >= begin_ms:
                for each in self._walk_file(file, hashed, begin_ms, end_ms):
                    yield each
                    if not any(other.path == file.path for other in self.files):
                        return
            if header.begin_ms < begin_ms:
                break

    def _walk_file(self, file: IndexFile, hashed: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """What a file has; if its chains turn out odd, it is made again, and what was given is given once more."""
        try:
            for place in file.walk(hashed, begin_ms, end_ms):
                if place is not None and self.mending is not None and not self.mending.has_record(place):
                    raise OddIndex(f"no record at {place}")
                yield place
            if file.has_unread_pages:
                raise OddIndex("a page of it cannot be read")
        except OddIndex as problem:
            if self.mending is None or file.is_mended:
                raise StoreError(f"{file.path}: {problem}") from problem
            yield from self.mending.mend(file, str(problem)).walk(hashed, begin_ms, end_ms)

    def replacement(self, file: IndexFile) -> IndexFile:
        """An empty file that may take the place of another; its name keeps it from being loaded."""
        path = file.path.with_suffix(".new")
        if path.exists():
            self._disk.remove(path)
        fresh = self._open(path, is_new=True)
        fresh.is_mended = True
        return fresh

    def swap(self, old: IndexFile, fresh: IndexFile) -> None:
        """The replacement bears the name of the old one now."""
        fresh.path = old.path
        self.files[self.files.index(old)] = fresh
        old.close()

    def headers(self) -> dict[str, bytes]:
        """What each file says of itself, by its name."""
        return {file.path.name: file.encoded_header() for file in self.files}

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


def size_of(slot_count: int, entry_count_max: int) -> int:
    """The length of a file: header, slots, entries."""
    return INDEX_HEADER_SIZE + slot_count * 4 + entry_count_max * ENTRY_SIZE


def name_at(now_ms: int) -> str:
    """A file name from the local time, seventeen digits."""
    moment = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
    return moment.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"
