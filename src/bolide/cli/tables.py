"""Tables for terminals: columns that line up and fit the width there is.

Where a line is too long, heads of several words and then texts go on in the next one; numbers stay whole. Characters
that take two columns are counted as two, so that tables with Chinese topics line up as well.
"""

import os
import sys
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TextIO

_GAP = " "
_FOLDED_WIDTH_MIN = 8


def is_styled(stream: TextIO) -> bool:
    """Whether a stream goes to a terminal that shows bold and colours, and nobody forbade them (NO_COLOR)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    import shutil  # with it come the libraries of three kinds of archives

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
    rows: Sequence[Mapping[str, str]],
    *,
    numbers: Collection[str],
    long: Collection[str],
    width: int | None,
    style_head: Callable[[str], str] = str,
) -> list[str]:
    """Rows that have the same columns as lines, heads first; without a width every row is one line.

    Columns in `numbers` stand to the right and stay whole, those in `long` are cut to what is left.
    """
    names = list(rows[0])
    cell_widths = {name: max(width_of(row[name]) for row in rows) for name in names}
    widths = {name: max(width_of(name), cell_widths[name]) for name in names}
    if width is not None and _line_width(widths) > width:
        widths = {name: max(_head_width_min(name), cell_widths[name]) for name in names}
        _fit(widths, {name for name in names if name not in numbers}, long, width)
    lines = [
        style_head(line)
        for line in _lines({name: _folded_words(name, widths[name]) for name in names}, widths, numbers)
    ]
    for row in rows:
        cells = {
            name: [cut(row[name], widths[name])] if name in long else _folded(row[name], widths[name]) for name in names
        }
        lines += _lines(cells, widths, numbers)
    return lines


def _lines(cells: Mapping[str, Sequence[str]], widths: Mapping[str, int], numbers: Collection[str]) -> list[str]:
    """One row, whose cells may have several lines each."""
    lines = []
    for number in range(max(map(len, cells.values()))):
        parts = []
        for name, texts in cells.items():
            text = texts[number] if number < len(texts) else ""
            space = " " * (widths[name] - width_of(text))
            parts.append(space + text if name in numbers else text + space)
        lines.append(_GAP.join(parts).rstrip())
    return lines


def _line_width(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _head_width_min(name: str) -> int:
    return max(map(width_of, name.split(" ")))


def _fit(widths: dict[str, int], texts: Collection[str], long: Collection[str], width: int) -> None:
    """Take from the widest texts, the long ones first, until the table fits or none can give more."""
    for givers in ([name for name in texts if name in long], list(texts)):
        over = _line_width(widths) - width
        while over > 0 and givers:
            widest = max(givers, key=lambda name: widths[name])
            if widths[widest] <= max(_FOLDED_WIDTH_MIN, _head_width_min(widest)):
                givers.remove(widest)
                continue
            widths[widest] -= 1
            over -= 1


def _folded_words(text: str, width: int) -> list[str]:
    """Folded between words; no word is wider than that."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width_of(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _folded(text: str, width: int) -> list[str]:
    parts = []
    while width_of(text) > width:
        head = _first(text, width)
        parts.append(head)
        text = text[len(head) :]
    return [*parts, text]


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if is_styled(sys.stdout) else text
