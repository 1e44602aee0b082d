"""Which member of an ordered group holds which queue: the holder is the only one to consume it.

A lock lives 60 seconds; its holder renews it by locking again and, for its own part, trusts it for 30 only, so that two
never work on a queue at once. RocketMQ's broker forgets all locks when it stops: who connects first then gets queues on
which another still works. Here a file says who held what, config/queueLocks.json, and after a start each lock is its
holder's for one more life, anyone who asks first. The holder itself, whose client id is the same after it has connected
again, goes on at once. Until it has, it counts as a member (`awaited`): the first ones to be back would share its
queues among themselves and let go of their own for that, which another then has until the next round.

The file has the holders and no times: a renewal need not be written. A new lock is in it before its holder is told
(`kept`). While there are locks it is written every quarter of their life, so that one that is older than a life speaks
of nobody who is still sure of anything, and is not believed.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bolide.broker.tables.table_files import TableWriter
from bolide.clock import Clock
from bolide.errors import StoreError
from bolide.files import read_whole
from bolide.model.queue import QueueKey

LIFE_S = 60.0
FILE_NAME = "queueLocks.json"
# A client waits a second for its answer. A disk that is slower than this is no reason to stop consuming.
_KEEPING_LIMIT_S = 0.5
_WRITES_A_LIFE = 4
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Lock:
    """Who holds a queue, and since when it is not renewed, by the steady clock."""

    client_id: str
    renewed_s: float
    is_of_last_life: bool = False  # of the broker; its holder has not come for it since


class LockFile(msgspec.Struct, frozen=True, rename="camel"):
    """The file: group → client id → topic → queues."""

    written_ms: int = 0
    holders: dict[str, dict[str, dict[str, list[int]]]] = {}


class Locks:
    """Group → queue → lock. There may be expired ones in it; they are swept once in a while."""

    def __init__(
        self,
        clock: Clock,
        life_s: float = LIFE_S,
        directory: Path | None = None,
        table_writer: TableWriter | None = None,
    ) -> None:
        self._clock = clock
        self._life_s = life_s
        self._path = None if directory is None else directory / FILE_NAME
        self._table_writer = table_writer
        self._swept_s = clock.monotonic_s()
        self._is_changed = False
        self._has_file = False  # with somebody in it
        self.table: dict[str, dict[QueueKey, Lock]] = {}
        self._read()

    def lock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> list[QueueKey]:
        """Take or renew what is free or one's own; returns the queues the client holds now."""
        now_s = self._clock.monotonic_s()
        self._sweep(now_s)
        locks = self.table.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or self._is_expired(lock, now_s):
                self._is_changed |= lock is None or lock.client_id != client_id
                locks[queue] = Lock(client_id, now_s)
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give back what is one's own."""
        locks = self.table.get(group, {})
        for queue in queues:
            if queue in locks and locks[queue].client_id == client_id:
                del locks[queue]
                self._is_changed = True
        if not locks:
            self.table.pop(group, None)
        self.save()

    def holder(self, group: str, queue: QueueKey) -> str | None:
        """The client that holds a queue, None if it is free."""
        lock = self.table.get(group, {}).get(queue)
        return None if lock is None or self._is_expired(lock, self._clock.monotonic_s()) else lock.client_id

    def has_live(self, group: str) -> bool:
        """Whether any member of the group holds a queue: it consumes in order then."""
        now_s = self._clock.monotonic_s()
        return any(not self._is_expired(lock, now_s) for lock in self.table.get(group, {}).values())

    def awaited(self, group: str) -> set[str]:
        """The clients that held a queue when the broker went down, and have not come for it yet."""
        now_s = self._clock.monotonic_s()
        locks = self.table.get(group, {}).values()
        return {lock.client_id for lock in locks if lock.is_of_last_life and not self._is_expired(lock, now_s)}

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

    # The file

    @property
    def is_kept(self) -> bool:
        """Whether the file says who holds what."""
        return not self._is_changed or self._table_writer is None

    async def kept(self) -> None:
        """Wait until it does; a disk that fails or is slow is not waited for."""
        self.save()
        if self._table_writer is not None:
            with suppress(TimeoutError, StoreError):
                async with asyncio.timeout(_KEEPING_LIMIT_S):
                    await self._table_writer.flush()

    async def save_forever(self) -> None:
        """Have the file stay young while anybody holds anything, until cancelled."""
        while True:
            await asyncio.sleep(self._life_s / _WRITES_A_LIFE)
            self._sweep(self._clock.monotonic_s())
            self._is_changed |= bool(self.table) or self._has_file
            self.save()

    def save(self) -> None:
        """Have the file written, if anybody has come or gone."""
        if self._is_changed and self._table_writer is not None and self._path is not None:
            self._is_changed = False
            self._table_writer.save(self._path, self._text)

    def _text(self) -> str:
        now_s = self._clock.monotonic_s()
        holders: dict[str, dict[str, dict[str, list[int]]]] = {}
        for group, locks in self.table.items():
            for queue, lock in locks.items():
                if not self._is_expired(lock, now_s):
                    topics = holders.setdefault(group, {}).setdefault(lock.client_id, {})
                    topics.setdefault(queue.topic, []).append(queue.queue_id)
        self._has_file = bool(holders)
        return msgspec.json.encode(LockFile(self._clock.now_ms(), holders)).decode()

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            found = read_whole(self._path, _parse, LockFile())
        except StoreError as problem:
            log.error("nobody knows who held which queue: two members may meet in one problem=%s", problem)
            return
        # A clock that was set back makes it no older.
        if self._clock.now_ms() - found.written_ms > self._life_s * 1000:
            return
        now_s = self._clock.monotonic_s()
        for group, clients in found.holders.items():
            for client_id, topics in clients.items():
                for topic, queue_ids in topics.items():
                    for queue_id in queue_ids:
                        self.table.setdefault(group, {})[QueueKey(topic, queue_id)] = Lock(client_id, now_s, True)
        self._has_file = bool(self.table)


def _parse(text: str) -> LockFile:
    return msgspec.json.decode(text.encode(), type=LockFile)
