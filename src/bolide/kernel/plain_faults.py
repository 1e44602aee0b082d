"""Pages of mapped files that cannot be read, in plain Python: nothing is guarded, and such a page ends the process.

With the compiled kernel it reads as zeros and is counted. Who reads a map asks `touch` or `fault_count` whether there
were any, and if so `patched_span` where they lie in his.
"""

from mmap import mmap

from bolide.kernel.layout import Buffer


def guard_map(content: mmap) -> int:
    """Have pages of a map that cannot be read become zeros; returns its place, -1 where it cannot be guarded."""
    return -1


def unguard_map(place: int) -> None:
    """Forget a map, before it goes."""


def fault_count() -> int:
    """How many faults there were in the life of this process."""
    return 0


def touch(content: Buffer) -> int:
    """Read something of each page, so that a fault comes now and not later; returns how many there were in all."""
    return 0


def patched_span(place: int) -> tuple[int, int] | None:
    """From where to where a map has pages that are zeros because they could not be read."""
    return None


def forget_span(place: int) -> None:
    """They are the file's again."""


def map_again(place: int, at: int, size: int, fd: int) -> None:
    """Have pages be the file's again; raises OSError."""
