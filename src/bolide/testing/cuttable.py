"""A program whose process can be cut off from others: `python -m bolide.testing.cuttable FILE PROGRAM WORDS...`.

FILE says what the process reaches (`write_reach`). It is read before PROGRAM begins, and again with every SIGUSR1; what
holds then is told in a file beside it (`applied_reach`).
"""

import asyncio
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from bolide.remoting.reach import REACH, Reach

SIGNAL = signal.SIGUSR1


class Cuts(NamedTuple):
    """What a node is cut off from: everybody, or the servers on some ports."""

    is_cut_off: bool = False
    refused: frozenset[int] = frozenset()


def write_reach(path: Path, cuts: Cuts) -> None:
    """Say what a process is to reach from its next start, or its next signal, on."""
    _write(path, json.dumps([cuts.is_cut_off, sorted(cuts.refused)]))


def applied_reach(path: Path) -> Cuts | None:
    """What a process has been told; None before it was."""
    applied = _applied(path)
    return _read(applied) if applied.exists() else None


def _read(path: Path) -> Cuts:
    is_cut_off, refused = json.loads(path.read_text("utf-8"))
    return Cuts(is_cut_off, frozenset(refused))


def _applied(path: Path) -> Path:
    return path.with_suffix(".applied")


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


class _Control:
    """Applies the file in the loop of the program, between two of its steps, as soon as there is one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reach = Reach()
        REACH.set(self._reach)

    def on_signal(self, *_: object) -> None:
        try:
            asyncio.get_running_loop().call_soon_threadsafe(self.apply)
        except RuntimeError:
            self.apply()

    def apply(self) -> None:
        cuts = _read(self._path)
        self._reach.set(*cuts)
        write_reach(_applied(self._path), cuts)


def main() -> None:
    path, program = Path(sys.argv[1]), sys.argv[2]
    control = _Control(path)
    control.apply()
    signal.signal(SIGNAL, control.on_signal)
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
