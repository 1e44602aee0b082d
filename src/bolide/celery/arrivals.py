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
        self._is_closed = False

    def fileno(self) -> int:
        return self._file

    def put(self, delivery: Delivery) -> None:
        """From any thread."""
        self._waiting.append(delivery)
        if not self._is_closed:
            os.eventfd_write(self._file, 1)

    def wait(self, timeout_s: float | None) -> bool:
        """Whether something is there; waits for it."""
        if not self._waiting:
            select.select([self._file], [], [], timeout_s)
        return bool(self._waiting)

    def deliver(self, count_max: int) -> int:
        """Make deliveries, oldest first; returns how many."""
        with suppress(BlockingIOError):  # its word may have been taken before
            os.eventfd_read(self._file)
        count = 0
        while count < count_max and self._waiting:
            self._waiting.popleft()()
            count += 1
        if self._waiting:
            os.eventfd_write(self._file, 1)
        return count

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._file)
