"""The pytest plugin as other projects have it: there without a word, and no burden."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

LIMIT_S = 60
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), *arguments, str(folder)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=folder,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=[re.findall(r"def (test_\w+)", text)[-1] for text in EXAMPLES])
def test_an_example_of_the_page_passes_as_it_is(tmp_path: Path, example: str) -> None:
    (tmp_path / "test_example.py").write_text(example)
    done = run_pytest(tmp_path, "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_page_shows_each_way_in() -> None:
    assert len(EXAMPLES) >= 5
    for word in ("bolide_cluster", "pytest.mark.bolide_cluster", "async with cluster", ".kill()"):
        assert word in "".join(EXAMPLES)


def test_a_project_that_does_not_use_it_loads_nothing_of_bolide_but_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    loaded = {name for name in sys.modules if name.partition('.')[0] in ('bolide', 'msgspec', 'uvloop')}\n"
        "    assert loaded == {'bolide', 'bolide.errors', 'bolide.testing', 'bolide.testing.plugin'}\n"
    )
    done = run_pytest(tmp_path, "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout


def test_the_doubles_are_found_by_name_and_nothing_else_is() -> None:
    import bolide.testing

    for name in bolide.testing.__all__:
        assert getattr(bolide.testing, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'clutser'"):
        _ = bolide.testing.clutser
