"""A broker killed at random points of every flow: what was promised comes, nothing comes twice without a kill."""

from pathlib import Path

import pytest

from tests.crash.campaign import KILL, survive
from tests.crash.flows import Delivery, Outage, is_explained, repeats


def test_eight_kills_lose_nothing_and_repeat_nothing_that_they_do_not_explain(tmp_path: Path) -> None:
    survive(tmp_path, [KILL], 8, seed=7)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_kills_lose_nothing_and_repeat_nothing_that_they_do_not_explain(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, [KILL], 100, seed)


def test_only_a_kill_between_two_copies_or_two_deliveries_explains_them() -> None:
    first, copied = Delivery(100, 110, ("T", 0, 0), 0, 100), Delivery(200, 210, ("T", 0, 1), 0, 200)
    handed_again = Delivery(100, 300, ("T", 0, 0), 0, 100)
    in_steps = Delivery(100, 110, ("T", 0, 0), 0, 40)
    assert repeats([copied, first, Delivery(250, 260, ("T", 0, 2), 1, 250)]) == [(first, copied)]
    assert is_explained(first, copied, [Outage(150, 160)])
    assert not is_explained(first, copied, [Outage(50, 60), Outage(201, 220)])
    assert is_explained(in_steps, copied, [Outage(50, 60)])
    assert is_explained(first, handed_again, [Outage(250, 260)])
    assert not is_explained(first, handed_again, [Outage(50, 105)])
