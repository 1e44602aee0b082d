"""Memory that a burst leaves behind, given back to the system.

The C library keeps what was freed for whoever asks next: tens of megabytes after some large bodies have come and gone,
in each of its arenas. When connections have left and more is resident than before by a good deal, a thread tells it to
let go; the loop goes on meanwhile. What is really held stays, and is what the next look compares with.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
from pathlib import Path

LOOK_AFTER_S = 1.0  # what a connection held is mostly freed by then, and many that leave together are looked at once
LAST_LOOK_AFTER_S = 2.0  # after the first
_GROWTH_FREE = 4 << 20
_GROWTH_SHARE = 10
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
log = logging.getLogger(__name__)


def own_size() -> int:
    """Resident memory without that of mapped files; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/statm").read_bytes().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_SIZE
    return 0


def let_go() -> None:
    """Return free memory to the system; blocks for milliseconds. Without glibc it does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Slack:
    """Looks after connections have left; one for a process, for its memory is one."""

    def __init__(self) -> None:
        self.let_go_count = 0
        self._held_size = own_size()
        self._timer: asyncio.TimerHandle | None = None

    def left(self) -> None:
        """Somebody has gone, and perhaps what he made us hold."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look, False)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, is_last: bool) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None if is_last else loop.call_later(LAST_LOOK_AFTER_S, self._look, True)
        size = own_size()
        if size > self._held_size + self._held_size // _GROWTH_SHARE + _GROWTH_FREE:
            loop.run_in_executor(None, let_go).add_done_callback(lambda _: self._note(size, is_last))
        else:
            self._held_size = min(self._held_size, size)

    def _note(self, before_size: int, is_last: bool) -> None:
        self.let_go_count += 1
        size = own_size()
        log.debug("memory given back to the system: %d of %d bytes", before_size - size, before_size)
        if is_last:
            self._held_size = size
