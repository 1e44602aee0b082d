"""Requests of one connection that have come and were not begun: at most one read's worth.

A read may bring hundreds of frames, and reading their headers takes its time too. So only a few are read at once; the
rest waits as bytes until those before it have been served, each in its share of a turn (`serving.py`).
"""

from typing import TYPE_CHECKING

from bolide.protocol.command import read_until_bad
from bolide.remoting.owner import Request

if TYPE_CHECKING:
    from bolide.remoting.session import Session

_AT_ONCE_COUNT = 64
_AT_ONCE_SIZE = 32 * 1024
_SERVED_A_LOOK = 4  # requests between two looks at the time, which cost as much as a small one


class Waiting:
    """They, in the order in which they came; answers to our own requests are settled on the way.

    The session is given to each call and not known here: thousands that end together would else wait for the collector.
    """

    __slots__ = ("_unread_count", "problem", "ready", "unread")

    def __init__(self) -> None:
        self.problem: str | None = None  # of a header; what came behind it is forgotten
        # Lists, for there are few in them, and a deque that is empty takes ten times as much of a connection's memory.
        self.ready: list[Request] = []
        self.unread: list[tuple[memoryview, list[int], float]] = []
        self._unread_count = 0

    def __len__(self) -> int:
        return len(self.ready) + self._unread_count

    def put(self, session: "Session", stream: memoryview, bounds: list[int]) -> None:
        """The frames of a read; the stream need not last."""
        came_s = session.last_active_s
        if not self.unread and _end_of_some(bounds) == len(bounds):
            self._take(session, stream, bounds, came_s)
            return
        first = bounds[0]
        copy = memoryview(bytes(stream[first : bounds[-1]]))
        self.unread.append((copy, [each - first for each in bounds], came_s))
        self._unread_count += len(bounds) // 2

    def serve(self, session: "Session", is_its_turn: bool) -> None:
        """Serve them as long as there is room and time; `is_its_turn` if the first need not ask for the time."""
        ready, unread = self.ready, self.unread
        serving, left_count = session.shared.serving, int(is_its_turn)
        while (ready or unread) and session.has_room():
            if not left_count:
                if serving is not None and serving.has_to_wait(session):
                    return
                left_count = _SERVED_A_LOOK
            left_count -= 1
            if not ready:
                self.read_some(session)
            if ready:
                session.serve(ready.pop(0))

    def read_some(self, session: "Session") -> None:
        """Make the next few ready; there may be none, if those frames were no requests."""
        stream, bounds, came_s = self.unread.pop(0)
        end = _end_of_some(bounds)
        self._unread_count -= end // 2
        if end < len(bounds):
            self.unread.insert(0, (stream, bounds[end:], came_s))
        self._take(session, stream, bounds[:end], came_s)

    def clear(self) -> None:
        self.ready.clear()
        self.unread.clear()
        self._unread_count = 0

    def _take(self, session: "Session", stream: memoryview, bounds: list[int], came_s: float) -> None:
        commands, self.problem = read_until_bad(stream, bounds)
        if self.problem is not None:
            self.unread.clear()
            self._unread_count = 0
        for command in commands:
            if not command.is_response:
                self.ready.append(Request(command, session, came_s))
            else:
                session.pending.settle(command)  # or it came too late, and nobody waits for it


def _end_of_some(bounds: list[int]) -> int:
    """How far bounds go that are read at once: some frames, one in any case."""
    size_end = bounds[0] + _AT_ONCE_SIZE
    end = 2
    while end < min(len(bounds), 2 * _AT_ONCE_COUNT) and bounds[end + 1] <= size_end:
        end += 2
    return end
