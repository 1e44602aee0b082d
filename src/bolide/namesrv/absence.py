"""Why a topic has no route, and the command that helps.

A name server that answers "no route" knows more than that: whether any broker is there, whether one that had the topic
left, when and how. It is told once, to the one who asks, in the remark of the answer. Brokers that left are remembered
with the topics they had until they return; the memory is small and bounded, the oldest go first.
"""

import shlex

from bolide.model.topics import AUTO_CREATE_TOPIC
from bolide.namesrv.entries import Cause, Departure
from bolide.namesrv.routes import RouteTables
from bolide.namesrv.shares import topics_size

NAMES_MAX = 64
SIZE_MAX = 16 * 1024 * 1024  # as `shares.py` reckons
TOLD_FOR_MS = 3_600_000
_SHOWN_NAMES_MAX = 3
_SHOWN_TOPIC_LENGTH_MAX = 255


class Departures:
    """The brokers that left and have not come back, the latest last."""

    def __init__(self, names_max: int = NAMES_MAX, size_max: int = SIZE_MAX) -> None:
        self._names_max = names_max
        self._size_max = size_max
        self._size = 0
        self._by_name: dict[str, Departure] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def remember(self, departure: Departure) -> None:
        """Keep a departure that took its broker name with it; one that left others of its name is no loss of topics."""
        self.forget(departure.name)
        self._by_name[departure.name] = departure
        self._size += _size_of(departure)
        while self._by_name and (len(self._by_name) > self._names_max or self._size > self._size_max):
            self.forget(next(iter(self._by_name)))

    def forget(self, name: str) -> None:
        """The broker is back."""
        departure = self._by_name.pop(name, None)
        if departure is not None:
            self._size -= _size_of(departure)

    def with_topic(self, topic: str) -> Departure | None:
        """The latest broker to leave that had the topic."""
        return next((departure for departure in reversed(self._by_name.values()) if topic in departure.rows), None)

    def latest(self) -> Departure | None:
        return next(reversed(self._by_name.values()), None)

    def told(self, now_ms: int) -> list[tuple[str, str, str]]:
        """Who left within the last hour: name, address, and how. A broker that is gone for good is no news."""
        return [
            (departure.name, departure.address, f"{departure.cause} {_ago_s(departure, now_ms)} s ago")
            for departure in self._by_name.values()
            if now_ms - departure.at_ms < TOLD_FOR_MS
        ]


def _size_of(departure: Departure) -> int:
    return topics_size(departure.rows)


def explain(topic: str, tables: RouteTables, departures: Departures, here: str, now_ms: int) -> str:
    """The remark for a topic without a route; `here` is the address by which the asker reached us."""
    shown = topic[:_SHOWN_TOPIC_LENGTH_MAX]
    return f"no route for topic {shown!r}: {_cause(topic, shown, tables, departures, here, now_ms)}"


def _cause(topic: str, shown: str, tables: RouteTables, departures: Departures, here: str, now_ms: int) -> str:
    departure = departures.with_topic(topic)
    if departure is not None:
        return f"{_farewell(departure, 'which had it, ', now_ms)}; {_revival(departure, here)}"
    if not tables.brokers:
        latest = departures.latest()
        if latest is None:
            return f"no broker is registered with this name server; start one with: bolide broker -n {here}"
        farewell = _farewell(latest, "", now_ms)
        return f"no broker is registered with this name server any more; {farewell}; {_revival(latest, here)}"
    return _absence(topic, shown, tables, here)


def _farewell(departure: Departure, what: str, now_ms: int) -> str:
    ago_s = _ago_s(departure, now_ms)
    return f"broker {departure.name!r} ({departure.address}), {what}{departure.cause} {ago_s} s ago"


def _ago_s(departure: Departure, now_ms: int) -> int:
    silent_ms = departure.silent_ms if departure.cause is Cause.EXPIRED else 0
    return max(0, now_ms - departure.at_ms + silent_ms) // 1000


def _revival(departure: Departure, here: str) -> str:
    if departure.cause is Cause.EXPIRED:
        return f"see whether it still runs and reaches {here}, or start it again with: bolide broker -n {here}"
    return f"start it again with: bolide broker -n {here}"


def _absence(topic: str, shown: str, tables: RouteTables, here: str) -> str:
    known = f"{_listed(list(tables.clusters), 'cluster')}, {_listed(list(tables.brokers), 'broker')}"
    if topic == AUTO_CREATE_TOPIC:
        create = f"bolide topic create TOPIC -n {here}"
        return (
            f"no registered broker ({known}) creates topics by itself; set autoCreateTopicEnable=true there, "
            f"or create each topic with: {create}"
        )
    create = f"bolide topic create {shlex.quote(shown)} -n {here}"
    return (
        f"no registered broker has it ({known}); create it with: {create}; "
        "a broker with autoCreateTopicEnable=true creates it when the first message is sent"
    )


def _listed(names: list[str], word: str) -> str:
    more = f" and {len(names) - _SHOWN_NAMES_MAX} more" if len(names) > _SHOWN_NAMES_MAX else ""
    return f"{word}{'s' if len(names) > 1 else ''} {', '.join(names[:_SHOWN_NAMES_MAX])}{more}"
