"""What may go, and when. Rules are functions from values to a choice; store.py carries it out.

RocketMQ judges a segment by the time it was last written (the file's mtime), from the oldest on, and stops at the first
that is not due: a log with a hole cannot be recovered. The segment being written always stays.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.segment import segment_name
from bolide.store.segments import Segments

log = logging.getLogger(__name__)
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """A log segment, and when it was last written."""

    base: int
    size: int
    written_ms: int


def segment_ages(segments: Segments, safe: int) -> list[SegmentAge]:
    """The segments of a log up to the one that reaches beyond what is durable and dispatched."""
    ages = []
    for base in segments.bases:
        written_ms = os.stat(segments.home(base) / segment_name(base)).st_mtime_ns // 1_000_000
        ages.append(SegmentAge(base, segments.segment_size, written_ms))
        if base + segments.segment_size > safe:
            break
    return ages


def used_percent(disk: Disk, config: StoreConfig) -> int:
    """How full the fuller of the two partitions is; of several for the log, the emptiest counts."""
    of_log = min(disk.used_percent(directory) for directory in config.log_directories)
    return max(of_log, disk.used_percent(config.root))


def tell_full(config: StoreConfig, used: int) -> None:
    log.error(
        "disk of %s is %d %% full, no messages are taken: more than diskSpaceWarningLevelRatio=%d",
        *(config.root, used, config.disk_percent_full),
    )


class DiskState(Enum):
    """What the use of the partition asks for."""

    FINE = "fine"
    CLEAN = "clean"  # delete what has expired, whatever the hour
    FORCE = "force"  # delete the oldest, expired or not
    FULL = "full"  # as before, and refuse writes


def disk_state(used_percent: int, config: StoreConfig) -> DiskState:
    if used_percent > config.disk_percent_full:
        return DiskState.FULL
    if used_percent > config.disk_percent_forcibly:
        return DiskState.FORCE
    if used_percent > config.disk_percent_max:
        return DiskState.CLEAN
    return DiskState.FINE


def is_delete_hour(local_hour: int, delete_hours: str) -> bool:
    return local_hour in {int(hour) for hour in delete_hours.split(";")}


def to_delete(
    segments: Sequence[SegmentAge], now_ms: int, local_hour: int, state: DiskState, config: StoreConfig, is_asked: bool
) -> list[SegmentAge]:
    """The segments that go in this run, oldest first."""
    candidates = segments[:-1][: config.delete_count_max]
    is_forced = state in (DiskState.FORCE, DiskState.FULL) and config.clean_forcibly
    due: list[SegmentAge] = []
    if is_forced:
        due = list(candidates)
    elif is_asked or state is not DiskState.FINE or is_delete_hour(local_hour, config.delete_hours):
        due = expired(candidates, now_ms, config.keep_hours * HOUR_MS)
    too_many = beyond_size(segments, config.log_size_max)[: config.delete_count_max]
    return max(due, too_many, key=len)


def expired(segments: Sequence[SegmentAge], now_ms: int, keep_ms: int) -> list[SegmentAge]:
    """The oldest segments that have outlived keep_ms; stops at the first survivor."""
    return list(takewhile(lambda segment: segment.written_ms + keep_ms <= now_ms, segments))


def beyond_size(segments: Sequence[SegmentAge], log_size_max: int) -> list[SegmentAge]:
    """The oldest segments that make the log bigger than log_size_max; none when that is 0."""
    excess = sum(segment.size for segment in segments) - log_size_max
    chosen: list[SegmentAge] = []
    for segment in segments[:-1]:
        if log_size_max <= 0 or excess <= 0:
            break
        chosen.append(segment)
        excess -= segment.size
    return chosen
