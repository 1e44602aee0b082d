"""The replicas that must have a message before its sender hears that it is safe: the master's side of SyncStateSet.

The controller keeps the set, and the next master comes from it. So the master may never acknowledge with fewer than
the controller may believe in. While a change is proposed, and until the controller is known to hold a newer set, every
member of the old set and of every proposal must acknowledge: an answer that was lost may still be in force. The master
never makes the set smaller on its own.

A slave that is nearly there joins in two steps, for under load it never has everything. First it must acknowledge like
a member; once it has all that was safe without it, it is proposed.

A proposal is sent once. If it is refused, it was not carried out. If no answer came, it stays open, and the next
proposal settles it: the controller takes only one proposal for each number of the set.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

NEAR_SIZE = 4 << 20  # a slave that lacks less than this begins to join: a moment's work, so senders hardly notice
JOIN_LIMIT_S = 2.0  # and one that needs longer is let go again, for senders wait for it
JOIN_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One slave as the master sees it now; `caught_up_s` is when it last had everything."""

    replica_id: int
    acked_end: int
    caught_up_s: float
    is_learner: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a member may be behind, and how long one that has not come since we lead is awaited."""

    behind_max_s: float
    absent_max_s: float


@dataclass(slots=True)
class _Joining:
    """A slave that acknowledges like a member until it has what was safe without it."""

    target: int
    until_s: float


class SyncSet:
    """The set the controller is known to hold, and what it may hold beside that."""

    def __init__(self, own_id: int, members: Collection[int], set_epoch: int, now_s: float) -> None:
        self._own_id = own_id
        self.members = frozenset(members)
        self.set_epoch = set_epoch
        self._open: list[frozenset[int]] = []
        self._joining: dict[int, _Joining] = {}
        self._resting_until_s: dict[int, float] = {}
        self._awaited_since_s: dict[int, float] = dict.fromkeys(self.members, now_s)

    @property
    def acknowledging(self) -> frozenset[int]:
        """The slaves without which nothing is safe."""
        return self.members.union(self._joining, *self._open) - {self._own_id}

    @property
    def is_settled(self) -> bool:
        """Whether the controller can hold no other set, and nobody is about to join."""
        return not self._open and not self._joining

    def adopt(self, members: Collection[int], set_epoch: int) -> bool:
        """Take over what the controller holds; false if that is old news. Proposals for older sets are settled."""
        if set_epoch <= self.set_epoch:
            return False
        self.members = frozenset(members)
        self.set_epoch = set_epoch
        self._open.clear()
        return True

    def wanted(self, replicas: Iterable[Replica], now_s: float, safe_end: int, limits: Limits) -> frozenset[int]:
        """The set as it should be: without those that are away or behind, with those that have all up to `safe_end`.

        Every sender whose message lies below `safe_end` may have heard that it is safe. Slaves that lack little of it
        begin to join, so `acknowledging` may have grown afterwards.
        """
        here = {replica.replica_id: replica for replica in replicas}
        kept = {member for member in self.members if self._stays(member, here.get(member), now_s, limits)}
        self._joining = {one: joining for one, joining in self._joining.items() if one in here}
        joined = {
            replica.replica_id
            for replica in here.values()
            if replica.replica_id not in self.members and not replica.is_learner
            if self._has_joined(replica, now_s, safe_end)
        }
        # One at a time: the controller refuses a set as a whole, and one that it does not know keeps nobody else out.
        return frozenset(kept | set(sorted(joined)[:1]) | {self._own_id})

    def _stays(self, member: int, replica: Replica | None, now_s: float, limits: Limits) -> bool:
        if replica is not None:
            self._awaited_since_s.pop(member, None)  # it came; if it leaves, it is not awaited again
            return now_s - replica.caught_up_s <= limits.behind_max_s
        awaited_since_s = self._awaited_since_s.get(member)
        return awaited_since_s is not None and now_s - awaited_since_s < limits.absent_max_s

    def _has_joined(self, replica: Replica, now_s: float, safe_end: int) -> bool:
        one = replica.replica_id
        joining = self._joining.get(one)
        if joining is None:
            is_near = replica.acked_end >= safe_end - NEAR_SIZE
            if not is_near or now_s < self._resting_until_s.get(one, 0.0):
                return False
            joining = self._joining[one] = _Joining(safe_end, now_s + JOIN_LIMIT_S)
        if replica.acked_end >= joining.target:
            return True
        if now_s > joining.until_s:
            del self._joining[one]
            self._resting_until_s[one] = now_s + JOIN_PAUSE_S
        return False

    def proposal(self, wanted: frozenset[int]) -> frozenset[int] | None:
        """What to propose next: what is wanted, or what an answer was lost to; None if there is nothing to settle."""
        if wanted != self.members:
            return wanted
        return self._open[-1] if self._open else None

    def propose(self, members: frozenset[int]) -> bool:
        """From now on the controller may hold these; false if it may have before."""
        if members in self._open:
            return False
        self._open.append(members)
        return True

    def refused(self, members: frozenset[int]) -> None:
        """The controller did not carry out a proposal that was not open before."""
        self._open.remove(members)

    def rest(self, members: frozenset[int], until_s: float) -> None:
        """The controller does not know one of these, or takes it for dead: those that were to join wait for a while."""
        for one in members - self.members:
            self._joining.pop(one, None)
            self._resting_until_s[one] = until_s
