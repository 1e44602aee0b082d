"""A store that copies another one's log has its files, however the bytes are cut, and can take its place."""

import itertools
import random
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.errors import CopyGap, Refusal, StoreError
from bolide.kernel.layout import ENTRY
from bolide.model.queue import QueueKey
from bolide.store.config import SYNC_FLUSH
from bolide.store.verify import findings
from tests.grids import grid
from tests.store.given import START_MS, bodies, crash, draft, opened, query, read_all, small
from tests.store.replicas import FILE_SIZE, assert_equal_files, contents, copy, filled, follower, pieces


@pytest.fixture
def leader(tmp_path):
    with filled(tmp_path / "leader") as store:
        yield store


@pytest.mark.feature("F127")
def test_a_copy_has_the_files_of_its_source_to_the_byte(leader, tmp_path):
    with follower(tmp_path / "copy") as store:
        copy(leader, store)
        assert store.log_end == store.written_end == store.visible_end == leader.log_end
        assert_equal_files(leader.config.root, store.config.root)
        assert [bodies(store, "A", each) for each in (0, 1)] == [bodies(leader, "A", each) for each in (0, 1)]
        assert len(leader.dispatch.index.files) > 2
    assert findings(store.config) == []


@pytest.mark.feature("F127")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 5000), max_size=60), restart_at=st.integers(0, 80), is_kill=st.booleans())
def test_a_copy_is_equal_however_the_stream_is_cut_and_whenever_it_restarts(
    leader, tmp_path_factory, sizes, restart_at, is_kill
):
    root = tmp_path_factory.mktemp("copy")
    store = follower(root)
    for _, (offset, content) in zip(range(restart_at), pieces(leader, 0, sizes), strict=False):
        store.append_copy(offset, content)
    if is_kill:
        crash(store)
    else:
        store.close()
    store = follower(root)
    assert store.log_end <= leader.log_end
    copy(leader, store, reversed(sizes))
    assert_equal_files(leader.config.root, root)
    store.close()
    assert findings(store.config) == []


@pytest.mark.parametrize("size", [1, 7, 8, 89])
def test_a_copy_is_equal_when_every_byte_comes_alone_or_in_a_few(tmp_path, size):
    with filled(tmp_path / "leader", count=18) as leader, follower(tmp_path / "copy") as store:
        assert leader.log_end > FILE_SIZE
        for offset, content in pieces(leader, 0, itertools.repeat(size)):
            store.append_copy(offset, content)
            whole = store.progress.whole
            assert store.visible_end == store.progress.dispatched == whole <= store.log_end == offset + len(content)
        assert_equal_files(leader.config.root, store.config.root)


def test_what_lies_behind_a_blank_record_is_copied_whatever_it_is(tmp_path):
    with filled(tmp_path / "leader") as leader, follower(tmp_path / "copy") as store:
        segment = leader.commitlog.segments.open(0)
        end = segment.written_end(0)
        assert FILE_SIZE - end > 100
        segment.write(random.Random(3).randbytes(FILE_SIZE - end), end)
        copy(leader, store, [end + 50, 20])
        assert store.log_end == leader.log_end
        assert contents(store.config.root) == contents(leader.config.root)


@pytest.mark.parametrize("is_kill", [True, False])
@pytest.mark.parametrize("behind", [1, 7, 8, 9, 100])
def test_a_copy_that_ends_behind_a_blank_record_is_equal_after_a_restart(tmp_path, behind, is_kill):
    with filled(tmp_path / "leader") as leader:
        segment = leader.commitlog.segments.open(0)
        blank = segment.written_end(0) - 8
        segment.write(b"\xee" * (FILE_SIZE - blank - 8), blank + 8)
        store = follower(tmp_path / "copy")
        store.append_copy(0, bytes(segment.view[: blank + behind]))
        store.flush()
        assert store.progress.whole == blank
        crash(store) if is_kill else store.close()
        store = follower(tmp_path / "copy")
        assert store.log_end == blank
        copy(leader, store)
        assert contents(store.config.root) == contents(leader.config.root)
        store.close()


