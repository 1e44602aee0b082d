"""Groups in a directory of one controller: a JSON file for each name, written whole, synced and renamed.

Everything is in memory too; a read asks no disk, and a change is in force once its file is durable. A lock keeps a
second process out: two controllers over one directory would each believe their own memory. While this one controller is
down nothing fails over, and nothing is lost.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bolide.controller.elections import ReplicaGroup, name_problem
from bolide.controller.register import ABSENT, Kept, Node, Unreachable, decode_group, encode_group
from bolide.errors import StoreError
from bolide.files import make_directories, sync_directory

_SUFFIX = ".json"
_NOTHING = Kept(None, ABSENT)


class FileRegister:
    """The groups of one controller, and its lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._groups: dict[str, Kept] = {}
        self._revision = ABSENT
        self._node: Node | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="controller.files")
        make_directories(directory)
        self._lock = _locked(directory)
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            self._load(path)

    def _load(self, path: Path) -> None:
        group = decode_group(path.read_bytes(), str(path))
        if path.name != group.name + _SUFFIX:
            raise StoreError(f"{path} holds the group of {group.name!r}; a file is called as its group")
        self._groups[group.name] = Kept(group, self._next_revision())

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    @property
    def leader(self) -> Node | None:
        return self._node

    @property
    def is_leader(self) -> bool:
        return self._node is not None

    @property
    def peers(self) -> list[Node]:
        return [] if self._node is None else [self._node]

    async def join(self, node: Node) -> None:
        self._node = node

    async def lead_forever(self, changed: Callable[[], None]) -> None:
        changed()
        await asyncio.get_running_loop().create_future()

    async def read(self, name: str) -> Kept:
        return self._groups.get(name, _NOTHING)

    async def groups(self) -> list[ReplicaGroup]:
        return [kept.group for kept in list(self._groups.values()) if kept.group is not None]

    async def write(self, name: str, group: ReplicaGroup | None, revision: int) -> bool:
        assert name_problem(name) is None, "a name that was not checked would be a path"
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._replace, name, group, revision)
        done.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, even if nobody waits
        try:
            return await asyncio.shield(done)
        except OSError as problem:
            raise Unreachable(f"{self._directory} could not be written: {problem.strerror or problem}") from None

    def _replace(self, name: str, group: ReplicaGroup | None, revision: int) -> bool:
        """Runs in the one thread, which alone changes disk and memory: an asker that hangs up leaves no half of it."""
        if self._groups.get(name, _NOTHING).revision != revision:
            return False
        path = self._directory / (name + _SUFFIX)
        if group is None:
            path.unlink(missing_ok=True)
            sync_directory(path.parent)
            self._groups.pop(name, None)
            return True
        _write(path, encode_group(group))
        self._groups[name] = Kept(group, self._next_revision())
        return True

    async def close(self) -> None:
        self._node = None
        self._thread.shutdown()
        os.close(self._lock)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def _locked(directory: Path) -> int:
    """The descriptor of a lock that ends with the process."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
        os.close(descriptor)
        if problem.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        text = f"{directory} belongs to a controller that is running (process {owner or 'unknown'}); stop that one "
        raise StoreError(f"{text}first, or give this one a directory of its own with --data DIR") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor
