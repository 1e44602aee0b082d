"""What a master owes its controller: the set of replicas that are in sync with it, and nothing acknowledged without it.

Every report of a slave moves what is confirmed, and may complete the set; a connection that ends may make it smaller.
Both are proposed to the controller and count when it has agreed (`sync_set.py`). Below `minInSyncReplicas` nothing is
taken in, and nothing that waits is acknowledged.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from bolide.broker.controlled.membership import Membership
from bolide.broker.controlled.orders import Order
from bolide.broker.controlled.sync_set import Limits, Replica, SyncSet
from bolide.clock import Clock
from bolide.errors import BolideError, NoAnswer, Refusal
from bolide.ha.acks import Count, Members
from bolide.ha.replication import Replication
from bolide.protocol.codes import ResponseCode
from bolide.store.store import Store

PAUSE_FIRST_S = 0.05  # after a proposal that the controller did not carry out
PAUSE_MAX_S = 5.0
UNKNOWN_THERE = (ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)
NOBODY_WILL_DO = Members(frozenset((0,)))  # replicas are numbered from 1
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """When a message is safe: `all_ack` asks every member of the set, `in_sync_count` so many, the master included."""

    all_ack: bool
    in_sync_count: int
    in_sync_min: int
    limits: Limits
    check_interval_s: float


class Leadership:
    """The set of one master, from the moment it leads to the end of its epoch."""

    def __init__(
        self, rules: Rules, store: Store, replication: Replication, membership: Membership, clock: Clock
    ) -> None:
        self._rules = rules
        self._store = store
        self._replication = replication
        self._membership = membership
        self._clock = clock
        self._set: SyncSet | None = None
        self._epoch = 0
        self._start = 0  # of our epoch in the log
        self._woken = asyncio.Event()
        self._pause_s = PAUSE_FIRST_S
        replication.acks.listen(self._on_acks)

    # What Intake asks

    @property
    def needs_replicas(self) -> bool:
        """Whether a message is safe only when others have it too."""
        if self._set is None:
            return False
        rules = self._rules
        return bool(self._set.acknowledging) or rules.in_sync_min > 1 if rules.all_ack else rules.in_sync_count > 1

    @property
    def awaited(self) -> frozenset[int]:
        """Those that may lead next, but for ourselves."""
        return frozenset() if self._set is None else self._set.acknowledging

    def refusal(self) -> Refusal | None:
        """Why no message can be taken in, if none can."""
        group = self._set
        if group is None or len(group.members) >= self._rules.in_sync_min:
            return None
        remark = (
            f"in-sync replicas not enough: {len(group.members)} of minInSyncReplicas={self._rules.in_sync_min}; "
            "start the other brokers of this group, or look at `bolide cluster`"
        )
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def wait(self, end: int) -> "asyncio.Future[None]":
        """Done when those without whom nothing is safe have the log up to `end`."""
        return self._replication.acks.wait(end)

    def wait_for_all(self, end: int) -> "asyncio.Future[None] | None":
        """Done when all who may lead next have it."""
        acks = self._replication.acks
        if not self.awaited:
            return None
        return acks.wait(end) if self._rules.all_ack else acks.wait_for(lambda: self.awaited, end)

    # From one role to the next

    @property
    def members(self) -> frozenset[int]:
        """The set that the controller is known to hold; empty when we do not lead."""
        return frozenset() if self._set is None else self._set.members

    def begin(self, order: Order, start: int) -> None:
        """We lead from here on: the log of our epoch begins at `start`."""
        self._set = SyncSet(self._membership.replica_id, order.members, order.set_epoch, self._clock.monotonic_s())
        self._epoch, self._start = order.epoch, start
        self._pause_s = PAUSE_FIRST_S
        self._bind(self._set)
        self._woken.set()

    def end(self) -> None:
        """We do not lead any more: what waits for replicas is not acknowledged."""
        if self._set is not None:
            self._set = None
            self._replication.acks.fail_all()
            self._store.confirm(self._store.visible_end)

    def heard(self, order: Order) -> None:
        """The controller told what it holds, for the epoch in which we lead."""
        if self._set is not None and order.epoch == self._epoch and self._set.adopt(order.members, order.set_epoch):
            self._bind(self._set)
            self._woken.set()

    # The set

    def _on_acks(self) -> None:
        group = self._set
        if group is None:
            return
        self._confirm(group)
        if not group.is_settled or {replica.replica_id for replica in self._replicas()} != group.acknowledging:
            self._woken.set()

    def _replicas(self) -> Iterator[Replica]:
        now_s = self._clock.monotonic_s()
        for slave in self._replication.slaves:
            if slave.is_in_transfer and slave.slave_id:
                yield Replica(slave.slave_id, slave.acked_end, now_s - slave.lag_ms / 1000, slave.is_learner)

    def _bind(self, group: SyncSet) -> None:
        """Have those acknowledge without whom nothing is safe."""
        acks = self._replication.acks
        if len(group.members) < self._rules.in_sync_min:
            acks.policy = NOBODY_WILL_DO
        elif self._rules.all_ack:
            acks.policy = Members(group.acknowledging)
        else:
            acks.policy = Count(self._rules.in_sync_count - 1)
        self._confirm(group)

    def _confirm(self, group: SyncSet) -> None:
        """Readers see what no change of masters can take back."""
        if not self._rules.all_ack:
            return
        before = self._store.visible_end
        if group.acknowledging or len(group.members) < self._rules.in_sync_min:
            self._store.confirm(min(self._replication.acks.reached, self._store.log_end))
        else:
            self._store.confirm(None)
        if self._store.visible_end != before:
            self._replication.nudge()

    async def run_forever(self) -> None:
        """Propose what should change, as soon as it should."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.check_interval_s):
                    await self._woken.wait()
            self._woken.clear()
            if self._set is not None and not await self._is_settled(self._set):
                await asyncio.sleep(self._pause_s)
                self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
                self._woken.set()
            else:
                self._pause_s = PAUSE_FIRST_S

    async def _is_settled(self, group: SyncSet) -> bool:
        """Propose the set as it should be; false if that must be tried again."""
        safe_end = max(self._store.visible_end, self._start)
        wanted = group.wanted(self._replicas(), self._clock.monotonic_s(), safe_end, self._rules.limits)
        self._bind(group)
        proposed = group.proposal(wanted)
        if proposed is None:
            return True
        is_new = group.propose(proposed)
        self._bind(group)
        try:
            held = await self._membership.alter(self._epoch, proposed, group.set_epoch)
        except Refusal as refusal:
            log.warning("set not changed wanted=%s code=%d: %s", sorted(proposed), refusal.code, refusal.remark)
            if is_new:
                group.refused(proposed)
            if refusal.code in UNKNOWN_THERE:  # its first heartbeat is under way, or it has lost its number
                group.rest(proposed, self._clock.monotonic_s() + 2 * self._pause_s)
            self._rebind(group)
            await self._look()
            return False
        except NoAnswer as problem:
            log.warning("set perhaps not changed wanted=%s: %s", sorted(proposed), problem)
            await self._look()
            return False
        if group.adopt(held.sync_state_set, held.sync_state_set_epoch):
            log.info("in sync epoch=%d set=%s number=%d", self._epoch, sorted(group.members), group.set_epoch)
        self._rebind(group)
        return True

    async def _look(self) -> None:
        """Ask what the controller holds: what is newer than what we know settles every proposal."""
        try:
            self.heard(await self._membership.look())
        except BolideError as problem:
            log.debug("the controller was not asked: %s", problem)

    def _rebind(self, group: SyncSet) -> None:
        if group is self._set:  # the role may have gone while the controller thought
            self._bind(group)
