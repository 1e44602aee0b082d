"""What tests of the fast path need, whichever kernel the run is for."""

import pytest

import bolide.kernel
from bolide.kernel import plain_left
from tests.kernel.twins import compiled

LEFT = [name for name in vars(plain_left) if name in bolide.kernel.__all__]


@pytest.fixture
def fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain kernel leaves everything to the general path: what is claimed of the fast one is claimed of this."""
    if compiled is None:
        pytest.skip("the compiled kernel was not built; run make build")
    for name in LEFT:
        monkeypatch.setattr(bolide.kernel, name, getattr(compiled, name))


@pytest.fixture
def general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LEFT:
        monkeypatch.setattr(bolide.kernel, name, getattr(plain_left, name))
