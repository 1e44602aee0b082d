"""Follows the log; feeds queues, index and listeners.

An append hands over what the kernel derived from its batch. It is written in the same turn, or, when readers may not
see the batch yet (synchronous flush, transient pool), once they may. If a queue or index file cannot be written (a full
disk), the rest waits here in order and is tried again: the log has the messages, so nothing is lost, and until it is
written no new message is taken in.

After a start, recovery walks the log itself and hands over the same things.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bolide.errors import StoreError
from bolide.kernel.plain_records import Run
from bolide.model.names import path_problem
from bolide.store.config import StoreConfig
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.disk import Disk
from bolide.store.index import Index
from bolide.store.segments import SegmentPool, open_segments_max

log = logging.getLogger(__name__)


class Arrival(NamedTuple):
    """New messages of one queue, ready to be read: from `queue_offset` on, one entry (20 bytes) each."""

    topic: str
    queue_id: int
    queue_offset: int
    entries: bytes
    store_ms: int


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
        self._pool = SegmentPool(disk, min(config.open_files_max, open_segments_max()), is_sparse=True)
        self._directory = config.root / "consumequeue"
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.index = Index(disk, config.root / "index", config.index_slots, config.index_entries_max)
        self.on_arrival: Callable[[Arrival], None] | None = None
        self.problem: OSError | None = None
        self.store_ms = 0  # of the newest record that is in its queue
        self._waiting: deque[_Waiting] = deque()
        self._new_directories: set[Path] = set()

    def load(self, physical_limit: int | None) -> None:
        """Open all queues; with a limit, believe only entries that point below it."""
        if not self._directory.is_dir():
            return
        for topic in _subdirectories(self._directory):
            for queue_id in _subdirectories(self._directory / topic):
                if not queue_id.isdecimal():
                    raise StoreError(f"{self._directory / topic / queue_id} is no queue: its name is not a number")
                queue = self._make_queue(topic, int(queue_id))
                if physical_limit is None:
                    queue.load()
                else:
                    queue.load_below(physical_limit)

    def _make_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        check_path_part(topic)
        queue = ConsumeQueue(self._pool, self._directory, self._config.queue_file_bytes, topic, queue_id)
        self.queues[topic, queue_id] = queue
        return queue

    @property
    def physical_end(self) -> int:
        """The log is in the queues up to here at most."""
        return max((queue.physical_end for queue in self.queues.values()), default=0)

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def take(self, end: int, store_ms: int, runs: list[Run], keys: bytes, limit: int) -> bool:
        """Write what was derived from the log up to end, or keep it in order until it may be seen; true if written."""
        batch = _Waiting(end, store_ms, runs, keys if self._config.index_enabled else b"")
        if not self._waiting and end <= limit and self._is_written(batch):
            return True
        self._waiting.append(batch)
        return False

    def advance(self, limit: int) -> int | None:
        """Write what may be seen now; returns up to where it is written, None if nothing moved.

        A failure is kept as `problem` and what is left is tried again by the next call.
        """
        reached = None
        while self._waiting and self._waiting[0].end <= limit and self._is_written(self._waiting[0]):
            reached = self._waiting.popleft().end
        return reached

    def _is_written(self, batch: _Waiting) -> bool:
        try:
            self._write(batch)
        except OSError as error:
            if self.problem is None:
                log.error("queues or index cannot be written error=%s", error)
            self.problem = error
            return False
        self.problem = None
        self.store_ms = batch.store_ms
        if self.on_arrival is not None:
            for run in batch.runs:
                self.on_arrival(Arrival(*run, batch.store_ms))
        return True

    def _write(self, batch: _Waiting) -> None:
        for topic, queue_id, first_offset, entries in batch.runs:
            queue = self.queues.get((topic, queue_id))
            if queue is None and (problem := path_problem(topic)) is not None:
                log.error("messages have no queue, for their topic cannot have a directory: %s", problem)
                continue
            if queue is None:
                queue = self._make_queue(topic, queue_id)
                self._new_directories.add(queue.segments.directory)
            queue.put(first_offset, entries)  # what a failed call has written already is left out
        while batch.keys:
            batch.keys = self.index.put(batch.keys, batch.store_ms)

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
        for queue in self.queues.values():
            for _ in queue.expired_bases(log_start):
                queue.segments.remove_first()
            queue.raise_min(log_start)
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

    def close(self) -> None:
        self._pool.close()
        self.index.close()


def check_path_part(topic: str) -> None:
    """A topic's name becomes a directory, and with the topic that is removed: raises StoreError for what leads away."""
    if (problem := path_problem(topic)) is not None:
        raise StoreError(f"no topic: {problem}")


def _subdirectories(path: Path) -> list[str]:
    with os.scandir(path) as found:
        return sorted(entry.name for entry in found if entry.is_dir())
