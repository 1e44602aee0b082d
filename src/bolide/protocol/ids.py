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
import time
from threading import Lock
from typing import NamedTuple

from bolide.clock import Clock

_COUNTER_LIMIT = 0x1_0000
_HANDLE_VERSION = "v1"


class UniqueIds:
    """Gives out ids, from any thread, and none twice in a month.

    Its time never goes back, and when a millisecond has no counter left it goes ahead by one: a clock that steps or
    stands still makes ids whose time is not quite true, never two alike. A forked child needs its own, with its own
    process id.
    """

    def __init__(self, ip: bytes, process_id: int, constant: int, clock: Clock) -> None:
        """`ip` is packed; empty when no address is known, then the clock's low bytes stand in for it, as in Java."""
        ip = ip or (clock.now_ms() & 0xFFFF_FFFF).to_bytes(4, "big")
        self._prefix = f"{ip.hex()}{process_id & 0xFFFF:04x}{constant & 0xFFFF_FFFF:08x}".upper()
        self._clock = clock
        self._lock = Lock()
        self._now_ms = self._month_start_ms = self._month_end_ms = 0
        self._counter = 0
        self._left_this_ms = 0

    def next(self) -> str:
        with self._lock:
            self._move_time()
            since_month_ms = (self._now_ms - self._month_start_ms) & 0xFFFF_FFFF
            text = f"{self._prefix}{since_month_ms:08X}{self._counter:04X}"
            self._counter = (self._counter + 1) % _COUNTER_LIMIT
            self._left_this_ms -= 1
        return text

    def _move_time(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms > self._now_ms or not self._left_this_ms:
            self._now_ms = max(now_ms, self._now_ms + 1)
            self._left_this_ms = _COUNTER_LIMIT
        if self._now_ms >= self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(self._now_ms)


def _month_around(now_ms: int) -> tuple[int, int]:
    """Where the local month of `now_ms` begins, and where the next one does."""
    year, month = time.localtime(now_ms // 1000)[:2]
    first_s = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    next_s = time.mktime((year, month + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(first_s) * 1000, int(next_s) * 1000


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
