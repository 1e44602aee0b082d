"""The two kernels, as parameters of one test body. A missing compiled one fails where BOLIDE_KERNEL asks for it."""

import importlib
import os
from types import ModuleType
from typing import Any

import pytest


def compiled_kernel() -> ModuleType | None:
    try:
        return importlib.import_module("bolide.kernel.compiled")
    except ImportError:
        if os.environ.get("BOLIDE_KERNEL") == "compiled":
            raise
        return None


# Without types: it has no source that mypy reads.
compiled: Any = compiled_kernel()


def both(plain: ModuleType) -> pytest.MarkDecorator:
    """`kernel` is a part of the plain kernel, and then the compiled one, which is all in one."""
    available = [plain] if compiled is None else [plain, compiled]
    return pytest.mark.parametrize("kernel", available, ids=lambda kernel: kernel.__name__.rpartition(".")[2])


def kernel_of(kind: str, part: str) -> Any:
    """A part of a kernel by its name."""
    return importlib.import_module(f"bolide.kernel.plain_{part}") if kind == "plain" else compiled
