"""Names that clients make: the unique id of a message, and the handle to call a delayed one back.

The third id, where a record lies, is the broker's and follows from the record (`model/message.py`).

A unique id in upper-case hex, 32 digits with an IPv4 address and 56 with IPv6:

    address     4 or 16
    process     2       low bytes of the process id
    constant    4       tells two in one process apart; in Java the hash of the class loader
    time        4       milliseconds since the month began, local time
    counter     2
"""

import base64
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import NamedTuple

from bolide import kernel
from bolide.clock import Clock

_COUNTER_BITS = 16
_COUNTER_MAX = 0xFFFF
_HANDLE_VERSION = "v1"


class UniqueIds:
    """Gives out ids, none twice in a month. Threads may share one; a forked child needs its own, with its process id.

    Its time never goes back, and moves on by one when a millisecond has no counter left: a clock that steps or stands
    still makes ids whose time is not quite true, never two alike. No lock is needed, because the count is taken in one
    step and the time follows from it.
    """

    def __init__(self, ip: bytes, process_id: int, constant: int, clock: Clock) -> None:
        """`ip` is packed; empty when no address is known, then the clock's low bytes stand in for it, as in Java."""
        ip = ip or (clock.now_ms() & 0xFFFF_FFFF).to_bytes(4, "big")
        self._prefix = f"{ip.hex()}{process_id & 0xFFFF:04x}{constant & 0xFFFF_FFFF:08x}".upper()
        self._clock = clock
        self._count = count()
        self._tick = (0, 0)  # a time, and how many ids there were before it
        self._month = (0, 0)

    def next(self) -> str:
        return self._id(next(self._count))

    def many(self, count: int) -> list[str]:
        """As many ids as asked for, with one look at the clock."""
        numbers = list(islice(self._count, count))
        first, last = numbers[0], numbers[-1]
        at_ms = self._time_of(first)
        tick_ms, tick_first = self._tick
        steps = first - tick_first >> _COUNTER_BITS, last - tick_first >> _COUNTER_BITS
        is_one_time = steps[0] == steps[1] and at_ms == tick_ms + steps[0]
        if not is_one_time or last - first != count - 1:  # the counter ran out, or another thread came between
            return [self._id(number) for number in numbers]
        return kernel.unique_ids(self._prefix, self._since_month(at_ms), first, count)

    def _id(self, number: int) -> str:
        at_ms = self._time_of(number)
        month_start_ms, month_end_ms = self._month
        since_ms = at_ms - month_start_ms if month_start_ms <= at_ms < month_end_ms else self._since_month(at_ms)
        return f"{self._prefix}{since_ms:08X}{number & _COUNTER_MAX:04X}"

    def _since_month(self, at_ms: int) -> int:
        month_start_ms, month_end_ms = self._month
        if not month_start_ms <= at_ms < month_end_ms:
            month_start_ms, _ = self._month = _month_around(at_ms)
        return at_ms - month_start_ms

    def _time_of(self, number: int) -> int:
        tick_ms, first = self._tick
        at_ms = tick_ms + (number - first >> _COUNTER_BITS)
        now_ms = self._clock.now_ms()
        if now_ms > at_ms:
            self._tick = (now_ms, number)
            return now_ms
        return at_ms


def _month_around(now_ms: int) -> tuple[int, int]:
    """Where the local month of `now_ms` begins, and where the next one does."""
    local = datetime.fromtimestamp(now_ms // 1000, UTC).astimezone().replace(tzinfo=None)
    # Without a zone a time is local; with one it would keep today's offset, which need not be that of the first.
    first = local.replace(day=1, hour=0, minute=0, second=0)
    next_first = (first + timedelta(days=32)).replace(day=1)
    return int(first.timestamp()) * 1000, int(next_first.timestamp()) * 1000


class RecallHandle(NamedTuple):
    """What a delayed send is answered with, and what the request to call it back carries."""

    topic: str
    broker_name: str
    deliver_at: int
    unique_id: str


def encode_recall_handle(handle: RecallHandle) -> str:
    text = " ".join((_HANDLE_VERSION, *map(str, handle)))
    return base64.urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle | None:
    """None when it is no handle that we know. The padding may be missing, for Java does without it too."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        parts = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except ValueError:
        return None
    if len(parts) != 5 or parts[0] != _HANDLE_VERSION or not all(parts):
        return None
    _, topic, broker_name, deliver_at, unique_id = parts
    # An int64 has 19 digits; more would be work for nothing.
    if not deliver_at.isdecimal() or len(deliver_at) > 19:
        return None
    return RecallHandle(topic, broker_name, int(deliver_at), unique_id)
