"""Where a message goes that is not to be delivered yet: the one place that decides it, for everybody who stores one.

A send, a message sent back for a retry and a committed transaction all come through `route` on their way to the store,
as in RocketMQ every put does. A message with a delay level (1 to 18, more is clamped) waits in the schedule topic, in
the queue of its level. A timed one, with a delay or a time of its own, waits in the timer's topic until it is filed;
its time is rounded so that it is never delivered before it. Where a message really belongs stands in two properties
until it is due. A message that comes from the timer has been there already: it keeps its time, and goes where it
belongs.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from bolide.broker.config import LiveConfig
from bolide.clock import Clock
from bolide.errors import Refusal
from bolide.model import properties as names
from bolide.model.topics import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.protocol.codes import ResponseCode
from bolide.protocol.ids import RecallHandle, encode_recall_handle
from bolide.store.config import delays_ms_of

TIMER_PREFIX = "TIMER_"
_DIGITS_MAX = 18


class Destination(NamedTuple):
    """Where a message is stored, and with which properties."""

    topic: str
    queue_id: int
    properties: dict[str, str]

    def recall_handle(self, broker_name: str, unique_id: str) -> str | None:
        """By which a timed message can be taken back; None for any other, and for one that is consumed again."""
        out_ms, topic = self.properties.get(names.TIMER_OUT_AT), self.properties.get(names.REAL_TOPIC)
        if self.topic != TIMER_TOPIC or out_ms is None or topic is None or topic.startswith(RETRY_PREFIX):
            return None
        # A millisecond more, which is rounded off again: the recall is filed in the slot of the message.
        return encode_recall_handle(RecallHandle(topic, broker_name, int(out_ms) + 1, unique_id))


class Timing:
    """The rules for timed messages; `load_at` tells how many wait for a moment already."""

    def __init__(self, settings: LiveConfig, clock: Clock, load_at: Callable[[int], int]) -> None:
        self._settings = settings
        self._clock = clock
        self._load_at = load_at

    def out_ms(self, properties: dict[str, str]) -> int | None:
        """In which slot a message waits; None for one that is due. Refusals have RocketMQ's codes."""
        config, now_ms = self._settings.now.store, self._clock.now_ms()
        due_ms = _due_ms(properties, now_ms)
        is_mark = names.TIMER_DELETE_UNIQUE_KEY in properties
        limit_ms = config.timer_delay_max_s * 1000
        if due_ms <= now_ms and not is_mark:
            return None
        if due_ms <= now_ms or due_ms - now_ms > limit_ms:
            remark = (
                f"timer message illegal: it is due in {(due_ms - now_ms) / 1000:.0f} s, at most "
                f"{config.timer_delay_max_s} s are allowed (timerMaxDelaySec)"
            )
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        step_ms = config.timer_step_ms
        out_ms = (due_ms - 1) // step_ms * step_ms  # a slot is delivered when its step has passed
        self._check_load(self._load_at(out_ms), config.timer_slot_count_max)
        return out_ms

    def _check_load(self, load: int, limit: int) -> None:
        """Beyond the limit more and more are refused, beyond twice as many all."""
        if load <= limit or (load < 2 * limit and random.randrange(limit) >= load - limit):
            return
        remark = (
            f"timer message is under flow control: {load} wait for the same moment, the limit is {limit} "
            "(timerCongestNumEachSlot); choose another one"
        )
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


class DelayRouter:
    """Diverts what has to wait. Given the levels in force, as the store's configuration writes them."""

    def __init__(self, delay_levels: str, timing: Timing | None = None) -> None:
        """Without `timing` there is no timer, and timed messages are refused."""
        self._level_max = len(delays_ms_of(delay_levels))
        self._timing = timing

    @property
    def has_timer(self) -> bool:
        """Whether a message can wait for any time, not for that of a level alone."""
        return self._timing is not None

    def route(self, topic: str, queue_id: int, properties: dict[str, str]) -> Destination:
        """Where the message is stored: where it belongs, or where it waits. The given map is left as it is."""
        home = {names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}
        level = min(_delay_level(properties), self._level_max)
        if level > 0:
            kept = {name: value for name, value in properties.items() if name not in names.TIMED_NAMES}
            return Destination(SCHEDULE_TOPIC, level - 1, {**kept, names.DELAY: str(level), **home})
        is_timed = names.TIMER_OUT_AT not in properties and not properties.keys().isdisjoint(names.TIMED_NAMES)
        if not is_timed or topic == TIMER_TOPIC:
            return Destination(topic, queue_id, properties)
        if self._timing is None:
            remark = "accurate timer message is not enabled here (timerWheelEnable); use a delay level"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        out_ms = self._timing.out_ms(properties)
        if out_ms is None:
            return Destination(topic, queue_id, properties)
        return Destination(TIMER_TOPIC, 0, {**properties, names.TIMER_OUT_AT: str(out_ms), **home})


def _delay_level(properties: dict[str, str]) -> int:
    text = properties.get(names.DELAY, "0")
    try:
        return int(text)
    except ValueError:
        remark = f"a delay level of {text[:20]!r}; it must be a number, 1 to 18"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark) from None


def _due_ms(properties: dict[str, str], now_ms: int) -> int:
    """When a timed message is due; of several names the first counts, as in RocketMQ."""
    for name, unit_ms, start_ms in (
        (names.TIMER_DELAY_S, 1000, now_ms),
        (names.TIMER_DELAY_MS, 1, now_ms),
        (names.TIMER_DELIVER_AT, 1, 0),
    ):
        if name in properties:
            text = properties[name]
            digits = text.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
                raise Refusal(
                    ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {name} is {text[:20]!r}, no number"
                )
            return start_ms + int(text) * unit_ms
    raise AssertionError("a timed message has one of the names")
