"""The timer's wheel: a slot for each step of two weeks, in one mapped file that is as sparse as what waits.

A slot is 32 bytes: its time in steps, the places of its first and last unit in the timer's log, how many wait. It is
found by its time modulo the number of slots, and one that has another time in it is empty. Pages are reserved before
the first write to them, so that a full disk is an error and not a signal.

The file has the one length that RocketMQ expects. One of another length, where RocketMQ refuses to start, is emptied,
and `odd` says so: what waits is filed again from the timer's topic. `odd` speaks too when a page could not be read and
its slots seem empty; nothing that was read before it was asked is to be believed then.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bolide import kernel
from bolide.kernel.layout import CHANGE_SIZE, SLOT, SLOT_SIZE
from bolide.store.disk import Disk

SLOTS_AHEAD = 7 * 86_400  # this many steps a slot may be away, and as many in the past are still told apart
SLOT_COUNT = 2 * SLOTS_AHEAD
FILE_SIZE = SLOT_COUNT * SLOT_SIZE
_CHUNK_SIZE = 1 << 16


class Slot(NamedTuple):
    """What waits for one step; without a unit both places are -1."""

    time_ms: int
    first: int
    last: int
    load: int


class TimerWheel:
    """The file, open and mapped."""

    def __init__(self, disk: Disk, path: Path, step_ms: int) -> None:
        self._disk = disk
        self._step_ms = step_ms
        self._path = path
        self._fd, self._found_odd = _open(disk, path)
        self.map = mmap.mmap(self._fd, FILE_SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._guarded = kernel.guard_map(self.map)
        self.map.madvise(mmap.MADV_RANDOM)  # or a first touch would read megabytes of nothing ahead
        self._reserved: set[int] = set()
        self.is_dirty = False

    @property
    def odd(self) -> str:
        """What is wrong with the file; nothing since it was emptied, or if it is whole."""
        is_patched = self._guarded >= 0 and kernel.fault_count() and kernel.patched_span(self._guarded) is not None
        return f"a page of {self._path} could not be read" if is_patched else self._found_odd

    def believe(self) -> None:
        """What was odd when it was opened does not matter: nothing had been filed."""
        self._found_odd = ""

    def slot(self, time_ms: int) -> Slot:
        """The slot of a time."""
        step = time_ms // self._step_ms
        found, first, last, count, _ = SLOT.unpack_from(self.map, step % SLOT_COUNT * SLOT_SIZE)
        return Slot(time_ms, first, last, count) if found == step else Slot(time_ms, -1, -1, 0)

    def reserve(self, changes: bytes) -> None:
        """Take the pages that changes will touch from the disk; raises OSError where it is full."""
        for at in range(0, len(changes), CHANGE_SIZE):
            chunk = int.from_bytes(changes[at : at + 4], "big") * SLOT_SIZE // _CHUNK_SIZE
            if chunk not in self._reserved:
                start = chunk * _CHUNK_SIZE
                self._disk.reserve(self._fd, start, min(_CHUNK_SIZE, FILE_SIZE - start))
                self._reserved.add(chunk)

    def apply(self, changes: bytes) -> int:
        """Change slots as the kernel laid it out; returns the latest time among them."""
        latest = 0
        for at in range(0, len(changes), CHANGE_SIZE):
            position = int.from_bytes(changes[at : at + 4], "big") * SLOT_SIZE
            self.map[position : position + SLOT_SIZE] = changes[at + 4 : at + CHANGE_SIZE]
            latest = max(latest, int.from_bytes(changes[at + 4 : at + 12], "big"))
        self.is_dirty = True
        return latest * self._step_ms

    def put(self, slot: Slot) -> None:
        """Write one slot; without a unit it becomes an empty one."""
        step = slot.time_ms // self._step_ms
        number = step % SLOT_COUNT
        content = SLOT.pack(step, slot.first, slot.last, slot.load, 0) if slot.last >= 0 else bytes(SLOT_SIZE)
        change = number.to_bytes(4, "big") + content
        self.reserve(change)
        self.apply(change)

    def occupied(self) -> Iterator[Slot]:
        """Every slot with something in it, past ones too; only what was ever written is read."""
        for start, end in self._stretches():
            content = self._read(start, end)
            for step, first, last, count, _ in SLOT.iter_unpack(content[: len(content) // SLOT_SIZE * SLOT_SIZE]):
                if step > 0 and last >= 0:
                    yield Slot(step * self._step_ms, first, last, count)

    def _read(self, start: int, end: int) -> bytes:
        try:
            return os.pread(self._fd, end - start, start)
        except OSError as problem:
            self._found_odd = f"{self._path} cannot be read from {start} to {end}: {problem}"
            return b""

    def _stretches(self) -> Iterator[tuple[int, int]]:
        end = 0
        while end < FILE_SIZE:
            try:
                start = os.lseek(self._fd, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            end = min(os.lseek(self._fd, start, os.SEEK_HOLE), start + _CHUNK_SIZE)
            yield start // SLOT_SIZE * SLOT_SIZE, end

    def take_dirty(self) -> bool:
        """Whether it must be synced; from here on it counts as being so."""
        is_dirty, self.is_dirty = self.is_dirty, False
        return is_dirty

    def sync(self) -> None:
        """Make all changes durable; may run in another thread."""
        self._disk.sync(self._fd)

    def clear(self) -> None:
        """Empty every slot; pages that could not be read are the file's again. Raises OSError."""
        if os.fstat(self._fd).st_size < FILE_SIZE:
            os.ftruncate(self._fd, FILE_SIZE)
        self._disk.clear(self._fd, 0, FILE_SIZE, is_reserved=False)
        span = kernel.patched_span(self._guarded) if self._guarded >= 0 else None
        if span is not None:
            kernel.map_again(self._guarded, span[0], span[1] - span[0], self._fd)
            kernel.forget_span(self._guarded)
        self._found_odd = ""
        self._reserved = set()
        self.is_dirty = True

    def close(self) -> None:
        if self._guarded >= 0:
            kernel.unguard_map(self._guarded)
        self.map.close()
        os.close(self._fd)


def _open(disk: Disk, path: Path) -> tuple[int, str]:
    """The descriptor of the file, and what is odd about it: nothing if it is whole."""
    try:
        fd = disk.create(path, FILE_SIZE)
        disk.sync_directory(path.parent)
        return fd, f"{path} was missing"
    except FileExistsError:
        fd = disk.open(path)
    size = os.fstat(fd).st_size
    if size == FILE_SIZE:
        return fd, ""
    os.ftruncate(fd, 0)
    os.ftruncate(fd, FILE_SIZE)
    return fd, f"{path} had {size} bytes instead of {FILE_SIZE}"
