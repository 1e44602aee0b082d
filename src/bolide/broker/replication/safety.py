"""Who must have a message before its sender hears that it is safe, besides this broker.

`Safety` is asked with every message: whether any replica counts (`policy.needs_replicas`), why none can be taken in now
(`check`, before the append), and when the replicas have it (`wait`, after). Which replicas count is a policy that is
plugged in when the broker starts: `SyncMaster` here, for brokers whose role is in their settings, or the set of
replicas that a controller keeps. Without one, nobody counts. Every turn of the loop asks, so the answer is an attribute
where that can be.

A SYNC_MASTER whose `inSyncReplicas` is not set waits for one slave, as RocketMQ 4.9 does: without a slave, or with one
that is far behind, its senders hear SLAVE_NOT_AVAILABLE at once. Set, it is the rule of 5.x: so many replicas, the
master included, however long that takes; and below `minInSyncReplicas` nothing is taken in at all.
"""

import asyncio
from typing import Protocol

from bolide.broker.config import LiveConfig
from bolide.broker.role import SYNC_MASTER, Role
from bolide.errors import Refusal
from bolide.ha.acks import Acks, Count
from bolide.protocol.codes import ResponseCode
from bolide.store.store import Store

KEPT_LIMIT_S = 5.0


class Policy(Protocol):
    """Which replicas count."""

    @property
    def needs_replicas(self) -> bool:
        """Whether a message is safe only when others have it too."""
        ...

    def refusal(self) -> Refusal | None:
        """Why no message can be taken in, if none can."""
        ...

    @property
    def awaited(self) -> frozenset[int]:
        """The replicas that may lead next, by id: a change of topics and groups waits for them too."""
        ...

    def wait(self, end: int) -> "asyncio.Future[None] | None":
        """Done when the replicas have the log up to `end`; None where waiting for them makes no sense."""
        ...

    def wait_for_all(self, end: int) -> "asyncio.Future[None] | None":
        """Done when all that are awaited have it, be it that senders do not wait for them; None without any."""
        ...


class Nobody:
    """The policy before one is plugged in."""

    needs_replicas = False
    awaited: frozenset[int] = frozenset()

    def refusal(self) -> Refusal | None:
        return None

    def wait(self, end: int) -> "asyncio.Future[None] | None":
        return None

    def wait_for_all(self, end: int) -> "asyncio.Future[None] | None":
        return None


class Safety:
    """What `Intake` asks; one for each broker."""

    __slots__ = ("_is_stopping", "policy")

    def __init__(self) -> None:
        self.policy: Policy = Nobody()
        self._is_stopping = False

    def plug(self, policy: Policy) -> None:
        """From now on this one decides."""
        self.policy = policy

    def stop(self) -> None:
        """Replicas are heard no more, so nobody waits for one: what they do not have by now is not kept."""
        self._is_stopping = True

    @property
    def awaited(self) -> frozenset[int]:
        return self.policy.awaited

    def check(self) -> None:
        """Raises Refusal where no message can be taken in: before the append, so that none is stored."""
        refusal = self.policy.refusal()
        if refusal is not None:
            raise refusal

    def wait(self, end: int) -> "asyncio.Future[None] | None":
        return self.policy.wait(end)

    async def kept(self, store: Store, end: int | None = None) -> bool:
        """Wait until no crash and no change of masters can take the log back up to `end`, or as it is now.

        How far something has come in the log is written and told only then: a broker that does not lead any more, or
        that another one is followed by now, may have the end of its log cut off.
        False if that takes too long, or the lead is lost. Raises Refusal where the disk failed.
        """
        end = store.log_end if end is None else end
        replicated = self.policy.wait_for_all(end)
        if not await store.durable(end):
            return False
        if replicated is None:
            return True
        if not self._is_stopping:
            await asyncio.wait([replicated], timeout=KEPT_LIMIT_S)
        return replicated.done() and not replicated.cancelled()


class SyncMaster:
    """The policy of a broker whose role is in its settings. Nobody takes its place unless somebody says so."""

    awaited: frozenset[int] = frozenset()

    def __init__(self, settings: LiveConfig, role: Role, store: Store, acks: Acks) -> None:
        self._settings = settings
        self._role = role
        self._store = store
        self._acks = acks
        settings.listen(self.follow)
        role.listen(lambda old, new: self.follow())
        acks.listen(self._on_acks)
        self.follow()

    def _on_acks(self) -> None:
        """Called with every report of a slave, so it does next to nothing unless the slaves decide how many count."""
        if self._settings.now.replication.adapts_in_sync:
            self.follow()

    def follow(self) -> None:
        """Settings or role have changed, or slaves where they count: see who counts now."""
        rules = self._settings.now.replication
        is_sync = self._role.is_leading and self._role.now.kind is SYNC_MASTER
        self._is_old_rule = is_sync and not rules.in_sync_count
        count = (rules.in_sync_count or 2) - 1 if is_sync else 0
        if rules.adapts_in_sync and count:
            count = max(rules.in_sync_min - 1, min(count, self._in_sync_count() - 1))
        self.needs_replicas = count > 0 or (is_sync and rules.in_sync_min > 1)
        self._acks.policy = Count(count)

    def _in_sync_count(self) -> int:
        return 1 + self._acks.in_sync_count(self._settings.now.ha.gap_size_max)

    def refusal(self) -> Refusal | None:
        """5.x's word for too few replicas; what is refused is not stored."""
        needed = self._settings.now.replication.in_sync_min
        if needed <= 1 or (found := self._in_sync_count()) >= needed:
            return None
        remark = f"in-sync replicas not enough: {found} of minInSyncReplicas={needed}; start the slaves of this broker"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def wait(self, end: int) -> "asyncio.Future[None] | None":
        if self._is_old_rule:
            ends = self._acks.ends
            if not ends or end - ends[0] >= self._settings.now.ha.behind_size_max:
                return None
        return self._acks.wait(end)

    def wait_for_all(self, end: int) -> "asyncio.Future[None] | None":
        return None
