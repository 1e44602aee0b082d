"""So much of one thing over all connections, shared fairly: what peers make us keep has a bound, and one rule for it.

As long as there is room everybody has what he asks for, up to what one connection may hold. When the whole is full
nobody is turned away for having come late: those who hold the most give way. First each address has its share, then
each connection within its address, for a flood and an honest client often come from one machine. A share is a level:
who holds less keeps all of it, who holds more gives back what is above it. The levels are chosen so that a small
part of the whole becomes free; finding them looks at every holder, and so happens once for many who come.

An address is the one a connection really comes from (`Session.origin`), not what a PROXY header says: that is free.

Amounts are whole numbers of anything, bytes or requests. Who holds none is not known here, so there is nothing to clean
up after a connection that gave back what it had; `left` does it for one that did not.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class Holder(Hashable, Protocol):
    """A connection, as a budget sees it; `Session` is one."""

    @property
    def origin(self) -> str:
        """The address without the port."""
        ...


H = TypeVar("H", bound=Holder)
_FREED_SHARE = 32


class Budget(Generic[H]):
    """What is held of one thing: over all, by address and by connection.

    `give_way(holder, amount)` is called when a holder has to give back so much: it calls `give_back` for at least that
    much before it returns, and may not `grant`.
    """

    def __init__(self, total_max: int, holder_max: int, give_way: Callable[[H, int], None]) -> None:
        assert 0 < holder_max <= total_max, "one connection may hold something, and not more than all"
        self.total_max = total_max
        self.holder_max = holder_max
        self.total = 0
        self._give_way = give_way
        self._held: dict[H, int] = {}

    def held_by(self, holder: H) -> int:
        return self._held.get(holder, 0)

    @property
    def holders(self) -> Iterable[H]:
        """Who holds anything at the moment."""
        return self._held

    def grant(self, holder: H, amount: int = 1) -> bool:
        """Let a connection have so much more; false when it may not, for then it holds more than its share."""
        held = self._held.get(holder, 0) + amount
        if held > self.holder_max or (self.total + amount > self.total_max and not self._make_room(holder, amount)):
            return False
        self._held[holder] = self._held.get(holder, 0) + amount
        self.total += amount
        return True

    def give_back(self, holder: H, amount: int = 1) -> None:
        held = self._held[holder] - amount
        assert held >= 0, "nobody gives back more than he has"
        self.total -= amount
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]

    def left(self, holder: H) -> None:
        """A connection has gone: whatever it held is free."""
        self.total -= self._held.pop(holder, 0)

    def _make_room(self, asking: H, amount: int) -> bool:
        """Have those above their share give way; false when the one who asks is above it itself."""
        wanted = self._held | {asking: self._held.get(asking, 0) + amount}
        above = above_share(wanted, self.total_max - self.total_max // _FREED_SHARE)
        if asking in above:
            return False
        for holder, excess in above.items():
            self._give_way(holder, min(excess, self.held_by(holder)))
        return self.total + amount <= self.total_max


def above_share(held: dict[H, int], total_max: int) -> dict[H, int]:
    """Who holds more than his share of `total_max`, and by how much: a share of each address, and within it of each."""
    by_origin: dict[str, list[H]] = {}
    for holder in held:
        by_origin.setdefault(holder.origin, []).append(holder)
    sums = {origin: sum(held[holder] for holder in holders) for origin, holders in by_origin.items()}
    origin_level = fair_level(sums.values(), total_max)
    above: dict[H, int] = {}
    for origin, holders in by_origin.items():
        if sums[origin] > origin_level:
            level = fair_level((held[holder] for holder in holders), origin_level)
            above.update((holder, held[holder] - level) for holder in holders if held[holder] > level)
    return above


def fair_level(amounts: Iterable[int], total_max: int) -> int:
    """The level at which amounts, each cut down to it, are together at most `total_max`."""
    left = total_max
    smallest_first = sorted(amounts)
    for number, amount in enumerate(smallest_first):
        level = left // (len(smallest_first) - number)
        if amount > level:
            return level
        left -= amount
    return total_max
