"""A copy of a store that a broker may be writing to: the log and the tables, from which a start makes the rest.

Tables are copied before the log, so that no offset of a group is ahead of what the copy has. Of the log so much is
copied as was there when the copy began: a file that grows meanwhile would have a hole otherwise. Queues and index are
left out; the copy has the file that tells a start after a crash, which makes them again. What was confirmed before the
copy began is in it.

A second copy to the same place brings what is new: full log files do not change any more.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolide.errors import StoreError
from bolide.files import sync_directory
from bolide.store.config import StoreConfig

ABORT = "abort"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """One file is there; `size` is what was copied of it now."""

    name: str
    size: int


def back_up(config: StoreConfig, to: Path) -> Iterator[Step]:
    """Copy, a file at a time; raises StoreError."""
    target_log = to / "commitlog"
    if any((to / name).exists() for name in ("consumequeue", "checkpoint", "lock")):
        raise StoreError(f"{to} is a store that a broker has used; choose another directory, or an earlier backup")
    try:
        yield from _copied(config, to, target_log)
        sync_directory(target_log)
        sync_directory(to)
    except OSError as problem:
        raise StoreError(f"{problem.filename or to}: {problem.strerror or problem}") from problem


def _copied(config: StoreConfig, to: Path, target_log: Path) -> Iterator[Step]:
    found = {path.name: path for directory in config.log_directories for path in _log_files(directory)}
    ends = {name: _written_end(path) for name, path in found.items()}
    target_log.mkdir(parents=True, exist_ok=True)
    (to / ABORT).write_text("backup\n")
    for path in sorted((config.root / "config").rglob("*")):
        if path.is_file() and path.suffix not in (".tmp", ".bak"):
            yield _copy(path, to / path.relative_to(config.root), _written_end(path))
    for name in sorted(found):
        try:
            yield _copy(found[name], target_log / name, ends[name])
        except FileNotFoundError:  # its time was over while we copied others
            yield Step(name, 0)
    for left in _log_files(target_log):
        if left.name not in found:
            left.unlink()


def _log_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.name.isdecimal() and path.stat().st_size)


def _written_end(path: Path) -> int:
    """Behind the last byte that is not zero: a log file has its full length from the start."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - _CHUNK)
            some = os.pread(file.fileno(), at - start, start).rstrip(b"\0")
            if some:
                return start + len(some)
            at = start
    return 0


def _copy(source: Path, target: Path, end: int) -> Step:
    """Copy the first `end` bytes; the rest is zero, and takes no room.

    What is there with the same time and the same end is left. The time alone would not do: what is written through a
    map changes it at the next sync.
    """
    before = source.stat()
    if target.exists() and target.stat().st_mtime_ns == before.st_mtime_ns and _written_end(target) == end:
        return Step(source.name, 0)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.tmp")
    with source.open("rb") as reading, partial.open("wb") as writing:
        at = 0
        while at < end:
            some = os.pread(reading.fileno(), min(_CHUNK, end - at), at)
            if not some:
                break
            writing.write(some)
            at += len(some)
        writing.truncate(before.st_size)
        writing.flush()
        os.fsync(writing.fileno())
    os.utime(partial, ns=(before.st_atime_ns, before.st_mtime_ns))
    partial.replace(target)
    return Step(source.name, end)
