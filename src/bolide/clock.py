"""The only reader of the system clock.

Anyone who needs the time is given a `Clock`; a test gives one that it holds (`bolide.testing`). Wall time is for what
is written down or shown; monotonic time is for durations, because the wall clock may jump.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in milliseconds as RocketMQ writes it, and a steady one in seconds."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)  # every read and every write asks: it is no call of Python's
