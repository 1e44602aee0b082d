"""When bytes become durable.

`LogFlush` turns appended into flushed. One fdatasync serves all who wait (group commit): while it runs in the flusher's
thread, new waiters gather and are served by the next. A failed sync is final: what the page cache held may be gone, and
a second sync would say it is fine, so the store turns read-only, all who wait hear it, and it is never forgotten.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

from bolide.errors import Refusal
from bolide.metrics.values import Histogram
from bolide.protocol.codes import ResponseCode
from bolide.store.checkpoint import Checkpoint
from bolide.store.commitlog import CommitLog
from bolide.store.config import PAGE_SIZE
from bolide.store.disk import Disk
from bolide.store.dispatch import Dispatch
from bolide.store.progress import Progress
from bolide.store.segment import Segment, segment_name, sync_file

log = logging.getLogger(__name__)


def is_log_flush_due(dirty_size: int, since_ms: float, pages_min: int, thorough_interval_ms: int) -> bool:
    """Asynchronous flush: enough pages are dirty, or something is and a long time has passed."""
    return dirty_size > 0 and (dirty_size >= pages_min * PAGE_SIZE or since_ms >= thorough_interval_ms)


SYNC_S_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class LogFlush:
    """Syncs the log and knows who waits for it."""

    def __init__(self, commitlog: CommitLog, progress: Progress) -> None:
        self._log = commitlog
        self._progress = progress
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._under_way: Future[None] | None = None
        self.wanted = asyncio.Event()
        self.failure: OSError | None = None
        self.times = Histogram(SYNC_S_BOUNDS)  # of those in the worker's thread, the wait for it included

    def flush(self) -> None:
        """Sync here and now, in the caller's thread."""
        self._check()
        end, segments = self._begin()
        try:
            if self._under_way is not None:
                self._under_way.result()  # the one who waited for it was cancelled, and its failure counts all the same
            self._log.sync(segments)
        except OSError as error:
            self._fail(error)
            self._check()
        self._done(end)

    async def flush_in(self, worker: Executor) -> None:
        """Sync in the worker's thread, and serve those who wait."""
        self._check()
        cut_count = self._progress.cut_count
        end, segments = self._begin()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            noted: Future[None] = Future()
            sync = loop.run_in_executor(worker, self._sync_noted, noted, segments)
            self._under_way = noted
            sync.add_done_callback(_outcome)  # nobody may be there to hear it
            await asyncio.shield(sync)
        except OSError as error:
            self._fail(error)
        else:
            self.times.add(loop.time() - began_s)
            if cut_count == self._progress.cut_count:
                self._done(end)

    def _sync_noted(self, noted: Future[None], segments: list[Segment]) -> None:
        try:
            self._log.sync(segments)
        except BaseException as error:
            noted.set_exception(error)
            raise
        noted.set_result(None)

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

    async def is_done(self, end: int | None, limit_s: float) -> bool:
        """The same with a limit; false if the log is not durable up to end by then. None is the end as it is now."""
        end = self._progress.appended if end is None else end
        waiter = self.wait(end)
        # A timer of our own: asyncio.timeout costs as much as an append.
        timer = None if waiter.done() else asyncio.get_running_loop().call_later(limit_s, _give_up, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
        return end <= self._progress.flushed

    def refusal(self) -> Refusal:
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the disk failed to keep the log ({self.failure}); the store is read-only until it is restarted",
        )

    def _check(self) -> None:
        if self.failure is not None:
            raise self.refusal()

    def forget_beyond(self, end: int) -> None:
        """The log is about to be cut there: a sync that is under way ends first, and who waits for more is told."""
        if self._under_way is not None:
            self._under_way.exception()
        waiters, self._waiters = self._waiters, deque()
        for reached, waiter in waiters:
            if reached <= end:
                self._waiters.append((reached, waiter))
            elif not waiter.done():
                remark = f"the log was cut at {end}, below what was to be kept"
                waiter.set_exception(Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))

    def _fail(self, error: OSError) -> None:
        log.error("log could not be made durable, the store is read-only from here on error=%s", error)
        self.failure = error
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(self.refusal())


def _outcome(sync: asyncio.Future[None]) -> BaseException | None:
    return None if sync.cancelled() else sync.exception()


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def begin_queue_flush(disk: Disk, dispatch: Dispatch, checkpoint: Checkpoint, pages_min: int) -> Callable[[], None]:
    """Choose what to sync of the queues; the returned function does it, in any thread, and saves the checkpoint."""
    store_ms, is_thorough = dispatch.store_ms, pages_min == 0
    full = dispatch.index.take_full()
    extents = dispatch.unnoted() if is_thorough else []
    segments, directories = dispatch.unsynced(pages_min)

    def sync() -> None:
        dispatch.index.sync_full(full)
        try:
            with disk.syncing_together():
                for directory, base in segments:
                    with contextlib.suppress(FileNotFoundError):  # its topic was removed meanwhile
                        sync_file(disk, directory / segment_name(base))
                for directory in directories:
                    with contextlib.suppress(FileNotFoundError):
                        disk.sync_directory(directory)
        except OSError:
            checkpoint.has_doubtful_queues = True
            raise
        if is_thorough and not checkpoint.has_doubtful_queues:
            checkpoint.queue_ms = max(checkpoint.queue_ms, store_ms)
            dispatch.roster.note(extents)
        checkpoint.index_ms = max(checkpoint.index_ms, dispatch.index.full_ms)
        checkpoint.save()

    return sync
