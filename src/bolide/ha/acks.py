"""Who has acknowledged how much of the log, and who waits for it.

A slave counts from its first report on. The policy says whose acknowledgement makes a message safe: a number of slaves,
or slaves by id. `reached` is told to others (confirmOffset); what slaves have acknowledged never falls while we lead. A
waiter is judged by what holds when it is looked at, so a stricter policy holds for all who wait.

A slave that connects twice counts once. In the AutoSwitch stream it says its id, and the newer connection replaces the
older. The plain stream has no names, and two slaves may share a machine. There an older connection from the same host
counts again when it has reported once more: one that is only half open never does.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from bolide.errors import ProtocolError

_UNKNOWN = -1


class Replica(Protocol):
    """A slave's connection."""

    @property
    def host(self) -> str: ...

    @property
    def slave_id(self) -> int | None:
        """None in the plain stream."""
        ...

    @property
    def is_learner(self) -> bool:
        """Whether it takes a copy and is never waited for."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """So many slaves, whichever they are; 0 waits for nobody."""

    slaves: int


@dataclass(frozen=True, slots=True)
class Members:
    """These slaves, all of them, by id; the master's own id is not among them. None of them waits for nobody."""

    ids: frozenset[int]


Policy = Count | Members


class Acks:
    """The reports of all slaves. `own_end` tells where our log ends: nobody can have more."""

    def __init__(self, own_end: Callable[[], int]) -> None:
        self._own_end = own_end
        self._policy: Policy = Count(0)
        self.has_to_wait = False  # whether the policy asks for any slave
        self._ends: dict[Replica, int] = {}
        self._fulfilled_end = _UNKNOWN  # up to where the policy is fulfilled by the slaves that are connected
        self._reached = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._named_waiters: list[tuple[Callable[[], frozenset[int]], int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._tells: list[Callable[[], None]] = []

    def listen(self, tell: Callable[[], None]) -> None:
        """Have a function called after every change: a slave came, went or reported, or the policy is another."""
        self._tells.append(tell)

    @property
    def policy(self) -> Policy:
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if policy != self._policy:
            self._policy = policy
            self.has_to_wait = policy not in (Count(0), Members(frozenset()))
            self._changed()

    @property
    def reached(self) -> int:
        """Up to where the policy was fulfilled at some time since we lead; our own end where nobody is waited for."""
        return max(self._reached, self._fulfilled())

    @property
    def ends(self) -> list[int]:
        """What each slave that counts has, the largest first."""
        found = [end for replica, end in self._ends.items() if end != _UNKNOWN and not replica.is_learner]
        return sorted(found, reverse=True)

    def in_sync_count(self, gap_size_max: int) -> int:
        """How many slaves are less than so many bytes behind us."""
        own_end = self._own_end()
        return sum(own_end - end < gap_size_max for end in self.ends)

    def end_of(self, slave_id: int) -> int | None:
        """What a slave of the AutoSwitch stream has; None where it is not connected."""
        return next((end for replica, end in self._ends.items() if replica.slave_id == slave_id), None)

    def joined(self, replica: Replica) -> list[Replica]:
        """A slave has made its first report. Returns the older connections that it replaces, to be closed."""
        replaced = []
        for other in list(self._ends):
            if replica.slave_id is None and other.slave_id is None and other.host == replica.host:
                self._ends[other] = _UNKNOWN
            elif replica.slave_id is not None and other.slave_id == replica.slave_id:
                del self._ends[other]
                replaced.append(other)
        self._ends[replica] = _UNKNOWN
        self._changed()
        return replaced

    def left(self, replica: Replica) -> None:
        """A connection has ended; it may have been replaced, or never have joined."""
        if self._ends.pop(replica, None) is not None:
            self._changed()

    def reported(self, replica: Replica, end: int) -> None:
        """A slave has the log up to `end`. Raises ProtocolError, and counts nothing, where that cannot be."""
        own_end = self._own_end()
        if not 0 <= end <= own_end:
            raise ProtocolError(f"a slave reports that it has {end} bytes of log, and ours ends at {own_end}")
        if replica in self._ends:
            self._ends[replica] = end
            self._changed()

    def wait(self, end: int) -> asyncio.Future[None]:
        """A future that is done when the policy is fulfilled up to `end`; cancelled when the role is lost."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._fulfilled() >= end:
            waiter.set_result(None)
            return waiter
        # Those whose time ran out are the oldest, and the oldest lie on top: they do not pile up.
        while self._waiters and self._waiters[0][2].done():
            heapq.heappop(self._waiters)
        heapq.heappush(self._waiters, (end, next(self._numbers), waiter))
        return waiter

    def wait_for(self, ids: Callable[[], frozenset[int]], end: int) -> asyncio.Future[None]:
        """The same for certain slaves, whatever the policy asks for: all of those that are named at that moment."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._named_waiters = [one for one in self._named_waiters if not one[2].done()]
        self._named_waiters.append((ids, end, waiter))
        self._serve_named()
        return waiter

    def fail_all(self) -> None:
        """The role is lost: nobody is told any more, and what was reached counts for nothing."""
        waiters: list[tuple[object, object, asyncio.Future[None]]] = [*self._waiters, *self._named_waiters]
        self._waiters, self._named_waiters = [], []
        self._reached = 0
        for _, _, waiter in waiters:
            waiter.cancel()

    def _changed(self) -> None:
        self._fulfilled_end = self._sum_up()
        fulfilled = self._fulfilled()
        if self.has_to_wait:
            self._reached = max(self._reached, fulfilled)
        while self._waiters and self._waiters[0][0] <= fulfilled:
            _, _, waiter = heapq.heappop(self._waiters)
            if not waiter.done():
                waiter.set_result(None)
        if self._named_waiters:
            self._serve_named()
        for tell in self._tells:
            tell()

    def _serve_named(self) -> None:
        by_id = {replica.slave_id: end for replica, end in self._ends.items()}
        for ids, end, waiter in self._named_waiters:
            if not waiter.done() and all(by_id.get(one, _UNKNOWN) >= end for one in ids()):
                waiter.set_result(None)

    def _fulfilled(self) -> int:
        """Where nobody is waited for, our own end. Asked with every wait, so what slaves have is summed up before."""
        return self._fulfilled_end if self.has_to_wait else self._own_end()

    def _sum_up(self) -> int:
        match self._policy:
            case Count(slaves):
                ends = self.ends
                return ends[slaves - 1] if 0 < slaves <= len(ends) else _UNKNOWN
            case Members(ids):
                by_id = {replica.slave_id: end for replica, end in self._ends.items()}
                return min((by_id.get(each, _UNKNOWN) for each in ids), default=_UNKNOWN)
