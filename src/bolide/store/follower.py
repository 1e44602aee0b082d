"""A store that copies another one's log, byte for byte, and feeds its own queues and index from it.

Its files become those of the other store: queue entries, keys and their order follow from the log alone. So entries
pass `QueueOrder` as after a crash: a flipped bit in the other log must not fill a queue up to an absurd offset. What it
holds back for want of a second witness is written when the queue goes on, and at the latest in `finish`.

A log without a record begins wherever the first bytes say: at the start of the file that has their offset.
"""

from collections.abc import Callable

from bolide.clock import Clock
from bolide.errors import CopyGap, StoreError
from bolide.kernel.layout import ENTRY_SIZE, Buffer, Run
from bolide.store.commitlog import CommitLog
from bolide.store.copied import CopiedLog, Stretch
from bolide.store.dispatch import Dispatch
from bolide.store.order import QueueOrder
from bolide.store.progress import Progress
from bolide.store.recovery import AHEAD_MAX_MS

_PIECE = 1 << 20


class Follower:
    """Writes what is copied. `last_store_ms` is the store time of the newest record, as far as it can be true."""

    def __init__(
        self,
        commitlog: CommitLog,
        dispatch: Dispatch,
        progress: Progress,
        next_offsets: dict[tuple[str, int], int],
        delays_ms: tuple[int, ...],
        clock: Clock,
    ) -> None:
        self._log = commitlog
        self._dispatch = dispatch
        self._progress = progress
        self._next_offsets = next_offsets
        self._clock = clock
        self._copied = CopiedLog(commitlog, delays_ms, next_offsets.get)
        self._order = QueueOrder(next_offsets.get, lambda *_: None, lambda: commitlog.start > 0)
        self.last_store_ms = 0

    def begin(self, last_store_ms: int) -> None:
        """The log is written by nobody else from now on."""
        self.last_store_ms = last_store_ms
        self._log.is_pooled = False
        if self._log.end != self._progress.appended:
            self._log.truncate(self._progress.appended)  # a file was begun for a message that was refused then
        if self._log.segments.bases:
            self._log.prepare_next()
        else:
            self._log.discard_next()  # where a copy begins is not known before it comes

    def append(self, offset: int, content: Buffer, on_written: Callable[[], None] | None = None) -> None:
        """Write bytes at the end, and hand over what is whole. Raises CopyGap or StoreError, or OSError of the disk."""
        progress, file_size, size = self._progress, self._log.segment_size, len(content)
        if offset < 0 or offset % file_size + size > file_size:
            raise StoreError(f"{size} bytes from {offset} on do not lie in one log file of {file_size}")
        if offset != progress.appended:
            if progress.appended != self._log.start:
                raise CopyGap(offset, progress.appended)
            self._log.begin_at(offset)
            progress.begin_at(offset)
        if not size:
            return
        self._log.copy(content)
        progress.copy(self._log.end)
        if on_written is not None:
            on_written()
        try:
            for stretch in self._copied.walk(progress.whole, self._log.end):
                self._take(stretch, are_ordered=False)
        except StoreError:
            self.cut_incomplete()
            raise

    def _take(self, stretch: Stretch, are_ordered: bool) -> None:
        self._progress.complete(stretch.end)
        self._hand_over(stretch, are_ordered)

    def _hand_over(self, stretch: Stretch, are_ordered: bool) -> None:
        end, store_ms, runs, keys = stretch
        count = self._count_following(runs)
        if count < len(runs):
            odd = runs[count:] if are_ordered else self._order.settle(runs[count:])
            for topic, queue_id, first, entries in odd:
                key, reached = (topic, queue_id), first + len(entries) // ENTRY_SIZE
                self._next_offsets[key] = max(reached, self._next_offsets.get(key, 0) if first else 0)
            runs = runs[:count] + odd
        if 0 <= store_ms <= self._clock.now_ms() + AHEAD_MAX_MS:
            self.last_store_ms = store_ms
        if self._dispatch.take(end, self.last_store_ms, runs, keys, self._progress.visible):
            self._progress.dispatch(end)

    def _count_following(self, runs: list[Run]) -> int:
        """How many of the first runs are just what their queues wait for, as nearly all are: they go on."""
        if not self._order.is_idle:
            return 0
        next_offsets, count = self._next_offsets, 0
        for topic, queue_id, first, entries in runs:
            key = topic, queue_id
            if next_offsets.get(key) != first:
                break
            next_offsets[key] = first + len(entries) // ENTRY_SIZE
            count += 1
        return count

    def finish(self) -> None:
        """No more is copied: write the entries that waited for another one of their queue."""
        self._take(Stretch(self._progress.whole, -1, self._order.finish(), b""), are_ordered=True)

    def end(self, is_pooled: bool) -> None:
        """The log gets messages of its own from now on. Raises StoreError while the queues lag behind it."""
        if not self._dispatch.is_idle:
            raise StoreError(f"consume queues or index cannot be written: {self._dispatch.problem}; free some space")
        self._count_again()
        self._log.open_at(self._progress.appended)
        self._log.is_pooled = is_pooled
        self._log.prepare_next()

    def _count_again(self) -> None:
        """Queues go on where they end."""
        self._next_offsets.clear()
        self._next_offsets.update(self._dispatch.next_offsets())

    def feed(self, at: int, end: int) -> None:
        """Hand over what lies in the log already, from a record's start on, in pieces."""
        size = _PIECE
        while at < end:
            reached = at
            for stretch in self._copied.walk(at, min(at + size, end)):
                self._hand_over(stretch, are_ordered=False)
                reached = stretch.end
            if reached == at and at + size >= end:
                return
            size = 2 * size if reached == at else _PIECE  # a record may be larger than a piece
            at = reached

    def check_cut(self, offset: int, damaged_from: int | None = None) -> None:
        """Raise StoreError unless the log may be cut there: where a record begins or began, or the last one ends."""
        if not self._log.start <= offset <= self._progress.appended:
            raise StoreError(f"a log from {self._log.start} to {self._progress.appended} cannot be cut at {offset}")
        if offset in (self._progress.whole, damaged_from) or (
            offset < self._progress.whole and self._copied.is_start(offset)
        ):
            return
        raise StoreError(f"no record begins at {offset}: the log cannot be cut there")

    def cut(self, end: int, trusted_ms: int) -> None:
        """The files of the log end here by now: so does everything else."""
        self._log.reopen_at(end)
        self._dispatch.cut(end, trusted_ms, self._log.store_ms)
        self._progress.cut(end)
        self.last_store_ms = self._dispatch.store_ms
        self._count_again()
        self.feed(self._progress.dispatched, end)

    def hold_back(self, ceiling: int, trusted_ms: int) -> None:
        """After a start: records that end behind a place are not confirmed, so they are in no queue and not shown."""
        end, self._progress.ceiling = self._progress.whole, ceiling
        place = self._dispatch.place_beyond(ceiling)
        if place is None:
            return
        self._dispatch.cut(place, trusted_ms, self._log.store_ms)
        self._progress.hold_back(place)
        self._count_again()
        self.feed(place, end)

    def cut_incomplete(self) -> None:
        """Overwrite what is not whole at the end of the log with zeros, durably."""
        self._log.truncate(self._progress.whole)
        self._progress.cut(self._progress.whole)
