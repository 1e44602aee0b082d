"""Disks that misbehave on request: one that fills up or fails, and one that forgets what was not synced.

Each is a `Disk` to open a store with. They work on real files, so mapped writes take part too.
"""

import errno
import os
import random
import threading
from pathlib import Path

from bolide.store.disk import Disk

PAGE_SIZE = 4096


def path_of(fd: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{fd}"))


class FaultyDisk(Disk):
    """Says ENOSPC for files whose path contains `full_for`, and EIO on syncing those with `broken_for`."""

    def __init__(self) -> None:
        self.full_for: str | None = None
        self.broken_for: str | None = None
        self.synced: list[Path] = []
        self.percent = 10  # of this disk; how full the machine's own is decides nothing

    def _check_room(self, path: Path) -> None:
        if self.full_for is not None and self.full_for in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def create(self, path: Path, size: int) -> int:
        self._check_room(path)
        return super().create(path, size)

    def reserve(self, fd: int, position: int, size: int) -> None:
        self._check_room(path_of(fd))
        super().reserve(fd, position, size)

    def sync(self, fd: int) -> None:
        self.synced.append(path_of(fd))
        if self.broken_for is not None and self.broken_for in str(path_of(fd)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def used_percent(self, path: Path) -> int:
        return self.percent


class ForgetfulDisk(Disk):
    """Remembers each file as of its last sync and each directory as of its own, to build what a power cut may leave."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()  # segments are made ahead in a thread
        self._contents: dict[Path, bytes] = {}
        self._names: set[Path] = set()

    def sync(self, fd: int) -> None:
        with self._lock:
            self._contents[path_of(fd)] = os.pread(fd, os.fstat(fd).st_size, 0)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            self._names -= {name for name in self._names if name.parent == path}
            self._names |= set(path.iterdir())
            # What lay in a directory that is gone is out of reach.
            gone = {name for name in self._names if not name.parent.is_dir()}
            self._names -= {name for name in gone if not self._is_reachable(name)}

    def _is_reachable(self, path: Path) -> bool:
        """Whether every directory on the way has a name that a power cut leaves."""
        return all(parent in self._names for parent in path.parents if self._root in parent.parents)

    def survive(self, target: Path, chance: random.Random) -> None:
        """Write to target one of the states in which the disk may be found after a power cut."""
        with self._lock:
            self._survive(target, chance)

    def _survive(self, target: Path, chance: random.Random) -> None:
        now = {path for path in self._root.rglob("*") if path.is_file()}
        for path in sorted(now | {name for name in self._names if name in self._contents}):
            is_named = path in self._names and self._is_reachable(path)
            if path not in now:
                keeps = chance.random() < 0.5  # its removal was not synced
            else:
                keeps = is_named or chance.random() < 0.5
            if keeps:
                copy = target / path.relative_to(self._root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(self._survivor(path, now, chance))

    def _survivor(self, path: Path, now: set[Path], chance: random.Random) -> bytes:
        old = self._contents.get(path, b"")
        new = path.read_bytes() if path in now else old
        if not old and chance.random() < 0.3:
            return b""  # not even its size was written
        old = old.ljust(len(new), b"\0")
        # Now and then all of one kind, else each page for itself.
        share = chance.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        pages = [(new if chance.random() < share else old)[at : at + PAGE_SIZE] for at in range(0, len(new), PAGE_SIZE)]
        return b"".join(pages)
