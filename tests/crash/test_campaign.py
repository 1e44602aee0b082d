"""Power cuts and disks that lie, in the middle of everything."""

from pathlib import Path

import pytest

from tests.crash import campaign
from tests.crash.campaign import KINDS, LOG_ROT, POWER_CUT, survive


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.long)])
def test_power_cuts_take_nothing_that_was_confirmed(tmp_path: Path, count: int) -> None:
    survive(tmp_path, [POWER_CUT], count, seed=3)


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.long)])
def test_faults_of_every_kind_take_only_the_messages_whose_own_records_they_hit(tmp_path: Path, count: int) -> None:
    survive(tmp_path, KINDS, count, seed=11)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_power_cuts_take_nothing_that_was_confirmed(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, [POWER_CUT], 100, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_faults_take_only_the_messages_whose_own_records_they_hit(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, KINDS, 100, seed)


@pytest.mark.soak
def test_a_campaign_catches_a_build_with_the_old_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "DELIVERY_LIMIT_S", 10)
    with pytest.raises(AssertionError, match=r" lost \d+"):
        survive(tmp_path, [LOG_ROT], 10, seed=11, program="tests.crash.forgetful")
