"""Which half messages are decided: a byte for each, from the first that is not.

RocketMQ's broker learns this in every round from the op queue. Here the same process writes that queue, so what it says
is kept in memory as well and only read when the broker starts. It buys more than reading: a decision that comes twice
is carried out once, and one that names an old copy (the sender's own, after somebody else was asked) ends the newest.
Which records are copies of one transaction is read from the half queue then (`room.py`).

The cost is a byte for each half message since the last round, and two entries for each one that was copied; of those
only the latest are kept. What was forgotten is treated as RocketMQ does: stored once more, or asked about once more.
"""

from collections.abc import Iterable, Mapping

from bolide.kernel.layout import UNDECIDED, WAITING
from bolide.model.halves import TransactionKey

MOVED = 1  # it lives on as a copy further on, or in the discard topic
_COPIES_MAX = 100_000


class Ended:
    """`base` is the first half offset that is not settled; nothing below it is looked at again.

    `marks` has what became of each from there on; the kernel reads them (`encode_outcomes`), and leaves all but the
    undecided.
    """

    def __init__(self, base: int = 0) -> None:
        self.begin(base)

    def begin(self, base: int) -> None:
        """Know nothing, and begin at an offset."""
        self.base = self._first = base
        self.marks = bytearray()
        self._newest: dict[int, int] = {}  # the first copy's offset → the last one's
        self._first_of: dict[int, int] = {}
        self._discarded: dict[int, None] = {}
        self._strays: dict[TransactionKey, int] = {}

    def mark(self, offset: int, how: int) -> None:
        """Note what became of a half message."""
        at = offset - self.base
        if at >= len(self.marks):
            self.marks.extend(bytes(at + 1 - len(self.marks)))
        if at >= 0:
            self.marks[at] = how
        if self._discarded:
            self._discarded.pop(offset, None)

    def mark_all(self, decided: Mapping[int, int]) -> None:
        """The same for many, none of them decided before."""
        base, marks = self.base, self.marks
        missing = max(decided, default=base) - base + 1 - len(marks)
        if missing > 0:
            marks.extend(bytes(missing))
        for offset, how in decided.items():
            if offset >= base and not self._discarded:
                marks[offset - base] = how
            else:
                self.mark(offset, how)

    def how(self, offset: int) -> int | None:
        """What became of a half message; None if that is not known, for it was settled before we began to look."""
        if offset in self._discarded:
            return UNDECIDED
        at = offset - self.base
        if at >= 0:
            how = self.marks[at] if at < len(self.marks) else UNDECIDED
            return UNDECIDED if how == WAITING else how
        return MOVED if offset >= self._first else None

    def next_undecided(self, offset: int) -> int:
        """The first one from an offset on; it may lie behind the end of the queue."""
        found = self.marks.find(UNDECIDED, offset - self.base)
        return max(offset, self.base + len(self.marks)) if found < 0 else self.base + found

    def settle(self, offset: int) -> None:
        """Everything below is settled for good, up to the first that waits."""
        waiting = self._first_waiting(offset)
        offset = offset if waiting is None else waiting
        del self.marks[: offset - self.base]
        self.base = offset

    # Waiting

    def wait(self, offset: int) -> None:
        """No round needs to look at this undecided one."""
        self.mark(offset, WAITING)

    def wake(self, offsets: Iterable[int]) -> None:
        """The next round looks at them again, unless they were decided meanwhile."""
        for offset in offsets:
            if self._is_waiting(offset):
                self.marks[offset - self.base] = UNDECIDED

    def is_due(self, offset: int) -> bool:
        """Whether a round has to look at it."""
        at = offset - self.base
        return at >= 0 and (at >= len(self.marks) or self.marks[at] == UNDECIDED)

    def _is_waiting(self, offset: int) -> bool:
        return 0 <= offset - self.base < len(self.marks) and self.marks[offset - self.base] == WAITING

    def waiting_count(self) -> int:
        return self.marks.count(WAITING)

    def is_held_up(self, offset: int) -> bool:
        """Whether one before it waits, so that it is not settled and is read again at the next start."""
        return self._first_waiting(offset) is not None

    def _first_waiting(self, end: int) -> int | None:
        found = self.marks.find(WAITING, 0, max(end - self.base, 0))
        return None if found < 0 else self.base + found

    # Copies

    def follow(self, old: int, new: int) -> None:
        """A message lives on as a copy."""
        first = self._first_of.get(old, old)
        self._newest.pop(first, None)
        self._newest[first] = new
        self._first_of[new] = first
        self.mark(old, MOVED)
        self._forget()

    def link(self, old: int, newest: int) -> None:
        """What was read of an earlier life: a message that lives on as a copy, which may have others before it."""
        self._newest[newest] = newest
        self._first_of[old] = newest
        self.mark(old, MOVED)
        self._forget()

    def _forget(self) -> None:
        for table in (self._newest, self._first_of):
            if len(table) > _COPIES_MAX:
                del table[next(iter(table))]

    def discard(self, offset: int) -> None:
        """A message was given up; anyone who knows it may still end it."""
        self.mark(offset, MOVED)
        self._discarded[offset] = None
        if len(self._discarded) > _COPIES_MAX:
            del self._discarded[next(iter(self._discarded))]

    def know_strays(self, strays: Mapping[TransactionKey, int]) -> None:
        """Copies whose earlier ones lie before `base`: an end that names one of those is told by what they share."""
        self._strays = dict(list(strays.items())[:_COPIES_MAX])

    @property
    def has_strays(self) -> bool:
        return bool(self._strays)

    def stray(self, key: TransactionKey | None) -> int | None:
        """Where a message lives now that was settled as an old copy before we began to look."""
        found = None if key is None else self._strays.get(key)
        return None if found is None else self.newest(found)

    @property
    def has_copies(self) -> bool:
        return bool(self._newest)

    def newest(self, offset: int) -> int:
        """Where a message lives now that was at this offset."""
        return self._newest.get(self._first_of.get(offset, offset), offset)
