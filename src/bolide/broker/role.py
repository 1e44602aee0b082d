"""What this broker is now: a master, or a slave, or fenced until somebody says which.

The role is a value, and another is put in its place when it changes; anyone who keeps something made from it listens. A
fenced broker takes no messages and registers nowhere: every start is fenced until what a master must know is loaded,
and a broker whose master is elected until it hears the result. Only `replication/change.py` changes the role; where a
slave's master is, `replication/following.py` says, and whether the slave acts for it, `replication/acting.py`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum


class RoleKind(StrEnum):
    """As brokerRole names them."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


ASYNC_MASTER, SYNC_MASTER, SLAVE = RoleKind


@dataclass(frozen=True, slots=True)
class RoleState:
    """`epoch` counts the masters of an elected group; of a slave, `master_address` is where its tables come from.

    A slave that is acting does what its absent master would, as far as that can be done without writing the log. What
    is due is delivered too if it is escaping: other masters store it.
    """

    kind: RoleKind = RoleKind.ASYNC_MASTER
    broker_id: int = 0
    epoch: int = 0
    is_fenced: bool = False
    master_address: str = ""
    is_acting: bool = False
    is_escaping: bool = False

    @property
    def is_leading(self) -> bool:
        """Whether it takes messages, delivers and asks."""
        return self.kind is not RoleKind.SLAVE and not self.is_fenced

    @property
    def is_following(self) -> bool:
        """Whether it copies a master that is known."""
        return self.kind is RoleKind.SLAVE and not self.is_fenced and bool(self.master_address)

    @property
    def is_delivering(self) -> bool:
        """Whether due messages are its to deliver."""
        return self.is_leading or self.is_escaping

    def is_first_of(self, living: Collection[int]) -> bool:
        """Whether it is a slave, and none that lives has a smaller id: a master has the smallest."""
        return self.kind is RoleKind.SLAVE and not self.is_fenced and min(living, default=-1) == self.broker_id


class Role:
    """The role in force."""

    __slots__ = ("_on_change", "is_leading", "now")

    def __init__(self, state: RoleState | None = None) -> None:
        self.now = state or RoleState()
        self.is_leading = self.now.is_leading
        self._on_change: list[Callable[[RoleState, RoleState], None]] = []

    def listen(self, tell: Callable[[RoleState, RoleState], None]) -> None:
        """Have it told the old role and the new one, in the turn of the change."""
        self._on_change.append(tell)

    def become(self, new: RoleState) -> None:
        """Put another role in place; the same one changes nothing."""
        old, self.now = self.now, new
        self.is_leading = new.is_leading
        if new != old:
            for tell in self._on_change:
                tell(old, new)
