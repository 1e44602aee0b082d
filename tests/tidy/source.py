"""The project's own source, parsed once for all tidy tests."""

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Node = TypeVar("Node", bound=ast.AST)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "bolide"


class Module(NamedTuple):
    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        """As it is seen from the root: src/bolide/kernel/plain.py."""
        return str(self.path.relative_to(ROOT))

    @property
    def room(self) -> str:
        """The first part under bolide/: a package, or a module that stands alone."""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    def at(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}"


@cache
def parsed(path: Path) -> Module:
    return Module(path, ast.parse(path.read_text("utf-8")))


@contextmanager
def _nothing_is_garbage() -> Iterator[None]:
    """All of a tree is new and needed: looking for garbage meanwhile trebles the work, and so it does for every test
    that comes after, unless what was made is set apart.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@cache
def modules(folder: Path = PACKAGE) -> tuple[Module, ...]:
    """The sources under a folder."""
    with _nothing_is_garbage():
        return tuple(parsed(path) for path in sorted(folder.rglob("*.py")))


@cache
def _nodes_by_kind(folder: Path) -> dict[type[ast.AST], list[tuple[Module, ast.AST]]]:
    """Every tree is walked once for all tests of a folder."""
    found = defaultdict(list)
    with _nothing_is_garbage():
        for module in modules(folder):
            for node in ast.walk(module.tree):
                found[type(node)].append((module, node))
    return found


def nodes(*kinds: type[Node], folder: Path = PACKAGE) -> Iterator[tuple[Module, Node]]:
    """What is of one of these kinds in the sources under a folder."""
    found: Any = _nodes_by_kind(folder)
    for kind in kinds:
        yield from found.get(kind, ())


def typed_sources() -> list[Path]:
    """The compiled kernel's, which no parser here reads."""
    return sorted(path for path in (PACKAGE / "kernel").iterdir() if path.suffix in (".pyx", ".pxi", ".h"))


def dotted(node: ast.AST) -> str:
    """`asyncio.create_task` as text; what is not a plain name gives its last part only."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""
