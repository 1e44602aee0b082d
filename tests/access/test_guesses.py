"""Guesses become slow, one address at a time, and cost us little."""

from bolide.access.guesses import ADDRESSES_MAX, FORGIVEN_S, FREE_COUNT, STEP_S, WAIT_MAX_S, Guesses


class HeldClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.now_s


def test_after_some_failures_refusals_come_one_after_the_other_and_then_not_at_all() -> None:
    guesses = Guesses(HeldClock())
    assert [guesses.delay_s("a") for _ in range(FREE_COUNT)] == [0.0] * FREE_COUNT
    waits = [guesses.delay_s("a") for _ in range(int(WAIT_MAX_S / STEP_S) + 5)]
    assert round(waits[0] or 0, 6) == STEP_S
    assert waits[-1] is None
    assert all(wait is None or wait <= WAIT_MAX_S + 1e-6 for wait in waits)
    assert guesses.delay_s("b") == 0.0


def test_an_address_that_stops_guessing_is_forgiven() -> None:
    clock = HeldClock()
    guesses = Guesses(clock)
    for _ in range(FREE_COUNT + 10):
        guesses.delay_s("a")
    clock.now_s += FORGIVEN_S + WAIT_MAX_S + 1
    assert guesses.delay_s("a") == 0.0


def test_what_is_kept_of_addresses_is_bounded() -> None:
    guesses = Guesses(HeldClock())
    for number in range(ADDRESSES_MAX + 100):
        guesses.delay_s(str(number))
    assert len(guesses) == ADDRESSES_MAX


def test_who_has_a_network_of_ipv6_has_no_more_guesses_than_one_address() -> None:
    guesses = Guesses(HeldClock())
    for number in range(FREE_COUNT):
        assert guesses.delay_s(f"2001:db8::{number:x}") == 0.0
    assert (guesses.delay_s("2001:db8::ffff") or 0) > 0
    assert guesses.delay_s("2001:db8:0:1::1") == 0.0
    assert (guesses.delay_s("::ffff:10.0.0.9"), guesses.delay_s("10.0.0.9"), len(guesses)) == (0.0, 0.0, 3)
