"""A range of the log, walked for what queues and index should say of it. Runs in tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.layout import AT_BLANK, AT_END, AT_INNER_BATCH, BODY_CHECKED, Run
from bolide.spark.store.log_files import Range, mapped, next_record

_STRETCH = 16 << 20


@dataclass(frozen=True, slots=True)
class Walked:
    """Records without a gap: the entries of each queue, the keys, how many, and where they lie in the file."""

    runs: list[Run]
    keys: bytes
    record_count: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """No whole record here; `behind` is where the next one begins, -1 without one in the file."""

    position: int
    behind: int


@dataclass(frozen=True, slots=True)
class Blank:
    """The filler that ends a file, and what it says its size is."""

    position: int
    size: int


def walk_range(part: Range, delays_ms: Sequence[int]) -> Iterator[Walked | Damage | Blank]:
    """Everything in a range, in the order in which it lies there; records are checked."""
    base = part.file.base
    with mapped(part.file.path) as view:
        at = part.start and next_record(view, part.start, base)
        # Where the next range begins: a record that reaches over the cut is ours.
        stop = part.file.size if part.end == part.file.size else next_record(view, part.end, base)
        if stop < 0 or stop > part.file.size:
            stop = part.file.size
        stretch = _STRETCH
        while 0 <= at < stop:
            until = min(at + stretch, stop)
            runs, keys, count, _, end, reason = kernel.walk_records(view, at, until, base, BODY_CHECKED, delays_ms)
            if reason == AT_INNER_BATCH:
                raise StoreError(f"{part.file.path} holds an inner batch at byte {end}, which this store does not keep")
            if count:
                yield Walked(runs, keys, count, at, end)
            is_cut = until < stop and reason not in (AT_END, AT_BLANK)
            stretch = 2 * stretch if is_cut and not count else _STRETCH
            at = end
            if reason == AT_BLANK:
                yield Blank(at, int.from_bytes(view[at : at + 4], "big"))
                return
            if reason != AT_END and not is_cut:
                behind = next_record(view, at + 1, base)
                yield Damage(at, behind)
                at = behind
