"""Small files that must survive a crash: whole or not at all, with the previous one beside them.

The way RocketMQ keeps its configuration: the new text goes to X.tmp, what X held becomes X.bak, X.tmp becomes X, each
step on disk before the next. A reader that finds X missing or broken takes X.bak, and so loses at most the one change
that nobody was told had succeeded. Everything here blocks and belongs into a thread.
"""

import logging
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from bolide.errors import ConfigError, StoreError

T = TypeVar("T")
log = logging.getLogger(__name__)

_making = threading.Lock()
_unsynced: set[Path] = set()  # directories in which one was made, and its name may still be lost


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Replace the file by `text` and keep its previous content as .bak; on disk when it returns.

    A file with secrets has the mode 0o600: it is never there for others, not even while it is written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        make_directories(path.parent)
        temporary.unlink(missing_ok=True)
        opener = partial(os.open, mode=mode)
        with open(temporary, "w", encoding="utf-8", newline="", opener=opener) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            path.replace(backup_of(path))
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as problem:
        raise StoreError(f"{path} could not be written: {problem.strerror or problem}") from problem


def read_whole(path: Path, parse: Callable[[str], T], empty: T) -> T:
    """The parsed file, or its backup where the file is missing, empty or broken, or `empty` where there is neither.

    `parse` raises ValueError. A broken file is set aside as .broken, so that the next write cannot push it over the
    good backup; when nothing can be read but something is there, it is not for us to throw it away.
    """
    problems = []
    for candidate in (path, backup_of(path)):
        try:
            text = candidate.read_text("utf-8")
            if not text.strip():
                continue
            content = parse(text)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as problem:
            problems.append(f"{candidate} cannot be read: {problem}")
            continue
        if problems:
            path.replace(path.with_name(path.name + ".broken"))
            log.warning("file broken, backup taken path=%s problem=%s", path, problems[0])
        return content
    if problems:
        raise StoreError(f"{'; '.join(problems)}; repair it, or move it away to start without it")
    return empty


def local_path(text: str | Path) -> Path:
    """The path that is meant; ConfigError where it lies in a store that is no file system here.

    `s3a://bucket/lake` as a path is a directory named `s3a:` in the one we stand in, where nobody looks for it.
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", str(text))
    if found is None:
        return Path(text)
    if found[1].lower() != "file":
        raise ConfigError(
            "path",
            str(text),
            f"{found[1]}: is not written to or read from here; name a directory of this machine, or one mounted in it",
        )
    return Path("/" + str(text)[found.end() :].lstrip("/"))


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def make_directories(path: Path, sync: Callable[[Path], None] | None = None) -> None:
    """Have a directory, and those above it, whose names outlive a power cut when this returns."""
    if path.is_dir() and not _unsynced:
        return
    with _making:
        missing = [parent for parent in (path, *path.parents) if not parent.is_dir()]
        # Noted first: who finds the directory there before its name is synced waits for us.
        _unsynced.update(parent.parent for parent in missing)
        path.mkdir(parents=True, exist_ok=True)
        for parent in [parent for parent in path.parents if parent in _unsynced]:
            (sync or sync_directory)(parent)
            _unsynced.discard(parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
