"""How long something is to wait, as people say it: seconds, or a timedelta."""

import math
from datetime import timedelta

from bolide.errors import ClientError
from bolide.protocol.codes import ResponseCode


def delay_s_of(delay: float | timedelta) -> float:
    """The seconds of a delay; raises ClientError for what cannot be meant."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else finite("delay", delay)
    if seconds < 0:
        raise wrong(f"delay {delay!r}; nothing can come before now: give 0 or more seconds")
    return seconds


def finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise wrong(f"{name} {value!r}; it is a number of seconds")
    return float(value)


def wrong(why: str) -> ClientError:
    return ClientError(why, ResponseCode.MESSAGE_ILLEGAL)
