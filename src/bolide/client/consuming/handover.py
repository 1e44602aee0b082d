"""Queues of one member that go to others: their progress is told, and the lock of an ordered one is given back.

An ordered queue with a message in the user's hand is *leaving*: it keeps its lock until that message is settled, so no
other member gets the next message, or the same, while the user's code still runs. Its lock is not renewed meanwhile. A
user who takes longer than the lock lives has lost the queue, and the verdict counts for nothing. RocketMQ's clients
wait half a second for a call under way, and unlock after 20 s whatever it does.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from bolide.client.consuming.inflight import InFlight
from bolide.client.consuming.locks import LOCK_LIFE_S, QueueLocks
from bolide.client.consuming.positions import BrokerPositions, FilePositions
from bolide.client.consuming.received import Received
from bolide.model.queue import MessageQueue
from bolide.remoting.isolated_tasks import IsolatedTasks

log = logging.getLogger(__name__)


class Handover:
    """Of one member. A group that is not ordered has no `locks`; `on_left` hears that a queue was handed over late."""

    def __init__(
        self,
        positions: BrokerPositions | FilePositions,
        locks: QueueLocks | None,
        guests: IsolatedTasks,
        on_left: Callable[[], object],
    ) -> None:
        self.leaving: dict[MessageQueue, InFlight] = {}
        self._positions = positions
        self._locks = locks
        self._guests = guests
        self._on_left = on_left

    async def give_up(
        self, queues: list[InFlight], let_go: Callable[[InFlight], Sequence[Received]], *, is_closing: bool
    ) -> None:
        """Hand over what nobody works on; the rest follows, or grows old at the broker if the member closes.

        `let_go` gives back the messages of a queue that were taken ahead, and that no code of the user's has.
        """
        free = []
        for inflight in queues:
            if self._locks is not None:
                inflight.leave()
                inflight.untake(let_go(inflight))
            if self._locks is None or not inflight.is_locked or not inflight.in_hand_count:
                free.append(inflight)
            elif not is_closing:
                self.leaving[inflight.queue] = inflight
                inflight.on_free = partial(self._start_leave, inflight)
                continue
            inflight.drop()
        await self._positions.write(progress_of(queues))
        await self._unlock(free)

    def _start_leave(self, inflight: InFlight) -> None:
        self._guests.start(self._leave(inflight), name=f"consumer.leave.{inflight.queue.topic}")

    async def _leave(self, inflight: InFlight) -> None:
        """What was in hand is settled: the next member goes on behind it."""
        self.forget_old()
        if self.leaving.pop(inflight.queue, None) is inflight:
            inflight.drop()
            await self._positions.write(progress_of([inflight]))
            await self._unlock([inflight])
            self._on_left()

    def forget_old(self) -> None:
        """Of a queue whose lock has lived its time another member may know better."""
        for queue, inflight in list(self.leaving.items()):
            if self._locks is not None and self._locks.age_s(inflight) >= LOCK_LIFE_S:
                log.warning("a message was in hand for longer than the lock of its queue lives queue=%s", queue)
                del self.leaving[queue]
                inflight.drop()

    async def _unlock(self, free: Iterable[InFlight]) -> None:
        queues = [inflight.queue for inflight in free if inflight.is_locked]
        if self._locks is not None and queues:
            await self._locks.unlock(queues)


def progress_of(queues: Iterable[InFlight]) -> dict[MessageQueue, int]:
    """How far queues are settled; of one whose lock was lost another member may know better."""
    return {inflight.queue: inflight.commit_offset for inflight in queues if inflight.is_locked}