@pytest.mark.parametrize("left", [0, 1, 7, 8])
def test_files_may_end_without_a_blank_record(tmp_path, left):
    """No broker that we know fills a file so far; the format does not forbid it."""
    with opened(small(tmp_path / "leader")) as leader, follower(tmp_path / "copy") as store:
        size = leader.append([draft(b"x")]).end - 1
        body = b"y" * (FILE_SIZE - 2 * size - 1 - left)
        record = bytes(leader.log_view(0, size + 1))
        filler = _moved(record, body, size + 1)
        rest = FILE_SIZE - len(record) - len(filler)
        assert rest == left
        blank = (8).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") if left == 8 else bytes(left)
        store.append_copy(0, record + filler + blank)
        assert store.progress.whole == store.visible_end == FILE_SIZE
        store.append_copy(FILE_SIZE, _moved(record, b"z", FILE_SIZE))
        assert bodies(store) == [b"x", body, b"z"]


def _moved(record, body, place):
    """The same record with another body, at another place, as the next of its queue."""
    old_size = int.from_bytes(record[84:88], "big")
    content = bytearray(record[:84] + len(body).to_bytes(4, "big") + body + record[88 + old_size :])
    content[0:4] = len(content).to_bytes(4, "big")
    content[8:12] = (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
    content[20:28] = (1 if place < FILE_SIZE else 2).to_bytes(8, "big")
    content[28:36] = place.to_bytes(8, "big")
    return bytes(content)


@pytest.mark.parametrize("is_kill", [True, False])
def test_records_forged_in_a_body_are_not_taken_for_real_where_half_of_it_was_copied(tmp_path, is_kill):
    with opened(small(tmp_path / "leader")) as leader:
        leader.append([draft(b"x")])
        record, place = bytes(leader.log_view(0, 1000)), leader.log_end
        forged = b""
        for _ in range(3):
            forged += _moved(record, b"forged", place + 88 + len(forged))
        leader.append([draft(forged + b"." * 500)])
        store = follower(tmp_path / "copy")
        store.append_copy(0, bytes(leader.log_view(0, place + 88 + len(forged) + 5)))
        crash(store) if is_kill else store.close()
        with follower(tmp_path / "copy") as store:
            assert store.log_end == place
            assert bodies(store) == [b"x"]
            copy(leader, store)
            assert_equal_files(leader.config.root, tmp_path / "copy")


@pytest.mark.feature("F127")
def test_an_empty_store_begins_at_the_file_of_the_first_bytes(tmp_path):
    with filled(tmp_path / "leader") as leader, follower(tmp_path / "copy") as store:
        start = leader.log_end - leader.log_end % FILE_SIZE
        assert start >= 2 * FILE_SIZE
        for offset, content in pieces(leader, start, [100, 1]):
            store.append_copy(offset, content)
        assert (store.log_start, store.log_end) == (start, leader.log_end)
        assert min(path.name for path in store.config.log_directory.iterdir()) == f"{start:020d}"
        newest = [each for each in read_all(leader, "A", 0) if each.physical_offset >= start]
        assert [each.queue_offset for each in read_all(store, "A", 0)] == [each.queue_offset for each in newest]
        crash(store)
        store = follower(tmp_path / "copy")
        assert (store.log_start, store.log_end) == (start, leader.log_end)
        assert store.lead() == leader.log_end
        for queue_id in (0, 1):
            assert store.next_offset(QueueKey("A", queue_id)) == leader.next_offset(QueueKey("A", queue_id))


def test_bytes_that_do_not_follow_are_refused_and_change_nothing(leader, tmp_path):
    with follower(tmp_path / "copy") as store:
        store.append_copy(0, bytes(leader.log_view(0, 1000)))
        for offset in (0, 999, 1001, FILE_SIZE):
            with pytest.raises(CopyGap, match=f"from {offset} on .* ends at 1000"):
                store.append_copy(offset, b"x")
        with pytest.raises(StoreError, match="one log file"):
            store.append_copy(1000, bytes(FILE_SIZE - 999))
        with pytest.raises(StoreError, match="one log file"):
            store.append_copy(-1, b"x")
        copy(leader, store)
        assert_equal_files(leader.config.root, store.config.root)


def test_a_follower_takes_no_message_and_a_leader_no_copy(leader, tmp_path):
    with follower(tmp_path / "copy") as store, pytest.raises(Refusal, match="slave"):
        store.append([draft(b"x")])
    with pytest.raises(StoreError, match="leads"):
        leader.append_copy(leader.log_end, b"x")


@pytest.mark.feature("F127")
def test_arrivals_are_told_when_a_record_is_whole(leader, tmp_path):
    told, seen, places = [], [], []
    with follower(tmp_path / "copy") as store:
        store.listen(lambda arrival: told.append(arrival))
        store.listen_written(lambda: seen.append(store.written_end))
        copy(leader, store, itertools.repeat(50))
        assert seen == sorted(seen)
        assert seen[-1] == leader.log_end
    for arrival in told:
        places += [ENTRY.unpack(arrival.entries[at : at + 20])[0] for at in range(0, len(arrival.entries), 20)]
    assert places == sorted(places)
    assert len(places) == sum(len(queue_entries(leader, key)) for key in leader.queue_keys)


def queue_entries(store, key):
    queue = store.queue(key)
    return range(queue.min_offset, queue.next_offset)


@pytest.mark.feature("F127")
@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", SYNC_FLUSH])
@pytest.mark.parametrize("cut", [0, 1, 50, 5000])
def test_a_promoted_follower_goes_on_where_every_queue_ended(tmp_path, flush_mode, cut):
    with filled(tmp_path / "leader") as leader, follower(tmp_path / "copy", flush_mode=flush_mode) as store:
        for offset, content in pieces(leader, 0):
            store.append_copy(offset, content[: max(leader.log_end - cut - offset, 0)])
        end = store.lead()
        assert end == store.log_end == store.visible_end <= leader.log_end - cut
        assert not store.is_follower
        before = {key: store.max_offset(key) for key in store.queue_keys}
        appended = store.append([draft(b"first", key.topic, key.queue_id) for key in before])
        store.flush()
        assert appended.queue_offsets == list(before.values())
        assert [read_all(store, key.topic, key.queue_id)[-1].body for key in before] == [b"first"] * len(before)
        assert [each.queue_offset for each in read_all(store, "A", 0)] == list(range(before[QueueKey("A", 0)] + 1))
    assert findings(store.config) == []


def test_a_leader_that_follows_again_and_leads_again_loses_nothing(leader, tmp_path):
    with follower(tmp_path / "copy") as store:
        copy(leader, store)
        for number in range(6):
            one, other = (leader, store) if number % 2 else (store, leader)
            other.follow()
            assert one.lead() == other.log_end
            one.append([draft(b"turn %d" % number, "Turns")])
            copy(one, other, [30])
            assert_equal_files(one.config.root, other.config.root)
        assert bodies(store, "Turns") == [b"turn %d" % number for number in range(6)]
        leader.lead()


def test_a_follower_under_synchronous_flush_reports_and_shows_what_is_flushed(leader, tmp_path):
    with follower(tmp_path / "copy", flush_mode=SYNC_FLUSH) as store:
        copy(leader, store)
        assert (store.reported_end, store.visible_end, store.log_end) == (0, 0, leader.log_end)
        assert bodies(store, "A") == []
        store.flush()
        assert store.reported_end == store.visible_end == leader.log_end
        assert bodies(store, "A") == bodies(leader, "A")
    with follower(tmp_path / "other") as store:
        copy(leader, store)
        assert store.reported_end == leader.log_end


def test_a_follower_of_a_store_with_a_pool_gets_what_is_written(tmp_path):
    told = []
    with opened(small(tmp_path / "leader", pool_enabled=True)) as leader:
        leader.listen_written(lambda: told.append(leader.written_end))
        leader.append([draft(b"one")])
        assert leader.log_view(0, 1000) == b""
        leader.commit()
        assert told[-1] == leader.written_end == leader.log_end
        with follower(tmp_path / "copy", pool_enabled=True) as store:
            copy(leader, store, [50])
            assert bodies(store) == [b"one"]
            assert store.lead() == leader.log_end
            store.append([draft(b"two")])
            store.commit()
            assert bodies(store) == [b"one", b"two"]


def test_a_view_of_the_log_ends_with_its_file_and_with_what_is_written(leader):
    assert leader.log_view(0, 10) == leader.commitlog.segments.open(0).view[:10]
    assert len(leader.log_view(FILE_SIZE - 5, 100)) == 5
    assert leader.log_view(leader.log_end, 100) == b""
    assert len(leader.log_view(leader.log_end - 3, 100)) == 3
    assert leader.log_view(leader.log_end + 1, 100) is None
    assert leader.log_view(-1, 100) is None


def test_a_view_is_none_below_the_log_and_empty_at_the_end_of_a_full_file(tmp_path):
    with follower(tmp_path / "copy") as store:
        assert store.log_view(0, 100) == b""
        store.append_copy(3 * FILE_SIZE, bytes(FILE_SIZE))
        assert store.log_view(3 * FILE_SIZE - 1, 100) is None
        assert store.log_view(4 * FILE_SIZE, 100) == b""


ROT = {
    "magic": lambda size: (4, b"\0\0\0\0"),
    "size that is larger": lambda size: (0, (size + 700).to_bytes(4, "big")),
    "size of megabytes": lambda size: (1, b"\x40"),
    "size of nothing": lambda size: (0, bytes(4)),
    "place": lambda size: (28, b"\x01"),
    "length of the body": lambda size: (84, b"\0\x01"),
    "queue offset": lambda size: (20, b"\0\x20"),
    "queue id": lambda size: (12, b"\x80"),
    "all": lambda size: (0, b"\xa5" * size),
    "zeros": lambda size: (0, bytes(size)),
}


@grid(3, size=[33, 1 << 20], number=[0, 7, 19], what=ROT)
def test_a_bad_record_of_the_other_log_is_copied_and_gone_round(tmp_path, what, number, size):
    with opened(small(tmp_path / "leader")) as leader, follower(tmp_path / "copy") as store:
        places = [leader.append([draft(b"%d" % each * 400, "T")]).physical_offsets[0] for each in range(100, 120)]
        place = places[number]
        segment = leader.segment_at(place)
        at, bad = ROT[what](len(leader.record_at(place)))
        segment.write(bad, place - segment.base + at)
        copy(leader, store, itertools.repeat(size))
        assert store.log_end == leader.log_end
        whole = [b"%d" % each * 400 for each in range(100, 120)]
        for last in range(2):  # the first of them may have to tell where the log goes on
            leader.append([draft(b"last %d" % last * 100)])
            copy(leader, store, itertools.repeat(size))
        got = bodies(store)
        assert [each for each in got if each in whole] == [b for n, b in enumerate(whole) if n != number or b in got]
        assert got[-2:] == [b"last 0" * 100, b"last 1" * 100]
        assert store.progress.whole == store.log_end
        offsets = {each.body: each.queue_offset for each in read_all(store)}
        assert offsets[b"last 1" * 100] == 21
        assert all(leader_log == copied for leader_log, copied in zip(logs(leader), logs(store), strict=True))
        crash(store)
        store = follower(tmp_path / "copy")
        assert store.log_end == leader.log_end
        assert bodies(store)[-2:] == [b"last 0" * 100, b"last 1" * 100]


def logs(store):
    return [content for name, content in sorted(contents(store.config.root).items()) if name.startswith("commitlog")]


def test_a_bad_stretch_over_the_end_of_a_file_is_gone_round(tmp_path):
    with filled(tmp_path / "leader") as leader, follower(tmp_path / "copy") as store:
        first, second = leader.commitlog.segments.open(0), leader.commitlog.segments.open(FILE_SIZE)
        first.write(b"\x77" * 5000, FILE_SIZE - 5000)
        second.write(b"\x77" * 3000, 0)
        copy(leader, store, itertools.repeat(1234))
        assert store.progress.whole == store.log_end == leader.log_end
        newest = [each.body for each in read_all(leader, "A", 0) if each.physical_offset > FILE_SIZE + 6000]
        assert bodies(store, "A", 0)[-len(newest) :] == newest


def test_a_store_time_years_ahead_is_not_taken_over(tmp_path):
    with opened(small(tmp_path / "leader")) as leader, follower(tmp_path / "copy") as store:
        place = leader.append([draft(b"x")]).physical_offsets[0]
        leader.segment_at(place).write(b"\x01", place + 56)
        leader.append([draft(b"y")])
        copy(leader, store)
        store.lead()
        assert store.append([draft(b"z")]).store_ms == START_MS
        assert query(store, "T", "no", 1, 0, 1 << 60) == []
