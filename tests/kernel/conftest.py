"""Every kernel test runs on both twins. A missing compiled one fails where BOLIDE_KERNEL asks for it, else says why."""

from typing import Any

import pytest

from bolide.kernel import plain
from tests.kernel.twins import compiled as compiled_kernel


@pytest.fixture(scope="session")
def compiled() -> Any:
    if compiled_kernel is None:
        pytest.skip("the compiled kernel was not built; run make build")
    return compiled_kernel


@pytest.fixture(scope="session", params=["plain", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Any:
    return plain if request.param == "plain" else request.getfixturevalue("compiled")
