"""How far a lake has been filled, kept so that an export which dies at any point is completed without repeats.

Tasks write under `_bolide/staging`, which no reader of Parquet looks into. When all are done, one file (`commit.json`)
says which files are to be moved where and how far the lake is filled then; it is the moment at which the run counts.
Moving is repeatable, so anyone who finds that file finishes the run before anything else. Without it a run never was:
its staged files are removed and its messages are read again.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bolide.errors import ConfigError, StoreError
from bolide.files import local_path, read_whole, write_whole

_OWN = "_bolide"
# 1 kept a position for each choice of topics, so that another choice exported the same messages again.
_FORM = 2


class Lake:
    """A directory of Parquet files by topic and date, with its manifest."""

    def __init__(self, root: Path) -> None:
        self.root = local_path(root)
        self._own = self.root / _OWN
        self.staging = self._own / "staging"

    @contextmanager
    def held(self) -> Iterator["Lake"]:
        """Alone: two exports into one lake would write the same messages."""
        self._own.mkdir(parents=True, exist_ok=True)
        with open(self._own / "lock", "w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreError(f"another export is writing to {self.root}; wait for it") from None
            self.finish()
            yield self

    def manifest(self) -> dict[str, Any]:
        """Runs so far, and for each source how far it was read, topic by topic."""
        found = read_whole(self._own / "manifest.json", _parsed, {"v": _FORM, "runs": 0, "sources": {}})
        if found.get("v") != _FORM:
            problem = f"has form {found.get('v')} and this Bolide writes {_FORM}; export into a new directory"
            raise ConfigError("lake", str(self.root), problem)
        return found

    def finish(self) -> bool:
        """Complete a run that was interrupted after it counted, and clear away one that was before; true for the first.

        A file that is not staged any more has been moved.
        """
        path = self._own / "commit.json"
        nothing: dict[str, Any] = {}
        found = read_whole(path, _parsed, nothing)
        for staged, final in found.get("files", {}).items():
            source, target = self.staging / staged, self.root / final
            if source.exists():
                move(source, target)
            elif not target.exists():
                raise StoreError(f"{target} is missing: a run was interrupted and its staged file {source} is gone")
        if found:
            write_whole(self._own / "manifest.json", json.dumps(found["manifest"], indent=1, sort_keys=True))
            # The backup first: it would be taken for the file.
            path.with_name(path.name + ".bak").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        shutil.rmtree(self.staging, ignore_errors=True)
        return bool(found)

    def commit(self, files: Mapping[str, str], source: str, position: Mapping[str, Any]) -> None:
        """From here on the staged files are the lake's; `position` is how far their source was read."""
        manifest = self.manifest()
        manifest["runs"] += 1
        manifest["sources"][source] = dict(position)
        write_whole(self._own / "commit.json", json.dumps({"files": dict(files), "manifest": manifest}))
        self.finish()


def move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def demand_lake(root: Path) -> Lake:
    """A lake that is there; ConfigError where the directory is none."""
    if not (local_path(root) / _OWN / "manifest.json").exists():
        raise ConfigError("lake", str(root), "is no directory that bolide lake export has filled")
    return Lake(root)


def _parsed(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found
