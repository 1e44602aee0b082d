"""Follows the log; feeds queues, index and listeners.

An append hands over what the kernel derived from its batch. It is written in the same turn, or, when readers may not
see the batch yet (synchronous flush, transient pool), once they may. If a queue or index file cannot be written (a full
disk), the rest waits here in order and is tried again: the log has the messages, so nothing is lost, and until it is
written no new message is taken in.

After a start, recovery walks the log itself and hands over the same things.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bolide.errors import StoreError
from bolide.kernel.layout import ENTRY, ENTRY_SIZE, NOTHING_SIZE, Run
from bolide.model.names import path_problem
from bolide.store.config import StoreConfig
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.disk import Disk
from bolide.store.index import Index
from bolide.store.named import first_from
from bolide.store.roster import Extent, Key, Roster
from bolide.store.segments import SegmentPool, open_segments_max

log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """New messages of one queue, ready to be read: from `queue_offset` on, one entry (20 bytes) each."""

    topic: str
    queue_id: int
    queue_offset: int
    entries: bytes
    store_ms: int


_new = tuple.__new__  # of an Arrival: a third of the cost of its own


@dataclass(slots=True)
class _Waiting:
    end: int
    store_ms: int
    runs: list[Run]
    keys: bytes


class Dispatch:
    """Owner of all queues and the index."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._config = config
        self._is_indexing = config.index_enabled
        self._pool = SegmentPool(disk, min(config.open_files_max, open_segments_max()), is_sparse=True)
        self._directory = config.root / "consumequeue"
        self.queues: dict[Key, ConsumeQueue] = {}
        self.roster = Roster(disk, config.root)
        self.index = Index(disk, config.root / "index", config.index_slots, config.index_entries_max)
        self.index.on_full = self.roster.add_full_index
        self.on_arrival: Callable[[Arrival], None] | None = None
        self.check: Callable[[ConsumeQueue, int, int], None] | None = None  # of entries, against the log
        self.problem: OSError | None = None
        self.store_ms = 0  # of the newest record that is in its queue
        self._waiting: deque[_Waiting] = deque()
        self._new_directories: set[Path] = set()

    def load(self, physical_limit: int | None, is_exact: bool = False) -> dict[Key, str]:
        """Open all queues; with a limit, believe only entries that point below it.

        Returns the queues that are odd, each with a reason. They are compared with an exact roster, entry by entry.
        """
        odd: dict[Key, str] = {}
        refused: dict[Key, StoreError] = {}
        for topic in _subdirectories(self._directory):
            for queue_id in _subdirectories(self._directory / topic):
                if not queue_id.isdecimal():
                    raise StoreError(f"{self._directory / topic / queue_id} is no queue: its name is not a number")
                key = topic, int(queue_id)
                queue = self.make_queue(key)
                try:
                    if physical_limit is None:
                        reason = queue.load(self.roster.queues.get(key) if is_exact else None)
                    else:
                        reason = queue.load_below(physical_limit)
                    if reason:
                        odd[key] = reason
                except StoreError as error:
                    refused[key] = error
        return odd | self._set_aside(refused)

    def _set_aside(self, refused: dict[Key, StoreError]) -> dict[Key, str]:
        """Delete files of a wrong length, for they can be made again; unless it seems that another length was meant."""
        if not refused:
            return {}
        wanted, lengths = self._config.queue_file_bytes, Counter[int]()
        for key in self.queues:
            lengths.update(path.stat().st_size for path in self.queues[key].segments.directory.iterdir())
        length, count = lengths.most_common(1)[0]
        if wanted not in lengths and count > 1 and length % ENTRY_SIZE == 0:
            raise next(iter(refused.values()))
        for key, error in refused.items():
            directory = self.queues[key].segments.directory
            files = [path for path in directory.iterdir() if path.stat().st_size != wanted]
            if not all(path.name.isdecimal() for path in files):
                raise error
            for path in files:
                log.warning("file has a wrong length file=%s bytes=%d wanted=%d", path, path.stat().st_size, wanted)
                self._disk.remove(path)
            self._disk.sync_directory(directory)
            self.queues[key].forget()
        return dict.fromkeys(refused, "a file had a wrong length")

    def make_queue(self, key: Key) -> ConsumeQueue:
        """A queue without a message, until it is loaded or written to."""
        check_path_part(key[0])
        queue = self.queues[key] = ConsumeQueue(self._pool, self._directory, self._config.queue_file_bytes, *key)
        if self.check is not None:
            queue.check_with(self.check)
        return queue

    def queue_end(self, key: Key) -> int | None:
        """The offset that the next entry of a queue gets, None for a queue that is not here."""
        queue = self.queues.get(key)
        return None if queue is None else queue.next_offset

    @property
    def physical_end(self) -> int:
        """The log is in the queues up to here at most."""
        return max((queue.physical_end for queue in self.queues.values()), default=0)

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def take(self, end: int, store_ms: int, runs: list[Run], keys: bytes, limit: int) -> bool:
        """Write what was derived from the log up to end, or keep it in order until it may be seen; true if written."""
        if not self._is_indexing:
            keys = b""
        if not self._waiting and end <= limit:
            keys_left = self._write(store_ms, runs, keys)
            if keys_left is None:
                return True
            keys = keys_left
        self._waiting.append(_Waiting(end, store_ms, runs, keys))
        return False

    def advance(self, limit: int) -> int | None:
        """Write what may be seen now; returns up to where it is written, None if nothing moved.

        A failure is kept as `problem` and what is left is tried again by the next call.
        """
        reached = None
        while self._waiting and self._waiting[0].end <= limit:
            batch = self._waiting[0]
            keys_left = self._write(batch.store_ms, batch.runs, batch.keys)
            if keys_left is not None:
                batch.keys = keys_left
                break
            reached = self._waiting.popleft().end
        return reached

    def _write(self, store_ms: int, runs: list[Run], keys: bytes) -> bytes | None:
        """Feed queues and index, and tell of it; None if that is done, else the keys that are left to be filed."""
        try:
            for topic, queue_id, first_offset, entries in runs:
                queue = self.queues.get((topic, queue_id)) or self._first_of_queue((topic, queue_id))
                if queue is not None:
                    queue.put(first_offset, entries)  # what a failed call has written already is left out
            while keys:
                keys = self.index.put(keys, store_ms)
        except OSError as error:
            if self.problem is None:
                log.error("queues or index cannot be written error=%s", error)
            self.problem = error
            return keys
        self.problem = None
        self.store_ms = store_ms
        tell = self.on_arrival
        if tell is not None:
            for run in runs:
                tell(_new(Arrival, (*run, store_ms)))
        return None

    def _first_of_queue(self, key: Key) -> ConsumeQueue | None:
        """A queue for its first message, None where its topic cannot have one."""
        if (problem := path_problem(key[0])) is not None:
            log.error("messages have no queue, for their topic cannot have a directory: %s", problem)
            return None
        queue = self.make_queue(key)
        self._new_directories.add(queue.segments.directory)
        if key not in self.roster.queues:
            self.roster.add_queue(key)
        return queue

    def next_offsets(self) -> dict[tuple[str, int], int]:
        return {key: queue.next_offset for key, queue in self.queues.items()}

    def unsynced(self, pages_min: int) -> tuple[list[tuple[Path, int]], set[Path]]:
        """Segments with at least that many dirty pages, by directory and base; directories whose names may be lost.

        Nothing is opened and no path is made for it, since thousands of queues may be dirty, and everybody waits.
        """
        segments: list[tuple[Path, int]] = []
        directories: set[Path] = set()
        for queue in self.queues.values():
            if queue.dirty_from is not None and queue.dirty_pages() >= pages_min:
                directory = queue.segments.directory
                segments += [(directory, base) for base in queue.unsynced()]
                directories.add(directory)
        for directory in self._new_directories & directories:
            directories |= {directory.parent, self._directory, self._config.root}
        self._new_directories -= directories
        return segments, directories

    def raise_min(self, log_start: int) -> None:
        """After log segments went: so do the queue and index files that only pointed there."""
        shorter = []
        for key, queue in self.queues.items():
            expired = queue.expired_bases(log_start)
            for _ in expired:
                queue.segments.remove_first()
            queue.raise_min(log_start)
            if expired:
                shorter.append((key, queue.extent(has_first=False)))
        self.roster.note(shorter)
        self.index.remove_below(log_start)

    def remove_topic(self, topic: str) -> None:
        """Delete the queues of a topic, for good; its records stay in the log until they expire."""
        check_path_part(topic)
        for key in [key for key in self.queues if key[0] == topic]:
            queue = self.queues.pop(key)
            queue.segments.close()
            self._new_directories.discard(queue.segments.directory)
        for batch in self._waiting:
            batch.runs = [run for run in batch.runs if run[0] != topic]
        self.roster.remove_topic(topic)
        for directory in (self._directory, self._config.root / "consumequeue_ext"):
            if (directory / topic).is_dir():
                self._remove_tree(directory / topic)
                # The one name that leads to all the others: queues that came back would be believed.
                self._disk.sync_directory(directory)

    def _remove_tree(self, path: Path) -> None:
        for directory, _, names in os.walk(path, topdown=False):
            for name in names:
                self._disk.remove(Path(directory) / name)
            os.rmdir(directory)

    def place_beyond(self, physical_limit: int) -> int | None:
        """The place of the first record in a queue that ends behind a limit, None without one."""
        found: list[int] = []
        for queue in self.queues.values():
            for base in reversed(queue.segments.bases):
                entries = queue.segments.open(base).view[: queue.next_offset * ENTRY_SIZE - base]
                number = max(first_from(entries, physical_limit) - 1, 0)  # the one before may reach over it
                behind = ENTRY.iter_unpack(entries[number * ENTRY_SIZE :])
                found += islice((at for at, size, _ in behind if NOTHING_SIZE != size > physical_limit - at), 1)
                if number:
                    break
        return min(found, default=None)

    def cut(self, end: int, trusted_ms: int, time_at: Callable[[int], int | None]) -> None:
        """The log ends here now, or must not be seen from here on: queues and index forget what follows, durably.

        What waits is forgotten too. `time_at` knows the store time of the record at a place.
        """
        self._waiting.clear()
        with self._disk.syncing_together():
            for key, queue in list(self.queues.items()):
                if queue.physical_end > end or queue.physical_end == 0:  # the last entry may stand for nothing
                    queue.cut(end)
                    queue.dirty_from = min(queue.dirty_from or 0, queue.next_offset * ENTRY_SIZE)
                if not queue.segments.bases:
                    self._new_directories.discard(queue.segments.directory)
                    del self.queues[key]
        self.index.cut(end, trusted_ms, time_at)
        newest = max((queue.entry(queue.next_offset - 1)[0] for queue in self.queues.values()), default=0)
        self.store_ms = time_at(newest) or 0
        self.renew_roster()

    def unnoted(self) -> list[tuple[Key, Extent]]:
        """How far queues go that are about to be made durable."""
        dirty = ((key, queue) for key, queue in self.queues.items() if queue.dirty_from is not None)
        return [(key, queue.extent(has_first=False)) for key, queue in dirty]

    def renew_roster(self) -> None:
        """Write down what is there after a recovery, of which files may still grow."""
        queues = {key: queue.extent(has_first=False) for key, queue in self.queues.items() if queue.next_offset}
        full = {file.path.name: file.encoded_header() for file in self.index.files if file.is_full}
        self.roster.replace(queues, full)

    def seal(self, checkpoint: bytes) -> None:
        """Write down what all files are now; they are durable, and so is the checkpoint."""
        queues = {key: queue.extent() for key, queue in self.queues.items() if queue.next_offset}
        self.roster.replace(queues, self.index.headers(), checkpoint)

    def close(self) -> None:
        self._pool.close()
        self.index.close()
        self.roster.close()


def check_path_part(topic: str) -> None:
    """A topic's name becomes a directory, and with the topic that is removed: raises StoreError for what leads away."""
    if (problem := path_problem(topic)) is not None:
        raise StoreError(f"no topic: {problem}")


def _subdirectories(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    with os.scandir(path) as found:
        return sorted(entry.name for entry in found if entry.is_dir())
