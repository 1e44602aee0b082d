"""How far the log has come, in physical offsets, and the order that always holds between them.

    appended ≥ committed ≥ flushed            a record is taken in, written to its file, durable
    appended ≥ whole ≥ visible ≥ dispatched   it is all there, may be shown to readers, is in queues and index

`visible` follows `committed`, and under synchronous flush `flushed`: a reader never sees what a crash could take back
from someone who was told it is safe. Where replicas confirm the log it follows them too, and never passes `ceiling`.
A log that is copied may end inside of a record: then `whole` lags, and nobody is shown the rest.

Every move is checked here, where it is made. Offsets only grow, but for `cut`, which takes all of them back at once.
"""

NO_CEILING = 1 << 63


class Progress:
    """Offsets that only grow, unless the log is cut."""

    __slots__ = (
        "_is_sync",
        "appended",
        "ceiling",
        "committed",
        "cut_count",
        "dispatched",
        "flushed",
        "visible",
        "whole",
    )

    def __init__(self, start: int, is_sync: bool) -> None:
        self._is_sync = is_sync
        self.ceiling = NO_CEILING
        self.cut_count = 0  # a flush that began before a cut says nothing of what came after it
        self.appended = self.whole = self.committed = self.flushed = self.visible = self.dispatched = start

    def append(self, end: int) -> None:
        assert end >= self.appended, f"appended {self.appended} cannot go back to {end}"
        self.appended = self.whole = end

    def write(self, end: int) -> None:
        """Records are taken in and are in their file with that: the usual case of `append` and `commit`."""
        assert end >= self.appended, f"appended {self.appended} cannot go back to {end}"
        self.appended = self.whole = self.committed = end
        if not self._is_sync:
            if end <= self.ceiling:
                self.visible = end  # every message passes here
            else:
                self._show(end)

    def copy(self, end: int) -> None:
        """Bytes that may end inside of a record are written; `complete` tells of whole records."""
        assert end >= self.appended == self.committed, f"copied {self.appended} → {end}, committed {self.committed}"
        self.appended = self.committed = end

    def complete(self, whole: int) -> None:
        assert self.whole <= whole <= self.appended, f"whole {self.whole} → {whole}, appended {self.appended}"
        self.whole = whole
        self._show(self.flushed if self._is_sync else self.committed)

    def commit(self, end: int) -> None:
        assert self.committed <= end <= self.appended, f"committed {self.committed} → {end}, appended {self.appended}"
        self.committed = end
        if not self._is_sync:
            self._show(end)

    def flush(self, end: int) -> None:
        assert self.flushed <= end <= self.committed, f"flushed {self.flushed} → {end}, committed {self.committed}"
        self.flushed = end
        if self._is_sync:
            self._show(end)

    def confirm(self, ceiling: int) -> None:
        """Nothing beyond is shown from now on; what is shown already stays so."""
        self.ceiling = ceiling
        self._show(self.flushed if self._is_sync else self.committed)

    def _show(self, end: int) -> None:
        if end > self.whole:
            end = self.whole
        if end > self.ceiling:
            end = self.ceiling
        if end > self.visible:
            self.visible = end

    def dispatch(self, end: int) -> None:
        assert self.dispatched <= end <= self.visible, f"dispatched {self.dispatched} → {end}, visible {self.visible}"
        self.dispatched = end

    def cut(self, end: int) -> None:
        """The log ends here from now on, and so does all that followed it."""
        assert 0 <= end <= self.appended, f"a log that ends at {self.appended} cannot be cut at {end}"
        self.appended = end
        self.committed, self.flushed = min(self.committed, end), min(self.flushed, end)
        self.whole, self.visible = min(self.whole, end), min(self.visible, end)
        self.dispatched = min(self.dispatched, end)
        self.cut_count += 1

    def begin_at(self, start: int) -> None:
        """A log without a record begins elsewhere."""
        self.appended = self.whole = self.committed = self.flushed = self.visible = self.dispatched = start
        self.cut_count += 1

    def hold_back(self, end: int) -> None:
        """Before anybody reads: the log is in the queues up to here only, and the rest is not shown yet."""
        assert end <= self.visible, f"visible {self.visible} cannot be held back to {end}"
        self.visible = self.dispatched = end
