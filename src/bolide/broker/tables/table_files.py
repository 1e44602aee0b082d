"""Tables on disk: each as one small file under config/, written in a thread, the newest state only.

A table calls `save` when it changed. Its text is made on the loop, where it cannot change meanwhile, and written in the
file thread; changes that come while a write is under way are joined into the next. Who must not answer before the
change is on disk awaits `flush`. A file that cannot be written is tried again with the next change and at the end, and
said in the log: the tables go on in memory, and anyone who awaits hears of it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bolide.clock import Clock
from bolide.errors import StoreError
from bolide.files import write_whole
from bolide.store.mishaps import Mishaps

_SHARE = 20
log = logging.getLogger(__name__)


class Pace:
    """When a table that follows its changes is next written.

    Soon, for a kill repeats what is not in the file; but at most a twentieth of the time goes into it, and never later
    than the interval that an operator gave. A table of millions is written as seldom as that says.
    """

    def __init__(self, clock: Clock, soon_s: float) -> None:
        self._clock = clock
        self._soon_s = soon_s
        self._took_s = 0.0

    def pause_s(self, interval_s: float) -> float:
        """How long to wait now."""
        return min(interval_s, max(self._soon_s, _SHARE * self._took_s))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around the writing."""
        began_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            self._took_s = self._clock.monotonic_s() - began_s


class TableWriter:
    """Writes the files of all tables, one after the other."""

    def __init__(self, file_thread: ThreadPoolExecutor, mishaps: Mishaps | None = None) -> None:
        self._file_thread = file_thread
        self.mishaps = mishaps or Mishaps()
        self._due: dict[Path, Callable[[], str]] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._is_due = asyncio.Event()
        self._is_writing = False

    def save(self, path: Path, text: Callable[[], str]) -> None:
        """Have the file written soon; `text` is called once for any number of saves before that."""
        self._due[path] = text
        self._is_due.set()

    async def flush(self) -> None:
        """Wait until everything saved before is on disk; raises StoreError where that failed."""
        if not self._due and not self._is_writing:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._is_due.set()
        await waiting

    async def run_forever(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await self._is_due.wait()
            await self.write_due()

    async def write_due(self) -> None:
        """Write what is due now."""
        self._is_due.clear()
        due, self._due = self._due, {}
        waiting, self._waiting = self._waiting, []
        texts: list[tuple[Path, str]] = []
        untold: dict[Path, str] = {}
        for path, text in due.items():
            with self.mishaps.passing_over("broker.tables", partial(str, path)):
                untold[path] = f"{path} could not be written: its table cannot be told in text"
                texts.append((path, text()))
                del untold[path]
        self._is_writing = True
        try:
            failed = untold | await asyncio.get_running_loop().run_in_executor(self._file_thread, _write_all, texts)
        finally:
            self._is_writing = False
        for path in failed:
            self._due.setdefault(path, due[path])
        for future in waiting:
            if future.done():
                continue
            if failed:
                future.set_exception(StoreError("; ".join(failed.values())))
            else:
                future.set_result(None)


def _write_all(texts: list[tuple[Path, str]]) -> dict[Path, str]:
    """Returns what could not be written, with the reason."""
    failed = {}
    for path, text in texts:
        try:
            write_whole(path, text)
        except (StoreError, ValueError) as problem:  # a text may hold what no file can
            log.error("table not written path=%s problem=%s", path, problem)
            failed[path] = str(problem)
    return failed
