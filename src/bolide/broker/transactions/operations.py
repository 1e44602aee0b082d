"""The op queue: which half messages were decided, for the next start on this store.

A record is a message with the tag `d` and a body of half queue offsets, each with a comma behind it: `17,18,25,`, as
5.1 and later write it. Brokers before that wrote one number and no comma, which is read too; they cannot read a list,
and ask once more. Offsets are gathered and written when their text is long or old enough. What a crash loses of them
only has somebody asked that answered already; what was committed is in the log.

The rule: a record is written when all that was in the log when its transactions were decided is durable. A power cut
may take any page of what is not, and leave a younger one; a record that outlived a committed message would keep it from
ever being delivered, and one that outlived its half message would decide the next that gets its offset. To name each
copy in the record and look for it at the start, as pops do, would cost a read for each decision; and the text would be
no longer Java's. Under load the log is flushed twice a second and a record waits for that; else it asks for one sync
each time that it is due.
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
        # The sizes of what was gathered at a time, and up to where the log must be durable before it is written.
        self._held: deque[tuple[int, int]] = deque()
        self._ready_size = 0  # of what is not held any more, and lies before that
        self._timer: asyncio.TimerHandle | None = None
        self._flushed: asyncio.Future[None] | None = None
        # Each record in the queue that is needed still: its offset there, and the highest half offset in it.
        self._written: deque[tuple[int, int]] = deque()

    def add(self, offsets: Collection[int]) -> None:
        """These half messages are decided, and what that stores is in the log."""
        text = b"%d," * len(offsets) % tuple(offsets)
        self._gathered += text
        self._held.append((len(text), self._store.log_end))
        self._release()
        while self._ready_size > self._settings.now.op_size_max and self._write():
            pass
        self._plan()

    def forget(self) -> None:
        """What was gathered is nobody's: another broker decides, or the queue is read again."""
        self._gathered.clear()
        self._held.clear()
        self._ready_size = 0
        self._written.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def finish(self) -> None:
        """Write what was gathered, for the stop."""
        try:
            await self._store.durable()
        except Refusal as refusal:
            self._put_off(refusal)
        self._write_ready()

    def _plan(self) -> None:
        if self._gathered and self._timer is None and self._flushed is None:
            interval_s = self._settings.now.op_interval_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(interval_s, self._flush)

    def _flush(self) -> None:
        """They are due: have all of them made durable, with one sync, and written then."""
        self._timer = None
        self._flushed = self._store.when_durable(self._held[-1][1] if self._held else 0)
        self._flushed.add_done_callback(self._write_late)

    def _write_late(self, flushed: "asyncio.Future[None]") -> None:
        self._flushed = None
        if not flushed.cancelled() and isinstance(problem := flushed.exception(), Refusal):
            self._put_off(problem)
        self._write_ready()
        self._plan()

    def _put_off(self, refusal: Refusal) -> None:
        count = self._gathered.count(b",")
        log.warning("decided transactions not noted yet count=%d problem=%s", count, refusal.remark)

    def _release(self) -> None:
        """See how far the log is durable."""
        durable_end, held = self._store.durable_end, self._held
        while held and held[0][1] <= durable_end:
            self._ready_size += held.popleft()[0]

    def _write_ready(self) -> None:
        self._release()
        while self._ready_size and self._write():
            pass

    def _write(self) -> bool:
        """Write one record; false if the store takes nothing now, then they stay for the next time."""
        config = self._settings.now
        size_max = min(config.op_size_max, config.store.body_size_max - _DIGITS_MAX - 1)
        body = _body(self._gathered, self._ready_size, size_max)
        store_host = self._store.store_host
        draft = Draft(OP_HALF_TOPIC, HALF_QUEUE_ID, body, _PROPERTIES, 0, 0, self._clock.now_ms(), store_host)
        try:
            appended = self._intake.append_own([draft])
        except Refusal as refusal:
            self._put_off(refusal)
            return False
        del self._gathered[: len(body)]
        self._ready_size -= len(body)
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


def _body(gathered: bytearray, ready_size: int, size_max: int) -> bytes:
    """The next record, as long as it may be and a number more, as Java cuts it."""
    cut = gathered.find(b",", max(size_max - 1, 0), ready_size) + 1
    return bytes(gathered[: cut or ready_size])


def read_offsets(body: bytes) -> list[int]:
    """The half offsets in a record; what is no number is passed over."""
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) <= _DIGITS_MAX]
