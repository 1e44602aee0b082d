"""Statistics as one page that needs nothing but itself: tables, and charts drawn as SVG."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from html import escape
from typing import Any

from bolide.spark.jobs.stats import Rows, Statistics

_TITLES = {
    "topics": "Topics",
    "tags": "Tags",
    "delays": "From producer to store",
    "end_to_end": "From producer to consumer",
    "lag": "Lag of groups",
    "retries": "Retries",
    "dead_letters": "Dead letters",
}
_WIDTH, _HEIGHT = 960, 220
_BARS_MAX = 240
_ROWS_SHOWN = 200
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6b7280; --line: #d8dee4; --bar: #2f6fed; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4b2; --line: #30363d; --bar: #6ea8ff; --paper: #0d1117 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .8rem .25rem 0;
  border-bottom: 1px solid var(--line) } th { color: var(--soft); font-weight: 500 }
.n { text-align: right; font-variant-numeric: tabular-nums } .s { color: var(--soft) }
svg { width: 100%; height: auto } rect { fill: var(--bar) } text { fill: var(--soft); font-size: 11px }
line { stroke: var(--line) }
"""


def page_of(found: Statistics, title: str) -> str:
    """The whole page as text."""
    total = sum(row["messages"] for row in found.topics)
    size = sum(row["bytes"] or 0 for row in found.topics)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="s">{total:,} messages, {size:,} bytes of bodies; times are UTC</p>',
    ]
    parts += _chart("Messages by minute", _merged(found.minutes, "minute"))
    parts += _chart("Messages by size, up to this many bytes", _merged(found.sizes, "up_to"))
    for each in fields(found):
        rows: Rows = getattr(found, each.name)
        if each.name in _TITLES and rows:
            parts += [f"<h2>{_TITLES[each.name]}</h2>", _table(rows)]
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{escape(title)}</title>"
    return (
        f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def _merged(rows: Rows, name: str) -> list[tuple[str, int]]:
    """Messages under each value, all topics together."""
    counts: Counter[Any] = Counter()
    for row in rows:
        counts[row[name]] += row["messages"]
    return [(str(value), counts[value]) for value in sorted(counts)]


def _chart(title: str, values: list[tuple[str, int]]) -> list[str]:
    return [f"<h2>{escape(title)}</h2>", bars(_thinned(values))] if values else []


def _thinned(values: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """At most this many bars as can be seen: neighbours are added up, under the first one's name."""
    step = -(-len(values) // _BARS_MAX)
    return [(values[i][0], sum(count for _, count in values[i : i + step])) for i in range(0, len(values), step)]


def bars(values: Sequence[tuple[str, int]]) -> str:
    """A bar for each value; the figure shows when one points at it."""
    most = max(count for _, count in values)
    width = _WIDTH / len(values)
    drawn = []
    for number, (name, count) in enumerate(values):
        height = count / most * (_HEIGHT - 40) if most else 0
        place = f'x="{number * width:.1f}" y="{_HEIGHT - 20 - height:.1f}" width="{max(width - 1, 0.5):.1f}"'
        drawn.append(f'<rect {place} height="{height:.1f}"><title>{escape(name)}: {count:,}</title></rect>')
    names = [values[0][0]] if len(values) == 1 else [values[0][0], values[-1][0]]
    places = [("start", 0), ("end", _WIDTH)]
    labels = "".join(
        f'<text x="{x}" y="{_HEIGHT - 4}" text-anchor="{anchor}">{escape(name)}</text>'
        for name, (anchor, x) in zip(names, places, strict=False)
    )
    axis = f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT - 20}" y2="{_HEIGHT - 20}"/>'
    top = f'<text x="0" y="12">{most:,}</text>'
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}{axis}{top}{labels}</svg>'


def _table(rows: Rows) -> str:
    heads = "".join(f'<th class="{_kind(value)}">{escape(name)}</th>' for name, value in rows[0].items())
    body = "".join(
        "<tr>" + "".join(f'<td class="{_kind(value)}">{_cell(value)}</td>' for value in row.values()) + "</tr>"
        for row in rows[:_ROWS_SHOWN]
    )
    more = f'<p class="s">and {len(rows) - _ROWS_SHOWN:,} more</p>' if len(rows) > _ROWS_SHOWN else ""
    return f"<table><tr>{heads}</tr>{body}</table>{more}"


def _kind(value: object) -> str:
    return "n" if isinstance(value, int | float) else ""


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int | float) else escape(str(value))
