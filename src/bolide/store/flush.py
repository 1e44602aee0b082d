"""When bytes become durable.

`LogFlush` turns appended into flushed. One fdatasync serves all who wait (group commit): while it runs in the flusher's
thread, new waiters gather and are served by the next. A failed sync is final: what the page cache held may be gone, and
a second sync would say it is fine, so the store turns read-only, all who wait hear it, and it is never forgotten.
"""

import asyncio
import logging
from collections import deque
from concurrent.futures import Executor

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.store.commitlog import CommitLog
from bolide.store.config import PAGE_SIZE
from bolide.store.progress import Progress
from bolide.store.segment import Segment

log = logging.getLogger(__name__)


def is_log_flush_due(dirty_size: int, since_ms: float, pages_min: int, thorough_interval_ms: int) -> bool:
    """Asynchronous flush: enough pages are dirty, or something is and a long time has passed."""
    return dirty_size > 0 and (dirty_size >= pages_min * PAGE_SIZE or since_ms >= thorough_interval_ms)


class LogFlush:
    """Syncs the log and knows who waits for it."""

    def __init__(self, commitlog: CommitLog, progress: Progress) -> None:
        self._log = commitlog
        self._progress = progress
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.wanted = asyncio.Event()
        self.failure: OSError | None = None

    def flush(self) -> None:
        """Sync here and now, in the caller's thread."""
        self._check()
        end, segments = self._begin()
        try:
            self._log.sync(segments)
        except OSError as error:
            self._fail(error)
            self._check()
        self._done(end)

    async def flush_in(self, worker: Executor) -> None:
        """Sync in the worker's thread, and serve those who wait."""
        self._check()
        end, segments = self._begin()
        try:
            await asyncio.get_running_loop().run_in_executor(worker, self._log.sync, segments)
        except OSError as error:
            self._fail(error)
        else:
            self._done(end)

    def _begin(self) -> tuple[int, list[Segment]]:
        segments = self._log.unsynced
        # The last one stays dirty for the appends that come while it is synced.
        self._log.unsynced = segments[-1:]
        return self._progress.committed, segments

    def _done(self, end: int) -> None:
        self._progress.flush(max(end, self._progress.flushed))

    def serve(self) -> None:
        """Answer those whose bytes are durable."""
        while self._waiters and self._waiters[0][0] <= self._progress.flushed:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def wait(self, end: int) -> asyncio.Future[None]:
        """A future that is done when the log is durable up to end; it fails if that can no longer be."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            waiter.set_exception(self.refusal())
        elif end <= self._progress.flushed:
            waiter.set_result(None)
        else:
            self._waiters.append((end, waiter))
            self.wanted.set()
        return waiter

    def refusal(self) -> Refusal:
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the disk failed to keep the log ({self.failure}); the store is read-only until it is restarted",
        )

    def _check(self) -> None:
        if self.failure is not None:
            raise self.refusal()

    def _fail(self, error: OSError) -> None:
        log.error("log could not be made durable, the store is read-only from here on error=%s", error)
        self.failure = error
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(self.refusal())
