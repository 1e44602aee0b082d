"""Messages on their way from threads to the loop: many cross with one wake-up, in the order they were handed over.

The rule: at most `HELD_COUNT_MAX` of a producer have no answer yet; who brings more waits for one of them.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

from bolide.client.background import BackgroundLoop
from bolide.client.gathering import HELD_COUNT_MAX
from bolide.client.producer import Producer
from bolide.client.receipt import Receipt
from bolide.errors import BolideError

Submitting = Coroutine[Any, Any, asyncio.Future[Receipt]]


class Submissions:
    """Those of one blocking producer."""

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
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
            if self._drainer is None:
                self._drainer = self._background.submit(self._drain())
        return future

    async def flush(self, core: Producer) -> None:
        """Wait until all that were handed over have their answer."""
        while (drainer := self._drainer) is not None:
            await asyncio.wrap_future(drainer)
        await core.flush()

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
                outer.set_exception(problem)
            else:
                inner.add_done_callback(partial(self._answered, outer))

    def _answered(self, outer: Future[Receipt], inner: asyncio.Future[Receipt]) -> None:
        self._places.release()
        if not outer.set_running_or_notify_cancel():
            return
        problem = asyncio.CancelledError("the producer was closed") if inner.cancelled() else inner.exception()
        if problem is not None:
            outer.set_exception(problem)
        else:
            outer.set_result(inner.result())
