"""Budgets: a bound over all connections, and who gives way when it is reached."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

from bolide.remoting.budget import Budget, above_share, fair_level


@dataclass(eq=False)
class Guest:
    origin: str = "10.0.0.1"


class Kept:
    """A budget whose holders give way at once, and which remembers who did."""

    def __init__(self, total_max: int, holder_max: int | None = None) -> None:
        self.gave: dict[Guest, int] = {}
        self.budget: Budget[Guest] = Budget(total_max, holder_max or total_max, self._give_way)

    def _give_way(self, holder: Guest, amount: int) -> None:
        self.gave[holder] = self.gave.get(holder, 0) + amount
        self.budget.give_back(holder, amount)


def test_everybody_has_what_he_asks_for_while_there_is_room() -> None:
    kept, guests = Kept(100), [Guest() for _ in range(10)]
    assert all(kept.budget.grant(guest, 10) for guest in guests)
    assert kept.budget.total == 100
    assert not kept.gave


def test_one_connection_has_at_most_its_own_bound() -> None:
    kept, guest = Kept(100, holder_max=10), Guest()
    assert kept.budget.grant(guest, 10)
    assert not kept.budget.grant(guest)
    kept.budget.give_back(guest, 4)
    assert kept.budget.grant(guest, 4)
    assert kept.budget.held_by(guest) == 10


def test_when_all_is_full_the_largest_gives_way_to_a_newcomer_of_the_same_address() -> None:
    kept, flood, honest = Kept(80), [Guest() for _ in range(4)], Guest()
    for guest in flood:
        assert kept.budget.grant(guest, 20)
    assert kept.budget.grant(honest, 5)
    assert kept.budget.held_by(honest) == 5
    assert set(kept.gave) == set(flood)
    assert kept.budget.total <= 80


def test_the_largest_is_refused_itself_when_it_asks_for_more() -> None:
    kept, flood, honest = Kept(80), Guest(), Guest()
    assert kept.budget.grant(honest, 5)
    assert kept.budget.grant(flood, 75)
    assert not kept.budget.grant(flood)
    assert kept.budget.held_by(honest) == 5
    assert honest not in kept.gave


def test_for_one_who_is_refused_nobody_gives_way() -> None:
    kept, one, other = Kept(40), Guest(), Guest()
    assert kept.budget.grant(one, 22)
    assert kept.budget.grant(other, 18)
    assert not kept.budget.grant(other, 5)
    assert (kept.budget.held_by(one), kept.budget.held_by(other)) == (22, 18)


def test_an_address_with_many_connections_has_no_more_than_an_address_with_one() -> None:
    kept = Kept(160)
    crowd, alone = [Guest("10.0.0.1") for _ in range(100)], Guest("10.0.0.2")
    for guest in crowd:
        assert kept.budget.grant(guest)
    assert kept.budget.grant(alone, 60)
    assert kept.budget.grant(alone, 10)
    assert kept.budget.held_by(alone) == 70
    assert alone not in kept.gave


def test_room_is_made_for_many_newcomers_at_once() -> None:
    kept, flood = Kept(8_000), Guest()
    assert kept.budget.grant(flood, 8_000)
    assert kept.budget.grant(Guest())
    made = kept.gave[flood]
    assert made >= 250
    assert all(kept.budget.grant(Guest()) for _ in range(249))
    assert kept.gave[flood] == made


def test_a_connection_that_leaves_frees_what_it_held() -> None:
    kept, guest = Kept(10), Guest()
    kept.budget.grant(guest, 7)
    kept.budget.left(guest)
    kept.budget.left(guest)
    assert kept.budget.total == 0
    assert not list(kept.budget.holders)


@pytest.mark.parametrize(
    ("amounts", "total_max", "level"),
    [([], 5, 5), ([5, 5], 10, 10), ([1, 9], 8, 7), ([4, 4, 4], 9, 3), ([1, 100, 100], 101, 50), ([7], 0, 0)],
)
def test_a_level_leaves_the_small_alone_and_cuts_the_large_alike(
    amounts: list[int], total_max: int, level: int
) -> None:
    assert fair_level(amounts, total_max) == level


@given(lists(integers(1, 1000), max_size=30), integers(1, 5000))
def test_cut_down_to_the_level_all_fit_and_one_more_would_not(amounts: list[int], total_max: int) -> None:
    level = fair_level(amounts, total_max)
    assert sum(min(amount, level) for amount in amounts) <= total_max
    if sum(amounts) > total_max:
        assert sum(min(amount, level + 1) for amount in amounts) > total_max


@given(lists(tuples(integers(0, 9), integers(1, 30)), max_size=80), sampled_from([1, 3]))
def test_whatever_comes_the_bound_holds_and_who_has_less_than_his_share_is_left_alone(
    asked: list[tuple[int, int]], origin_count: int
) -> None:
    kept, guests = Kept(100, holder_max=60), [Guest(str(n % origin_count)) for n in range(10)]
    for number, amount in asked:
        before = {guest: kept.budget.held_by(guest) for guest in guests}
        kept.gave.clear()
        kept.budget.grant(guests[number], amount)
        assert kept.budget.total == sum(map(kept.budget.held_by, guests)) <= 100
        assert kept.budget.held_by(guests[number]) <= 60
        assert all(before[guest] > 80 // 10 // origin_count for guest in kept.gave)


def test_who_is_above_the_share_is_told_by_how_much() -> None:
    small, large, other = Guest("a"), Guest("a"), Guest("b")
    assert above_share({small: 1, large: 9, other: 4}, 10) == {large: 4}
