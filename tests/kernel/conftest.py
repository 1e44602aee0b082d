"""Every kernel test runs on both twins. A missing compiled one fails where BOLIDE_KERNEL asks for it, else says why."""

import importlib
import os
from types import ModuleType

import pytest

from bolide.kernel import plain


def compiled_kernel() -> ModuleType:
    try:
        return importlib.import_module("bolide.kernel.compiled")
    except ImportError as missing:
        if os.environ.get("BOLIDE_KERNEL") == "compiled":
            raise
        pytest.skip(f"the compiled kernel was not built ({missing}); run make build")


@pytest.fixture(scope="session", params=["plain", "compiled"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return plain if request.param == "plain" else compiled_kernel()


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    return compiled_kernel()
