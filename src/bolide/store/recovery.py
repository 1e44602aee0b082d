"""After a start: what to believe, where to go round, where to cut, what to rebuild.

After a clean stop queues and index are believed; the log is read from the segment they end in, and what they miss is
added. After a crash nothing is believed that was stored after the checkpoint: queue entries that point to the starting
segment or later are cut off and made again from the log, and so is every index file that was not full.

A record that is not whole (size, magic, checksum, its own physical offset, signs of a lost page) is rot if whole ones
follow it, and then it is a bad stretch that is gone round (`resync.py` says what is believed behind it): later records
keep their queue offsets, and those of the stretch become entries that stand for nothing. If nothing whole follows, it
is the torn end of the log and is cut off: kept (`cutoffs.py`), and overwritten with zeros, or an old record could
be taken for a new one some day. But what the checkpoint says was durable is no torn end: there the log goes on behind
the durable position, so that neither a place in the log nor a queue offset that was given is given again.

Three rules are stricter than RocketMQ's: the record's offset must be its place, entries after the checkpoint are
rebuilt even if they look fine, and keys are never given up (`messageIndexSafe`).
"""

import bisect
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.layout import (
    AT_BLANK,
    AT_END,
    AT_INNER_BATCH,
    AT_INVALID,
    BLANK_CHECKSUM,
    BODY_CHECKED,
    ENTRY_SIZE,
    PRE_BLANK,
    UNCHECKED,
    Run,
)
from bolide.store.checkpoint import Checkpoint
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.copied import is_incomplete
from bolide.store.cut import first_store_ms
from bolide.store.cutoffs import Cutoffs
from bolide.store.derived import Mending
from bolide.store.disk import Disk
from bolide.store.dispatch import Dispatch
from bolide.store.named import NamedPlaces
from bolide.store.order import QueueOrder
from bolide.store.resync import SIZE_MIN, Resync, found_in

log = logging.getLogger(__name__)

# Of log, walked in one call. Each queue it touches costs a write, and what it gives should fit the processor's cache.
_STRETCH = 8 << 20
_STRETCH_MAX = 64 << 20
_RUN_MIN = 64  # entries a queue should get from a stretch, else longer ones are walked
_SEARCHED = 1 << 20  # of log, for the beginning of the next stretch
_WALKERS = 2
AHEAD_MAX_MS = 86_400_000  # of a store time, before the clock; a later one needs a second witness
_TOLD_MAX = 8  # stretches named in one line of the log
_AHEAD = 3  # stretches under way: one for each walker, and one that waits for its turn

# entries of each queue, keys, count of records, last store time, where it ended, why
Walk = tuple[list[Run], bytes, int, int, int, int]


