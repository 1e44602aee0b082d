"""How many checkpoints may be out: a bound over all, and shares in it that leave room for who comes next.

A checkpoint takes 500 to 800 bytes of memory until its messages are acknowledged or come back, which may be three days
later. So there is a bound, and who pops and acknowledges nothing must not use it up for others. Nobody can be made to
give one back, so the room is never given away whole: a group may have as many out as places are still free. One group
alone comes to a half, two to a third each, ten to an eleventh, and as much again is free for the next. The same holds
for the address they were popped from, with twice the places. What is read back after a start counts for its group;
where it was popped from is not known any more.

A group that has only a few out is not asked about shares: it goes on while the last reserve lasts.
"""

OUT_MAX = 400_000
FEW = 64
RESERVE = OUT_MAX // 4
_ORIGIN_FACTOR = 2


class Shares:
    """Checkpoints that are out, counted."""

    def __init__(self) -> None:
        self.total = 0
        self._of_group: dict[str, int] = {}
        self._of_origin: dict[str, int] = {}

    def has_room(self, group: str, origin: str) -> bool:
        """Whether the group may have one more out, popped from an address; any address where that is empty."""
        count, free = self._of_group.get(group, 0), OUT_MAX - self.total
        if count < FEW:
            return free > -RESERVE
        return count < free and (not origin or self._of_origin.get(origin, 0) < _ORIGIN_FACTOR * free)

    def add(self, group: str, origin: str) -> None:
        self.total += 1
        self._of_group[group] = self._of_group.get(group, 0) + 1
        if origin:
            self._of_origin[origin] = self._of_origin.get(origin, 0) + 1

    def remove(self, group: str, origin: str) -> None:
        self.total -= 1
        _take_one(self._of_group, group)
        if origin:
            _take_one(self._of_origin, origin)


def _take_one(counts: dict[str, int], key: str) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
