"""Messages that are to come later, and taking them back.

`delay` and `deliver_at` become the properties of RocketMQ 5's timer, to the second; `delay_level` is one of the fixed
delays that brokers of every version have. A delay counts from the moment in which the broker takes the message, a time
is a time whatever happens on the way. A broker of 4.x does not know the timer and delivers at once: use levels there.

A timed message has a handle in its receipt. Anyone who gives it back in time has the message recalled: it is never
delivered. Which topic and broker it concerns stands in the handle itself.
"""

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from bolide.client.access import failure_of
from bolide.client.careless import nearest
from bolide.client.instance import Instance
from bolide.client.options import SubmitOptions, When
from bolide.client.sending.durations import delay_s_of, finite, wrong
from bolide.client.sending.parts import Parts
from bolide.errors import ClientError
from bolide.model import properties as names
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import RecallMessageRequest
from bolide.protocol.ids import RecallHandle, parse_recall_handle

if TYPE_CHECKING:
    from bolide.client.tracing import Tracing

_OPTIONS = (*SubmitOptions.__annotations__, "timeout_s")


def timed(when: When, parts: Parts) -> Parts:
    """The parts of a send, with the properties that say when it is to come."""
    return parts.with_properties(properties_of(when))


def properties_of(when: When) -> dict[str, str]:
    """The properties by which brokers know when; raises ClientError for what cannot be meant."""
    if unknown := when.keys() - When.__annotations__.keys():
        # Any keyword that a send does not know ends here, and would be lost without a word.
        raise TypeError(f"a send has no option {min(unknown)!r}{nearest(min(unknown), _OPTIONS)}")
    given = {name: value for name, value in when.items() if value is not None}
    if len(given) > 1:
        raise wrong(f"{' and '.join(given)} were given; one of them says when")
    if "delay_level" in given:
        return _level_properties(when["delay_level"])
    if "delay" in given:
        return _delay_properties(when["delay"])
    if "deliver_at" in given:
        at = when["deliver_at"]
        seconds = at.timestamp() if isinstance(at, datetime) else finite("deliver_at", at)
        return {names.TIMER_DELIVER_AT: str(math.ceil(seconds * 1000))}
    return {}


def _level_properties(level: object) -> dict[str, str]:
    if isinstance(level, bool) or not isinstance(level, int) or level < 0:
        raise wrong(f"delay_level {level!r}; it is a number, 1 to 18 with RocketMQ's levels, or 0 for at once")
    return {names.DELAY: str(level)} if level else {}


def _delay_properties(delay: float | timedelta) -> dict[str, str]:
    delay_ms = math.ceil(round(delay_s_of(delay) * 1000, 3))
    if not delay_ms:
        return {}
    if delay_ms % 1000 == 0:  # the first 5.x brokers know whole seconds alone
        return {names.TIMER_DELAY_S: str(delay_ms // 1000)}
    return {names.TIMER_DELAY_MS: str(delay_ms)}


async def recall(instance: Instance, group: str, handle: str, timeout_s: float, tracing: "Tracing | None") -> str:
    """Have a message recalled whose topic is known; returns its id."""
    known = recalled(handle)
    address = await instance.found_address(known.topic, known.broker_name)
    header = RecallMessageRequest(producer_group=group, topic=known.topic, recall_handle=handle)
    command = Command(RequestCode.RECALL_MESSAGE, fields=header.encode())
    answer = await instance.request(address, command, timeout_s)
    is_success = answer.code == ResponseCode.SUCCESS
    if tracing is not None:
        region = answer.fields.get(names.REGION)
        tracing.recalled(known.topic, known.unique_id, region, is_success=is_success)
    if not is_success:
        raise failure_of(answer)
    return answer.fields.get("msgId", known.unique_id)


def recalled(handle: str) -> RecallHandle:
    """What a handle says: the topic and the broker of its message."""
    known = parse_recall_handle(handle)
    if known is None:
        remark = f"{handle[:40]!r} is no recall handle; it stands in the receipt of a timed message"
        raise ClientError(remark, ResponseCode.ILLEGAL_OPERATION)
    return known
