"""Runs of entries that recovery reads from the log, without those whose queue offset cannot be true.

A record's checksum covers its body alone, so a flipped bit may give a whole record an offset far ahead in its queue, or
0, as if its topic had been made again, or one in another queue. Believed at once, it would fill the queue up to there,
empty it, or push out who follows. So a single entry that is not what its queue waits for is doubted. The old queue file
is asked which offset that place in the log had; if it does not know, the entry waits for the next one of its queue: if
that goes on behind it, both are right, and what lies between was lost; if it does not, the single one was wrong.
"""

from collections.abc import Callable

from bolide.kernel.layout import ENTRY_SIZE, Run

_GAP_MAX = 1 << 16  # entries that a last message may be ahead of all before it, with nobody to confirm it
_OFFSET_MAX = 1 << 56

# topic and queue id → the offset that the queue waits for, None where no such queue is known
Ends = Callable[[tuple[str, int]], int | None]
# topic, queue id, physical offset → the queue offset that was given to it, None if nobody knows
Witness = Callable[[str, int, int], int | None]


class QueueOrder:
    """Decides run by run, in the order of the log."""

    def __init__(self, ends: Ends, witness: Witness, begins_late: Callable[[], bool] = lambda: False) -> None:
        self._ends = ends
        self._begins_late = begins_late  # the log is being copied from its middle on: queues begin above 0
        self._witness = witness
        self._waiting: dict[tuple[str, int], Run] = {}
        self.refused_count = 0
        self.displaced: list[Run] = []  # entries whose offset another record had taken, to be written over it

    @property
    def is_idle(self) -> bool:
        """Whether no entry waits for the next one of its queue."""
        return not self._waiting

    def settle(self, runs: list[Run]) -> list[Run]:
        """The runs that may be put to their queues now."""
        settled: list[Run] = []
        ends: dict[tuple[str, int], int] = {}
        for run in runs:
            if run[1] < 0 or run[2] < 0:
                self.refused_count += 1  # a sign that flipped: no queue has such a number, nor such an offset
                continue
            key = run[0], run[1]
            if key not in ends:
                ends[key] = self._ends(key) or 0
            waiting = self._waiting.pop(key, None)
            if waiting is not None:
                if _goes_on(waiting, run[2]):
                    settled.append(waiting)
                    ends[key] = waiting[2] + 1
                else:
                    self.refused_count += 1
            if run[2] == ends[key] or self._is_believed(run, ends[key]):
                settled.append(run)
                ends[key] = _end(run) if run[2] == 0 else max(ends[key], _end(run))
        return settled

    def _is_believed(self, run: Run, end: int) -> bool:
        """Whether a run may be put that does not begin where its queue ends; one that must wait does so from now on."""
        topic, queue_id, first, entries = run
        known = self._witness(topic, queue_id, int.from_bytes(entries[:8], "big"))
        if 0 < first < end:
            if known == first:
                self.displaced.append((topic, queue_id, first, entries[:ENTRY_SIZE]))
            return True  # what is there already is left out
        if len(entries) > ENTRY_SIZE or known == first:
            return True
        if first <= _OFFSET_MAX and self._begins_late() and self._ends((topic, queue_id)) is None:
            return True
        if known is None:
            self._waiting[topic, queue_id] = run
        else:
            self.refused_count += 1
        return False

    def finish(self) -> list[Run]:
        """What nobody has confirmed or refuted: believed unless it is absurd."""
        settled = []
        for key, run in self._waiting.items():
            end = self._ends(key)
            limit = _OFFSET_MAX if end is None else end + _GAP_MAX
            if run[2] <= limit:
                settled.append(run)
            else:
                self.refused_count += 1
        self._waiting.clear()
        return settled


def _end(run: Run) -> int:
    return run[2] + len(run[3]) // ENTRY_SIZE


def _goes_on(waiting: Run, first: int) -> bool:
    """Whether a queue that goes on with `first` has had the entry that waits."""
    return first > waiting[2] if waiting[2] else first == 1
