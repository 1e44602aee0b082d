"""An index file whose chains do not hold, made again from the log while the store is open.

A search notices: an entry that is not of its slot, a chain that does not lead back, a place without a record, a slot
that is empty where its neighbours are too. A file of some ten thousand keys is made again at once. A large one would
hold everybody up, so that is left to the next start, and until then a search there is refused, for "no such message"
might be untrue.
"""

import logging
import os

from bolide.errors import Refusal
from bolide.kernel.layout import ENTRY_SIZE
from bolide.protocol.codes import ResponseCode
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig
from bolide.store.derived import walk_keys
from bolide.store.disk import Disk
from bolide.store.index import Index, IndexFile
from bolide.store.roster import Roster

log = logging.getLogger(__name__)
_KEYS_MAX = 200_000
_LOG_MAX = 256 << 20  # bytes of it that are read at once for one file


class IndexMending:
    """Given to the index, which asks it when a search fails."""

    def __init__(self, disk: Disk, config: StoreConfig, commitlog: CommitLog, index: Index, roster: Roster) -> None:
        self._disk = disk
        self._config = config
        self._log = commitlog
        self._index = index
        self._roster = roster

    def has_record(self, place: int) -> bool:
        """Whether a record begins there, or began before it expired."""
        if place < self._log.start:
            return True
        head = self._log.view(place + 28, 8) if place < self._log.end else None
        return head is not None and head == place.to_bytes(8, "big")

    def mend(self, file: IndexFile, odd: str) -> IndexFile:
        """A file like this one with all its keys, in its place; raises Refusal where that takes too long."""
        header = file.header()
        start = max(self._start(file), self._log.start)
        if not 0 < header.next_entry <= _KEYS_MAX or header.end_physical - start > _LOG_MAX:
            file.is_damaged = True
            self._roster.add_full_index(file.path.name, file.encoded_header())
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{file.path} is damaged ({odd}); restart the broker to have it made again from the log",
            )
        log.warning("index file made again from the log file=%s reason=%s", file.path, odd)
        fresh = self._index.replacement(file)
        last = self._log.view(header.end_physical, 4)
        end = header.end_physical + (0 if last is None else int.from_bytes(last, "big"))
        keys = b"".join(walk_keys(self._log, self._config, start, min(end, self._log.end)))
        keys = keys[self._filed_before(file) * ENTRY_SIZE :][: (header.next_entry - 1) * ENTRY_SIZE]
        fresh.put(keys)
        fresh.sync()
        os.replace(fresh.path, file.path)
        self._disk.sync_directory(file.path.parent)
        self._index.swap(file, fresh)
        if file.path.name in self._roster.index:
            self._roster.add_full_index(file.path.name, fresh.encoded_header())
        return fresh

    def _before(self, file: IndexFile) -> IndexFile | None:
        number = self._index.files.index(file)
        return self._index.files[number - 1] if number else None

    def _start(self, file: IndexFile) -> int:
        """The record whose keys come first: the last of the file before may have more of them."""
        before = self._before(file)
        return file.header().begin_physical if before is None else before.header().end_physical

    def _filed_before(self, file: IndexFile) -> int:
        """How many keys of that record are in the file before."""
        before, count = self._before(file), 0
        if before is not None:
            number, place = before.header().next_entry - 1, before.header().end_physical
            while number - count > 0 and before.entry(number - count)[1] == place:
                count += 1
        return count if before is not None and place >= self._log.start else 0
