"""What is cut off the log is kept: rot cannot be told from a torn write for sure, and someone may want the bytes.

A cut tail goes to `cutoffs/` in the store's root, from the cut to its last byte that is not zero; whole files that lie
behind the cut are moved there. The newest few are kept. A tail too large to copy stays where it is: a blank record ends
its file at the cut, and the log goes on in the next.
"""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bolide.kernel.layout import BLANK_SIZE, MAGIC_BLANK
from bolide.store.disk import Disk
from bolide.store.segments import Segments

log = logging.getLogger(__name__)

COPIED_SIZE_MAX = 64 << 20
_FILES_MAX = 16
_PART = 1 << 20


class Cutoffs:
    """The directory of what was cut off."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._directory = root / "cutoffs"
        self.kept: list[Path] = []
        self.size = 0

    def cut(self, segments: Segments, end: int, written_end: Callable[[int, int], int]) -> int:
        """Keep what lies behind the end of the log, and cut it off; returns where the log may go on."""
        for base in [base for base in segments.bases if base > end]:
            size = written_end(base, base) - base
            if size:
                self._move(segments, base, size)
        base_of_end = segments.base_of(end)
        if base_of_end is not None:
            segment = segments.open(base_of_end)
            at = end - base_of_end
            size = written_end(base_of_end, end) - end
            if size > COPIED_SIZE_MAX and segment.size - at >= BLANK_SIZE:
                self._copy(f"log-{end}", segment.view[at : at + BLANK_SIZE])
                segment.write((segment.size - at).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big"), at)
                segment.sync()
                self.size += size
                end = base_of_end + segment.size
            elif size:
                self._copy(f"log-{end}", segment.view[at : at + size])
                self.size += size
                segments.truncate(end)
        segments.remove_from(end + 1)  # an empty last file stays, for without any the log would start at 0 again
        return end

    def cut_exactly(self, segments: Segments, end: int) -> None:
        """Cut the log off at a place it must end at, and keep what lies behind, if the disk has room for it."""
        for base in [base for base in reversed(segments.bases) if base > end]:
            size = segments.open(base).written_end(0)
            if size:
                self._move(segments, base, size)
        segment = segments.find(end)
        if segment is not None:
            at = end - segment.base
            size = segment.written_end(at) - at
            if size:
                try:
                    self._copy(f"log-{end}", segment.view[at : at + size])
                except OSError as error:
                    log.error("what is cut off the log cannot be kept offset=%d size=%d error=%s", end, size, error)
        segments.truncate(end)

    def _move(self, segments: Segments, base: int, size: int) -> None:
        self._begin()
        target = self._fresh(f"log-{base}")
        path = segments.forget(base)
        shutil.move(path, target)
        self._disk.sync_directory(path.parent)
        self._disk.sync_directory(self._directory)
        self.kept.append(target)
        self.size += size

    def _copy(self, name: str, content: memoryview) -> None:
        self._begin()
        target = self._fresh(name)
        fd = self._disk.create(target, len(content))
        try:
            for at in range(0, len(content), _PART):
                self._disk.write(fd, content[at : at + _PART], at)
            self._disk.sync(fd)
        finally:
            os.close(fd)
        self._disk.sync_directory(self._directory)
        self.kept.append(target)

    def _begin(self) -> None:
        self._disk.make_directories(self._directory)
        old = sorted(self._directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in old[: len(old) + 1 - _FILES_MAX] if len(old) >= _FILES_MAX else []:
            self._disk.remove(path)

    def _fresh(self, name: str) -> Path:
        number = 0
        while (target := self._directory / f"{name}.{number}").exists():
            number += 1
        return target
