"""How a broker changes its role while it runs, in RocketMQ's order; a start is a change too, from fenced to a role.

To master: copying stops, what is half a record at the end of the log is cut off, queues and next offsets follow from
the log; the epoch is noted by those who keep it (`before_open`); what is out, what is decided and what waits is read
from the log, as at any start. Only then is the role the new one, messages are taken, and the work of a master begins.

To slave: the role first, so that nothing is taken any more and nothing of the master's work appends; senders who wait
for replicas hear that they wait in vain; then the log is another's, its end may be cut off, and what was known of it is
forgotten: how far delays, timers and groups had come is what was written when replicas had it. A slave whose log is cut
goes back to its end with all of them, for other messages will lie there.

One change at a time; each leaves the broker whole, and the same one twice does no more than tell the name servers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from bolide.broker.later.delay import Delays
from bolide.broker.later.timers import Timers
from bolide.broker.pop.pop import Pop
from bolide.broker.replication.following import Following
from bolide.broker.role import RoleState
from bolide.broker.sending.staged_batches import StagedBatches
from bolide.broker.state import BrokerState
from bolide.broker.tables.deleted_topics import restore_topics
from bolide.broker.transactions.transactions import Transactions
from bolide.ha.replication import Replication
from bolide.model.queue import QueueKey

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]
BeforeOpen = Callable[[int], Awaitable[None] | None]


class RoleWork:
    """What a broker does by itself in one role alone: runs from `start` to `stop`, as often as the role changes."""

    def __init__(self, state: BrokerState, works: Mapping[str, Work]) -> None:
        self._lasting = state.store.mishaps.lasting
        self._works = works
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(kind, error, traceback)

    def start(self) -> None:
        if not self._tasks:
            for name, work in self._works.items():
                self._tasks.append(self._group.create_task(self._lasting(name, work), name=name))

    async def stop(self) -> None:
        """Returns when nothing of it runs any more."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@dataclass(frozen=True, slots=True)
class Memories:
    """What a master knows of its log besides the queues: read when it begins, forgotten when it ends."""

    delays: Delays
    timers: Timers | None
    pop: Pop
    transactions: Transactions
    batches: StagedBatches

    async def load(self) -> None:
        await self.pop.load()
        await self.transactions.load()
        await self.batches.load()
        self._resume()

    async def load_to_escape(self) -> None:
        """The same for a slave that acts for its master: without what would write the log."""
        await self.pop.load()
        await self.transactions.load()
        self._resume()

    def _resume(self) -> None:
        self.delays.resume()
        if self.timers is not None:
            self.timers.resume()

    def cut(self) -> None:
        """A slave's log ends earlier; what it would read from the log when it leads, it knows nothing of yet."""
        self.delays.cut()
        if self.timers is not None:
            self.timers.files.cut()

    def forget(self) -> None:
        self.delays.forget()
        self.forget_escaped()
        self.batches.forget()

    def forget_escaped(self) -> None:
        """How far the delay levels went stays: that is told to the master that is back, until it tells its own."""
        self.pop.forget()
        self.transactions.forget()
        if self.timers is not None:
            self.timers.forget()


class RoleChange:
    """Changes the role of one broker."""

    def __init__(
        self, state: BrokerState, memories: Memories, work: RoleWork, copying: Replication, following: Following
    ) -> None:
        self._state = state
        self._memories = memories
        self._work = work
        self._copying = copying
        self._following = following
        self._changing = asyncio.Lock()
        copying.listen_cut(self._cut)

    def _cut(self) -> None:
        """The end of the log that we copied is cut off: what spoke of it speaks of what the log has."""
        self._cut_offsets()
        self._memories.cut()

    def _cut_offsets(self) -> None:
        store = self._state.store
        self._state.offsets.cut(lambda topic, queue_id: store.next_offset(QueueKey(topic, queue_id)))

    async def to_master(self, new: RoleState, before_open: BeforeOpen | None = None) -> None:
        """Take messages from now on. `before_open` is given the end of the log before the first is written."""
        assert new.is_leading, "a master that is not fenced"
        async with self._changing:
            role, store = self._state.role, self._state.store
            was_follower = store.is_follower
            if role.is_leading:
                await _called(before_open, store.log_end)
            else:
                self._following.end()
                await self._copying.pause()
                end = store.lead()
                self._cut_offsets()  # of a queue whose messages were never copied, or were lost with a disk
                await _called(before_open, end)
                await self._memories.load()
            self._become(new)
            if was_follower:
                restore_topics(store, self._state.topics, self._state.settings.now.topic_queue_count)
            self._copying.lead()
            self._work.start()

    async def to_slave(self, new: RoleState, master_address: str = "", master_ha_address: str | None = None) -> None:
        """Copy from a master from now on; without its addresses, from the moment somebody tells them."""
        assert not new.is_leading, "a slave"
        async with self._changing:
            await self._close(replace(new, master_address=master_address or new.master_address))
            self._following.begin(master_ha_address)

    async def fence(self) -> None:
        """Take nothing, copy nothing, be known to nobody, until another role is given."""
        async with self._changing:
            await self._close(replace(self._state.role.now, is_fenced=True))
            self._following.end()

    async def _close(self, new: RoleState) -> None:
        was_leading = self._state.role.is_leading
        self._become(new)
        await self._work.stop()
        if was_leading or not self._state.store.is_follower:
            await self._copying.pause()
            self._state.store.follow()
            self._state.offsets.forget()
            self._memories.forget()

    def _become(self, new: RoleState) -> None:
        old = self._state.role.now
        if new != old:
            log.info("role changed from=%s to=%s", _shown(old), _shown(new))
        self._state.role.become(new)
        if new.is_leading and new.epoch != self._state.topics.version.state_version:
            self._state.topics.count_state(new.epoch)
            self._state.groups.count_state(new.epoch)


async def _called(before_open: BeforeOpen | None, end: int) -> None:
    result = None if before_open is None else before_open(end)
    if result is not None:
        await result


def _shown(role: RoleState) -> str:
    fenced = " fenced" if role.is_fenced else ""
    epoch = f" epoch {role.epoch}" if role.epoch else ""
    return f"{role.kind} {role.broker_id}{epoch}{fenced}"
