"""Tables for terminals: columns that line up and fit the width there is.

Where a line is too long, texts go on in the next one; numbers stay whole. Characters that take two columns are counted
as two, so that tables with Chinese topics line up as well.
"""

import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

_GAP = " "
_FOLDED_WIDTH_MIN = 8


def is_styled(stream: TextIO) -> bool:
    """Whether a stream goes to a terminal that shows bold and colours, and nobody forbade them (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def width_of(text: str) -> int:
    """How many columns a terminal takes for it."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def cut(text: str, width: int) -> str:
    """The text in so many columns; what was longer ends with a sign of it."""
    if width_of(text) <= width:
        return text
    return _first(text, width - 1) + "…"


def _first(text: str, width: int) -> str:
    """As much of a text as so many columns hold, one character at least."""
    used = 0
    for place, each in enumerate(text):
        used += width_of(each)
        if used > width:
            return text[: max(place, 1)]
    return text


def table_lines(
    rows: Sequence[Mapping[str, str]], *, numbers: Collection[str], long: Collection[str], width: int | None
) -> list[str]:
    """Rows that have the same columns as lines, heads first; without a width every row is one line.

    Columns in `numbers` stand to the right and stay whole, those in `long` are cut to what is left.
    """
    names = list(rows[0])
    widths = {name: max(width_of(name), *(width_of(row[name]) for row in rows)) for name in names}
    if width is not None:
        _fit(widths, {name for name in names if name not in numbers}, long, width)
    lines: list[str] = []
    for row in ({name: name for name in names}, *rows):
        cells = {
            name: [cut(row[name], widths[name])] if name in long else _folded(row[name], widths[name]) for name in names
        }
        for number in range(max(map(len, cells.values()))):
            parts = []
            for name in names:
                text = cells[name][number] if number < len(cells[name]) else ""
                space = " " * (widths[name] - width_of(text))
                parts.append(space + text if name in numbers else text + space)
            lines.append(_GAP.join(parts).rstrip())
    return lines


def _fit(widths: dict[str, int], texts: Collection[str], long: Collection[str], width: int) -> None:
    """Take from the widest texts, the long ones first, until the table fits or none can give more."""
    for givers in ([name for name in texts if name in long], list(texts)):
        over = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - width
        while over > 0 and givers:
            widest = max(givers, key=lambda name: widths[name])
            if widths[widest] <= max(_FOLDED_WIDTH_MIN, width_of(widest)):
                givers.remove(widest)
                continue
            widths[widest] -= 1
            over -= 1


def _folded(text: str, width: int) -> list[str]:
    parts = []
    while width_of(text) > width:
        head = _first(text, width)
        parts.append(head)
        text = text[len(head) :]
    return [*parts, text]


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if is_styled(sys.stdout) else text
