"""Which master wrote which part of the log: the epochs, and the file that keeps them.

An epoch begins where the log ended when its master took over, and ends where the next one begins. Two logs that have an
epoch with the same start hold the same bytes up to where the shorter of both ends, for only one master wrote in it. So
a slave finds what it has to cut before it follows another master (`common`).

The file is RocketMQ's `epochFileCheckpoint`, which a Java broker reads too:

    number of epochs, CRC-32 & 0x7FFFFFFF of their lines (0 = not checked), `epoch-start` of each; a line for everything

Java does not record an epoch in which nothing was written. Two masters that followed each other without a message then
share one, and what each of them wrote later looks equal. Here every epoch is recorded, so starts may be equal.
"""

import bisect
import zlib
from collections.abc import Sequence
from pathlib import Path

from bolide.errors import ProtocolError, StoreError
from bolide.files import read_whole, write_whole
from bolide.ha.frames import Epoch, check_order

FILE_NAME = "epochFileCheckpoint"
_CRC_MASK = 0x7FFF_FFFF


def encode(epochs: Sequence[Epoch]) -> str:
    lines = "".join(f"{each.number}-{each.start}\n" for each in epochs)
    return f"{len(epochs)}\n{zlib.crc32(lines.encode()) & _CRC_MASK}\n{lines}"


def decode(text: str) -> tuple[Epoch, ...]:
    """Raises ValueError for what is no such file."""
    count, crc, *lines = text.splitlines()
    content = "".join(line + "\n" for line in lines)
    if int(count) != len(lines):
        raise ValueError(f"{count} epochs were to follow, and {len(lines)} do")
    if int(crc) not in (0, zlib.crc32(content.encode()) & _CRC_MASK):
        raise ValueError(f"a checksum of {crc}, and the lines have {zlib.crc32(content.encode()) & _CRC_MASK}")
    epochs = tuple(Epoch(int(number), int(start)) for number, _, start in (line.partition("-") for line in lines))
    try:
        check_order(epochs)
    except ProtocolError as problem:
        raise ValueError(str(problem)) from problem
    return epochs


class Epochs:
    """All that are known here, oldest first. Every change is on disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: tuple[Epoch, ...] = read_whole(path, decode, ())

    @property
    def last(self) -> Epoch | None:
        return self.entries[-1] if self.entries else None

    def record(self, number: int, start: int) -> None:
        """An epoch begins. One that is known with the same start is left as it is; StoreError where it cannot be."""
        new = Epoch(number, start)
        if new == self.last:
            return
        try:
            check_order((*self.entries[-1:], new))
        except ProtocolError as problem:
            raise StoreError(f"{problem}; epochs follow each other in {self._path}") from problem
        self._replace((*self.entries, new))

    def cut_to(self, end: int, number_max: int | None = None) -> None:
        """The log ends at `end` now: epochs that begin behind it go, and those above a number.

        One that begins at the end stays: it is the epoch of what is written next.
        """
        self._replace(
            tuple(
                each for each in self.entries if each.start <= end and (number_max is None or each.number <= number_max)
            )
        )

    def drop_below(self, start: int) -> None:
        """The log begins at `start` now: epochs that end before it go, but never the last."""
        ends = [each.start for each in self.entries[1:]]
        self._replace(self.entries[bisect.bisect_left(ends, start) :])

    def holding(self, offset: int) -> tuple[Epoch, int | None] | None:
        """The epoch to which the byte at an offset belongs, and where it ends; None for an offset before all."""
        i = bisect.bisect_right(self.entries, offset, key=lambda each: each.start) - 1
        if i < 0:
            return None
        return self.entries[i], self.entries[i + 1].start if i + 1 < len(self.entries) else None

    def common(self, others: Sequence[Epoch], others_end: int, own_end: int) -> tuple[int, int] | None:
        """The newest epoch that both have with the same start, and up to where both logs are the same."""
        starts = {each.number: i for i, each in enumerate(others)}
        for i, own in reversed(list(enumerate(self.entries))):
            j = starts.get(own.number)
            if j is None or others[j].start != own.start:
                continue
            own_limit = self.entries[i + 1].start if i + 1 < len(self.entries) else own_end
            others_limit = others[j + 1].start if j + 1 < len(others) else others_end
            return own.number, min(own_limit, others_limit)
        return None

    def _replace(self, entries: tuple[Epoch, ...]) -> None:
        if entries == self.entries:
            return
        write_whole(self._path, encode(entries))
        self.entries = entries
