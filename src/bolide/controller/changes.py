"""Changes of groups: read, decide, write, and look again when somebody was quicker.

The one place where a decision (`elections.py`) meets what is kept (`register.py`). Names whose master died wait here
until an election is through: it is tried until somebody else leads, or there is nothing left to do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from bolide.controller.config import LiveConfig
from bolide.controller.elections import Health, ReplicaGroup, replace_dead
from bolide.controller.liveness import Liveness
from bolide.controller.notices import Notices
from bolide.controller.register import Kept, Register, Unreachable
from bolide.errors import Refusal, StoreError
from bolide.protocol.codes import ResponseCode

LIMIT_S = 5.0
_TRIES_MAX = 10
_RETRY_S = 0.25
T = TypeVar("T")
Decide = Callable[[ReplicaGroup | None, Health], ReplicaGroup | None]
log = logging.getLogger(__name__)


class Changed(NamedTuple):
    """A group before and after a change."""

    before: ReplicaGroup | None
    after: ReplicaGroup | None


class Changes:
    """Every reading and changing of groups."""

    def __init__(
        self,
        register: Register,
        liveness: Liveness,
        settings: LiveConfig,
        notices: Notices,
        elected: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """`elected` is told the cluster, the name and the result of each election."""
        self._elected = elected
        self._register = register
        self._liveness = liveness
        self._settings = settings
        self._notices = notices
        self.known: dict[str, ReplicaGroup] = {}  # as they were last seen: good enough to know strangers by
        self._orphans: dict[str, None] = {}  # names whose master may be dead
        self._arrival = asyncio.Event()

    def health(self, name: str, group: ReplicaGroup | None) -> Health:
        return self._liveness.health(name, () if group is None else group.members)

    async def read(self, name: str) -> ReplicaGroup | None:
        """The group of a name; raises Refusal where it cannot be told."""
        return (await self._within_limit(self._read(name))).group

    async def change(self, name: str, decide: Decide) -> Changed:
        """Replace a group by what is decided; raises Refusal."""
        return await self._within_limit(self._change(name, decide))

    async def _within_limit(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await work
        except TimeoutError:
            raise Refusal(ResponseCode.CONTROLLER_NOT_LEADER, f"no answer of the register in {LIMIT_S:g} s") from None
        except Unreachable as problem:
            raise Refusal(ResponseCode.CONTROLLER_NOT_LEADER, f"the register is out of reach: {problem}") from None
        except StoreError as problem:
            log.error("%s", problem)
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None

    async def _read(self, name: str) -> Kept:
        kept = await self._register.read(name)
        self._see(name, kept.group)
        return kept

    async def _change(self, name: str, decide: Decide) -> Changed:
        for _ in range(_TRIES_MAX):
            before, revision = await self._read(name)
            after = decide(before, self.health(name, before))
            if after is before:
                return Changed(before, after)
            if await self._register.write(name, after, revision):
                self._see(name, after)
                self._announce(before, after)
                return Changed(before, after)
            if not self._register.is_leader:
                break
        raise Refusal(ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state")

    def _see(self, name: str, group: ReplicaGroup | None) -> None:
        before = self.known.get(name)
        if group is None:
            self.known.pop(name, None)
        else:
            self.known[name] = group
        left = () if before is None else before.members.keys() - (() if group is None else group.members.keys())
        self._liveness.drop(name, left)

    def _announce(self, before: ReplicaGroup | None, after: ReplicaGroup | None) -> None:
        if after is None or before is None or after.master_epoch == before.master_epoch:
            return
        master, epoch = after.master_id, after.master_epoch
        if self._elected is not None:
            self._elected(after.cluster, after.name, "no_master_elected" if master is None else "new_master_elected")
        if master is None:
            log.warning("no master name=%s epoch=%d set=%s", after.name, epoch, list(after.sync_set))
            return
        log.info("master elected name=%s id=%d epoch=%d of=%s", after.name, master, epoch, list(before.sync_set))
        if self._settings.now.notifies_brokers:
            self._notices.tell(after, self.health(after.name, after).reports)

    def orphaned(self, name: str, member: int) -> None:
        """A broker died; if it was a master, another is elected."""
        group = self.known.get(name)
        if self._register.is_leader and group is not None and group.master_id == member:
            self._orphans[name] = None
            self._arrival.set()

    def leader_changed(self) -> None:
        """Somebody else leads, perhaps this controller: then it looks at all names."""
        self._orphans.clear()
        self._arrival.set()
        if self._register.is_leader:
            self._liveness.be_patient()

    async def elect_forever(self) -> None:
        """Elect masters where one died, until cancelled; looks at all names now and then, and after a takeover."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        was_leader = False
        while True:
            is_new_leader, was_leader = self._register.is_leader and not was_leader, self._register.is_leader
            if loop.time() >= due_s or is_new_leader:
                await self._scan()
                due_s = loop.time() + self._settings.now.scan_interval_ms / 1000
            self._arrival.clear()
            for name in list(self._orphans):
                if await self._replace_master(name):
                    self._orphans.pop(name, None)
            wait_s = due_s - loop.time()
            await self._arrived(min(wait_s, _RETRY_S) if self._orphans else wait_s)

    async def _arrived(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._arrival.wait()
        except TimeoutError:
            pass

    async def _scan(self) -> None:
        """See all groups as they are, and find masters that are dead while somebody of their name lives."""
        try:
            groups = {group.name: group for group in await self._within_limit(self._register.groups())}
        except Refusal as problem:
            log.warning("names not scanned: %s", problem)
            return
        for name in [*self.known, *groups]:
            self._see(name, groups.get(name))
        for name, group in groups.items():
            health = self.health(name, group)
            if self._register.is_leader and group.master_id is not None and not health.is_alive(group.master_id):
                self._orphans[name] = None

    async def _replace_master(self, name: str) -> bool:
        """Elect another master if the one of a name is dead; False if that has to be tried again."""
        is_done = True

        def decide(group: ReplicaGroup | None, health: Health) -> ReplicaGroup | None:
            nonlocal is_done
            if group is None or group.master_id is None or health.is_alive(group.master_id):
                return group
            after = replace_dead(group, health, is_unclean_allowed=self._settings.now.is_unclean_allowed)
            is_done = after is not None
            return group if after is None else after

        try:
            await self.change(name, decide)
        except Refusal as problem:
            log.warning("no election name=%s: %s", name, problem)
            return not (self._register.is_leader and problem.code == ResponseCode.CONTROLLER_NOT_LEADER)
        return is_done
