"""The page that Prometheus reads, as text: families, their series, and the bound on how many there are.

A server says which families it has, and for each gives its series one by one: a label text and a value. Nothing is kept
between two pages, and the text comes in pieces, so that a server with ten thousand topics can stop to serve somebody
after any of them.

Of the libraries that write this format `prometheus-client` was measured with 10,000 topics (110,000 lines): 1.79 s, in
one piece; these lines took 0.13 s, and OpenTelemetry's exporter goes through the former. The format is small.

    # HELP name what it is
    # TYPE name counter
    name{label="text",...} 26.0

A family with more series than `series_max` has one more, `otel_metric_overflow="true"`, as RocketMQ's library has it:
the sum of all that have no line of their own, or the largest of them where a sum says nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from bolide.metrics.values import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Sample = tuple[str, Value]  # a label text as `labels` makes it, and what it has
_UNITS = ("_milliseconds", "_seconds", "_bytes", "_microseconds")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_OVERFLOW = 'otel_metric_overflow="true"'
_INFINITE = {"inf": "+Inf", "-inf": "-Inf"}
_LABELS = "\0"  # where the labels of a series go


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name on the page, what it counts, and for a histogram where its steps end."""

    name: str
    kind: Kind
    help: str
    bounds: tuple[float, ...] = ()
    is_summable: bool = True  # whether a sum over series says something

    @property
    def plain_name(self) -> str:
        """Without the unit, as RocketMQ 5.1.0 shows it."""
        if self.kind == "counter":
            return self.name
        return next((self.name.removesuffix(unit) for unit in _UNITS if self.name.endswith(unit)), self.name)


# None among the samples is no series, but a chance to stop.
Page = Iterable[tuple[Family, Iterable[Sample | None]]]


def escaped(text: str) -> str:
    """A label's text between its quotes."""
    return text.translate(_ESCAPES) if '"' in text or "\\" in text or "\n" in text else text


def labels(**texts: str) -> str:
    """Labels of a series, in the order they are given."""
    return ",".join([f'{name}="{escaped(text)}"' for name, text in texts.items()])


def pieces(page: Page, of_all: Mapping[str, str], series_max: int, *, is_plain: bool = False) -> Iterator[str]:
    """The text, a family's head or a series at a time; labels `of_all` are on every series."""
    tail = "".join(f',{name}="{escaped(text)}"' for name, text in of_all.items())
    for family, samples in page:
        name = family.plain_name if is_plain else family.name
        series = _histogram_lines(name, family.bounds) if family.kind == "histogram" else _line(name)
        rest, left = None, series_max
        for sample in samples:
            if sample is None:
                yield ""
                continue
            text, value = sample
            if left == series_max:
                yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
            if left > 0:
                yield series(text + tail if text else tail[1:], value)
            else:
                rest = _joined(family, rest, value)
                yield ""
            left -= 1
        if rest is not None:
            yield series(_OVERFLOW + tail, rest)


def _line(name: str) -> Callable[[str, Value], str]:
    """What writes a series that is one number."""

    def write(text: str, value: Value) -> str:
        assert not isinstance(value, Histogram)
        return f"{name}{{{text}}} {shown(value)}\n"

    return write


def _histogram_lines(name: str, bounds: Sequence[float]) -> Callable[[str, Value], str]:
    """What writes a histogram's lines: all of them are drawn once, and a series fills in its numbers and its labels."""
    steps = [*map(shown, bounds), "+Inf"]
    lines = [f'{name}_bucket{{{_LABELS},le="{step}"}} %d\n' for step in steps]
    drawn = "".join([*lines, f"{name}_count{{{_LABELS}}} %d\n{name}_sum{{{_LABELS}}} %s\n"])

    def write(text: str, value: Value) -> str:
        assert isinstance(value, Histogram)
        sums = list(accumulate(value.counts))
        return (drawn % (*sums, sums[-1], shown(value.total))).replace(_LABELS, text)

    return write


def _joined(family: Family, rest: Value | None, value: Value) -> Value:
    if isinstance(value, Histogram):
        joined = rest if isinstance(rest, Histogram) else Histogram(family.bounds)
        joined.take_in(value)
        return joined
    assert not isinstance(rest, Histogram)
    if rest is None:
        return value
    return rest + value if family.is_summable else max(rest, value)


def shown(value: float) -> str:
    """A number as RocketMQ's page has it: always a float."""
    text = repr(float(value))
    return _INFINITE.get(text, text)
