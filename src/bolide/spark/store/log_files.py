"""The commit log of a store directory as ranges that can be read apart: by nobody's leave, and without a broker.

A range begins at any byte of a segment. Records say where they lie, so the first one of a range is found by looking; a
body could hold such bytes, hence the reader of the range before makes sure that the two meet. Where the log ends is
found once, when it is planned: a store that is being written to is read up to there, and what a broker left behind the
end (zeros, half a record) belongs to no range.

A log that ends in half a record is what a crash leaves. It is said in the log of the job and left out (`mode` "tail"),
or refused ("failfast"). Damage with whole records behind it is no such thing and refused, unless "permissive" asks for
whatever is whole.
"""

import logging
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from bolide import kernel
from bolide.errors import ConfigError, CorruptRecord, StoreError
from bolide.kernel.layout import AT_BLANK, AT_END, BODY_CHECKED, UNCHECKED
from bolide.spark.columns import EVERYTHING, ROW_COUNT_MAX, Columns, Wanted

log = logging.getLogger(__name__)

TAIL, FAILFAST, PERMISSIVE = "tail", "failfast", "permissive"
MODES = (TAIL, FAILFAST, PERMISSIVE)
RANGE_SIZE = 256 << 20
_RANGE_SIZE_MIN = 32 << 20
# Clocks step; a segment is left out by its times only if it misses them by more than that.
_SLACK_MS = 600_000
_STEP = 1 << 20
_MANY = 1 << 62


