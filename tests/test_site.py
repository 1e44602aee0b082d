"""The pages as a site: every page is found by a question, and a link that leads nowhere is an error."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import bolide
from tests.tidy.source import ROOT
from tools import pages, terminal

DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text("utf-8")


def test_every_page_answers_a_question_of_the_list() -> None:
    listed = {page for found in pages.navigation(INDEX).values() for page in found}
    assert {path.name for path in DOCS.glob("*.md")} - {"index.md"} - listed == set(), "give it a row in docs/index.md"


def test_every_page_of_the_list_is_there() -> None:
    assert [link for link in re.findall(r"\]\(([^)]+)\)", INDEX) if not (DOCS / link).is_file()] == []


def test_a_page_is_in_the_navigation_once_under_its_first_heading() -> None:
    index = (
        "# All\n\n## One\n\n| q | [a.md](a.md), [b.md](b.md) |\n\n## Two\n\n| q | [b.md](b.md) |\n| q | [c](c.md) |\n"
    )
    assert pages.navigation(index) == {"One": ["a.md", "b.md"], "Two": ["c.md"]}


def test_the_picture_is_of_the_lines_that_its_script_types() -> None:
    rows = ["".join(row.itertext()) for row in ElementTree.parse(terminal.PICTURE).iter() if row.tag.endswith("}text")]
    assert [row[2:] for row in rows if row.startswith("$ ")] == [terminal.UP, *terminal.TYPED]
    assert f"Bolide {bolide.__version__} is up (compiled kernel)" in rows


def build(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Build a site of two pages with the settings of ours."""
    pytest.importorskip("mkdocs", reason="needs bolide[docs]")
    (directory / "docs").mkdir()
    (directory / "docs" / "index.md").write_text("# All\n\n## Some\n\n| q | [a](a.md) |\n")
    (directory / "docs" / "a.md").write_text(text)
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").replace("tools/", f"{ROOT / 'tools'}/")
    (directory / "mkdocs.yml").write_text(settings.replace("paths: [src]", f"paths: [{ROOT / 'src'}]"))
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240, check=False)


def test_a_site_holds_what_its_pages_link_and_its_names(tmp_path: Path) -> None:
    chart = '```mermaid\nflowchart TD\n    a["one/two"]\n    b["three"]\n    a -->|call| b\n```\n'
    done = build(
        tmp_path, f"# A\n\n[x](../examples/idempotent.py)\n\n{chart}\n::: bolide.Receipt\n\n::: bolide.Admin\n"
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "build" / "site"
    page = (site / "a.html").read_text()
    assert 'href="tree/examples/idempotent.py.html"' in page
    assert (site / "tree" / "examples" / "idempotent.py.html").is_file()
    assert "<code>one/two</code>" in page
    assert 'id="bolide.Receipt"' in page
    assert 'id="bolide.Admin.topics"' in page, "forwarded methods have their entry"


def test_links_that_lead_nowhere_or_away_stop_the_build(tmp_path: Path) -> None:
    said = ["no_such.md", "no_such.py", "no-such-heading", "would fetch https://example.org/x.png"]
    links = "[x](no_such.md) [x](../examples/no_such.py) [x](index.md#no-such-heading) ![x](https://example.org/x.png)"
    done = build(tmp_path, f"# A\n\n{links}\n")
    assert done.returncode != 0
    assert [part for part in said if part not in done.stderr] == []
