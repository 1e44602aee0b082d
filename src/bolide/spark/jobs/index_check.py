"""An index file as columns: is every entry in its chain, and does it lead to a record? Runs in tasks."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bolide.kernel.layout import ENTRY_SIZE, INDEX_HEADER_SIZE
from bolide.spark.store.log_files import LogFile, mapped

_ENTRY = np.dtype([("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """How index files are laid out, and the log they lead to."""

    slot_count: int
    entry_count_max: int
    log: tuple[LogFile, ...]

    @property
    def size(self) -> int:
        return INDEX_HEADER_SIZE + self.slot_count * 4 + self.entry_count_max * ENTRY_SIZE

    @property
    def entries_at(self) -> int:
        return INDEX_HEADER_SIZE + self.slot_count * 4


def _entries(files: IndexFiles, view: memoryview) -> np.ndarray:
    """The entries in use; number 0 is none."""
    count = int.from_bytes(view[36:40], "big", signed=True)
    count = min(max(count, 1), files.entry_count_max)
    return np.frombuffer(view[files.entries_at : files.entries_at + count * ENTRY_SIZE], _ENTRY).copy()


def index_keys(files: IndexFiles, path: str) -> Iterator[pa.RecordBatch]:
    """What the file holds, as hash and physical offset."""
    if Path(path).stat().st_size != files.size:
        return
    with mapped(path) as view:
        entries = _entries(files, view)
    for start in range(1, len(entries), _STEP):
        part = entries[start : start + _STEP]
        columns = [part["hash"].astype(np.int32), part["physical"].astype(np.int64)]
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], names=["hash", "physical"])


def index_findings(files: IndexFiles, path: str, count_max: int) -> list[tuple[int, str]]:
    """What does not fit, with its place in the file."""
    size = Path(path).stat().st_size
    if size != files.size:
        return [(0, f"has {size} bytes instead of {files.size}; set maxHashSlotNum and maxIndexNum as it was written")]
    with mapped(path) as view:
        entries = _entries(files, view)
        slots = np.frombuffer(view[INDEX_HEADER_SIZE : files.entries_at], ">i4").astype(np.int64)
    found = _chain_findings(files, entries, slots) if len(entries) > 1 else []
    places = _without_record(files, entries["physical"].astype(np.int64)[1:])
    found += [(int(n) + 1, f"entry {n + 1}: no record at {entries['physical'][n + 1]}") for n in places]
    ordered = sorted(set(found))[:count_max]
    return [(files.entries_at + number * ENTRY_SIZE, what) for number, what in ordered]


def _chain_findings(files: IndexFiles, entries: np.ndarray, slots: np.ndarray) -> list[tuple[int, str]]:
    """Entries of one slot form a chain from the newest to the oldest, and the slot leads to the newest."""
    numbers = np.arange(1, len(entries), dtype=np.int64)
    slot = entries["hash"].astype(np.int64)[1:] % files.slot_count
    previous = entries["previous"].astype(np.int64)[1:]
    order = np.argsort(slot, kind="stable")
    ordered, in_slot = numbers[order], slot[order]
    is_oldest = np.ones(len(order), bool)
    is_oldest[1:] = in_slot[1:] != in_slot[:-1]
    expected = np.where(is_oldest, 0, np.roll(ordered, 1))
    found = [
        (int(number), f"entry {number} follows {before} in its chain")
        for number, before in zip(numbers[previous >= numbers], previous[previous >= numbers], strict=True)
    ]
    # An entry whose newer neighbour leads elsewhere cannot be reached, nor the newest of a slot that does.
    is_lost = (previous[order] != expected) & (expected > 0)
    found += [(int(n), f"entry {n} cannot be reached from its slot") for n in expected[is_lost]]
    is_newest = np.ones(len(order), bool)
    is_newest[:-1] = is_oldest[1:]
    is_lost = is_newest & (slots[in_slot] != ordered)
    return found + [(int(n), f"entry {n} cannot be reached from its slot") for n in ordered[is_lost]]


def _without_record(files: IndexFiles, physical: np.ndarray) -> np.ndarray:
    """The entries where no record begins; what is gone from the log is not missed."""
    is_missing = physical >= (files.log[0].base if files.log else 0)
    for file in files.log:
        here = np.flatnonzero((physical >= file.base) & (physical + 36 <= file.base + file.size))
        if len(here):
            with mapped(file.path, mmap.MADV_RANDOM) as view:
                places = physical[here] - file.base + 28
                stated = np.frombuffer(view, np.uint8)[places[:, None] + np.arange(8)].view(">i8").reshape(-1)
                is_missing[here] = stated != physical[here]
    return np.flatnonzero(is_missing)
