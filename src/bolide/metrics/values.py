"""Values that grow: a histogram counts how many were at most each bound.

Counters are plain integers where they are counted. A histogram keeps a count for each step, not the running sums that a
page shows: so that one more value is one addition.
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How often a value was within each bound, and the sum of all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def add(self, value: float, count: int = 1) -> None:
        """A value was seen this often."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def add_within(self, step: int, count: int, total: float) -> None:
        """Values were seen whose step is known already; `total` is their sum."""
        self.counts[step] += count
        self.total += total

    def take_in(self, other: "Histogram") -> None:
        """Have what another of the same bounds has."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
