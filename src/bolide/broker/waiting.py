"""Where a message goes that is not to be delivered yet: the one place that decides it, for everybody who stores one.

A send, a message sent back for a retry and a committed transaction all come through `divert` on their way to the store,
as in RocketMQ every put does. A message with a delay level (1 to 18, more is clamped) waits in the schedule topic, in
the queue of its level; where it really belongs stands in two properties until it is due.
"""

from typing import NamedTuple

from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.topics import SCHEDULE_TOPIC
from bolide.protocol.codes import ResponseCode
from bolide.store.config import delays_ms_of

TIMER_PREFIX = "TIMER_"


class Destination(NamedTuple):
    """Where a message is stored, and with which properties."""

    topic: str
    queue_id: int
    properties: dict[str, str]


class Waiting:
    """Diverts what has to wait. Given the levels in force, as the store's configuration writes them."""

    def __init__(self, delay_levels: str) -> None:
        self._level_max = len(delays_ms_of(delay_levels))

    def divert(self, topic: str, queue_id: int, properties: dict[str, str]) -> Destination:
        """Where the message is stored: where it belongs, or where it waits. The given map is left as it is."""
        level = min(_delay_level(properties), self._level_max)
        if level <= 0:
            return Destination(topic, queue_id, properties)
        waiting = {name: value for name, value in properties.items() if not name.startswith(TIMER_PREFIX)}
        waiting |= {names.DELAY: str(level), names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
        return Destination(SCHEDULE_TOPIC, level - 1, waiting)


def _delay_level(properties: dict[str, str]) -> int:
    text = properties.get(names.DELAY, "0")
    try:
        return int(text)
    except ValueError:
        remark = f"a delay level of {text[:20]!r}; it must be a number, 1 to 18"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark) from None
