"""Power cuts in the middle of everything."""

from pathlib import Path

import pytest

from tests.crash.campaign import POWER_CUT, survive


def test_power_cuts_take_nothing_that_was_confirmed(tmp_path: Path) -> None:
    survive(tmp_path, [POWER_CUT], 8, seed=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_power_cuts_take_nothing_that_was_confirmed(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, [POWER_CUT], 100, seed)
