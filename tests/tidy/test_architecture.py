"""The page of the whole house is true: its rooms are there, all of them, and each arrow of its walks is a call."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
NODE = re.compile(r'^\s*(\w+)\["([\w/]+)"\]$', re.MULTILINE)
ARROW = re.compile(r"^\s*(\w+) -->\|(\w+)\| (\w+)$", re.MULTILINE)


def walks() -> list[str]:
    return re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)


def sources(place: str) -> list[Path]:
    """The files of a module or a room; a room's own are those that stand in it."""
    path = PACKAGE / place
    if path.is_dir():
        return sorted(each for each in path.iterdir() if each.suffix in (".py", ".pyx", ".pxi"))
    return [path.with_suffix(".py")]


def text_of(place: str) -> str:
    return "\n".join(path.read_text("utf-8") for path in sources(place) if path.is_file())


def arrows() -> Iterator[tuple[str, str, str]]:
    for walk in walks():
        places = dict(NODE.findall(walk))
        for caller, function, called in ARROW.findall(walk):
            yield places[caller], function, places[called]


def test_the_page_has_the_three_walks_and_nothing_in_them_is_left_unread() -> None:
    assert len(walks()) == 3
    for walk in walks():
        lines = [line for line in walk.splitlines()[1:] if line.strip()]
        assert [line for line in lines if not NODE.match(line) and not ARROW.match(line)] == []


@pytest.mark.parametrize(("caller", "function", "called"), sorted(set(arrows())))
def test_each_arrow_is_a_call_that_exists(caller: str, function: str, called: str) -> None:
    assert re.search(rf"\b{function}\b", text_of(caller)), f"{caller} does not name {function}"
    assert re.search(rf"^\s*(async def|def|cpdef .*|class) {function}\b", text_of(called), re.MULTILINE), (
        f"{called} does not define {function}"
    )


def test_every_module_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", PAGE)) | {
        place for walk in walks() for _, place in NODE.findall(walk)
    }
    assert [place for place in sorted(named) if not text_of(place)] == []


def test_every_module_of_the_walk_in_prose_exists() -> None:
    walk = (ROOT / "docs" / "walk.md").read_text("utf-8")
    assert [
        place for place in sorted(set(re.findall(r"\*\*([a-z_]+(?:/[a-z_]+)*)\*\*", walk))) if not text_of(place)
    ] == []


def test_every_room_of_the_house_is_named() -> None:
    rooms = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")} - {"."}
    alone = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    missing = [room for room in sorted(rooms | alone) if f"`{room}`" not in PAGE]
    assert not missing
