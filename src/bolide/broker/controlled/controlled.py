"""A broker whose role is the controller's to give (enableControllerMode): it joins, lives, and does as it is told.

It starts without a role, takes no message and is in no route. Orders come as answers, in any order and more than once:
only one with a higher epoch changes the role, one at a time, and an older one is passed over. A notice (1008) is a
hint to ask, for anyone could send it. A broker that hears of no controller goes on as it is: an old master that was
replaced cannot acknowledge anything, for its successor was a member of its set (`leadership.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bolide.broker.controlled.controllers import Controllers
from bolide.broker.controlled.identity import IdentityFiles, seat
from bolide.broker.controlled.leadership import Leadership, Rules
from bolide.broker.controlled.membership import NUMBER_LOST, Member, Membership, Progress
from bolide.broker.controlled.orders import Order
from bolide.broker.controlled.sync_set import Limits
from bolide.broker.replication.change import RoleChange
from bolide.broker.role import RoleKind, RoleState
from bolide.broker.state import BrokerState
from bolide.errors import BolideError, Refusal
from bolide.ha.replication import Replication
from bolide.protocol.bodies.controller import BrokerEpochs, EpochSpan
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request

RETRY_S = 0.5
LOOK_SPACING_S = 0.01  # between two questions, however many hints come
DOUBT_LIMIT_S = 20.0  # twice the time after which a controller takes a silent broker for dead
log = logging.getLogger(__name__)


def join_group(state: BrokerState, client: Client) -> Membership:
    """The conversation with the controllers that the settings name; StoreError for a directory of another broker."""
    config = state.settings.now
    rules = config.replication
    member = Member(
        config.cluster, config.name, rules.heartbeat_timeout_ms, rules.election_priority, seat(config.store.root)
    )
    files = IdentityFiles(Path(rules.identity_path or config.store.root), config.cluster, config.name)
    return Membership(member, Controllers(client, rules.controller_addresses), files, state.clock)


class Controlled:
    """Carries out what the controller orders."""

    def __init__(
        self, state: BrokerState, membership: Membership, replication: Replication, change: RoleChange
    ) -> None:
        assert replication.epochs is not None, "an elected master writes epochs"
        rules = state.settings.now.replication
        limits = Limits(state.settings.now.ha.caught_up_max_ms / 1000, rules.set_check_interval_ms / 1000)
        self.leadership = Leadership(
            Rules(rules.all_ack, max(rules.in_sync_count, 1), rules.in_sync_min, limits, limits.absent_max_s),
            state.store,
            replication,
            membership,
            state.clock,
        )
        self._state = state
        self._store = state.store
        self._rules = rules
        self._membership = membership
        self._change = change
        self._epochs = replication.epochs
        self._carried_out = Order(epoch=-1)
        self._newest = Order(epoch=-1)
        self._ordered = asyncio.Event()
        self._hinted = asyncio.Event()
        self._doubted_since_s: float | None = None
        self._own_address: Callable[[str], str] = str
        self._is_disowned = False  # our number is another's

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.notified,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
        }

    def notified(self, request: Request) -> Reply:
        """1008: somebody says that the controller has chosen. Anyone could say so: the controller itself is asked."""
        self._hinted.set()
        return request.command.answer(ResponseCode.SUCCESS)

    def epochs(self, request: Request) -> Reply:
        """1007: which masters wrote our log."""
        config, entries = self._state.settings.now, self._epochs.entries
        ends = [*(entry.start for entry in entries[1:]), (1 << 63) - 1]
        body = BrokerEpochs(
            broker_id=self._membership.replica_id,
            broker_name=config.name,
            cluster_name=config.cluster,
            epoch_list=[
                EpochSpan(end_offset=end, epoch=entry.number, start_offset=entry.start)
                for entry, end in zip(entries, ends, strict=False)
            ],
            max_offset=self._store.log_end,
        )
        return request.command.answer(ResponseCode.SUCCESS, body=body.encode())

    def offer(self, order: Order) -> None:
        """Carry it out soon, unless a newer one is known."""
        if order.age > self._newest.age:
            self._newest = order
            self._ordered.set()

    async def run_forever(self, own_address: Callable[[str], str]) -> None:
        """Belong to the group until cancelled; `own_address` makes ours from our end of a connection."""
        self._own_address = own_address
        await self._join()
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "controlled.orders": self._carry_out_forever,
            "controlled.look": self._look_forever,
            "controlled.leader": self._find_leader_forever,
            "controlled.set": self.leadership.run_forever,
        }
        for address in self._membership.controllers.addresses:
            works[f"controlled.beat.{address}"] = partial(self._beat_forever, address)
        async with asyncio.TaskGroup() as group:
            for name, work in works.items():
                group.create_task(self._store.mishaps.lasting(name, work), name=name)

    # Joining and living

    async def _join(self) -> None:
        is_told = False
        while True:
            try:
                self.offer(await self._membership.join(self._own_address))
                return
            except BolideError as problem:
                level = logging.DEBUG if is_told else logging.WARNING
                log.log(level, "no role yet, trying on: %s", problem)
                is_told = True
            await asyncio.sleep(RETRY_S)

    async def _beat_forever(self, address: str) -> None:
        while True:
            if not self._is_silent:
                try:
                    await self._membership.beat(address, self._progress)
                except BolideError as problem:
                    log.debug("heartbeat not sent controller=%s problem=%s", address, problem)
            await asyncio.sleep(self._rules.heartbeat_interval_ms / 1000)

    @property
    def _is_silent(self) -> bool:
        """A broker that cannot keep messages does not pretend to live, nor one that should not lead any more."""
        return self._store.is_failed or self._is_disowned or self._doubted_since_s is not None

    @property
    def _last_epoch(self) -> int:
        return 0 if self._epochs.last is None else self._epochs.last.number

    @property
    def _progress(self) -> Progress:
        # A damaged log counts as far as it is whole, so that one that has everything is elected rather.
        damaged_from, end = self._store.recovered.damaged_from, self._store.log_end
        return Progress(self._last_epoch, end if damaged_from is None else damaged_from, self._store.visible_end)

    async def _find_leader_forever(self) -> None:
        while True:
            await asyncio.sleep(self._rules.controller_info_interval_ms / 1000)
            try:
                await self._membership.controllers.find_leader()
            except BolideError as problem:
                log.debug("no controller leads: %s", problem)

    async def _look_forever(self) -> None:
        while True:
            try:
                await self._look()
            except BolideError as problem:
                log.debug("the controller was not asked: %s", problem)
            await asyncio.sleep(LOOK_SPACING_S)
            every_s = self._rules.replica_info_interval_ms / 1000
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._state.role.now.is_fenced else every_s):
                    await self._hinted.wait()
            self._hinted.clear()

    async def _look(self) -> None:
        if self._is_disowned:
            return
        try:
            order = await self._membership.look()
        except Refusal as refusal:
            if refusal.code in NUMBER_LOST:
                log.error("this broker follows and leads no more: %s", refusal.remark)
                self._is_disowned = True
                self._ordered.set()
                return
            if refusal.code != ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                raise
            order = await self._membership.register()
        if not order.master_id and not self._is_silent:
            self.offer(order)
            await self._membership.beat_heard(self._progress)
            order = await self._membership.elect()
        self.offer(order)

    # Orders

    async def _carry_out_forever(self) -> None:
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            if self._is_disowned:
                await self._begin_again()
            order = self._newest
            try:
                is_done = not self._is_doubtful(order) and await self._is_carried_out(order)
            except BolideError as problem:
                log.error("an order could not be carried out, trying on: %s problem=%s", order, problem)
                is_done = False
            if not is_done:
                await asyncio.sleep(RETRY_S)
                self._ordered.set()

    async def _begin_again(self) -> None:
        """Join as at a start, with another number: what was ordered was meant for the one that has ours."""
        self.leadership.end()
        await self._change.fence()
        self._carried_out = self._newest = Order(epoch=-1)
        await self._join()
        self._is_disowned = False

    def _is_doubtful(self, order: Order) -> bool:
        """Whether we are named master of an epoch that was ours before a crash, while others may have more of it.

        The controller did not notice that we were away. It is given the time to: without our heartbeats it elects
        another member of the set. If none lives, nobody has more than we have.
        """
        is_old = order.epoch <= self._last_epoch and self._carried_out.epoch < 0
        is_ours = order.master_id == self._membership.replica_id and len(order.members) > 1
        now_s = self._state.clock.monotonic_s()
        if is_old and is_ours and not self._store.recovered.was_clean:
            if self._doubted_since_s is None:
                log.warning("master of epoch %d before a crash: waiting whether others of the set live", order.epoch)
                self._doubted_since_s = now_s
            if now_s - self._doubted_since_s < DOUBT_LIMIT_S:
                return True
        self._doubted_since_s = None
        return False

    async def _is_carried_out(self, order: Order) -> bool:
        if order.epoch < self._carried_out.epoch:
            return True
        if order.epoch == self._carried_out.epoch and order.master_id == self._carried_out.master_id:
            self.leadership.heard(order)
            return True
        log.info("ordered epoch=%d master=%d at=%s", order.epoch, order.master_id, order.master_address)
        self.leadership.end()
        if not order.master_id:
            await self._change.fence()
        elif order.master_id == self._membership.replica_id:
            role = RoleState(RoleKind.SYNC_MASTER, 0, order.epoch)
            await self._change.to_master(role, partial(self._before_open, order))
        else:
            role = RoleState(RoleKind.SLAVE, self._membership.replica_id, order.epoch)
            await self._change.to_slave(role, order.master_address)
        self._carried_out = order
        return True

    def _before_open(self, order: Order, end: int) -> None:
        """We lead, and the log ends here: what is written from now on is of the new epoch."""
        if order.epoch > self._last_epoch:
            self._epochs.record(order.epoch, end)
        self.leadership.begin(order, self._epochs.entries[-1].start)
