"""The `bolide` command in a process that has its manners from files in its directory; only tests run it.

Without a `manners.json` it is the command and nothing else. The file is read at the start: `is_recorded` notes every
sync (`tests/crash/power.py`), so that a power cut can be played; `fault` breaks the build on purpose, to see that the
judge finds it. Two files count while the process runs: `disk-full` fills the disk, `skew_ms` moves the wall clock by
what it says.
"""

import errno
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bolide import files
from bolide.cli.main import main
from bolide.clock import SystemClock
from bolide.store.disk import Disk
from tests.crash.power import Stalls, SyncNotes, SyncRecorder

STORE, NOTES, MANNERS, FULL, SKEW = "store", "durable", "manners.json", "disk-full", "skew_ms"


def fill_disk_on_demand(full: Path) -> None:
    """From now on everything that takes room fails while the file is there."""

    def guarded(work: Callable[..., Any]) -> Callable[..., Any]:
        def guard(*arguments: Any, **options: Any) -> Any:
            if full.exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return work(*arguments, **options)

        return guard

    disk: Any = Disk
    for name in ("create", "reserve", "write"):
        setattr(disk, name, guarded(getattr(disk, name)))
    module: Any = files
    module.os = _Guarded(os, guarded)


class _Guarded:
    """The `os` of the module that writes small files: its syncs find the disk full."""

    def __init__(self, real: Any, guarded: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._real = real
        self.fsync = guarded(real.fsync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def skew_clock(skew: Path) -> None:
    """The wall clock goes wrong by what the file says, at once when it is written."""
    clock: Any = SystemClock
    now_ms = clock.now_ms

    def skewed_ms(self: SystemClock) -> int:
        try:
            return int(now_ms(self)) + int(skew.read_text() or 0)
        except FileNotFoundError:
            return int(now_ms(self))

    clock.now_ms = skewed_ms


def acknowledge_before_the_replica() -> None:
    """A broken build: a message is called safe as soon as the master has it."""
    leadership: Any = import_module("bolide.broker.controlled.leadership").Leadership
    leadership.needs_replicas = False


def shrink_before_the_controller_agrees() -> None:
    """A broken build, as Apache 5.4.0 to 5.5.1 are: a connection that ends takes its member out of the set at once."""
    leadership: Any = import_module("bolide.broker.controlled.leadership").Leadership
    on_acks = leadership._on_acks

    def shrink(self: Any) -> None:
        group = self._set
        if group is not None:
            here = {replica.replica_id for replica in self._replicas()}
            kept = frozenset(group.members & (here | {group._own_id}))
            if len(kept) >= self._rules.in_sync_min and kept != group.members:
                group.members = kept
                group._open.clear()
                self._bind(group)
        on_acks(self)

    leadership._on_acks = shrink


FAULTS = {
    "ack before replica": acknowledge_before_the_replica,
    "shrink before controller": shrink_before_the_controller_agrees,
}


def install() -> None:
    here = Path.cwd()
    manners = json.loads((here / MANNERS).read_text()) if (here / MANNERS).exists() else {}
    if manners.get("is_recorded"):
        (here / STORE).mkdir(exist_ok=True)
        SyncRecorder(SyncNotes(here / STORE, here / NOTES)).install(Stalls())
    if fault := manners.get("fault"):
        FAULTS[fault]()
    fill_disk_on_demand(here / FULL)
    skew_clock(here / SKEW)


if __name__ == "__main__":
    if sys.argv[1] == "broker" and Path(MANNERS).exists():
        install()
    main()
