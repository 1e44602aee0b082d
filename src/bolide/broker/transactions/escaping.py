"""The half messages of a slave that acts for its master: those that nobody decided are other masters' to ask about.

A slave ends no transaction, for it writes no log. So what is undecided when the acting begins goes to another master
that has the topic, as a half message, and that one asks the producers of its group. How far all is settled is noted as
after a round of checks (`checks.py`), and the master that returns asks for it: it does not ask about those again. One
that nobody takes is tried again with the next round. It keeps back what is noted, so that the master asks once more
about those that were taken behind it: the others have no log to be noted in.

The first round comes after one interval, as with RocketMQ: a master that was away for a moment decides for itself. A
transaction whose end is not in the op queue yet, which takes some seconds, or came too late for this slave, is asked
about too, and may come twice. RocketMQ gives one up after some tries, and its master then never asks about it.
"""

import asyncio
import logging
from functools import partial

from bolide.broker.later.escape import Escape, Escaping
from bolide.broker.state import BrokerState
from bolide.broker.transactions.checks import Checks
from bolide.broker.transactions.ended import MOVED, Ended
from bolide.broker.transactions.halves import HALVES, prepared_again
from bolide.errors import CorruptRecord, Refusal
from bolide.model.message import StoredMessage
from bolide.store.record import decode

_READ_COUNT = 32
_TASK = "broker.transactions"
log = logging.getLogger(__name__)


class HalfEscape:
    """The rounds; `ended` is what is known to be decided."""

    def __init__(self, state: BrokerState, ended: Ended, checks: Checks, escape: Escape) -> None:
        self._settings = state.settings
        self._store = state.store
        self._ended = ended
        self._checks = checks
        self._escape = escape

    async def run_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.now.transaction_check_interval_ms / 1000)
            await self.escape_all()

    async def escape_all(self) -> None:
        """One round: send away what is undecided, and note how far all is settled."""
        end, refused = self._store.max_offset(HALVES), list[int]()
        for slices in self._store.walk(HALVES, self._ended.base, end, _READ_COUNT):
            halves = [half for view in slices.views if (half := self._undecided(view)) is not None]
            outcomes = await asyncio.gather(*map(self._is_taken, halves))
            for half, is_taken in zip(halves, outcomes, strict=True):
                if is_taken:
                    self._ended.mark(half.queue_offset, MOVED)
                else:
                    self._ended.wait(half.queue_offset)
                    refused.append(half.queue_offset)
        self._checks.settle(end)
        self._ended.wake(refused)

    def _undecided(self, view: memoryview) -> StoredMessage | None:
        half = None
        if self._ended.is_due(int.from_bytes(view[20:28], "big")):
            with self._store.mishaps.passing_over(_TASK, partial("a half message behind {}".format, self._ended.base)):
                half = decode(view)
        return half

    async def _is_taken(self, half: StoredMessage) -> bool:
        try:
            await self._escape.send(prepared_again(half), Escaping.HALF)
        except (CorruptRecord, Refusal) as problem:
            log.warning("a half message waits id=%s problem=%s", half.unique_id, problem)
            return False
        return True
