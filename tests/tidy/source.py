"""The project's own source, parsed once for all tidy tests."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
def modules(folder: Path = PACKAGE) -> tuple[Module, ...]:
    return tuple(Module(path, ast.parse(path.read_text("utf-8"))) for path in sorted(folder.rglob("*.py")))


def nodes(*kinds: type[ast.AST], folder: Path = PACKAGE) -> Iterator[tuple[Module, ast.AST]]:
    for module in modules(folder):
        for node in ast.walk(module.tree):
            if isinstance(node, kinds):
                yield module, node


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
