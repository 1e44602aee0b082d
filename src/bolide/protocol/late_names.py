"""Names of a package whose modules are loaded when one of their names is asked for.

A command asks for a few of some hundreds of headers and bodies, and each costs time to make.
"""

import sys
from collections.abc import Callable, Collection, Iterable
from importlib import import_module


def late_names(package: str, parts: Iterable[str], names: Collection[str]) -> Callable[[str], object]:
    """The `__getattr__` of a package: a name is that of the first of its parts that has it, and is kept."""

    def find(name: str) -> object:
        if name in names:
            for part in parts:
                module = import_module(f"{package}.{part}")
                if hasattr(module, name):
                    found: object = getattr(module, name)
                    setattr(sys.modules[package], name, found)
                    return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
