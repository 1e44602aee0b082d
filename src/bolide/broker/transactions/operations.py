"""The op queue: which half messages were decided, for whoever opens this store next.

A record is a message with the tag `d` and a body of half queue offsets, each with a comma behind it: `17,18,25,`, as
5.1 and later write it. Brokers before that wrote one number and no comma, which is read too; they cannot read a list,
and ask once more. Offsets are gathered and written when their text is long or old enough. What a crash loses of them
only has somebody asked who has answered already; what was committed is in the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable

from bolide.broker.config import CurrentConfig
from bolide.broker.transactions.halves import HALF_QUEUE_ID
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.topics import OP_HALF_TOPIC
from bolide.protocol.properties import encode_properties
from bolide.store.record import Draft
from bolide.store.store import Store

TAG = "d"
_DIGITS_MAX = 18
_PROPERTIES = encode_properties({names.TAGS: TAG, names.WAIT: "true"})
log = logging.getLogger(__name__)


class Operations:
    """Gathers what was decided, and writes it."""

    def __init__(self, current: CurrentConfig, store: Store, clock: Clock) -> None:
        self._current = current
        self._store = store
        self._clock = clock
        self._offsets: deque[int] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        # Each record in the queue that is needed still: its offset there, and the highest half offset in it.
        self._written: deque[tuple[int, int]] = deque()

    def add(self, offsets: Collection[int]) -> None:
        """These half messages are decided."""
        self._offsets.extend(offsets)
        self._size += sum(map(len, map(str, offsets))) + len(offsets)
        config = self._current.config
        while self._size > config.op_size_max and self._write():
            pass
        if self._offsets and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(config.op_interval_ms / 1000, self._write_late)

    def flush(self) -> None:
        """Write what was gathered, for the stop."""
        while self._offsets and self._write():
            pass

    def _write_late(self) -> None:
        self._timer = None
        if self._write() and not self._offsets:
            return
        self.add(())

    def _write(self) -> bool:
        """Write one record; false if the store takes nothing now, then they stay for the next time."""
        if not self._offsets:
            return False
        body, taken = _body(self._offsets, self._current.config.op_size_max)
        store_host = self._store.store_host
        draft = Draft(OP_HALF_TOPIC, HALF_QUEUE_ID, body, _PROPERTIES, 0, 0, self._clock.now_ms(), store_host)
        try:
            appended = self._store.append([draft])
        except Refusal as refusal:
            self._offsets.extendleft(reversed(taken))
            log.warning("decided transactions not noted yet count=%d problem=%s", len(self._offsets), refusal.remark)
            return False
        self._size -= len(body)
        self.know(appended.queue_offsets[0], taken)
        if self._timer is not None and not self._offsets:
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


def _body(offsets: deque[int], size_max: int) -> tuple[bytes, list[int]]:
    """The next record, as long as it may be and a number more, as Java cuts it; the offsets are taken out."""
    taken: list[int] = []
    size = 0
    while offsets and size < size_max:
        taken.append(offsets.popleft())
        size += len(str(taken[-1])) + 1
    return b"".join([b"%d," % offset for offset in taken]), taken


def read_offsets(body: bytes) -> list[int]:
    """The half offsets in a record; what is no number is passed over."""
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) <= _DIGITS_MAX]
