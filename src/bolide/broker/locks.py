"""Which member of an ordered group holds which queue: whoever does is the only one to consume it.

A lock lives 60 seconds; its holder renews it by locking again and, for its own part, trusts it for 30 only, so that two
never work on a queue at once. Locks are in memory: after a restart all queues are free, and the clients lock anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bolide.clock import Clock
from bolide.model.queue import QueueKey

LIFE_S = 60.0


@dataclass(slots=True)
class Lock:
    """Who holds a queue, and since when it is not renewed, by the steady clock."""

    client_id: str
    renewed_s: float


class Locks:
    """Group → queue → lock. There may be expired ones in it; they are swept once in a while."""

    def __init__(self, clock: Clock, life_s: float = LIFE_S) -> None:
        self._clock = clock
        self._life_s = life_s
        self._swept_s = clock.monotonic_s()
        self.table: dict[str, dict[QueueKey, Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> list[QueueKey]:
        """Take or renew what is free or one's own; returns the queues the client holds now."""
        now_s = self._clock.monotonic_s()
        self._sweep(now_s)
        locks = self.table.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or self._is_expired(lock, now_s):
                locks[queue] = Lock(client_id, now_s)
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give back what is one's own."""
        locks = self.table.get(group, {})
        for queue in queues:
            if queue in locks and locks[queue].client_id == client_id:
                del locks[queue]
        if not locks:
            self.table.pop(group, None)

    def holder(self, group: str, queue: QueueKey) -> str | None:
        """The client that holds a queue, None if it is free."""
        lock = self.table.get(group, {}).get(queue)
        return None if lock is None or self._is_expired(lock, self._clock.monotonic_s()) else lock.client_id

    def has_live(self, group: str) -> bool:
        """Whether any member of the group holds a queue: it consumes in order then."""
        now_s = self._clock.monotonic_s()
        return any(not self._is_expired(lock, now_s) for lock in self.table.get(group, {}).values())

    def _is_expired(self, lock: Lock, now_s: float) -> bool:
        return now_s - lock.renewed_s > self._life_s

    def _sweep(self, now_s: float) -> None:
        """Forget the expired, at most once in a lock's life, so that dead groups do not stay for good."""
        if now_s - self._swept_s <= self._life_s:
            return
        self._swept_s = now_s
        for group, locks in list(self.table.items()):
            alive = {queue: lock for queue, lock in locks.items() if not self._is_expired(lock, now_s)}
            if alive:
                self.table[group] = alive
            else:
                del self.table[group]
