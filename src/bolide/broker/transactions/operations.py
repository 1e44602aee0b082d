"""The op queue: which half messages were decided, for the next start on this store.

A record is a message with the tag `d` and a body of half queue offsets, each with a comma behind it: `17,18,25,`, as
5.1 and later write it. Brokers before that wrote one number and no comma, which is read too; they cannot read a list,
and ask once more. Offsets are gathered and written when their text is long or old enough. What a crash loses of them
only has somebody asked that answered already; what was committed is in the log.

One gap is known: a record is not held back until what it notes is durable. A power cut that takes the page of a
committed copy and leaves the page of its record, some seconds younger, leaves that transaction decided and undelivered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable

from bolide.broker.intake import Intake
from bolide.broker.state import BrokerState
from bolide.broker.transactions.halves import HALF_QUEUE_ID
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.topics import OP_HALF_TOPIC
from bolide.protocol.properties import encode_properties
from bolide.store.record import Draft

TAG = "d"
_DIGITS_MAX = 18
_PROPERTIES = encode_properties({names.TAGS: TAG, names.WAIT: "true"})
log = logging.getLogger(__name__)


class Operations:
    """Gathers what was decided, and writes it."""

    def __init__(self, state: BrokerState, intake: Intake) -> None:
        self._intake = intake
        self._settings = state.settings
        self._store = state.store
        self._clock = state.clock
        self._gathered = bytearray()  # as a record says it
        self._timer: asyncio.TimerHandle | None = None
        # Each record in the queue that is needed still: its offset there, and the highest half offset in it.
        self._written: deque[tuple[int, int]] = deque()

    def add(self, offsets: Collection[int]) -> None:
        """These half messages are decided."""
        self._gathered += b"%d," * len(offsets) % tuple(offsets)
        config = self._settings.now
        while len(self._gathered) > config.op_size_max and self._write():
            pass
        if self._gathered and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(config.op_interval_ms / 1000, self._write_late)

    def flush(self) -> None:
        """Write what was gathered, for the stop."""
        while self._gathered and self._write():
            pass

    def _write_late(self) -> None:
        self._timer = None
        if self._write() and not self._gathered:
            return
        self.add(())

    def _write(self) -> bool:
        """Write one record; false if the store takes nothing now, then they stay for the next time."""
        if not self._gathered:
            return False
        config = self._settings.now
        body = _body(self._gathered, min(config.op_size_max, config.store.body_size_max - _DIGITS_MAX - 1))
        store_host = self._store.store_host
        draft = Draft(OP_HALF_TOPIC, HALF_QUEUE_ID, body, _PROPERTIES, 0, 0, self._clock.now_ms(), store_host)
        try:
            appended = self._intake.append_own([draft])
        except Refusal as refusal:
            count = self._gathered.count(b",")
            log.warning("decided transactions not noted yet count=%d problem=%s", count, refusal.remark)
            return False
        del self._gathered[: len(body)]
        self.know(appended.queue_offsets[0], map(int, body[:-1].split(b",")))
        if self._timer is not None and not self._gathered:
            self._timer.cancel()
            self._timer = None
        return True

    def know(self, op_offset: int, half_offsets: Iterable[int]) -> None:
        """A record in the queue says this."""
        self._written.append((op_offset, max(half_offsets, default=-1)))

    def settled_to(self, base: int, end: int) -> int:
        """The first op offset that is needed still when all half messages below `base` are settled."""
        while self._written and self._written[0][1] < base:
            self._written.popleft()
        return self._written[0][0] if self._written else end


def _body(gathered: bytearray, size_max: int) -> bytes:
    """The next record, as long as it may be and a number more, as Java cuts it."""
    cut = gathered.find(b",", max(size_max - 1, 0)) + 1
    return bytes(gathered[:cut] if cut else gathered)


def read_offsets(body: bytes) -> list[int]:
    """The half offsets in a record; what is no number is passed over."""
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) <= _DIGITS_MAX]
