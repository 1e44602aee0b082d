"""Grids of cases: each in `make long`, and in `make test` some of them, in which every value of every axis stands."""

import itertools
from collections.abc import Iterable

import pytest


def grid(one_of: int, **axes: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize by the product of all axes; one case of so many, evenly spread, is not long."""
    values = {name: list(axis) for name, axis in axes.items()}
    cases = []
    short: dict[str, set[int]] = {name: set() for name in values}
    for places in itertools.product(*(range(len(axis)) for axis in values.values())):
        is_short = sum(places) % one_of == 0
        for name, place in zip(values, places, strict=True):
            if is_short:
                short[name].add(place)
        chosen = [axis[place] for axis, place in zip(values.values(), places, strict=True)]
        name = "-".join(map(str, chosen))
        cases.append(pytest.param(*chosen, id=name, marks=() if is_short else pytest.mark.long))
    assert all(len(short[name]) == len(axis) for name, axis in values.items()), "a value would stand in no short case"
    return pytest.mark.parametrize(",".join(values), cases)
