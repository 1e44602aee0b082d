"""Deliveries between two threads: one wake-up for many, and none is forgotten."""

import select
from collections import deque
from functools import partial

import pytest

from bolide.celery.arrivals import Arrivals, Delivery


def is_readable(arrivals: Arrivals) -> bool:
    return bool(select.select([arrivals.fileno()], [], [], 0)[0])


def test_what_a_turn_leaves_wakes_the_next_one() -> None:
    arrivals, made = Arrivals(), list[int]()
    for number in range(5):
        arrivals.put(partial(made.append, number))
    assert is_readable(arrivals)
    assert arrivals.deliver(3) == 3
    assert is_readable(arrivals)
    assert arrivals.deliver(3) == 2
    assert made == [0, 1, 2, 3, 4]
    assert not is_readable(arrivals)
    arrivals.put(partial(made.append, 5))
    assert is_readable(arrivals)
    arrivals.close()


def test_a_delivery_that_fails_does_not_hide_those_behind_it() -> None:
    arrivals, made = Arrivals(), list[int]()
    arrivals.put([].pop)
    arrivals.put(partial(made.append, 1))
    with pytest.raises(IndexError):
        arrivals.deliver(10)
    assert is_readable(arrivals)
    assert arrivals.deliver(10) == 1
    assert made == [1]
    arrivals.close()


def test_a_delivery_that_another_thread_puts_in_the_same_moment_wakes_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrivals, made = Arrivals(), list[int]()
    puts = iter([partial(made.append, 2)])

    class Switching(deque[Delivery]):
        """Another thread runs right after something was added."""

        def append(self, delivery: Delivery, /) -> None:
            super().append(delivery)
            for other in puts:
                arrivals.put(other)

    monkeypatch.setattr(arrivals, "_waiting", Switching())
    arrivals.put(partial(made.append, 1))
    assert is_readable(arrivals)
    assert arrivals.deliver(10) == 2
    assert made == [1, 2]
    arrivals.close()
