"""Several servers' pages as one: each family once, with the series of all of them under it.

Prometheus takes no page on which a family begins twice. What tells the servers apart is on each series already
(`node_id`), so lines stay as they are.
"""

import re
from collections.abc import Iterable, Iterator

_HEAD = re.compile(r"^# HELP ", re.MULTILINE)  # within a line it is a label's text


def gathered(pages: Iterable[str]) -> Iterator[str]:
    """The text of all pages, a family at a time, in the order in which families were first seen."""
    families: dict[str, list[str]] = {}
    for page in pages:
        for block in _HEAD.split(page)[1:]:
            help_line, type_line, series = block.split("\n", 2)
            families.setdefault(f"# HELP {help_line}\n{type_line}\n", []).append(series)
    for head, series_of_all in families.items():
        yield head
        yield from series_of_all
