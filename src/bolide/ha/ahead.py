"""The log in memory before it is sent: what a slave far behind needs is read by a thread.

The log is sent straight from its mapped files. A page that is not in memory is read from the disk when it is touched,
and the loop would wait for it, and with the loop every sender: for a slave that was away for days, all the time. So a
thread reads some megabytes ahead of what is sent, which brings them into the system's memory. What was written a moment
ago is there anyway.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from bolide.store.store import Store

RECENT_SIZE = 64 << 20  # before the end of the log: in memory, for it was written there
STEP_SIZE = 4 << 20
_READ_SIZE = 1 << 20


def bring(path: Path, position: int, size: int) -> None:
    """Have part of a file in memory; blocks. What cannot be read is met again by the one who sends it."""
    with contextlib.suppress(OSError):
        content = bytearray(min(size, _READ_SIZE))
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # our own: the store closes its files without asking us
        try:
            for at in range(position, position + size, len(content)):
                os.preadv(file, [content], at)
        finally:
            os.close(file)


class Ahead:
    """How far one slave may be sent the log without waiting for the disk."""

    def __init__(self, store: Store, thread: Executor, on_read: Callable[[], None]) -> None:
        self._store = store
        self._thread = thread
        self._on_read = on_read
        self._end = 0
        self._is_reading = False

    def end_from(self, offset: int) -> int:
        """Up to where the log can be sent from an offset on; `on_read` is called when that is more."""
        written_end = self._store.written_end
        if written_end - offset <= RECENT_SIZE:
            return written_end
        self._end = max(self._end, offset)
        if not self._is_reading and self._end < min(offset + STEP_SIZE, written_end):
            self._read_on(written_end)
        return min(self._end, written_end)

    def _read_on(self, written_end: int) -> None:
        segment = self._store.segment_at(self._end)
        if segment is None:  # retention was here: who sends it says so
            self._end = written_end
            return
        position = self._end - segment.base
        size = min(STEP_SIZE, segment.size - position, written_end - self._end)
        self._is_reading = True
        reading = asyncio.get_running_loop().run_in_executor(self._thread, bring, segment.path, position, size)
        reading.add_done_callback(partial(self._note, self._end + size))

    def _note(self, end: int, _: object) -> None:
        self._is_reading = False
        self._end = end
        self._on_read()
