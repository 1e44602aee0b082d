"""After a start: what to believe, where to cut, what to rebuild.

After a clean stop queues and index are believed; the log is read from the segment they end in, and what they miss is
added. After a crash nothing is believed that was stored after the checkpoint: queue entries that point to the starting
segment or later are cut off and made again from the log, and so is every index file that was not full. Reading ends at
the first record that is not whole (size, magic, checksum, its own physical offset, signs of a lost page); what lies
after it is overwritten with zeros, or an old record could be taken for a new one some day.

Three rules are stricter than RocketMQ's: the record's offset must be its place, entries after the checkpoint are
rebuilt even if they look fine, and keys are never given up (`messageIndexSafe`).
"""

import bisect
import logging
from dataclasses import dataclass
from pathlib import Path

from bolide import kernel
from bolide.errors import StoreError
from bolide.kernel.plain_records import AT_BLANK, AT_INNER_BATCH, AT_INVALID, ENTRY_SIZE
from bolide.store.checkpoint import Checkpoint
from bolide.store.commitlog import CommitLog
from bolide.store.config import StoreConfig, delays_ms_of
from bolide.store.dispatch import Dispatch

log = logging.getLogger(__name__)

# Of log, walked in one call: each queue it touches costs a write. 4, 16 and 64 MiB measured alike within the noise.
_STRETCH = 64 << 20


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery found and did."""

    end: int
    last_store_ms: int
    record_count: int
    was_clean: bool
    started_at: int


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
        self, config: StoreConfig, commitlog: CommitLog, dispatch: Dispatch, checkpoint: Checkpoint, is_clean: bool
    ) -> None:
        self._config = config
        self._log = commitlog
        self._dispatch = dispatch
        self._checkpoint = checkpoint
        self._is_clean = is_clean
        self._delays_ms = delays_ms_of(config.delay_levels)
        self._last_store_ms = checkpoint.log_ms
        self._record_count = 0

    def run(self) -> Recovered:
        refuse_foreign(self._config.root)
        self._log.segments.load()
        self._dispatch.index.load()
        self._dispatch.index.full_ms = self._checkpoint.index_ms
        if not self._log.segments.bases:
            self._forget_derived()
            return Recovered(0, self._last_store_ms, 0, self._is_clean, 0)
        start, queues_from = self._load_after_stop() if self._is_clean else self._load_after_crash()
        end = self._walk(start, queues_from)
        self._log.segments.truncate(end)
        for queue in self._dispatch.queues.values():
            if queue.physical_end > end:
                queue.cut(end)
        self._log.open_at(end)
        self._dispatch.raise_min(self._log.start)
        self._dispatch.store_ms = self._last_store_ms
        found = Recovered(end, self._last_store_ms, self._record_count, self._is_clean, start)
        log.info(
            "store recovered clean=%s from=%d end=%d records=%d queues=%d",
            *(self._is_clean, start, end, self._record_count, len(self._dispatch.queues)),
        )
        return found

    def _forget_derived(self) -> None:
        """Without a log there is nothing that queues and index could be derived from."""
        self._dispatch.load(None)
        for topic in {topic for topic, _ in self._dispatch.queues}:
            self._dispatch.remove_topic(topic)
        self._dispatch.index.drop_after(-1)

    def _load_after_stop(self) -> tuple[int, int]:
        self._dispatch.load(None)
        dispatched = self._dispatch.physical_end
        bases = self._log.segments.bases
        start = max(
            (base for base in bases if base <= dispatched and self._first_store_ms(base) >= 0), default=bases[0]
        )
        return start, max(dispatched, start)

    def _load_after_crash(self) -> tuple[int, int]:
        bases = self._log.segments.bases
        trusted_ms = self._checkpoint.trusted_ms if self._has_queues() else 0
        start = bases[0]
        for base in reversed(bases):
            if 0 < self._first_store_ms(base) <= trusted_ms:
                start = base
                break
        self._dispatch.load(start)
        return min(start, self._keys_missing_from(start)), start

    def _has_queues(self) -> bool:
        queues = self._config.root / "consumequeue"
        return queues.is_dir() and any(queues.iterdir())

    def _keys_missing_from(self, start: int) -> int:
        """The segment from which keys must be read again."""
        index = self._dispatch.index
        index.drop_after(self._checkpoint.index_ms)
        if not self._config.index_enabled or not self._config.index_safe:
            return start
        base = self._log.segments.base_of(max(index.physical_end, self._log.start))
        return start if base is None else base

    def _first_store_ms(self, base: int) -> int:
        """The store time of a segment's first record, -1 if it is not whole."""
        segment = self._log.segments.open(base)
        size = int.from_bytes(segment.view[:4], "big", signed=True)
        if not 0 < size <= segment.size:
            return -1
        *_, last_store_ms, _, _ = kernel.walk_records(segment.view, 0, size, base, self._config.crc_checked, ())
        return last_store_ms

    def _walk(self, start: int, queues_from: int) -> int:
        """Read the log from start to its end, which is returned; records below queues_from give keys only."""
        at = start
        while (base := self._log.segments.base_of(at)) is not None:
            if at < queues_from:
                limit = min(queues_from, base + self._log.segment_size)
                at, reason = self._walk_segment(base, at, limit, has_queues=False)
                if reason == AT_INVALID and limit < base + self._log.segment_size:
                    # Queues end inside a record: they do not fit this log.
                    at, reason = self._walk_segment(base, at, base + self._log.segment_size, has_queues=True)
            else:
                at, reason = self._walk_segment(base, at, base + self._log.segment_size, has_queues=True)
            if reason == AT_INNER_BATCH:
                raise StoreError(f"the record at {at} is an inner batch (queue.type=BatchCQ), which is not kept here")
            if reason == AT_BLANK:
                at = base + self._log.segment_size
            elif reason == AT_INVALID:
                break
        return at

    def _walk_segment(self, base: int, at: int, limit: int, has_queues: bool) -> tuple[int, int]:
        view = self._log.segments.open(base).view
        stretch = _STRETCH
        while True:
            until = min(at + stretch, limit)
            runs, keys, count, last_store_ms, position, reason = kernel.walk_records(
                view, at - base, until - base, base, self._config.crc_checked, self._delays_ms
            )
            if count:
                self._record_count += count
                self._last_store_ms = max(self._last_store_ms, last_store_ms)
                self._hand_over(base + position, runs if has_queues else [], keys)
                stretch = _STRETCH
            is_cut = until < limit and reason == AT_INVALID  # the stretch may have ended inside a record
            if is_cut and count == 0:
                stretch *= 2
            elif not is_cut and not (reason == 0 and until < limit):
                return base + position, reason
            at = base + position

    def _hand_over(self, end: int, runs: list[tuple[str, int, int, bytes]], keys: bytes) -> None:
        indexed = self._dispatch.index.physical_end
        if indexed >= 0:
            # All keys of a record below the end of the index are in it, and keys lie in the order of the log.
            known = bisect.bisect_left(range(len(keys) // ENTRY_SIZE), indexed, key=lambda number: _place(keys, number))
            keys = keys[known * ENTRY_SIZE :]
        if not self._dispatch.take(end, self._last_store_ms, runs, keys, limit=end):
            raise StoreError(f"recovery cannot write queues or index: {self._dispatch.problem}")


def _place(keys: bytes, number: int) -> int:
    at = number * ENTRY_SIZE
    return int.from_bytes(keys[at + 4 : at + 12], "big", signed=True)