@dataclass(frozen=True, slots=True)
class LogFile:
    """One segment file: its path, the physical offset of its first byte, and how much of it is log."""

    path: str
    base: int
    size: int


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one file that begin from `start` and before `end`, both counted in the file."""

    file: LogFile
    start: int
    end: int


def log_directories(paths: Sequence[str]) -> list[Path]:
    """Where the log's files are: each path is a store's root, or a directory of segments."""
    if not paths:
        raise ConfigError("path", None, "name the store's directory: .load('/data/store')")
    found = []
    for path in paths:
        root = Path(path.removeprefix("file://"))
        if not root.is_dir():
            raise ConfigError("path", path, "is not a directory of this machine")
        found.append(root / "commitlog" if (root / "commitlog").is_dir() else root)
    return found


def log_files(directories: Sequence[Path], mode: str = TAIL) -> list[LogFile]:
    """The segments that hold records, in their order, the last one up to where the log ends."""
    sizes: dict[int, tuple[Path, int]] = {}
    for directory in directories:
        for path in directory.iterdir():
            size = path.stat().st_size if path.name.isdecimal() and path.is_file() else 0
            if size:
                if int(path.name) in sizes:
                    raise StoreError(f"{path} is in {sizes[int(path.name)][0].parent} too; read one of the two")
                sizes[int(path.name)] = (path, size)
    files = [LogFile(str(path), base, size) for base, (path, size) in sorted(sizes.items())]
    if not files and not any(directory.name == "commitlog" for directory in directories):
        raise StoreError(f"{directories[0]} holds no commit log: neither a directory commitlog nor segment files")
    for before, after in pairwise(files):
        if before.base + before.size != after.base:
            _complain(f"{after.path} does not begin where {before.path} ends: part of the log is missing", mode)
    while files:
        last = files.pop()
        end = _end_of(last, mode)
        if end:
            return [*files, LogFile(last.path, last.base, end)]
    return []


def _complain(sentence: str, mode: str) -> None:
    if mode == FAILFAST:
        raise CorruptRecord(sentence)
    log.warning("%s", sentence)


def _end_of(file: LogFile, mode: str) -> int:
    """Where the records of the last segment end. Damage in the middle is for anyone who reads it."""
    with mapped(file.path) as view:
        at = 0
        while True:
            _, _, _, _, at, reason = kernel.spread_records(
                view, at, len(view), file.base, UNCHECKED, (), _MANY, _MANY, None, None, -_MANY, _MANY
            )
            if reason in (AT_END, AT_BLANK):
                return at
            # A live segment is mostly reserved zeros: they are compared in a moment, but searched in seconds.
            if not has_bytes(view, at):
                return at
            behind = next_record(view, at + 1, file.base)
            if behind < 0:
                _complain(f"{file.path} ends in half a record at byte {at}: it was left out", mode)
                return at
            at = behind


def has_bytes(view: memoryview, at: int) -> bool:
    """Whether anything but zeros follows; preallocated files are long, so it is looked at in steps."""
    zeros = bytes(_STEP)
    for start in range(at, len(view), _STEP):
        part = view[start : start + _STEP].tobytes()  # a view would be compared byte by byte
        if part != zeros[: len(part)]:
            return True
    return False


def next_record(view: memoryview, at: int, base: int) -> int:
    """The first whole record from there on that another, a blank or the end follows; -1 without one."""
    while True:
        at = kernel.find_record(view, at, len(view), base)
        if at < 0:
            return -1
        _, _, _, seen, behind, reason = kernel.spread_records(
            view, at, at + 1, base, BODY_CHECKED, (), 1, _MANY, None, None, -_MANY, _MANY
        )
        if seen and reason == AT_END:
            following = bytes(view[behind : behind + 8])
            if len(following) < 8 or not any(following) or following[4:7] in (b"\xda\xa3\x20", b"\xcb\xd4\x31"):
                return at
        at += 1


def plan(
    files: Sequence[LogFile], wanted: Wanted = EVERYTHING, range_size: int | None = None, from_physical: int = 0
) -> list[list[Range]]:
    """The log in parts of equal size, a task each: so many that every core has work, and none is tiny.

    from_physical is where a record begins: what lies before it is left out.
    """
    files = [file for file in _in_time(files, wanted) if file.base + file.size > from_physical]
    total = sum(file.size for file in files) - max(from_physical - files[0].base, 0) if files else 0
    if not total:
        return []
    cores = os.cpu_count() or 1
    if range_size:
        count = -(-total // range_size)
    else:
        count = max(min(-(-total // (RANGE_SIZE * cores)) * cores, total // _RANGE_SIZE_MIN), 1)
    part_size = max(-(-total // count), 1)
    parts: list[list[Range]] = [[]]
    room = part_size
    for file in files:
        at = max(from_physical - file.base, 0)
        while at < file.size:
            if not room:
                parts.append([])
                room = part_size
            until = min(at + room, file.size)
            parts[-1].append(Range(file, at, until))
            room -= until - at
            at = until
    return parts


def _in_time(files: Sequence[LogFile], wanted: Wanted) -> list[LogFile]:
    """Without the segments that were written before or after the wanted time; the first record of each tells."""
    if wanted.from_ms == EVERYTHING.from_ms and wanted.until_ms == EVERYTHING.until_ms:
        return list(files)
    begins = [_first_store_ms(file) for file in files]
    chosen = []
    for number, file in enumerate(files):
        begin, following = begins[number], begins[number + 1] if number + 1 < len(files) else None
        is_before = following is not None and following + _SLACK_MS < wanted.from_ms
        is_after = begin is not None and begin - _SLACK_MS >= wanted.until_ms
        if not is_before and not is_after:
            chosen.append(file)
    return chosen


def _first_store_ms(file: LogFile) -> int | None:
    with mapped(file.path) as view:
        columns, *_ = kernel.scan_records(view, 0, min(len(view), _first_size(view)), file.base, UNCHECKED)
    return columns[7][0] if columns[7] else None


def _first_size(view: memoryview) -> int:
    return max(int.from_bytes(view[:4], "big"), 0)


@contextmanager
def mapped(path: str, advice: int = mmap.MADV_NORMAL) -> Iterator[memoryview]:
    with open(path, "rb", buffering=0) as file:
        mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    mapped.madvise(advice)
    with mapped, memoryview(mapped) as view:
        yield view


def read_range(
    part: Range,
    columns: Columns,
    wanted: Wanted = EVERYTHING,
    *,
    mode: str = TAIL,
    is_checked: bool = True,
    row_count_max: int = ROW_COUNT_MAX,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in batches; those without a row are left out."""
    file, check = part.file, BODY_CHECKED if is_checked else UNCHECKED
    with mapped(file.path, mmap.MADV_SEQUENTIAL) as view:
        at = part.start and next_record(view, part.start, file.base)
        while 0 <= at < part.end:
            spread = columns.spread(
                view, at, part.end, file.base, check=check, wanted=wanted, row_count_max=row_count_max
            )
            at = spread.position
            if spread.batch.num_rows:
                yield spread.batch
            if spread.reason == AT_BLANK:
                return
            if spread.reason != AT_END:
                at = _behind_damage(view, at, part, mode)
        if part.end < file.size and at >= 0:
            _check_meeting(view, at, part)


def _behind_damage(view: memoryview, at: int, part: Range, mode: str) -> int:
    """Where to go on after a record that is not whole; -1 if that was the end of the log."""
    behind = next_record(view, at + 1, part.file.base)
    where = f"{part.file.path}: no whole record at byte {at}"
    if behind < 0:
        _complain(f"{where}, and none behind it: what is left was left out", mode)
        return -1
    if mode != PERMISSIVE:
        raise CorruptRecord(f"{where}, whole ones from byte {behind} on; read on with option mode=permissive")
    log.warning("%s, going on at byte %d", where, behind)
    return behind


def _check_meeting(view: memoryview, at: int, part: Range) -> None:
    """The next range begins with the record that it found; it must be the one that follows ours."""
    found = next_record(view, part.end, part.file.base)
    # Without one the rest is blank, and then nothing of ours may lie there either.
    if 0 <= found < part.file.size and found != at:
        raise CorruptRecord(
            f"{part.file.path}: the records end at byte {at}, but one seems to begin at {found}, inside of another; "
            f"read whole segments with option rangeSize={1 << 40}"
        )
