"""Whole records of a file, one stretch after the other, with what queues and index should say of them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from bolide import kernel
from bolide.kernel.layout import AT_BLANK, AT_END, BODY_CHECKED, Run

_STRETCH = 16 << 20


@dataclass(frozen=True, slots=True)
class Walked:
    """Records without a gap: the entries of each queue, the keys, how many, where they lie, and when the last came."""

    runs: list[Run]
    keys: bytes
    record_count: int
    start: int
    end: int
    store_ms: int


def walk(
    view: memoryview, at: int, stop: int, base: int, delays_ms: Sequence[int]
) -> Generator[Walked, None, tuple[int, int]]:
    """The records from `at` on that begin before `stop`; returns where they end, and why."""
    stretch = _STRETCH
    while at < stop:
        until = min(at + stretch, stop)
        runs, keys, count, store_ms, end, reason = kernel.walk_records(view, at, until, base, BODY_CHECKED, delays_ms)
        if count:
            yield Walked(runs, keys, count, at, end, store_ms)
        # A record that reaches over the cut looks as if it were not whole.
        is_cut = until < stop and reason not in (AT_END, AT_BLANK)
        stretch = 2 * stretch if is_cut and not count else _STRETCH
        at = end
        if reason != AT_END and not is_cut:
            return at, reason
    return at, AT_END
