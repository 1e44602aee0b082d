"""What was seen in the last day, in arrays that have an end.

A series keeps some numbers at a time: every 15 s for an hour, every minute for six, every five minutes for a day. There
are so many series at most; the one that was silent for longest makes room. A restart loses them all.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SPANS_S = {"1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600}
STEPS_S = {"1h": 15, "6h": 60, "24h": 300}
SERIES_MAX = 1_000
UNKNOWN = float("nan")


class Ring:
    """The last so many points, one for each step of time."""

    __slots__ = ("_begin", "_count_max", "_last_step", "_points", "_step_s", "_width")

    def __init__(self, step_s: int, count_max: int, width: int) -> None:
        self._step_s = step_s
        self._count_max = count_max
        self._width = width + 1  # and the time
        self._points = array("d")
        self._begin = 0  # where the oldest point stands, once it is full
        self._last_step = -1

    def add(self, at_s: float, values: Sequence[float]) -> None:
        """Keep the values, if they are the first of their step."""
        step = int(at_s // self._step_s)
        if step == self._last_step:
            return
        self._last_step = step
        point = array("d", (at_s, *values))
        if len(self._points) < self._count_max * self._width:
            self._points.extend(point)
        else:
            self._points[self._begin : self._begin + self._width] = point
            self._begin = (self._begin + self._width) % len(self._points)

    def columns(self, since_s: float) -> list[list[float]]:
        """Times and values from then on, each a list, oldest first."""
        whole = self._points[self._begin :] + self._points[: self._begin]
        columns = [list(whole[number :: self._width]) for number in range(self._width)]
        first = next((place for place, at_s in enumerate(columns[0]) if at_s >= since_s), len(columns[0]))
        return [column[first:] for column in columns]


class Series:
    """The numbers of one thing."""

    __slots__ = ("_rings", "active_s")

    def __init__(self, width: int) -> None:
        self._rings = {name: Ring(step, SPANS_S[name] // step, width) for name, step in STEPS_S.items()}
        self.active_s = 0.0

    def add(self, at_s: float, values: Sequence[float], *, is_active: bool = True) -> None:
        if is_active or not self.active_s:
            self.active_s = at_s
        for ring in self._rings.values():
            ring.add(at_s, values)

    def columns(self, span: str, now_s: float) -> list[list[float]]:
        """Times and values of the last `1h`, `6h` or `24h`."""
        return self._rings[span].columns(now_s - SPANS_S[span])


@dataclass(frozen=True, slots=True)
class Trend:
    """Where a number goes: the last hour of it, and a word."""

    points: tuple[float, ...]
    word: str  # growing, steady, shrinking, or nothing where too little is known


class Shelf:
    """All series of one kind. Who makes room is found once for each time, not once for each series that has none."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._idle: list[tuple[float, str]] = []  # as they were when they were sorted, the most idle last
        self._sorted_s = -1.0
        self.series: dict[str, Series] = {}

    def has_room(self, at_s: float) -> bool:
        """Whether there is room for one more; one that was silent before this time makes it."""
        while len(self.series) >= self._series_max:
            if not self._idle:
                if self._sorted_s == at_s:
                    return False  # all are as busy as the one that wants to come
                self._sorted_s = at_s
                known = ((series.active_s, name) for name, series in self.series.items() if series.active_s < at_s)
                self._idle = sorted(known, reverse=True)
                continue
            active_s, name = self._idle.pop()
            series = self.series.get(name)
            if series is not None and series.active_s == active_s:
                del self.series[name]
        return True


class History:
    """Series by kind and name."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._kinds: dict[str, Shelf] = {}

    def add(self, kind: str, name: str, at_s: float, values: Sequence[float], *, is_active: bool = True) -> None:
        """Keep what is known of a thing now."""
        shelf = self._kinds.get(kind)
        if shelf is None:
            shelf = self._kinds[kind] = Shelf(self._series_max)
        series = shelf.series.get(name)
        if series is None:
            is_full = len(shelf.series) >= self._series_max
            if is_full and not (is_active and shelf.has_room(at_s)):
                return
            series = shelf.series[name] = Series(len(values))
        series.add(at_s, values, is_active=is_active)

    def columns(self, kind: str, name: str, span: str, now_s: float) -> list[list[float]]:
        """Times and values; empty lists where nothing is kept."""
        shelf = self._kinds.get(kind)
        series = None if shelf is None else shelf.series.get(name)
        return series.columns(span, now_s) if series is not None else []

    def trend(self, kind: str, name: str, now_s: float, *, column: int = 1, count_max: int = 60) -> Trend:
        """The last hour of one number, thinned to so many points."""
        columns = self.columns(kind, name, "1h", now_s)
        if not columns or len(columns[0]) < 2:
            return Trend((), "")
        values = [value for value in columns[column] if value == value]
        step = max(1, -(-len(values) // count_max))
        return Trend(tuple(values[::-step][::-1]), direction(values))

    def forget(self, kind: str, names: Iterable[str]) -> None:
        """Drop what is no longer there."""
        if (shelf := self._kinds.get(kind)) is not None:
            for name in names:
                shelf.series.pop(name, None)

    def count(self, kind: str) -> int:
        shelf = self._kinds.get(kind)
        return 0 if shelf is None else len(shelf.series)


def direction(values: Sequence[float]) -> str:
    """Whether a number grew over its last quarter, by more than a tenth of what it was at most."""
    if len(values) < 2:
        return ""
    recent = values[-max(2, len(values) // 4) :]
    change, largest = recent[-1] - recent[0], max(values)
    if not largest or abs(change) <= largest / 10:
        return "steady"
    return "growing" if change > 0 else "shrinking"
