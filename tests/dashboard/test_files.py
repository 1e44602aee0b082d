"""The files of the wheel: scripts of others as they were published, and templates in which everything is text."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from bolide import dashboard

HERE = Path(dashboard.__file__).parent
STATIC = HERE / "static"
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
OURS = {"dashboard.css", "dashboard.js", "icon.svg", "third-party.json"}


def test_every_file_of_others_is_listed_with_version_licence_and_digest() -> None:
    listed = json.loads((STATIC / "third-party.json").read_text())
    assert {each["file"] for each in listed} == {path.name for path in STATIC.iterdir()} - OURS
    for each in listed:
        assert hashlib.sha256((STATIC / each["file"]).read_bytes()).hexdigest() == each["sha256"], each["file"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", each["version"])
        assert each["license"] in ("0BSD", "MIT")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_lets_anything_through_unescaped_or_has_script_or_style_inside(path: Path) -> None:
    text = path.read_text()
    for forbidden in (
        r"\|\s*safe\b",
        r"autoescape",
        r"Markup",
        r"<style",
        r"\sstyle=",
        r"\son\w+=",
        r"hx-on",
        r"javascript:",
        r"\bjs:",  # values and conditions that htmx would have to evaluate
        r"hx-trigger=\"[^\"]*\[",
    ):
        assert not re.search(forbidden, text), forbidden
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_nothing_is_asked_of_another_host() -> None:
    for path in [*TEMPLATES, STATIC / "dashboard.css", STATIC / "dashboard.js"]:
        assert not re.search(r"""(?:src|href|url|fetch)\s*[=(]\s*["']?(?:https?:)?//""", path.read_text()), path.name


def test_no_code_makes_markup_of_texts() -> None:
    for path in HERE.rglob("*.py"):
        assert "Markup(" not in path.read_text(), path.name
    script = (STATIC / "dashboard.js").read_text()
    for forbidden in ("innerHTML =", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in script
