"""A range of the log, walked for what queues and index should say of it. Runs in tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bolide.errors import StoreError
from bolide.kernel.layout import AT_BLANK, AT_END, AT_INNER_BATCH
from bolide.spark.store.log_files import Range, mapped, next_record
from bolide.store.walk import Walked, walk


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
        while 0 <= at < stop:
            at, reason = yield from walk(view, at, stop, base, delays_ms)
            if reason == AT_INNER_BATCH:
                raise StoreError(f"{part.file.path} holds an inner batch at byte {at}, which this store does not keep")
            if reason == AT_BLANK:
                yield Blank(at, int.from_bytes(view[at : at + 4], "big"))
                return
            if reason != AT_END:
                behind = next_record(view, at + 1, base)
                yield Damage(at, behind)
                at = behind
