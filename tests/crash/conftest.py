"""A machine whose power may fail at any moment."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.store import disk
from tests.crash.power import PowerCut, Stalls, SyncNotes, SyncRecorder, Worlds

WORLDS = 60


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A disk that is empty, and so for good."""
    (tmp_path / "machine").mkdir()
    return tmp_path / "machine"


@pytest.fixture
def worlds(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worlds:
    """States in which that disk may be found after a power cut now; from here on every sync is noted."""
    for where, name in ((os, "fsync"), (os, "fdatasync"), (disk._libc, "syncfs")):
        monkeypatch.setattr(where, name, getattr(where, name))  # so that it is put back
    notes = SyncNotes(machine, tmp_path / "notes")
    SyncRecorder(notes).install(Stalls())

    def left() -> Iterator[Path]:
        for seed in range(WORLDS):
            world = tmp_path / f"world-{seed}"
            PowerCut(notes, random.Random(seed)).leave(world)
            yield world

    return left
