"""What a disk may hold after a power cut: a process notes what it synced, and worlds are made from that.

The notes are files beside the store, so they outlive the process: for each file its content as of its last sync, for
each directory its names as of its own. A file is known by its inode, for a table is written under one name and renamed
to another; a second link keeps the inode from being used again. Real disks are kinder than this one: it may forget the
name of a file that was synced, as POSIX allows and ext4 rarely does, and it keeps or forgets each page for itself.
"""

import errno
import json
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PAGE_SIZE = 4096
SECTOR_SIZE = 512
_BLOCK_SIZE = 1 << 16
_DIRECTORY = -1  # stands for a directory where a file has its inode

Names = dict[str, dict[str, int]]
# Each time it is called, the states in which a disk may be found now.
Worlds = Callable[[], Iterator[Path]]


class SyncNotes:
    """What is durable of the files below `root`, kept below `home`."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self._contents = home / "contents"
        self._links = home / "links"
        self._names_path = home / "names.json"

    def exist(self) -> bool:
        return self._names_path.exists()

    def names(self) -> Names:
        names: Names = json.loads(self._names_path.read_text())
        return names

    def save_names(self, names: Names) -> None:
        temporary = self._names_path.with_suffix(".tmp")
        temporary.write_text(json.dumps(names))
        temporary.replace(self._names_path)

    def content(self, inode: int) -> Path:
        return self._contents / str(inode)

    def link(self, inode: int) -> Path:
        return self._links / str(inode)

    def prepare(self) -> None:
        self._contents.mkdir(parents=True)
        self._links.mkdir()

    def note_link(self, path: Path, inode: int) -> None:
        if not self.link(inode).exists():
            try:
                os.link(path, self.link(inode))
            except FileNotFoundError:
                return  # removed meanwhile: nobody relies on it

    def note_content(self, path: Path, inode: int) -> None:
        """Bring the durable copy up to what the file holds now."""
        self.content(inode).touch()
        with open(path, "rb", buffering=0) as now, open(self.content(inode), "r+b", buffering=0) as copy:
            here, there = now.fileno(), copy.fileno()
            os.ftruncate(there, os.fstat(here).st_size)
            for at in sorted({*_blocks(here), *_blocks(there)}):
                block = os.pread(here, _BLOCK_SIZE, at)
                if os.pread(there, _BLOCK_SIZE, at) != block:
                    os.pwrite(there, block, at)


class SyncRecorder:
    """Takes the place of the system's sync calls in a process; nothing is really synced, it is only noted."""

    def __init__(self, notes: SyncNotes) -> None:
        self._notes = notes
        self._lock = threading.Lock()
        if notes.exist():
            self._names = notes.names()
        else:
            notes.prepare()
            self._names = {}
            self._everything()

    def sync(self, fd: int) -> None:
        """As fsync and fdatasync."""
        status = os.fstat(fd)
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if self._notes.root not in (path, *path.parents):
            return
        with self._lock:
            if stat.S_ISDIR(status.st_mode):
                self._directory(path)
                self._notes.save_names(self._names)
            elif status.st_nlink:
                self._notes.note_link(path, status.st_ino)
                self._notes.note_content(path, status.st_ino)

    def sync_all(self) -> None:
        """As syncfs."""
        with self._lock:
            self._everything()

    def _everything(self) -> None:
        root = self._notes.root
        for directory in (root, *(path for path in root.rglob("*") if path.is_dir())):
            if directory.is_dir():
                self._directory(directory)
        for path in (path for path in root.rglob("*") if path.is_file()):
            self._notes.note_content(path, path.stat().st_ino)
        self._notes.save_names(self._names)

    def _directory(self, path: Path) -> None:
        here = _entries(path)
        self._names[str(path.relative_to(self._notes.root))] = here
        for name, inode in here.items():
            if inode != _DIRECTORY:
                self._notes.note_link(path / name, inode)

    def install(self, stalls: "Stalls") -> None:
        """From now on every sync of this process comes here, and may be slow."""
        from bolide.store import disk

        def sync(fd: int | Any) -> None:
            stalls.wait()
            self.sync(fd if isinstance(fd, int) else fd.fileno())

        def sync_all(fd: int) -> int:
            stalls.wait()
            self.sync_all()
            return 0

        os.fsync = os.fdatasync = sync
        libc: Any = disk._libc
        libc.syncfs = sync_all


class Stalls:
    """A disk that now and then takes its time over a sync."""

    def __init__(self, share: float = 0.0, longest_s: float = 0.0, seed: int = 0) -> None:
        self._share = share
        self._longest_s = longest_s
        self._chance = random.Random(seed)

    def wait(self) -> None:
        if self._chance.random() < self._share:
            # Nobody sets it: this waits in the thread that syncs, as a slow disk makes it wait.
            threading.Event().wait(self._chance.random() * self._longest_s)


class PowerCut:
    """Makes one of the states in which the disk may be found."""

    def __init__(self, notes: SyncNotes, chance: random.Random) -> None:
        self._notes = notes
        self._names = notes.names()
        self._chance = chance

    def leave(self, target: Path) -> None:
        """Write that state to `target`."""
        self._directory(Path("."), target)

    def _directory(self, place: Path, target: Path) -> None:
        target.mkdir(parents=True)
        here = self._notes.root / place
        now = _entries(here) if here.is_dir() else {}
        durable = self._names.get(str(place), {})
        for name in sorted(now.keys() | durable.keys()):
            kept = durable.get(name) if self._chance.random() < 0.5 else now.get(name)
            if kept == _DIRECTORY:
                self._directory(place / name, target / name)
            elif kept is not None:
                self._file(kept, here / name if now.get(name) == kept else self._notes.link(kept), target / name)

    def _file(self, inode: int, now: Path, target: Path) -> None:
        with open(target, "wb") as file:
            durable = self._notes.content(inode)
            if not durable.exists():
                if self._chance.random() < 0.3 or not now.exists():
                    return  # not even its size was written
                durable = Path(os.devnull)
            self._mix(durable, now if now.exists() else durable, file.fileno())

    def _mix(self, durable: Path, now: Path, target: int) -> None:
        # Now and then all of one kind, else each page for itself, some of them torn.
        share = self._chance.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        grain = self._chance.choice((PAGE_SIZE, PAGE_SIZE, SECTOR_SIZE))
        with open(durable, "rb", buffering=0) as old, open(now, "rb", buffering=0) as new:
            size = os.fstat(new.fileno()).st_size
            os.ftruncate(target, size)
            for start in sorted({*_blocks(old.fileno()), *_blocks(new.fileno())}):
                before, after = (os.pread(side.fileno(), _BLOCK_SIZE, start) for side in (old, new))
                before = before.ljust(len(after), b"\0")[: len(after)]
                if before == after:
                    os.pwrite(target, after, start)
                    continue
                for at in range(0, len(after), grain):
                    part = (after if self._chance.random() < share else before)[at : at + grain]
                    os.pwrite(target, part, start + at)


def _entries(directory: Path) -> dict[str, int]:
    entries = {}
    for entry in os.scandir(directory):
        entries[entry.name] = _DIRECTORY if entry.is_dir() else entry.inode()
    return entries


def _blocks(fd: int) -> Iterator[int]:
    """Where blocks with data begin."""
    at = 0
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return
    while True:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        for block in range(start // _BLOCK_SIZE, -(-end // _BLOCK_SIZE)):
            yield block * _BLOCK_SIZE
        at = end
