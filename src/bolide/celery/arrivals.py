"""What came for a transport, between the loop that receives and the thread that works: a list, and a file to wait on.

Celery's worker waits in an event loop of its own, or with a limit in `drain_events`. Both wait for a file descriptor.
"""

import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress

Delivery = Callable[[], None]


class Arrivals:
    """Deliveries that were not made yet."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._waiting: deque[Delivery] = deque()
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_woken = False
        self._is_closed = False

    def fileno(self) -> int:
        return self._file

    def put(self, delivery: Delivery) -> None:
        """From any thread. The first one wakes the worker: a write for each would have the threads change places."""
        self._waiting.append(delivery)
        self._wake()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether something is there; waits for it."""
        if not self._waiting:
            select.select([self._file], [], [], timeout_s)
        return bool(self._waiting)

    def deliver(self, count_max: int) -> int:
        """Make deliveries, oldest first; returns how many.

        The mark goes before the first of them: what is put from here on is seen below, or wakes once more.
        """
        with suppress(BlockingIOError):  # its word may have been taken before
            os.eventfd_read(self._file)
        self._is_woken = False
        count = 0
        try:
            while count < count_max and self._waiting:
                count += 1
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._wake()
        return count

    def _wake(self) -> None:
        if not self._is_woken and not self._is_closed:
            self._is_woken = True
            os.eventfd_write(self._file, 1)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._file)
