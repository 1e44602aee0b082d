"""A store seen from outside: read-only, without lock, recovery or a running broker.

What is shown is what the files say. Beside a running broker the newest messages may be missing; nothing else differs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from bolide import kernel
from bolide.errors import CorruptRecord, StoreError
from bolide.kernel.layout import AT_BLANK
from bolide.model.message import StoredMessage
from bolide.store.checkpoint import Checkpoint
from bolide.store.config import StoreConfig
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.disk import LookingDisk
from bolide.store.index import Index
from bolide.store.record import decode, store_ms_of
from bolide.store.segments import SegmentPool, Segments
from bolide.store.verify import health


class StoreView:
    """Opens what it is asked for and closes it again."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._disk = LookingDisk()
        self._pool = SegmentPool(self._disk, 1024)
        first, *more = config.log_directories
        self._log = Segments(self._pool, first, config.segment_size, more_directories=more)
        self._log.load()

    def summary(self) -> dict[str, Any]:
        """Everything `bolide store inspect` shows, as plain values."""
        config = self._config
        checkpoint = Checkpoint(self._disk, config.root / "checkpoint")
        checkpoint.load()
        segments = [self._segment_row(base) for base in self._log.bases]
        return {
            "root": str(config.root),
            "health": health(config.root),
            "log_start": self._log.start,
            "log_end": max((row["end"] for row in segments if row["records"]), default=self._log.start),
            "checkpoint": {
                "log_ms": checkpoint.log_ms,
                "queue_ms": checkpoint.queue_ms,
                "index_ms": checkpoint.index_ms,
            },
            "segments": segments,
            "queues": [self._queue_row(queue) for queue in self._queues()],
            "index": self._index_rows(),
        }

    def _segment_row(self, base: int) -> dict[str, Any]:
        view = self._log.open(base).view
        columns, position, reason = kernel.scan_records(view, 0, len(view), base, False)
        times = columns[7]
        return {
            "base": base,
            "records": len(times),
            "end": base + (len(view) if reason == AT_BLANK else position),
            "first_store_ms": times[0] if times else None,
            "last_store_ms": times[-1] if times else None,
            "is_full": reason == AT_BLANK,
        }

    def _queues(self) -> Iterator[ConsumeQueue]:
        directory = self._config.root / "consumequeue"
        for path in sorted(directory.glob("*/*")):
            if path.name.isdecimal():
                yield self._queue(path.parent.name, int(path.name))

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        config = self._config
        queue = ConsumeQueue(self._pool, config.root / "consumequeue", config.queue_file_bytes, topic, queue_id)
        queue.load()
        queue.raise_min(self._log.start)
        return queue

    def _queue_row(self, queue: ConsumeQueue) -> dict[str, Any]:
        last = self._record_view(*queue.entry(queue.next_offset - 1)[:2]) if queue.next_offset else None
        return {
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "min_offset": queue.min_offset,
            "max_offset": queue.next_offset,
            "files": len(queue.segments.bases),
            "last_store_ms": None if last is None else store_ms_of(last),
        }

    def _index_rows(self) -> list[dict[str, Any]]:
        config = self._config
        index = Index(self._disk, config.root / "index", config.index_slots, config.index_entries_max)
        try:
            index.load()
            rows = []
            for file in index.files:
                header = file.header()
                rows.append({"name": file.path.name, "keys": header.next_entry - 1, "end_ms": header.end_ms})
            return rows
        except StoreError as error:
            return [{"name": str(error), "keys": 0, "end_ms": 0}]
        finally:
            index.close()

    def _record_view(self, physical_offset: int, size: int) -> memoryview | None:
        segment = self._log.find(physical_offset)
        if segment is None or physical_offset - segment.base + size > segment.size:
            return None
        return segment.view[physical_offset - segment.base :][:size]

    def messages(self, topic: str, queue_id: int, first_offset: int, count_max: int) -> Iterator[StoredMessage]:
        """Messages of a queue, decoded; those that are gone or damaged are left out."""
        if not (self._config.root / "consumequeue" / topic / str(queue_id)).is_dir():
            raise StoreError(f"no queue {queue_id} of topic {topic!r} in {self._config.root}")
        queue = self._queue(topic, queue_id)
        first = max(first_offset, queue.min_offset)
        for offset in range(first, min(first + count_max, queue.next_offset)):
            physical_offset, size, _ = queue.entry(offset)
            view = self._record_view(physical_offset, size)
            if view is not None:
                with contextlib.suppress(CorruptRecord):  # `verify` names it
                    yield decode(view)
