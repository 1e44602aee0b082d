"""Half messages that nobody can be asked about, for no process of their group is connected.

They stay where they are, with no check counted and no copy written, and no round reads them again until somebody of
their group is here, they are too old, or they are in the way of many others. So a group may be away for hours, with
a hundred thousand transactions open, and a round costs a look at its name. Sixteen bytes are kept for each of them.
"""

from array import array
from collections.abc import Callable


class Absent:
    """Offsets by group, in the order in which rounds came by them, which is all but that of age."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[array[int], array[int]]] = {}

    def add(self, group: str, offset: int, born_ms: int) -> bool:
        """One more waits; returns whether it is the first of its group."""
        is_first = group not in self._groups
        offsets, born = self._groups.setdefault(group, (array("q"), array("q")))
        offsets.append(offset)
        born.append(born_ms)
        return is_first

    def take_due(self, is_here: Callable[[str], bool], born_before_ms: int, below: int) -> list[int]:
        """Take out those that a round should look at again."""
        due: list[int] = []
        for group, (offsets, born) in list(self._groups.items()):
            count = 0
            if is_here(group):
                count = len(offsets)
            while count < len(offsets) and (born[count] < born_before_ms or offsets[count] < below):
                count += 1
            due += offsets[:count]
            del offsets[:count], born[:count]
            if not offsets:
                del self._groups[group]
        return due
