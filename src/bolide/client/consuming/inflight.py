"""What was pulled of one queue and is not settled yet; its lowest offset is how far the group may say it has come.

RocketMQ's ProcessQueue without its locks: everything here happens in one loop. Messages come in offset order, are
handed out in that order, and are settled in any order. A queue that went to another member is `dropped`: nothing of it
is handed out any more, and what is settled late counts for nothing.

An ordered queue is `leaving` before it is dropped: nothing of it is handed out any more either, but what is in the
user's hand is settled as ever, and the queue is free when that is done.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

from bolide.client.consuming.received import Decide, Received
from bolide.client.consuming.replies import Replies
from bolide.client.serializers import JSON, Serializer
from bolide.model.queue import MessageQueue


class InFlight:
    """One owned queue. `next_offset` is where the next pull begins."""

    def __init__(
        self, queue: MessageQueue, next_offset: int, decide: Decide, *, out_count_max: int | None = None
    ) -> None:
        """With `out_count_max` its messages are ordered: so few are out at once, and the next when all are settled."""
        self.queue = queue
        self.next_offset = next_offset
        self.decide = decide
        self.is_dropped = False
        self.is_paused = False
        self.is_leaving = False
        self.is_locked = True  # ordered consumption: the broker has given this queue to us; others need no lock
        self.locked_s = 0.0
        self.held_size = 0
        self.broker_id = 0  # where the last answer suggested to read
        self.pulled_s = 0.0
        self.taken_s = 0.0
        self.replier: Replies | None = None  # sends replies to requests of this queue
        self.serializer: Serializer = JSON
        self.returning_count = 0  # out with a verdict: on their way back to the broker, or resting here
        self.resting_count = 0  # of these: failed, and to be handed out here again
        self.on_drop: Callable[[], object] | None = None
        self.on_free: Callable[[], object] | None = None  # the last message in hand of a leaving queue was settled
        self._out_count_max = out_count_max
        self._out_count = 0
        self._waiting: deque[Received] = deque()
        self._order: deque[int] = deque()  # offsets from the lowest unsettled on, settled ones among them
        self._settled: set[int] = set()
        self._room = asyncio.Event()
        self._is_awaited = False

    def __len__(self) -> int:
        """Messages that are not settled."""
        return len(self._order) - len(self._settled)

    @property
    def span(self) -> int:
        """How far the newest message is from the oldest unsettled one."""
        return self._order[-1] - self._order[0] if self._order else 0

    @property
    def bounds(self) -> tuple[int, int]:
        """The offsets of the oldest unsettled message and of the newest."""
        return (self._order[0], self._order[-1]) if self._order else (0, 0)

    @property
    def commit_offset(self) -> int:
        """Everything below is settled."""
        return self._order[0] if self._order else self.next_offset

    @property
    def waiting_count(self) -> int:
        """Messages that were not handed out."""
        return len(self._waiting)

    @property
    def undecided_count(self) -> int:
        """Messages that were handed out and have no verdict."""
        return self._out_count - self.returning_count

    @property
    def in_hand_count(self) -> int:
        """Messages that somebody works on: a user, or what brings one to the dead letters."""
        return self._out_count - self.resting_count

    @property
    def has_ready(self) -> bool:
        """A message can be handed out now."""
        return (
            bool(self._waiting)
            and self.is_locked
            and not self.is_dropped
            and not self.is_paused
            and not (self._out_count and self._out_count_max is not None)
        )

    def add(self, messages: Sequence[Received], next_offset: int) -> None:
        """What a pull brought, and where the next one goes on."""
        self._waiting.extend(messages)
        self._order.extend([message.queue_offset for message in messages])
        self.held_size += sum([len(message.body) for message in messages])
        self.next_offset = next_offset

    def take(self, count_max: int) -> list[Received]:
        """The next messages to hand out, at most this many; fewer if the others have to wait for them."""
        if not self.has_ready:
            return []
        count = min(count_max, len(self._waiting), self._out_count_max or count_max)
        self._out_count += count
        waiting = self._waiting
        return [waiting.popleft() for _ in range(count)]

    def untake(self, messages: Sequence[Received]) -> None:
        """Messages that were taken, in their order, and not given to anybody."""
        if not self.is_dropped:
            self._out_count -= len(messages)
            if not self.is_leaving:
                self._waiting.extendleft(reversed(messages))
            self._look_if_free()

    def put_back(self, message: Received) -> None:
        """Hand a message out again, before all that follow it."""
        if self.is_leaving:
            self.untake((message,))
        elif not self.is_dropped:
            self._out_count -= 1
            message.verdict = None
            message.local_retry_count += 1
            insort(self._waiting, message, key=attrgetter("queue_offset"))

    def settle(self, message: Received) -> None:
        """A message is done with, for good or by having been sent back."""
        offset, order, settled = message.queue_offset, self._order, self._settled
        if self.is_dropped or not order:
            return
        first = order[0]
        if offset == first:
            order.popleft()
            while settled and order[0] in settled:
                settled.discard(order.popleft())
        elif offset < first or offset in settled:
            return
        else:
            settled.add(offset)
        self._out_count -= 1
        self.held_size -= len(message.body)
        if self._is_awaited:
            self.wake()
        if self.is_leaving:
            self._look_if_free()

    def leave(self) -> None:
        """The queue is to go to another member when what is in hand is settled; messages taken ahead come back."""
        self.is_leaving = self.is_paused = True
        self._waiting.clear()
        if self.on_drop is not None:
            self.on_drop()

    def _look_if_free(self) -> None:
        if self.on_free is not None and not self.in_hand_count:
            on_free, self.on_free = self.on_free, None
            on_free()

    def drop(self) -> None:
        """The queue is no longer ours, or is to be read from elsewhere."""
        self.is_dropped = True
        self._waiting.clear()
        if self.on_drop is not None:
            self.on_drop()

    async def room(self) -> None:
        """Wait until something was settled, or the queue changed."""
        self._is_awaited = True
        self._room.clear()
        await self._room.wait()

    def wake(self) -> None:
        """Have the puller look again."""
        self._is_awaited = False
        self._room.set()
