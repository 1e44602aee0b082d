"""Queues that are missing, cut short or not as they were, made again from the log.

Whether a queue is whole is asked four times, each for little: its files have the one length and adjoin (loading), its
edges are those in the roster (after a clean stop), no entry below the checkpoint is odd (after a crash), and no record
that recovery walks over lies beyond the queue's end. What fails goes here. All such queues are made again in one walk
over the log, after which each goes at least as far as the roster says: where the log has lost a message, or has let it
expire, its offset stays blank, for an offset that was given once is not given to another message.

An offset that goes back to 0 in the log is a topic that was removed and made again; then only the latter counts.
"""

import logging
from collections.abc import Iterator

from bolide import kernel
from bolide.kernel.layout import AT_BLANK, AT_END, AT_INNER_BATCH, AT_INVALID, ENTRY_SIZE, PRE_BLANK, Run
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.consumequeue import ConsumeQueue
from bolide.store.disk import Disk
from bolide.store.dispatch import Dispatch
from bolide.store.indexcheck import first_doubt
from bolide.store.order import QueueOrder
from bolide.store.roster import Key

log = logging.getLogger(__name__)
_STRETCH = 8 << 20
_SEARCHED = 1 << 20  # of log, for the beginning of the next stretch


class Mending:
    """Which queues a start doubts, and how they are made again."""

    def __init__(self, disk: Disk, config: StoreConfig, commitlog: CommitLog, dispatch: Dispatch) -> None:
        self._disk = disk
        self._config = config
        self._log = commitlog
        self._dispatch = dispatch
        self.doubted: dict[Key, str] = {}
        self._gaps: dict[Key, str] = {}
        self._names: dict[Key, int] = {}  # the offset in the name of a doubted queue's last file: it had got there

    def doubt(self, odd: dict[Key, str]) -> None:
        """Empty queues whose files are odd, so that nobody asks them how far the log was."""
        for key, reason in odd.items():
            queue = self._dispatch.queues.get(key) or self._dispatch.make_queue(key)
            self.doubted[key] = reason
            self._names[key] = queue.segments.bases[-1] // ENTRY_SIZE if queue.segments.bases else 0
            queue.forget()

    def check_index(self, is_exact: bool) -> None:
        """Give the index up from the first file on that is not as it was."""
        index = self._dispatch.index
        if self._config.index_enabled:
            known = self._dispatch.roster.index
            name, odd = first_doubt(index, known, is_exact, self._log.start, self._record_at)
            if odd:
                index.drop_from(name, odd)
        if index.odd:
            log.warning("index made again from the log from=%d reason=%s", index.physical_end, index.odd)

    def _record_at(self, place: int) -> memoryview | None:
        record = self._log.view(place, 88)
        return record if record is not None and record[28:36] == place.to_bytes(8, "big", signed=True) else None

    def look_at(self, runs: list[Run], walked_from: int, are_new: bool) -> None:
        """Doubt queues that do not reach the records being walked; new ones are about to be put to their queues."""
        for topic, queue_id, first_offset, entries in runs:
            queue = self._dispatch.queues.get((topic, queue_id))
            end = 0 if queue is None else queue.next_offset
            if are_new:
                # A gap behind an entry that was walked over too is the log's own.
                is_short = first_offset > end and (queue is None or queue.physical_end < walked_from)
            else:
                is_short = queue is not None and first_offset + len(entries) // ENTRY_SIZE > end
            if is_short and (topic, queue_id) not in self.doubted:
                self._gaps.setdefault((topic, queue_id), f"it ends at {end}, and the log has {first_offset}")

    def run(self, end: int, is_exact: bool) -> None:
        """Compare the queues with the roster, and make again those that are doubted; the log ends at `end`.

        With an exact roster those that are there were compared when they were loaded.
        """
        missing = self._gaps
        for key, known in self._dispatch.roster.queues.items():
            queue = self._dispatch.queues.get(key)
            if queue is None:
                missing[key] = "it is missing"
            elif is_exact or key in self.doubted or known.physical_end > end:
                continue
            elif not queue.has_all_of(known):
                missing[key] = (
                    f"it ends at {queue.next_offset}, and had all from {known.min_offset} to {known.next_offset}"
                )
        self.doubt(missing)
        if self.doubted:
            self._make_again(end)

    def _make_again(self, end: int) -> None:
        for key in self.doubted:
            self._dispatch.queues[key].forget()  # recovery may have put something there
        order = QueueOrder(self._dispatch.queue_end, lambda *_: None)
        for runs in walk(self._log, self._config, self._log.start, end):
            self._put(order.settle([run for run in runs if run[:2] in self.doubted]))
        self._put(order.finish())
        with self._disk.syncing_together():
            for key in self.doubted:
                self._end(key, end)

    def _put(self, runs: list[Run]) -> None:
        for topic, queue_id, first_offset, entries in runs:
            self._dispatch.queues[topic, queue_id].put(first_offset, entries)

    def _end(self, key: Key, end: int) -> None:
        queue, known = self._dispatch.queues[key], self._dispatch.roster.queues.get(key)
        reached = self._names.get(key, 0) if queue.next_offset == 0 else 0
        if known is not None and queue.physical_end <= known.physical_end <= end:
            reached = max(reached, known.next_offset)
        if queue.next_offset < reached:
            queue.put(reached - 1, PRE_BLANK)
        if queue.next_offset:
            self._sync(queue)
        else:
            del self._dispatch.queues[key]
        log.warning(
            "queue made again from the log topic=%s queue=%d end=%d reason=%s",
            *(*key, queue.next_offset, self.doubted[key]),
        )

    def _sync(self, queue: ConsumeQueue) -> None:
        for base in queue.unsynced():
            queue.segments.open(base).sync()
        for directory in (queue.segments.directory, *list(queue.segments.directory.parents)[:3]):
            self._disk.sync_directory(directory)


