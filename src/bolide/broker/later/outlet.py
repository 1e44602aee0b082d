"""Where messages go that are due: a master stores them again, a slave that acts for one has other masters store them.

A slave cannot write its log, which is its master's. So what is due there is sent away (`escape.py`), some messages at
a time. A batch counts as far as all before it are stored; those behind one that nobody takes are remembered, and not
sent again when that one is tried again. What was sent when the slave stops, or its master comes back, is not: it may
come twice, and nothing is lost.
"""

import asyncio

from bolide.broker.intake import Intake
from bolide.broker.later.escape import Escape, Escaping
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.kernel.layout import ENTRY_SIZE, Tally
from bolide.protocol.codes import ResponseCode
from bolide.store.redelivery import NOBODY, Redelivered, due_draft

_AT_ONCE_MAX = 32
_ROLE_CHANGED = "this broker is a slave, and its master delivers what is due"


class Outlet:
    """Delivers for delay levels and the timer."""

    def __init__(self, state: BrokerState, intake: Intake, escape: Escape | None = None) -> None:
        self._role = state.role
        self._store = state.store
        self._intake = intake
        self._escape = escape
        self._sent: dict[bytes, Tally | None] = {}  # entries that are stored elsewhere, behind one that is not
        state.role.listen(lambda old, new: self._sent.clear())

    async def redeliver(
        self,
        entries: bytes | memoryview,
        stamp_ms: int = -1,
        rolls: bool = False,
        recalled: frozenset[bytes] = NOBODY,
    ) -> Redelivered:
        """Deliver the first of the entries; raises Refusal where that cannot be done now. A master never waits here."""
        role = self._role.now
        if role.is_leading or self._escape is None:
            return self._intake.redeliver(entries, stamp_ms, rolls, recalled)
        if not role.is_escaping:
            raise Refusal(ResponseCode.SYSTEM_BUSY, _ROLE_CHANGED)
        first = entries[: _AT_ONCE_MAX * ENTRY_SIZE]
        cut = [bytes(first[at : at + ENTRY_SIZE]) for at in range(0, len(first), ENTRY_SIZE)]
        sends = (self._send(self._escape, entry, stamp_ms, rolls, recalled) for entry in cut)
        outcomes = await asyncio.gather(*sends)
        if self._role.now is not role:
            raise Refusal(ResponseCode.SYSTEM_BUSY, _ROLE_CHANGED)
        return self._counted(cut, outcomes)

    def _counted(self, cut: list[bytes], outcomes: list[Tally | Refusal | None]) -> Redelivered:
        """How many were stored before the first that nobody took."""
        seen, tallies = 0, list[Tally]()
        for entry, outcome in zip(cut, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                break
            seen += 1
            self._sent.pop(entry, None)
            if outcome is not None:
                tallies.append(outcome)
        for entry, outcome in zip(cut[seen:], outcomes[seen:], strict=True):
            if not isinstance(outcome, Refusal):
                self._sent[entry] = outcome
        if not seen and isinstance(outcomes[0], Refusal):
            raise outcomes[0]
        return Redelivered(seen, tallies, self._store.log_end)

    async def _send(
        self, escape: Escape, entry: bytes, stamp_ms: int, rolls: bool, recalled: frozenset[bytes]
    ) -> Tally | Refusal | None:
        """What is counted of an entry, nothing where there is no message; or why it must wait."""
        if entry in self._sent:
            return self._sent[entry]
        draft, tally = due_draft(self._store, entry, stamp_ms, recalled)
        try:
            if draft is not None:
                await escape.send(draft, Escaping.TIMED if rolls else Escaping.DELIVERED)
        except Refusal as refusal:
            return refusal
        return tally
