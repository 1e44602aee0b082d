"""Requests of one connection that have come and were not begun: at most one read's worth.

A read may bring hundreds of frames, and reading their headers takes its time too. So only a few are read at once; the
rest waits as bytes until those before it have been served, each in its share of a turn (`serving.py`).
"""

from collections import deque
from typing import TYPE_CHECKING

from bolide.protocol.command import read_until_bad
from bolide.remoting.owner import Request

if TYPE_CHECKING:
    from bolide.remoting.session import Session

_AT_ONCE_COUNT = 8
_AT_ONCE_SIZE = 8 * 1024


class Waiting:
    """They, in the order in which they came; answers to our own requests are settled on the way."""

    __slots__ = ("_read", "_session", "_unread", "_unread_count", "problem")

    def __init__(self, session: "Session") -> None:
        self.problem: str | None = None  # of a header; what came behind it is forgotten
        self._session = session
        self._read: deque[Request] = deque()
        self._unread: deque[tuple[memoryview, list[int], float]] = deque()
        self._unread_count = 0

    def __len__(self) -> int:
        return len(self._read) + self._unread_count

    def put(self, stream: memoryview, bounds: list[int]) -> None:
        """The frames of a read; the stream need not last."""
        came_s = self._session.last_active_s
        if not self._unread and _end_of_some(bounds) == len(bounds):
            self._take(stream, bounds, came_s)
            return
        first = bounds[0]
        copy = memoryview(bytes(stream[first : bounds[-1]]))
        self._unread.append((copy, [each - first for each in bounds], came_s))
        self._unread_count += len(bounds) // 2

    def next(self) -> Request | None:
        """The next to serve; None where the next few frames were no requests."""
        if not self._read and self._unread:
            stream, bounds, came_s = self._unread.popleft()
            end = _end_of_some(bounds)
            self._unread_count -= end // 2
            if end < len(bounds):
                self._unread.appendleft((stream, bounds[end:], came_s))
            self._take(stream, bounds[:end], came_s)
        return self._read.popleft() if self._read else None

    def clear(self) -> None:
        self._read.clear()
        self._unread.clear()
        self._unread_count = 0

    def _take(self, stream: memoryview, bounds: list[int], came_s: float) -> None:
        commands, self.problem = read_until_bad(stream, bounds)
        if self.problem is not None:
            self._unread.clear()
            self._unread_count = 0
        for command in commands:
            if not command.is_response:
                self._read.append(Request(command, self._session, came_s))
            else:
                self._session.asked.settle(command)  # or it came too late, and nobody waits for it


def _end_of_some(bounds: list[int]) -> int:
    """How far bounds go that are read at once: some frames, one in any case."""
    size_end = bounds[0] + _AT_ONCE_SIZE
    end = 2
    while end < min(len(bounds), 2 * _AT_ONCE_COUNT) and bounds[end + 1] <= size_end:
        end += 2
    return end