@dataclass(slots=True)
class Losses:
    """What a recovery could not read: bad stretches as (start, end), how many of their records it knows of, and what
    was cut off behind the end."""

    stretches: list[tuple[int, int]] = field(default_factory=list)
    record_count: int = 0
    refused_count: int = 0
    durable: int = 0
    cut_size: int = 0
    kept: list[Path] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(end - start for start, end in self.stretches)

    @property
    def confirmed_size(self) -> int:
        """Of what had been made durable."""
        return sum(min(end, self.durable) - start for start, end in self.stretches if start < self.durable)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery found and did."""

    end: int
    last_store_ms: int
    record_count: int
    was_clean: bool
    started_at: int
    losses: Losses
    healed: list[int] = field(default_factory=list)  # where the log was cut since, to be copied again

    @property
    def damaged_from(self) -> int | None:
        """Where the first bad stretch begins that the log still has."""
        end = min(self.healed, default=self.end)
        return min((start for start, _ in self.losses.stretches if start < end), default=None)


def refuse_foreign(root: Path) -> None:
    """Stop at directories that hold messages in a way this store does not keep."""
    queues = root / "consumequeue"
    if (queues / "CURRENT").exists():
        raise StoreError(f"{queues} is a RocksDB store (storeType=defaultRocksDB), which is not kept here")
    for name, what in (
        ("batchconsumequeue", "batch consume queues (queue.type=BatchCQ, inner batches)"),
        ("compaction/compactionLog", "compaction topics (cleanup.policy=COMPACTION)"),
    ):
        if (root / name).is_dir() and any((root / name).iterdir()):
            raise StoreError(f"{root / name} holds {what}, which are not kept here")
    if queues.is_dir() and any(path.name.startswith("%LMQ%") for path in queues.iterdir()):
        raise StoreError(f"{queues} holds light message queues (%LMQ%…), which are not kept here")


class Recovery:
    """One run over the files of a store that was just opened."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        commitlog: CommitLog,
        dispatch: Dispatch,
        checkpoint: Checkpoint,
        is_clean: bool,
        now_ms: int,
        is_copy: bool = False,
    ) -> None:
        self._disk = disk
        self._config = config
        self._log = commitlog
        self._dispatch = dispatch
        self._checkpoint = checkpoint
        self._is_clean = is_clean
        self._is_copy = is_copy
        self._last_blank = -1
        self._delays_ms = delays_ms_of(config.delay_levels)
        self._likely_ms = now_ms + AHEAD_MAX_MS
        self._last_store_ms = checkpoint.log_ms if checkpoint.log_ms <= self._likely_ms else 0
        self._record_count = 0
        self._started_at = 0
        self._mending = Mending(disk, config, commitlog, dispatch)
        self._losses = Losses(durable=checkpoint.durable)
        self._named = NamedPlaces(config.root / "consumequeue", config.queue_file_bytes)
        self._resync = Resync(
            commitlog.segments, config.check_on_recover, checkpoint.durable, self._named, self._fits_queue
        )
        self._order = QueueOrder(dispatch.queue_end, self._named.offset_of)
        self._newest_ms = -1  # of the records walked

    def run(self) -> Recovered:
        refuse_foreign(self._config.root)
        self._log.segments.load()
        self._dispatch.roster.load()
        is_exact = self._is_clean and self._dispatch.roster.is_sealed_with(self._checkpoint.encoded())
        self._dispatch.index.load(mends=True)
        self._mending.check_index(is_exact)
        self._dispatch.index.full_ms = self._checkpoint.index_ms
        if not self._log.segments.bases:
            self._forget_derived()
            return Recovered(0, self._last_store_ms, 0, self._is_clean, 0, self._losses)
        start, queues_from = self._load_after_stop(is_exact) if self._is_clean else self._load_after_crash()
        self._started_at = start
        with ThreadPoolExecutor(_WALKERS, "store.recovery") as self._walker:
            end = self._walk(start, queues_from)
        end = self._end_log(end, queues_from)
        self._named.close()
        with self._disk.syncing_together():
            for queue in self._dispatch.queues.values():
                if queue.physical_end > end:
                    queue.cut(end)
        self._log.open_at(end)
        self._mending.run(end, is_exact)
        if not is_exact or self._mending.doubted or self._dispatch.index.odd:
            self._dispatch.renew_roster()
        self._dispatch.raise_min(self._log.start)
        self._dispatch.store_ms = self._last_store_ms
        log.info(
            "store recovered clean=%s from=%d end=%d records=%d queues=%d",
            *(self._is_clean, start, end, self._record_count, len(self._dispatch.queues)),
        )
        tell_losses(self._losses, self._log.segments.directory)
        return Recovered(end, self._last_store_ms, self._record_count, self._is_clean, start, self._losses)

    def _forget_derived(self) -> None:
        """Without a log there is nothing that queues and index could be derived from."""
        self._dispatch.load(None)
        for topic in {topic for topic, _ in self._dispatch.queues}:
            self._dispatch.remove_topic(topic)
        self._dispatch.index.drop_after(-1)

    def _load_after_stop(self, is_exact: bool) -> tuple[int, int]:
        self._mending.doubt(self._dispatch.load(None, is_exact))
        dispatched = self._dispatch.physical_end
        bases = self._log.segments.bases
        start = max(
            (base for base in bases if base <= dispatched and self._first_store_ms(base) >= 0), default=bases[0]
        )
        return (self._keys_missing_from(start) if self._dispatch.index.odd else start), max(dispatched, start)

    def _load_after_crash(self) -> tuple[int, int]:
        bases = self._log.segments.bases
        trusted_ms = self._checkpoint.trusted_ms if self._has_queues() else 0
        start = bases[0]
        for base in reversed(bases):
            if 0 < self._first_store_ms(base) <= trusted_ms:
                start = base
                break
        self._named.gather(start)
        with self._disk.syncing_together():
            self._mending.doubt(self._dispatch.load(start))
        self._dispatch.index.drop_after(self._checkpoint.index_ms)
        return self._keys_missing_from(start), start

    def _has_queues(self) -> bool:
        queues = self._config.root / "consumequeue"
        return queues.is_dir() and any(queues.iterdir())

    def _keys_missing_from(self, start: int) -> int:
        """The segment from which keys must be read again, at most start."""
        index = self._dispatch.index
        if not self._config.index_enabled or not self._config.index_safe:
            return start
        base = self._log.segments.base_of(max(index.physical_end, self._log.start))
        return start if base is None else min(base, start)

    def _first_store_ms(self, base: int) -> int:
        """The store time of a segment's first record, -1 if it is not whole."""
        return first_store_ms(self._log.segments.open(base), self._config.check_on_recover)

    def _walk(self, start: int, queues_from: int) -> int:
        """Read the log from start to its end, which is returned; records below queues_from give keys only."""
        at, size = start, self._log.segment_size
        while True:
            base = self._log.segments.base_of(at)
            if base is not None:
                limit = min(queues_from, base + size) if at < queues_from else base + size
                at, reason = self._walk_segment(base, at, limit, at >= queues_from)
                if reason == AT_INVALID and limit < base + size:
                    # Queues end inside a record: they do not fit this log.
                    at, reason = self._walk_segment(base, at, base + size, has_queues=True)
                if reason == AT_BLANK and self._resync.is_blank(base, at):
                    self._last_blank, at = at, base + size
                    continue
                if reason == AT_END:
                    continue
                self._refuse_inner_batch(base, at, reason)
                self._refuse_unsealed(base, at)
                if self._is_half_copied(base, at):
                    return at
            following = self._resync.behind(at, self._newest_ms)
            if following is None and base is not None and reason == AT_BLANK:
                following = base + size  # the blank is damaged, and the log ends with its file
            if following is None:
                return self._before_padding(at)
            self._pass_over(at, following, queues_from)
            at = following

    def _is_half_copied(self, base: int, at: int) -> bool:
        """Whether a log that is copied ends in a record that had not all come: what its body holds is no record."""
        if not self._is_copy or at < self._checkpoint.durable:
            return False
        limit = self._resync.written_end(base, at)
        return limit > at and is_incomplete(self._log.segments.open(base).view, at - base, limit - base, base)

    def _before_padding(self, end: int) -> int:
        """The end of the log; of one that is copied the blank record, where all behind it need not have come yet."""
        has_just_blank = end == self._last_blank - self._last_blank % self._log.segment_size + self._log.segment_size
        if self._is_copy and has_just_blank and self._checkpoint.durable < end:
            return self._last_blank
        return end

    def _fits_queue(self, topic: str, queue_id: int, queue_offset: int, passed_size: int) -> bool:
        queue = self._dispatch.queues.get((topic, queue_id))
        return queue is not None and 0 <= queue_offset - queue.next_offset <= passed_size // SIZE_MIN

    def _pass_over(self, start: int, end: int, queues_from: int) -> None:
        """Nothing is whole from start to end: the queue offsets of what was there will stand for nothing."""
        self._losses.stretches.append((start, end))
        lost = {(each.topic, each.queue_id, each.queue_offset) for each in self._named.between(start, end)}
        segment = self._log.segments.find(start)
        if segment is not None:
            at = start - segment.base
            last = found_in(segment.view, at, _end_of(segment.view, at, segment.size), segment.base, UNCHECKED)
            if last is not None and self._fits_queue(last.topic, last.queue_id, last.queue_offset, 0):
                lost.add((last.topic, last.queue_id, last.queue_offset))
        for key, queue in self._dispatch.queues.items():
            lost |= {(*key, offset) for offset in queue.blank_between(start, end)}
        self._losses.record_count += len(lost)
        if start >= queues_from:
            self._hand_over(start, [(*each, PRE_BLANK) for each in sorted(lost)], b"")

    def _end_log(self, end: int, queues_from: int) -> int:
        """Cut off what lies behind the log, and keep it; returns where it goes on."""
        durable = self._checkpoint.durable
        if end < durable:
            if self._log.segments.base_of(durable) is None:
                self._losses.stretches.append((end, durable))  # with its file
            else:
                self._pass_over(end, durable, queues_from)
                end = durable
        self._hand_over(end, self._order.finish(), b"", is_ordered=True)
        for topic, queue_id, first, reached in self._named.trailing_blanks() if self._losses.stretches else ():
            queue = self._dispatch.queues.get((topic, queue_id))
            if queue is not None and first <= queue.next_offset < reached:
                self._hand_over(end, [(topic, queue_id, reached - 1, PRE_BLANK)], b"", is_ordered=True)
        cutoffs = Cutoffs(self._disk, self._config.root)
        end = cutoffs.cut(self._log.segments, end, self._resync.written_end)
        self._losses.cut_size, self._losses.kept = cutoffs.size, cutoffs.kept
        self._losses.refused_count += self._order.refused_count
        return end

    def _refuse_inner_batch(self, base: int, at: int, reason: int) -> None:
        """Not kept here; but one without a count is a plain message with a flipped bit."""
        if reason == AT_INNER_BATCH:
            view = self._log.segments.open(base).view
            if b"INNER_NUM\x01" in bytes(view[at - base : _end_of(view, at - base, len(view))]):
                raise StoreError(f"the record at {at} is an inner batch (queue.type=BatchCQ), which is not kept here")

    def _refuse_unsealed(self, base: int, at: int) -> None:
        """Under forceVerifyPropCRC a log from before would be cut at its first record."""
        view = self._log.segments.open(base).view
        end = _end_of(view, at - base, len(view))
        if self._config.seal_checked and BLANK_CHECKSUM[:9] not in bytes(view[max(at - base, end - 20) : end]):
            *_, count, _, _, _ = kernel.walk_records(view, at - base, end, base, BODY_CHECKED, ())
            if count:
                raise StoreError(
                    f"the record at {at} is whole and has no checksum of its own: it was written without "
                    "enabledAppendPropCRC; unset forceVerifyPropCRC, or it and all after it would be lost"
                )

    def _walk_segment(self, base: int, at: int, limit: int, has_queues: bool) -> tuple[int, int]:
        """Read one segment from at to limit; returns where reading ended and why."""
        view = self._log.segments.open(base).view
        arguments = (base, self._config.check_on_recover, self._delays_ms)
        for walk in _walks(self._walker, view, at - base, limit - base, *arguments):
            runs, keys, count, last_store_ms, position, reason = walk
            if count:
                self._record_count += count
                if last_store_ms > self._likely_ms:
                    last_store_ms = self._confirmed_ms(view, at - base, position, base)
                at = base + position
                self._last_store_ms = max(self._last_store_ms, last_store_ms)
                self._mending.look_at(runs, self._started_at, are_new=has_queues)
                self._newest_ms = last_store_ms
                self._hand_over(base + position, runs if has_queues else [], keys)
        return base + position, reason

    def _confirmed_ms(self, view: memoryview, start: int, end: int, base: int) -> int:
        """The newest store time in a stretch that ends far ahead of the clock, as far as a second witness goes along.

        Later messages are never stored before it. A clock that was set back shows in many records, and in the
        checkpoint; a flipped bit in one, which would push all that follows years ahead.
        """
        columns, _, _ = kernel.scan_records(view, start, end, base, UNCHECKED)
        return sorted([*columns[7], self._checkpoint.log_ms])[-2]

    def _hand_over(self, end: int, runs: list[Run], keys: bytes, is_ordered: bool = False) -> None:
        runs = runs if is_ordered else self._order.settle(runs)
        keys = self._unfiled(keys)
        if not self._dispatch.take(end, self._last_store_ms, runs, keys, limit=end):
            raise StoreError(
                f"recovery cannot write queues or index in {self._config.root}: {self._dispatch.problem}; "
                f"make it possible (free some space on that disk) and start again, nothing is lost"
            )
        while self._order.displaced:
            topic, queue_id, offset, entry = self._order.displaced.pop()
            self._losses.refused_count += self._dispatch.queues[topic, queue_id].displace(offset, entry)

    def _unfiled(self, keys: bytes) -> bytes:
        """The keys that are not in the index: those of records behind its end, and maybe some of the last one's."""
        indexed, numbers = self._dispatch.index.physical_end, range(len(keys) // ENTRY_SIZE)
        if indexed < 0 or not keys:
            return keys
        # All keys of a record below the end of the index are in it, and keys lie in the order of the log.
        first, behind = (
            search(numbers, indexed, key=lambda number: _place(keys, number)) * ENTRY_SIZE
            for search in (bisect.bisect_left, bisect.bisect_right)
        )
        filed = self._dispatch.index.filed_hashes(indexed) if first < behind else []
        unfiled = []
        for at in range(first, behind, ENTRY_SIZE):
            hashed = int.from_bytes(keys[at : at + 4], "big")
            if hashed in filed:
                filed.remove(hashed)
            else:
                unfiled.append(keys[at : at + ENTRY_SIZE])
        return b"".join(unfiled) + keys[behind:]


def tell_losses(losses: Losses, directory: Path) -> None:
    """One line for what was lost, as an error where it had been durable."""
    if losses.stretches or losses.refused_count:
        log.log(
            logging.ERROR if losses.confirmed_size else logging.WARNING,
            "the log is damaged, what is whole was kept directory=%s stretches=%d bytes=%d durable_bytes=%d "
            "known_records=%d misplaced_records=%d at=%s",
            *(directory, len(losses.stretches), losses.size, losses.confirmed_size),
            *(losses.record_count, losses.refused_count),
            ",".join(f"{start}+{end - start}" for start, end in losses.stretches[:_TOLD_MAX]),
        )
    if losses.kept:
        log.warning(
            "the end of the log was torn, and what was cut off is kept bytes=%d files=%s",
            *(losses.cut_size, ",".join(str(path) for path in losses.kept)),
        )


def _walks(
    walker: Executor, view: memoryview, at: int, limit: int, base: int, check: int, delays_ms: Sequence[int]
) -> Iterator[Walk]:
    """Walks that follow each other from at on; the last of them says why the log ends or that limit was reached.

    Stretches are walked in threads, while what came before is written. Where one begins is a guess (`find_record`), and
    what was walked from there counts only if the stretch before ended just there.
    """
    ahead: deque[tuple[int, Future[Walk]]] = deque()
    stretch = _STRETCH

    def start(place: int) -> int:
        near = place + stretch
        until = kernel.find_record(view, near, min(near + _SEARCHED, limit), base)
        until = limit if until < 0 else until  # the end of the log is near, or a message is huge
        walk = walker.submit(kernel.walk_records, view, place, until, base, check, delays_ms)
        ahead.append((until, walk))
        return until

    try:
        while True:
            while (len(ahead) < _AHEAD and at < limit) or not ahead:
                at = start(at)
            until, future = ahead.popleft()
            walk = future.result()
            runs, _, count, _, position, reason = walk
            if count < _RUN_MIN * len(runs):
                stretch = min(2 * stretch, _STRETCH_MAX)
            if reason == AT_INVALID and until < limit:
                # The guess may have been wrong, so this record is looked at with all that follows.
                whole = kernel.walk_records(view, position, _end_of(view, position, limit), base, check, delays_ms)
                if whole[2]:
                    yield walk
                    yield whole
                    wait(future for _, future in ahead)
                    ahead.clear()
                    at = whole[4]
                    continue
            yield walk
            if reason != AT_END or until == limit:
                return
    finally:
        wait(future for _, future in ahead)  # they hold the view


def _end_of(view: memoryview, position: int, limit: int) -> int:
    """Where a record says that it ends."""
    return min(position + max(int.from_bytes(view[position : position + 4], "big", signed=True), 0), limit)


def _place(keys: bytes, number: int) -> int:
    at = number * ENTRY_SIZE
    return int.from_bytes(keys[at + 4 : at + 12], "big", signed=True)
