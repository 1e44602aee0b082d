"""Reading: the statuses of a pull, its limits, and searches by time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide import kernel
from bolide.filter.sql import compile_sql
from bolide.kernel import java_hash
from bolide.model.queue import QueueKey
from bolide.store.read import PullStatus
from bolide.store.record import decode
from tests.store.given import START_MS, HeldClock, bodies, draft, opened, small

QUEUE = QueueKey("T", 0)
ALL_HOURS = ";".join(map(str, range(24)))


def read_bodies(store, offset, count, **more):
    return [decode(view).body for view in store.read(QUEUE, offset, count, **more).views]


def test_every_offset_gets_its_status_and_the_next_one_to_ask_for(tmp_path):
    clock, config = HeldClock(), small(tmp_path, keep_hours=0, delete_hours=ALL_HOURS)
    with opened(config, clock) as store:
        missing = store.read(QueueKey("Nobody", 0), 5, 32)
        assert (missing.status, missing.next_offset) == (PullStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        for i in range(60):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        clock.ms = 1 << 42
        store.clean()
        low = store.queue(QUEUE).min_offset
        assert 0 < low < 60
        for offset, status, next_offset in (
            (0, PullStatus.OFFSET_TOO_SMALL, low),
            (low, PullStatus.FOUND, low + 1),
            (60, PullStatus.OFFSET_OVERFLOW_ONE, 60),
            (61, PullStatus.OFFSET_OVERFLOW_BADLY, 60),
        ):
            slices = store.read(QUEUE, offset, 1)
            assert (slices.status, slices.next_offset) == (status, next_offset)
            assert (slices.min_offset, slices.max_offset) == (low, 60)


@pytest.mark.feature("F146")
def test_a_pull_is_made_of_views_of_the_mapped_log(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a"), draft(b"b")])
        views = store.read(QUEUE, 0, 32).views
        segment = store.commitlog.segments.open(0)
        assert all(view.obj is segment.map and view.readonly for view in views)
        assert [decode(view).body for view in views] == [b"a", b"b"]


def test_views_of_a_deleted_segment_stay_readable(tmp_path):
    clock, config = HeldClock(), small(tmp_path, keep_hours=0, delete_hours=ALL_HOURS)
    with opened(config, clock) as store:
        for i in range(60):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        held = store.read(QUEUE, 0, 1).views[0]
        clock.ms = 1 << 42
        assert 0 in store.clean()
        assert decode(held).body == bytes(900)


def test_tags_are_filtered_by_their_hash_and_the_rest_is_skipped(tmp_path):
    with opened(small(tmp_path, queue_file_size=6000)) as store:
        for i in range(30):
            store.append([draft(b"%d" % i, TAGS=f"t{i % 3}")])
        wanted = frozenset([java_hash("t1")])
        assert read_bodies(store, 0, 3, tag_hashes=wanted) == [b"1", b"4", b"7"]
        nothing = store.read(QUEUE, 0, 3, tag_hashes=frozenset([7]))
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 30)


def test_a_sieve_finds_what_passes_across_segments_and_limits_hold(tmp_path):
    with opened(small(tmp_path, queue_file_size=12_000, segment_size=8192)) as store:
        for i in range(500):
            store.append([draft(b"%03d" % i, number=str(i))])
        every_seventh = compile_sql(" OR ".join(f"number = {i}" for i in range(0, 500, 7)))
        wanted = [b"%03d" % i for i in range(0, 500, 7)]
        seen, offset = [], 0
        while offset < 500:
            found = store.read(QUEUE, offset, 5, sieve=every_seventh, is_over=lambda: False)
            assert found.status is PullStatus.FOUND or not found.views
            assert len(found.views) <= 5
            seen += [decode(view).body for view in found.views]
            offset = found.next_offset
        assert seen == wanted
        assert store.commitlog.end > 4 * 8192
        entries = bytes(store.dispatch.queues["T", 0].read(0, 500))
        assert store.reader.any_passes(entries, compile_sql("number = 499"))
        assert not store.reader.any_passes(entries, compile_sql("number = 500"))


def test_a_sieve_looks_on_until_its_time_is_over_but_takes_a_step_in_any_case(tmp_path):
    with opened(small(tmp_path, queue_file_size=60_000, segment_size=1 << 20)) as store:
        store.append([draft(b"x") for _ in range(1000)])
        steps = []

        def is_over():
            steps.append(1)
            return len(steps) == 3

        found = store.read(QUEUE, 0, 5, sieve=compile_sql("a = 1"), is_over=is_over)
        assert (found.status, len(steps)) == (PullStatus.NO_MATCHED_MESSAGE, 3)
        once = store.read(QUEUE, 0, 5, sieve=compile_sql("a = 1"), is_over=lambda: True)
        assert once.status is PullStatus.NO_MATCHED_MESSAGE
        assert 8 < once.next_offset < found.next_offset < 1000


@pytest.mark.skipif(kernel.NAME == "plain", reason="the plain kernel looks at the time between messages only")
def test_a_message_about_which_a_sieve_cannot_decide_in_time_is_not_passed_over(tmp_path):
    sieve = compile_sql(" AND ".join(f"a NOT CONTAINS 'abab{i:03}'" for i in range(300)))
    with opened(small(tmp_path, queue_file_size=60_000, segment_size=1 << 20)) as store:
        store.append([draft(b"x", a="ab" * 10_000)])
        assert store.reader.any_passes(bytes(store.dispatch.queues["T", 0].read(0, 1)), sieve), "who waits looks itself"
        searches = 1
        while not (found := store.read(QUEUE, 0, 5, sieve=sieve, is_over=lambda: True)).views:
            assert (found.status, found.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 0)
            searches += 1
        assert (found.status, found.next_offset, len(found.views)) == (PullStatus.FOUND, 1, 1)
        assert 10 < searches < 1000


def test_a_sieve_goes_round_a_segment_of_the_log_that_is_gone(tmp_path):
    config = small(tmp_path, queue_file_size=12_000, segment_size=4096)
    with opened(config) as store:
        for i in range(100):
            store.append([draft(b"%02d" % i, number=str(i))])
        gone = sorted(store.commitlog.segments.bases)[1]
        everything = compile_sql("number IS NOT NULL")
        store.commitlog.segments.bases.remove(gone)
        seen, offset = [], 0
        while offset < 100:
            found = store.read(QUEUE, offset, 32, sieve=everything, is_over=lambda: False)
            seen += [decode(view).body for view in found.views]
            offset = found.next_offset
        assert 60 < len(seen) < 100
        assert seen == sorted(seen)
        store.commitlog.segments.bases.append(gone)
        store.commitlog.segments.bases.sort()


def test_a_pull_takes_32_near_messages_or_8_far_ones_or_as_many_bytes(tmp_path):
    changes = {"queue_file_size": 6000, "segment_size": 1 << 20}
    with opened(small(tmp_path / "near", **changes)) as store:
        store.append([draft(bytes(1000)) for _ in range(100)])
        assert len(store.read(QUEUE, 0, 64).views) == 32
    with opened(small(tmp_path / "far", near_percent_of_memory=0, **changes)) as store:
        store.append([draft(bytes(1000)) for _ in range(100)])
        assert len(store.read(QUEUE, 0, 64).views) == 8
        assert len(store.read(QUEUE, 0, 64, size_max=2500).views) == 2
        assert len(store.read(QUEUE, 0, 64, size_max=1).views) == 1


@given(steps=st.lists(st.integers(0, 3), min_size=1, max_size=60), ask=st.integers(-2, 130))
@settings(deadline=None, max_examples=30)
def test_search_by_time_finds_the_first_at_or_after_and_the_last_at_or_before(tmp_path_factory, steps, ask):
    clock = HeldClock()
    with opened(small(tmp_path_factory.mktemp("s")), clock) as store:
        times = []
        for step in steps:
            clock.ms += step
            times.append(clock.ms)
            store.append([draft(b"x")])
        asked = START_MS + ask
        lower = next((i for i, time in enumerate(times) if time >= asked), len(times))
        upper = max((i for i, time in enumerate(times) if time <= asked), default=0)
        assert store.offset_at(QUEUE, asked) == lower
        assert store.offset_at(QUEUE, asked, is_upper=True) == upper


def test_bytes_between_two_messages_are_no_message(tmp_path):
    with opened(small(tmp_path)) as store:
        first = store.append([draft(b"a"), draft(b"b")])
        assert store.record_at(first.physical_offsets[1]) is not None
        assert store.record_at(first.physical_offsets[0] + 4) is None
        assert store.record_at(first.end) is None
        assert store.record_at(1 << 40) is None
        assert bodies(store) == [b"a", b"b"]


def test_a_walk_has_every_message_once_and_goes_over_what_cannot_be_read(tmp_path):
    with opened(small(tmp_path)) as store:
        sent = [b"%03d" % number + b"." * 500 for number in range(70)]
        places = [store.append([draft(body)]).physical_offsets[0] for body in sent]
        for lost in (0, 9, 10, 69):
            store.segment_at(places[lost]).write(bytes(8), places[lost] % 16384)
        walked = list(store.walk(QUEUE, 0, count_max=8))
        whole = [body for number, body in enumerate(sent) if number not in (0, 9, 10, 69)]
        assert [decode(view).body for slices in walked for view in slices.views] == whole
        ends = [slices.next_offset for slices in walked]
        assert ends == sorted(set(ends))
        assert ends[-1] == 70
        stretch = store.walk(QUEUE, 20, 30, count_max=4)
        assert [decode(view).body for slices in stretch for view in slices.views] == sent[20:30]


def test_a_walk_begins_with_what_is_there_and_ends_where_the_queue_ended_or_with_the_queue(tmp_path):
    with opened(small(tmp_path)) as store:
        assert list(store.walk(QUEUE, 0)) == []
        store.append([draft(b"%d" % number) for number in range(40)])
        found = []
        for slices in store.walk(QUEUE, 0, count_max=10):
            found += [decode(view).body for view in slices.views]
            store.append([draft(b"later")])
        assert found == [b"%d" % number for number in range(40)]
        walk = store.walk(QUEUE, 0, count_max=10)
        assert len(next(walk).views) == 10
        store.remove_topic("T")
        assert list(walk) == []
