"""Every metric that a server shows has a test that names it: one that nobody looks at may say anything."""

import importlib
import re
from pathlib import Path

from bolide.metrics.page import Family
from tests.tidy.source import ROOT

_MADE = re.compile(r"\b(?:Family|_gauge)\(")
_NAMED = re.compile(r"\b(?:rocketmq|bolide)_\w+|\b(?:role|active_broker_num|request_\w+|election_total|target_info)\b")


def families() -> dict[str, Family]:
    """All that modules make, by name."""
    found: dict[str, Family] = {}
    source = ROOT / "src"
    for path in sorted(source.rglob("*.py")):
        if not _MADE.search(path.read_text("utf-8")):
            continue
        module = importlib.import_module(".".join(path.relative_to(source).with_suffix("").parts))
        found |= {each.name: each for each in vars(module).values() if isinstance(each, Family)}
    return found


def named_in(paths: list[Path]) -> set[str]:
    return {word for path in paths for word in _NAMED.findall(path.read_text("utf-8"))}


def test_each_metric_is_named_by_a_test_of_its_value() -> None:
    told = families()
    assert len(told) > 70
    named = named_in([path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)])
    parts = {"counter": ("",), "gauge": ("",), "histogram": ("", "_count", "_sum", "_bucket")}
    unnamed = [
        name for name, family in told.items() if not any(f"{name}{part}" in named for part in parts[family.kind])
    ]
    assert unnamed == []
