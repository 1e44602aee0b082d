"""What may go: the oldest, from the front, never the last."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.store.retention import (
    HOUR_MS,
    DiskState,
    SegmentAge,
    beyond_size,
    disk_state,
    expired,
    is_delete_hour,
    to_delete,
)
from tests.store.given import HeldClock, bodies, draft, opened, small

ages = st.lists(st.integers(0, 100), max_size=8).map(
    lambda times: [SegmentAge(i * 100, 100, time) for i, time in enumerate(times)]
)


@given(segments=ages, now=st.integers(0, 200), keep=st.integers(0, 100))
def test_what_expires_is_a_run_from_the_front_and_all_of_it_is_old(segments, now, keep):
    gone = expired(segments, now, keep)
    assert gone == segments[: len(gone)]
    assert all(segment.written_ms + keep <= now for segment in gone)
    if len(gone) < len(segments):
        assert segments[len(gone)].written_ms + keep > now


@given(segments=ages, most=st.integers(0, 1000))
def test_a_log_beyond_its_size_loses_its_oldest_and_keeps_its_last(segments, most):
    gone = beyond_size(segments, most)
    left = segments[len(gone) :]
    if most and segments:
        assert left
        assert sum(segment.size for segment in left) <= most or len(left) == 1
    else:
        assert gone == []


def test_disk_ratios_are_compared_as_greater(tmp_path):
    config = small(tmp_path, disk_percent_full=90, disk_percent_forcibly=85, disk_percent_max=75)
    states = [disk_state(percent, config) for percent in (75, 76, 85, 86, 90, 91)]
    assert states == [
        DiskState.FINE,
        DiskState.CLEAN,
        DiskState.CLEAN,
        DiskState.FORCE,
        DiskState.FORCE,
        DiskState.FULL,
    ]


def test_the_hour_counts_unless_the_disk_or_someone_asks(tmp_path):
    config = small(tmp_path, keep_hours=1)
    segments = [SegmentAge(0, 100, 0), SegmentAge(100, 100, 0)]
    now = 2 * HOUR_MS
    assert to_delete(segments, now, 3, DiskState.FINE, config, False) == []
    assert to_delete(segments, now, 4, DiskState.FINE, config, False) == segments[:1]
    assert to_delete(segments, now, 3, DiskState.CLEAN, config, False) == segments[:1]
    assert to_delete(segments, now, 3, DiskState.FINE, config, True) == segments[:1]
    assert to_delete(segments, 0, 3, DiskState.CLEAN, config, True) == []
    assert to_delete(segments, 0, 3, DiskState.FORCE, config, False) == segments[:1]
    assert is_delete_hour(23, "04;23")


def test_at_most_ten_go_in_a_run(tmp_path):
    segments = [SegmentAge(i * 100, 100, 0) for i in range(30)]
    assert len(to_delete(segments, 1 << 50, 4, DiskState.FINE, small(tmp_path), False)) == 10


@pytest.mark.feature("F181", "F172")
def test_segments_older_than_the_retention_go_with_their_queue_and_index_files(tmp_path):
    clock = HeldClock()
    config = small(tmp_path, keep_hours=72, index_entries_max=8)
    with opened(config, clock) as store:
        for i in range(60):
            clock.ms += 1
            store.append([draft(bytes([i]) * 900, KEYS=f"k{i}")])
        store.flush()
        bases = list(store.commitlog.segments.bases)
        files = len(os.listdir(tmp_path / "consumequeue" / "T" / "0"))
        indexes = len(os.listdir(tmp_path / "index"))
        for base, age_h in zip(bases, (100, 80, 10, 0), strict=False):
            seconds = clock.ms / 1000 - age_h * 3600
            os.utime(tmp_path / "commitlog" / f"{base:020d}", (seconds, seconds))
        store.ask_for_cleaning()
        assert store.clean() == bases[:2]
        assert store.commitlog.start == bases[2]
        kept = bodies(store)
        assert kept == [bytes([i]) * 900 for i in range(60 - len(kept), 60)]
        assert len(os.listdir(tmp_path / "consumequeue" / "T" / "0")) < files
        assert len(os.listdir(tmp_path / "index")) < indexes
        assert store.clean() == []
    with opened(config, clock) as store:
        assert bodies(store) == kept
        assert store.append([draft(b"x")]).queue_offsets == [60]


def test_queue_offsets_go_on_after_everything_expired(tmp_path):
    clock, config = HeldClock(), small(tmp_path, keep_hours=0, delete_hours=";".join(map(str, range(24))))
    with opened(config, clock) as store:
        for i in range(30):
            store.append([draft(bytes([i]) * 900, topic="Old")])
        for i in range(30):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        clock.ms = 1 << 42
        store.clean()
        assert bodies(store, "Old") == []
    with opened(config, clock) as store:
        assert store.append([draft(b"x", topic="Old")]).queue_offsets == [30]
        assert bodies(store, "Old") == [b"x"]


def test_a_log_size_of_our_own_bounds_the_log(tmp_path):
    with opened(small(tmp_path, log_size_max=3 * 16384)) as store:
        for i in range(100):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        store.clean()
        assert len(store.commitlog.segments.bases) == 3
        assert bodies(store)[-1] == bytes([99]) * 900
