"""How far the log has come, in physical offsets, and the order that always holds between them.

    appended ≥ committed ≥ flushed      a record is taken in, written to its file, durable
    appended ≥ visible ≥ dispatched     a record may be shown to readers, is in queues and index

`visible` follows `committed`, and under synchronous flush `flushed`: a reader never sees what a crash could take back
from someone who was told it is safe. Every move is checked here, where it is made.
"""


class Progress:
    """Offsets that only grow."""

    __slots__ = ("_is_sync", "appended", "committed", "dispatched", "flushed", "visible")

    def __init__(self, start: int, is_sync: bool) -> None:
        self._is_sync = is_sync
        self.appended = self.committed = self.flushed = self.visible = self.dispatched = start

    def append(self, end: int) -> None:
        assert end >= self.appended, f"appended {self.appended} cannot go back to {end}"
        self.appended = end

    def commit(self, end: int) -> None:
        assert self.committed <= end <= self.appended, f"committed {self.committed} → {end}, appended {self.appended}"
        self.committed = end
        if not self._is_sync:
            self.visible = end

    def flush(self, end: int) -> None:
        assert self.flushed <= end <= self.committed, f"flushed {self.flushed} → {end}, committed {self.committed}"
        self.flushed = end
        if self._is_sync:
            self.visible = end

    def dispatch(self, end: int) -> None:
        assert self.dispatched <= end <= self.visible, f"dispatched {self.dispatched} → {end}, visible {self.visible}"
        self.dispatched = end