def walk(commitlog: CommitLog, config: StoreConfig, start: int, end: int) -> Iterator[list[Run]]:
    """What queues say of the log from start to end, a stretch at a time; what is not whole is gone round."""
    return (runs for runs, _ in _walk(commitlog, config, start, end))


def walk_keys(commitlog: CommitLog, config: StoreConfig, start: int, end: int) -> Iterator[bytes]:
    """The same for the index."""
    return (keys for _, keys in _walk(commitlog, config, start, end))


def _walk(commitlog: CommitLog, config: StoreConfig, start: int, end: int) -> Iterator[tuple[list[Run], bytes]]:
    delays_ms = delays_ms_of(config.delay_levels)
    for base in commitlog.segments.bases:
        if base >= end or base + commitlog.segment_size <= start:
            continue
        view, at = commitlog.segments.open(base).view, max(start - base, 0)
        limit = min(end - base, len(view))
        while at < limit:
            until = kernel.find_record(view, at + _STRETCH, min(at + _STRETCH + _SEARCHED, limit), base)
            until = limit if until < 0 else until
            found = kernel.walk_records(view, at, until, base, config.check_on_recover, delays_ms)
            runs, keys, _, _, at, reason = found
            yield runs, keys
            if reason in (AT_BLANK, AT_INNER_BATCH):
                break
            if reason == AT_INVALID or (reason == AT_END and at < until):
                runs, keys, at = _go_round(view, at, limit, base, config, delays_ms)
                yield runs, keys


def _go_round(
    view: memoryview, at: int, limit: int, base: int, config: StoreConfig, delays_ms: tuple[int, ...]
) -> tuple[list[Run], bytes, int]:
    """The record at a place, if the stretch ended inside of it; else nothing, and the next place that may be one."""
    size = int.from_bytes(view[at : at + 4], "big", signed=True)
    if 0 < size <= limit - at:
        whole = kernel.walk_records(view, at, at + size, base, config.check_on_recover, delays_ms)
        if whole[2]:
            return whole[0], whole[1], whole[4]
    following = kernel.find_record(view, at + 1, limit, base)
    return [], b"", limit if following < 0 else following
