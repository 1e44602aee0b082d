"""A path into JSON bodies, as searches take it: `$.customer.name = Ada`, `$.lines[*].sku`.

Without a value the question is whether the path leads anywhere. A value is compared as people write it: `3`, `true` and
`null` with what they are in JSON, everything else with a text.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_PATH = re.compile(r"\$((?:\.[^.\[\]=\s]+|\[(?:\d{1,6}|\*)\])+)\s*(?:=\s*(.*))?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]=\s]+)|\[(\d+|\*)\]")
_EVERY = "*"


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Where to look in a body, and what for; None asks whether anything is there."""

    steps: tuple[str | int, ...]
    value: str | None

    def holds(self, body: bytes) -> bool:
        """Whether a body is JSON that has it."""
        if body.lstrip()[:1] not in (b"{", b"["):
            return False
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            return False
        return any(self.value is None or _is(found, self.value) for found in _reached([tree], self.steps))


def parse_json_path(text: str) -> JsonPath | None:
    """The path that a text is; None where it is none."""
    found = _PATH.fullmatch(text.strip())
    if found is None:
        return None
    steps = (int(place) if place.isdigit() else name or _EVERY for name, place in _STEP.findall(found[1]))
    return JsonPath(tuple(steps), found[2])


def _reached(trees: Iterable[Any], steps: tuple[str | int, ...]) -> Iterable[Any]:
    for step in steps:
        trees = _stepped(trees, step)
    return trees


def _stepped(trees: Iterable[Any], step: str | int) -> Iterator[Any]:
    for tree in trees:
        if isinstance(step, str) and isinstance(tree, dict):
            if step in tree:
                yield tree[step]
        elif isinstance(tree, list):
            if step == _EVERY:
                yield from tree
            elif isinstance(step, int) and step < len(tree):
                yield tree[step]


def _is(found: Any, value: str) -> bool:
    if isinstance(found, str):
        return found == value
    try:
        return bool(json.loads(value) == found) and isinstance(found, bool) == (value in ("true", "false"))
    except ValueError:
        return False
