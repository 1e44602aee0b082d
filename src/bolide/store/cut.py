"""The log is made to end earlier than it does: a note first, then the cut, and then the note goes.

A log of several files cannot be cut in one step, and half a cut would leave records that come back some day. So where
it is to end is written down durably before anything is touched (`bolide.cut`: the offset and its checksum, as text),
and a start that finds the note finishes the cut before it looks at anything else.

The checkpoint goes back first: what lies behind the cut is no longer durable, and the times by which a start believes
queues and index must not be those of records that are gone.
"""

import contextlib
import logging
import os
import zlib

from bolide import kernel
from bolide.kernel.layout import BODY_CHECKED
from bolide.store.checkpoint import Checkpoint
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig
from bolide.store.cutoffs import Cutoffs
from bolide.store.disk import Disk
from bolide.store.segment import Segment
from bolide.store.segments import Segments

log = logging.getLogger(__name__)
FILE_NAME = "bolide.cut"


class LogCut:
    """One cut of a store's log, and what is needed to finish it after a crash."""

    def __init__(self, disk: Disk, config: StoreConfig, checkpoint: Checkpoint) -> None:
        self._disk = disk
        self._root = config.root
        self._path = config.root / FILE_NAME
        self._checkpoint = checkpoint

    def resume(self, commitlog: CommitLog) -> bool:
        """Finish a cut that was under way when the last process ended; false if none was."""
        offset = self._noted()
        if offset is None:
            return False
        log.warning("the log is cut at %d, as it was to be when the store was last open", offset)
        commitlog.segments.load()
        self.run(commitlog.segments, offset)
        commitlog.close()
        return True

    def _noted(self) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            offset, _, checksum = self._path.read_bytes().partition(b" ")
            if offset.isdigit() and checksum == b"%08x\n" % zlib.crc32(offset):
                return int(offset)
        return None

    def begin(self, offset: int) -> None:
        """From here on the log is cut there, whatever happens."""
        self.end()
        content = b"%d %08x\n" % (offset, zlib.crc32(b"%d" % offset))
        fd = self._disk.create(self._path, len(content))
        try:
            self._disk.write(fd, content, 0)
            self._disk.sync(fd)
        finally:
            os.close(fd)
        self._disk.sync_directory(self._root)

    def run(self, segments: Segments, offset: int) -> None:
        """Take the checkpoint back, and have nothing behind the offset but zeros; what was there is kept."""
        behind_ms = _first_ms_before(segments, offset)
        checkpoint = self._checkpoint
        checkpoint.durable, checkpoint.confirmed = min(checkpoint.durable, offset), min(checkpoint.confirmed, offset)
        checkpoint.log_ms, checkpoint.queue_ms = min(checkpoint.log_ms, behind_ms), min(checkpoint.queue_ms, behind_ms)
        checkpoint.index_ms = min(checkpoint.index_ms, max(behind_ms - 1, 0))
        checkpoint.save()
        Cutoffs(self._disk, self._root).cut_exactly(segments, offset)

    def end(self) -> None:
        """All is done."""
        if self._path.exists():
            self._disk.remove(self._path)
            self._disk.sync_directory(self._root)


def first_store_ms(segment: Segment, check: int) -> int:
    """The store time of a segment's first record, -1 if it is not whole."""
    # By a call: the first touch of the map reads megabytes ahead, and the newest file is empty.
    size = int.from_bytes(os.pread(segment.fd, 4, 0), "big", signed=True)
    if not 0 < size <= segment.size:
        return -1
    *_, last_store_ms, _, _ = kernel.walk_records(segment.view, 0, size, segment.base, check, ())
    return last_store_ms


def _first_ms_before(segments: Segments, offset: int) -> int:
    """The store time of the first record of the file that the log will end in; 0 if there is none."""
    before = [base for base in segments.bases if base < offset]
    return max(first_store_ms(segments.open(before[-1]), BODY_CHECKED), 0) if before else 0
