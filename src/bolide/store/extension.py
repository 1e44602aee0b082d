"""Consume queue extensions: units that an entry points to instead of holding a tag hash. Read, never written.

A Java broker with `enableConsumeQueueExt=true` stores beside each entry a unit with the real tag hash, the store time
and a bitmap of matching filters; the entry then holds the unit's address, its offset in the run of extension files
minus 2**63. Here the tag hash is all that is wanted: what such a broker left must be filtered as it would have been. A
unit that is missing, torn or wrong is not made again: its entry gets the tag of its record (`entrycheck.py`) when it is
first read. Should one be lost after that, an unknown tag is passed on, for the client filters again.

    unit: i16 size (20 + bitmap), i64 tag hash, i64 store time, i16 bitmap size, bitmap
"""

import contextlib
import itertools
import os
import struct
from pathlib import Path
from typing import BinaryIO

from bolide.kernel.layout import ENTRY_SIZE
from bolide.store.disk import Disk
from bolide.store.segment import segment_name

_UNIT = struct.Struct(">hqqh")
_ADDRESS_START = -(2**63)
_TAG_MIN = -(2**31)
_TAG = struct.Struct(">q")
_TAG_AT = 12  # in an entry


class QueueExtension:
    """The extension files of one queue."""

    def __init__(self, directory: Path, file_size: int) -> None:
        self._directory = directory
        self._file_size = file_size

    def resolve(self, entries: memoryview) -> memoryview:
        """Entries with tag hashes in place of addresses; an address that leads nowhere stays."""
        resolved = bytearray(entries)
        files: dict[int, BinaryIO | None] = {}
        with contextlib.ExitStack() as stack:
            for at in range(_TAG_AT, len(resolved), ENTRY_SIZE):
                (address,) = _TAG.unpack_from(resolved, at)
                if address >= _TAG_MIN:
                    continue
                base, position = _split(address - _ADDRESS_START, self._file_size)
                if base not in files:
                    files[base] = self._open(base, stack)
                tag = self._tag_at(files[base], position)
                if tag is not None:
                    _TAG.pack_into(resolved, at, tag)
        return memoryview(resolved)

    def _open(self, base: int, stack: contextlib.ExitStack) -> BinaryIO | None:
        try:
            return stack.enter_context(open(self._directory / segment_name(base), "rb"))
        except OSError:
            return None

    def _tag_at(self, file: BinaryIO | None, position: int) -> int | None:
        try:
            unit = b"" if file is None else os.pread(file.fileno(), _UNIT.size, position)
        except OSError:  # a page that cannot be read
            return None
        if len(unit) < _UNIT.size:
            return None
        size, tag, _, bitmap_size = _UNIT.unpack(unit)
        is_whole = bitmap_size >= 0 and size == _UNIT.size + bitmap_size and position + size <= self._file_size
        return int(tag) if is_whole else None


def remove_expired(disk: Disk, root: Path, log_ms: int) -> list[Path]:
    """Delete the files below root whose units belong to messages stored before log_ms, the oldest in the log.

    Units lie in the order of their store times, so the first of the next file is younger than all of a file. The last
    file of a queue stays, as that of the queue itself does.
    """
    gone: list[Path] = []
    for directory in sorted(root.glob("*/*")):
        files = sorted(path for path in directory.iterdir() if path.name.isdecimal())
        for path, following in itertools.pairwise(files):
            if not _begins_before(following, log_ms):
                break
            disk.remove(path)
            gone.append(path)
    return gone


def _begins_before(path: Path, time_ms: int) -> bool:
    with open(path, "rb") as file:
        unit = file.read(_UNIT.size)
    if len(unit) < _UNIT.size:
        return False
    size, _, store_ms, _ = _UNIT.unpack(unit)
    return bool(size >= _UNIT.size and store_ms < time_ms)


def _split(offset: int, file_size: int) -> tuple[int, int]:
    """An offset of the run as the base of its file and the position in it."""
    return offset - offset % file_size, offset % file_size
