"""Messages on their way from threads to the loop: many cross with one wake-up, in the order they were handed over.

The rule: at most `HELD_COUNT_MAX` of a producer have no answer yet; who brings more waits for one of them. What has
none when the program ends is waited for, no longer than a send may take (`unanswered.py`).
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from bolide.client.blocking.loop import LoopOfFirstUse
from bolide.client.sending import unanswered
from bolide.client.sending.pipeline import HELD_COUNT_MAX
from bolide.client.sending.producer import Producer
from bolide.client.sending.receipt import Receipt
from bolide.errors import BolideError

_SLACK_S = 0.5
Submitting = Coroutine[Any, Any, asyncio.Future[Receipt]]


class Submissions:
    """Those of one blocking producer."""

    def __init__(self, background: LoopOfFirstUse, core: Producer) -> None:
        self._background = background
        self._core = core
        self._count = self._answered_count = self._failed_count = 0  # the first of threads, the others of the loop
        self._places = threading.Semaphore(HELD_COUNT_MAX)
        self._handed: deque[tuple[Future[Receipt], Submitting]] = deque()
        self._drainer: Future[None] | None = None
        self._lock = threading.Lock()

    def add(self, submitting: Submitting) -> Future[Receipt]:
        """Have the loop submit a message."""
        try:
            self._background.check()
            self._places.acquire()
        except BaseException:
            submitting.close()
            raise
        future: Future[Receipt] = Future()
        with self._lock:
            self._handed.append((future, submitting))
            self._count += 1
            if self._count == 1:
                unanswered.kept.add(self)
            if self._drainer is None:
                self._drainer = self._background.submit(self._drain())
        return future

    async def flush(self) -> None:
        """Wait until all that were handed over have their answer."""
        while (drainer := self._drainer) is not None:
            await asyncio.wrap_future(drainer)
        await self._core.flush()

    def close(self) -> None:
        """Let those under way have their answer, within the time limit of a send; the producer is about to leave."""
        unanswered.kept.discard(self)
        if self._count > self._answered_count:
            self._flush_in_time()

    def end(self) -> None:
        """The program ends, and nobody closed the producer."""
        self._core.unwatch()
        open_count, failed_count = self._count - self._answered_count, self._failed_count
        if open_count and not self._background.is_of_parent:
            self._flush_in_time()
            lost_count = self._count - self._answered_count + self._failed_count - failed_count
            unanswered.say(self._core.group, lost_count, open_count)

    def _flush_in_time(self) -> None:
        with suppress(BolideError, TimeoutError):
            flushing = self._background.submit(self.flush())
            try:
                flushing.result(self._core.timeout_s + _SLACK_S)
            finally:
                flushing.cancel()

    async def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._handed:
                    self._drainer = None
                    return
            outer, submitting = self._handed.popleft()
            try:
                inner = await submitting
            except (BolideError, TypeError, ValueError, AttributeError) as problem:  # also what a wrong argument raises
                self._places.release()
                self._answered_count += 1
                self._failed_count += 1
                outer.set_exception(problem)
            else:
                inner.add_done_callback(partial(self._answered, outer))

    def _answered(self, outer: Future[Receipt], inner: asyncio.Future[Receipt]) -> None:
        self._places.release()
        self._answered_count += 1
        problem = asyncio.CancelledError("the producer was closed") if inner.cancelled() else inner.exception()
        if problem is not None:
            self._failed_count += 1
        if not outer.set_running_or_notify_cancel():
            return
        if problem is not None:
            outer.set_exception(problem)
        else:
            outer.set_result(inner.result())
