"""Attributes of topics and groups: how a change is written, and which ones mean something here.

A change is a list of `+key=value` (set) and `-key` (take away); kept is key → value. RocketMQ has attributes for things
that are not here; asking for one of those is refused, because an order that is silently not carried out is worse.
"""

from collections.abc import Mapping

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode

Known = Mapping[str, frozenset[str] | None]  # key → the values that can be honoured; None for a whole number

TOPIC_ATTRIBUTES: Known = {
    "message.type": frozenset(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")),
    "queue.type": frozenset(("SimpleCQ",)),
    "cleanup.policy": frozenset(("DELETE",)),
    "reserve.time": None,
}
# None of RocketMQ's (priorities, lite topics) has its feature here.
GROUP_ATTRIBUTES: Known = {}


def parse_change(text: str | None) -> dict[str, str]:
    """`+a=1,-b` → `{"+a": "1", "-b": ""}`; raises Refusal."""
    change: dict[str, str] = {}
    for part in (text or "").split(","):
        key, equals, value = part.strip().partition("=")
        if not part.strip():
            continue
        if key[:1] != ("+" if equals else "-"):
            raise _refusal(f"attribute {part.strip()!r} is neither +key=value nor -key")
        if key in change:
            raise _refusal(f"attribute {key!r} is given twice")
        change[key] = value
    return change


def altered(current: Mapping[str, str], change: Mapping[str, str], known: Known) -> dict[str, str]:
    """The attributes after a change; raises Refusal, and then nothing of it holds."""
    result = dict(current)
    for signed, value in change.items():
        sign, key = signed[:1], signed[1:]
        if sign == "-":
            if key not in current:
                raise _refusal(f"attribute {key!r} cannot be taken away: it is not set")
            del result[key]
        elif sign == "+":
            _check(key, value, known)
            result[key] = value
        else:
            raise _refusal(f"attribute {signed!r} must begin with + to be set or with - to be taken away")
    return result


def _check(key: str, value: str, known: Known) -> None:
    if key not in known:
        allowed = f"known are {', '.join(known)}" if known else "none is known for it"
        raise _refusal(f"attribute {key!r} has no effect here; {allowed}")
    values = known[key]
    if values is None:
        if not (value.isascii() and value.isdecimal() and len(value) < 19):
            raise _refusal(f"attribute {key!r} must be a whole number, not {value!r}")
    elif value not in values:
        raise _refusal(f"attribute {key!r} cannot be {value!r} here; it can be {', '.join(sorted(values))}")


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
