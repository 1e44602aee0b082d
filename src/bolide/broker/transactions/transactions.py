"""The transactions of one broker, wired: half messages come in with the sends, their ends and the asking are here.

`load` runs before anything is served. It reads from the op queue what was decided before this start, and from the half
queue which records are copies of one transaction: one of them is decided with any of them, and only the newest is asked
about. The half queue is read backwards from its end to where it is settled, so that of each transaction the newest copy
comes first and only those that are copies need to be remembered.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager

from bolide.broker.intake import Intake
from bolide.broker.later.escape import Escape
from bolide.broker.state import BrokerState
from bolide.broker.transactions.checks import OPERATIONS, Checks
from bolide.broker.transactions.copies import Copies
from bolide.broker.transactions.ended import MOVED, Ended
from bolide.broker.transactions.escaping import HalfEscape
from bolide.broker.transactions.halves import CHECK_GROUP, HALVES, read_trace
from bolide.broker.transactions.operations import TAG, Operations, read_offsets
from bolide.broker.transactions.outcomes import Outcomes
from bolide.model.queue import QueueKey
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC
from bolide.remoting.handlers import Handler
from bolide.store.record import decode

_READ_COUNT = 32


class Transactions:
    """What the broker holds of it."""

    def __init__(self, state: BrokerState, intake: Intake) -> None:
        self._state = state
        self._store = state.store
        self._topics = state.topics
        self._offsets = state.offsets
        self.ended = Ended()
        self.operations = Operations(state, intake)
        self.checks = Checks(state, intake, self.ended, self.operations)
        self.outcomes = Outcomes(state, intake, self.ended, self.operations)

    def handlers(self) -> dict[int, Handler]:
        return self.outcomes.handlers()

    def forget(self) -> None:
        """Another broker is the master now, and decides."""
        self.ended.begin(0)
        self.operations.forget()
        self.checks.forget()

    async def load(self) -> None:
        """Learn what is decided, and which half messages are the same."""
        if self._store.queue(QueueKey(CHECK_EXHAUSTED_TOPIC, 0)) is not None:
            self._topics.ensure(CHECK_EXHAUSTED_TOPIC, 1)  # a crash may come between its first message and the table
        self.forget()
        self.ended.begin(self._settled(HALVES))
        end = self._store.max_offset(HALVES)
        async for views in self._slices(OPERATIONS, self._settled(OPERATIONS), self._store.max_offset(OPERATIONS)):
            for view in views:
                with self._passing_over(OPERATIONS):
                    self._take_in(view, end)
        copies = Copies(self.ended)
        for at in range(end, self.ended.base, -_READ_COUNT):
            begin = max(at - _READ_COUNT, self.ended.base)
            views = [view async for some in self._slices(HALVES, begin, at) for view in some]
            for view in reversed(views):
                with self._passing_over(HALVES):
                    copies.take_in(read_trace(view))
        self.ended.know_strays(copies.found)

    async def _slices(self, key: QueueKey, offset: int, end: int) -> AsyncIterator[list[memoryview]]:
        """The records of a stretch of a queue, some at a time, with a turn for others after each."""
        for slices in self._store.walk(key, offset, end, _READ_COUNT):
            yield slices.views
            await asyncio.sleep(0)

    def _passing_over(self, key: QueueKey) -> AbstractContextManager[None]:
        return self._store.mishaps.passing_over("broker.transactions", lambda: f"a record of {key.topic}, at the start")

    def _settled(self, key: QueueKey) -> int:
        """How far a queue was settled; from its beginning where that is lost, never beyond its end."""
        settled = self._offsets.get(CHECK_GROUP, key.topic, key.queue_id) or 0
        return max(self._store.min_offset(key), min(settled, self._store.max_offset(key)))

    def _take_in(self, view: memoryview, half_end: int) -> None:
        record = decode(view)
        # What lies behind the end of the half queue was not written by a broker.
        offsets = [each for each in read_offsets(record.body) if each < half_end] if record.tags == TAG else []
        for offset in offsets:
            self.ended.mark(offset, MOVED)
        self.operations.know(record.queue_offset, offsets)

    async def run_forever(self) -> None:
        """Ask about what is undecided, until cancelled; a slave asks nobody, its master does this."""
        await self.checks.run_forever()

    async def escape_forever(self, escape: Escape) -> None:
        """Have other masters ask about what is undecided, until cancelled; for a slave that acts for its master."""
        await HalfEscape(self._state, self.ended, self.checks, escape).run_forever()

    async def save(self) -> None:
        """Write what is decided to the op queue, for the stop; offsets are saved after it."""
        self.outcomes.finish()
        await self.operations.finish()
