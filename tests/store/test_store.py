"""What is appended is there: in order, in every queue, after every restart."""

import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from bolide import kernel
from bolide.errors import ConfigError, Refusal, StoreError
from bolide.model.queue import QueueKey
from bolide.protocol.codes import ResponseCode
from bolide.settings import dump
from bolide.store.config import StoreConfig
from bolide.store.read import PullStatus
from bolide.store.record import decode
from bolide.store.verify import findings
from tests.store.given import BORN_HOST, HOST, START_MS, HeldClock, bodies, crash, draft, opened, query, read_all, small


@pytest.mark.feature("F147", "F150", "F159")
def test_two_topics_lie_in_one_log_in_the_order_sent(tmp_path):
    with opened(small(tmp_path)) as store:
        for i in range(6):
            store.append([draft(b"%d" % i, topic="A" if i % 2 else "B")])
        log = (tmp_path / "commitlog" / "00000000000000000000").read_bytes()
    at, seen = 0, []
    while size := int.from_bytes(log[at : at + 4], "big"):
        seen.append(decode(log[at : at + size]).body)
        at += size
    assert seen == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.feature("F148", "F149", "F164")
def test_a_full_segment_is_closed_with_a_blank_record_and_the_next_is_named_by_its_offset(tmp_path):
    with opened(small(tmp_path)) as store:
        places = [store.append([draft(bytes([i]) * 900)]).physical_offsets[0] for i in range(40)]
        assert bodies(store) == [bytes([i]) * 900 for i in range(40)]
        names = sorted(os.listdir(tmp_path / "commitlog"))
        assert names[:3] == ["00000000000000000000", "00000000000000016384", "00000000000000032768"]
        first = (tmp_path / "commitlog" / names[0]).read_bytes()
    last = max(place for place in places if place < 16384)
    blank_at = last + int.from_bytes(first[last : last + 4], "big")
    left, magic = struct.unpack_from(">iI", first, blank_at)
    assert (left, magic) == (16384 - blank_at, 0xCBD43194)
    assert left >= 8
    # A clean stop leaves no segment that was made ahead, and every file has its full size.
    assert sorted(os.listdir(tmp_path / "commitlog")) == names[:3]
    assert {os.path.getsize(tmp_path / "commitlog" / name) for name in names[:3]} == {16384}


def test_a_record_that_leaves_exactly_the_room_of_a_blank_stays_and_one_byte_more_rolls(tmp_path):
    overhead = 91 + 1
    for extra, base in ((0, 0), (1, 16384)):
        root = tmp_path / str(extra)
        with opened(small(root)) as store:
            store.append([draft(bytes(8000))])
            place = store.append([draft(bytes(16384 - 8 - (8000 + overhead) - overhead + extra))]).physical_offsets[0]
            assert place == (base or 8000 + overhead)
            store.append([draft(b"next")])
            assert len(bodies(store)) == 3
        with opened(small(root)) as store:
            assert len(bodies(store)) == 3


@pytest.mark.feature("F152", "F175", "F169")
def test_queue_offsets_go_on_after_a_restart(tmp_path):
    for round_ in range(4):
        with opened(small(tmp_path)) as store:
            offsets = [store.append([draft(b"x", queue_id=q)]).queue_offsets[0] for q in (0, 1, 0)]
            assert offsets == [2 * round_, round_, 2 * round_ + 1]
    with opened(small(tmp_path)) as store:
        assert [record.queue_offset for record in read_all(store)] == list(range(8))


@pytest.mark.feature("F165", "F166")
def test_offsets_have_no_gap_and_store_times_never_go_back(tmp_path):
    clock = HeldClock()
    with opened(small(tmp_path), clock) as store:
        end = 0
        for i in range(50):
            clock.ms += 7 if i % 3 else -20
            appended = store.append([draft(b"%d" % i) for _ in range(i % 4 + 1)])
            assert appended.physical_offsets[0] in (end, -(-end // 16384) * 16384)
            end = appended.end
        records = read_all(store)
    assert [record.queue_offset for record in records] == list(range(len(records)))
    times = [record.stored_at for record in records]
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_the_store_time_does_not_go_back_over_a_restart(tmp_path):
    clock = HeldClock()
    with opened(small(tmp_path), clock) as store:
        store.append([draft(b"a")])
    clock.ms -= 100_000
    with opened(small(tmp_path), clock) as store:
        assert store.append([draft(b"b")]).store_ms == START_MS


@pytest.mark.feature("F168")
def test_the_message_id_says_where_the_record_lies(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"first")])
        (place,) = store.append([draft(b"second")]).physical_offsets
        record = decode(store.record_at(place))
    assert record.offset_id == f"7F00000100002A9F{place:016X}"


@pytest.mark.feature("F170")
def test_the_size_field_counts_every_byte_written(tmp_path):
    with opened(small(tmp_path)) as store:
        first = store.append([draft(b"body", TAGS="TagA", KEYS="k")])
        second = store.append([draft(b"")])
        record = decode(store.record_at(first.physical_offsets[0]))
    assert record.store_size == second.physical_offsets[0] == 91 + len("T") + len(b"body") + len("TAGS.TagA.KEYS.k.")
    assert (record.properties, record.store_host) == ({"TAGS": "TagA", "KEYS": "k"}, ("127.0.0.1", 10911))


@pytest.mark.feature("F155")
@pytest.mark.parametrize("is_clean", [True, False])
def test_queues_and_index_are_rebuilt_from_the_log(tmp_path, is_clean):
    config = small(tmp_path)
    with opened(config) as store:
        for i in range(100):
            store.append([draft(b"%d" % i, queue_id=i % 3, KEYS=f"k{i}", TAGS=f"t{i % 5}")])
    before = {path: path.read_bytes() for path in sorted((tmp_path / "consumequeue").rglob("*")) if path.is_file()}
    assert len(before) > 3
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    if not is_clean:
        (tmp_path / "abort").touch()
    with opened(config) as store:
        assert [record.body for record in query(store, "T", "k7", 10, 0, 1 << 60)] == [b"7"]
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.feature("F156", "F157", "F176")
def test_messages_are_found_by_key_across_files_chains_and_restarts(tmp_path):
    clock, config = HeldClock(), small(tmp_path, index_slots=2, index_entries_max=20)
    for round_ in range(3):
        with opened(config, clock) as store:
            for i in range(20):
                clock.ms += 1000
                keys = f"k{i} all"
                store.append([draft(b"%d.%d" % (round_, i), KEYS=keys, UNIQ_KEY=f"u{round_}.{i}")])
    with opened(config, clock) as store:
        assert len(list((tmp_path / "index").iterdir())) > 3
        found = [record.body for record in query(store, "T", "k3", 64, 0, clock.ms)]
        assert found == [b"0.3", b"1.3", b"2.3"]
        assert [record.body for record in query(store, "T", "u1.4", 32, 0, clock.ms)] == [b"1.4"]
        assert len(query(store, "T", "all", 10, 0, clock.ms)) == 10
        assert query(store, "Other", "k3", 10, 0, clock.ms) == []
        begin, end = START_MS + 21_000, START_MS + 40_000
        assert [record.body for record in query(store, "T", "k3", 10, begin, end)] == [b"1.3"]


def test_a_full_index_file_moves_the_checkpoint_and_survives_a_crash(tmp_path):
    clock, config = HeldClock(), small(tmp_path, index_entries_max=11)
    store = opened(config, clock)
    for i in range(25):
        clock.ms += 1000
        store.append([draft(b"%d" % i, KEYS=f"k{i}")])
    store.flush()
    store.flush_queues()
    names = sorted(os.listdir(tmp_path / "index"))
    assert len(names) == 3
    crash(store)
    with opened(config, clock) as store:
        assert sorted(os.listdir(tmp_path / "index"))[:2] == names[:2]
        assert all(len(query(store, "T", f"k{i}", 9, 0, 1 << 60)) == 1 for i in range(25))


@pytest.mark.feature("F158")
def test_the_checkpoint_has_three_times_and_never_leads(tmp_path):
    clock, config = HeldClock(), small(tmp_path, index_entries_max=4)
    store = opened(config, clock)
    for i in range(5):
        clock.ms += 1000
        store.append([draft(b"%d" % i, KEYS=f"k{i}")])
    store.checkpoint.save()
    assert struct.unpack_from(">3q", (tmp_path / "checkpoint").read_bytes()) == (0, 0, 0)
    store.flush()
    store.checkpoint.save()
    assert struct.unpack_from(">3q", (tmp_path / "checkpoint").read_bytes()) == (clock.ms, 0, 0)
    store.flush_queues()
    content = (tmp_path / "checkpoint").read_bytes()
    assert struct.unpack_from(">3q", content) == (clock.ms, clock.ms, START_MS + 3000)
    assert len(content) == 4096
    store.close()


@pytest.mark.feature("F160")
def test_a_closed_store_a_slave_and_a_failed_one_take_no_messages(tmp_path):
    store = opened(small(tmp_path))
    store.close()
    with pytest.raises(Refusal, match="shut down") as refused:
        store.append([draft(b"x")])
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    with opened(small(tmp_path, role="SLAVE")) as slave, pytest.raises(Refusal, match="slave") as refused:
        slave.append([draft(b"x")])
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.feature("F161", "F162")
def test_illegal_messages_are_refused_and_nothing_of_their_batch_is_stored(tmp_path):
    with opened(small(tmp_path, body_size_max=4096)) as store:
        long_properties = draft(b"x")._replace(properties=b"a\x01" + b"v" * 32766)
        for bad in (draft(b"x", topic="t" * 128), draft(bytes(4097)), long_properties):
            with pytest.raises(Refusal) as refused:
                store.append([draft(b"good"), bad])
            assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert store.progress.appended == 0
        assert store.append([draft(b"good")]).physical_offsets == [0]


def test_a_batch_larger_than_a_segment_is_refused(tmp_path):
    with opened(small(tmp_path)) as store:
        with pytest.raises(Refusal, match="does not fit a log segment"):
            store.append([draft(bytes(8000)), draft(bytes(8300))])
        assert store.append([draft(bytes(8000)), draft(bytes(8100))]).queue_offsets == [0, 1]


@pytest.mark.feature("F154")
def test_a_prepared_message_is_in_the_log_and_in_no_queue(tmp_path):
    with opened(small(tmp_path)) as store:
        half = store.append([draft(b"half", sys_flag=0x4)])
        assert store.record_at(half.physical_offsets[0]) is not None
        assert store.read(QueueKey("T", 0), 0, 32).status is PullStatus.NO_MATCHED_LOGIC_QUEUE
        store.append([draft(b"whole")])
        assert bodies(store) == [b"whole"]


def test_a_store_can_be_open_once(tmp_path):
    with opened(small(tmp_path)), pytest.raises(StoreError, match="already open"):
        opened(small(tmp_path))
    with opened(small(tmp_path)):
        pass


@pytest.mark.feature("F183", "F187")
def test_defaults_are_rocketmqs(tmp_path):
    config = StoreConfig()
    assert config.root == Path.home() / "store"
    shown = dump(config)
    assert (shown["flushDiskType"], shown["brokerRole"]) == ("ASYNC_FLUSH", "ASYNC_MASTER")
    assert (shown["mappedFileSizeCommitLog"], shown["fileReservedTime"]) == ("1073741824", "72")


def test_hosts_are_kept_as_they_were(tmp_path):
    with opened(small(tmp_path)) as store:
        six = draft(b"6")._replace(born_host=bytes(15) + b"\x01" + (80).to_bytes(4, "big"))
        places = store.append([six, draft(b"4")]).physical_offsets
        assert decode(store.record_at(places[0])).born_host == ("::1", 80)
        assert decode(store.record_at(places[1])).born_host == ("192.168.1.9", 51234)
        assert (HOST, BORN_HOST) != (BORN_HOST, HOST)


@pytest.mark.feature("F174")
def test_the_transient_pool_shows_only_what_is_committed(tmp_path):
    config = small(tmp_path, pool_enabled=True)
    with opened(config) as store:
        for i in range(40):
            store.append([draft(bytes([i]) * 900)])
        assert bodies(store) == []
        assert (tmp_path / "commitlog" / "00000000000000000000").read_bytes()[:4] == bytes(4)
        store.commit()
        assert bodies(store) == [bytes([i]) * 900 for i in range(40)]
        store.append([draft(b"late")])
    with opened(config) as store:
        assert len(bodies(store)) == 41


def test_a_topic_goes_with_its_queues(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a", topic="A", queue_id=3), draft(b"b", topic="B")])
        store.remove_topic("A")
        assert os.listdir(tmp_path / "consumequeue") == ["B"]
        assert store.read(QueueKey("A", 3), 0, 1).status is PullStatus.NO_MATCHED_LOGIC_QUEUE


NO_PATH_PARTS = ["..", ".", "", "/", "../victim", "a/b", ".hidden", "a\0b", "x" * 256, "\u00e4" * 128]


@pytest.mark.parametrize("topic", NO_PATH_PARTS, ids=lambda topic: repr(topic[:12]))
def test_a_name_that_is_not_one_part_of_a_path_is_never_made_nor_removed(tmp_path, topic):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept")
    with opened(small(tmp_path / "store")) as store:
        store.append([draft(b"a", topic="A")])
        for name in (topic, str(victim) if topic == "/" else topic):
            with pytest.raises(StoreError, match="no topic"):
                store.remove_topic(name)
        with pytest.raises(Refusal, match="topic"):
            store.append([draft(b"x", topic=topic)])
        assert bodies(store, "A") == [b"a"]
    assert (victim / "kept").read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["store", "victim"]
    assert os.listdir(tmp_path / "store" / "consumequeue") == ["A"]


def test_a_record_whose_topic_cannot_be_a_directory_costs_no_other_message(tmp_path):
    with opened(small(tmp_path)) as store:
        runs = [("../away", 0, 0, bytes(20)), ("A", 0, 0, (0).to_bytes(8) + (100).to_bytes(4) + bytes(8))]
        assert store.dispatch.take(100, 0, runs, b"", 100)  # as a recovery does with what it finds in the log
        assert list(store.dispatch.queues) == [("A", 0)]
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_topic_made_again_after_its_removal_starts_at_0_and_stays_so_after_a_crash(tmp_path, flush_mode):
    config = small(tmp_path, flush_mode=flush_mode)
    store = opened(config)
    store.append([draft(b"old %d" % i, topic="A") for i in range(30)])
    store.append([draft(b"b", topic="B")])
    store.remove_topic("A")  # under synchronous flush its entries still wait for the sync
    store.flush()
    assert store.queue(QueueKey("A", 0)) is None
    assert (store.min_offset(QueueKey("A", 0)), store.max_offset(QueueKey("A", 0))) == (0, 0)
    assert os.listdir(tmp_path / "consumequeue") == ["B"]
    assert store.append([draft(b"new 0", topic="A"), draft(b"new 1", topic="A")]).queue_offsets == [0, 1]
    store.flush()
    assert bodies(store, "A") == [b"new 0", b"new 1"]
    crash(store)
    with opened(config) as store:
        assert bodies(store, "A") == [b"new 0", b"new 1"]
        assert store.append([draft(b"new 2", topic="A")]).queue_offsets == [2]
        assert bodies(store, "B") == [b"b"]


def test_verification_does_not_miss_what_was_removed(tmp_path):
    config = small(tmp_path)
    with opened(config) as store:
        for topic in "ABC":
            store.append([draft(b"old %d" % i, topic=topic) for i in range(30)])
        store.remove_topic("A")
        store.remove_topic("B")
        store.append([draft(b"new", topic="A")])
    assert {finding.what.split()[0] for finding in findings(config)} == {"entry"}  # nobody says that B was removed
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable": {"A": {}, "C": {}}}')
    assert findings(config) == []
    queue_file = tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}"
    queue_file.write_bytes(bytes(400))
    shutil.rmtree(tmp_path / "consumequeue" / "C")
    files = {finding.file for finding in findings(config)}
    assert str(queue_file) in files
    assert str(tmp_path / "consumequeue" / "C" / "0" / f"{0:020d}") in files


def test_a_topic_may_go_while_its_queues_are_being_synced(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a", topic="A")])
        sync = store.begin_queue_flush(0)
        store.remove_topic("A")
        sync()


def test_the_store_says_where_queues_begin_and_end_and_when_their_oldest_message_came(tmp_path):
    clock = HeldClock()
    with opened(small(tmp_path, log_size_max=16384), clock) as store:
        key = QueueKey("T", 0)
        assert (store.earliest_ms(), store.earliest_ms(key)) == (-1, -1)
        for i in range(30):
            clock.ms = START_MS + i
            store.append([draft(bytes([i]) * 900)])
        assert (store.min_offset(key), store.max_offset(key)) == (0, 30)
        assert (store.earliest_ms(), store.earliest_ms(key)) == (START_MS, START_MS)
        store.flush()
        store.clean()
        first = store.min_offset(key)
        assert 0 < first < 30
        assert (store.earliest_ms(), store.earliest_ms(key)) == (START_MS + first, START_MS + first)


def test_the_store_says_how_many_bytes_no_reader_finds_yet(tmp_path):
    with opened(small(tmp_path, flush_mode="SYNC_FLUSH")) as store:
        assert store.dispatch_behind == 0
        assert store.append([draft(b"a")]).end == store.dispatch_behind
        store.flush()
        assert store.dispatch_behind == 0


def test_a_sealed_record_ends_in_a_checksum_of_all_before_it(tmp_path):
    config = small(tmp_path, sealed=True)
    with opened(config) as store:
        plain, given = draft(b"plain"), draft(b"tagged", TAGS="a", KEYS="k")
        again = draft(b"again")._replace(properties=b"__CRC32#\x011234567890\x02A\x01b")
        places = store.append([plain, given, again]).physical_offsets
        for place, before in zip(places, (b"", given.properties, b"A\x01b"), strict=True):
            record = bytes(store.record_at(place))
            digits = b"%010d" % (zlib.crc32(record[:-20]) & 0x7FFF_FFFF)
            assert record[-20:] == b"__CRC32#\x01" + digits[::-1] + b"\x02"
            ended = before + b"\x02" if before and not before.endswith(b"\x02") else before
            assert record[: -20 - len(ended)].endswith((len(ended) + 20).to_bytes(2, "big"))
            assert record[:-20].endswith(ended)
        assert store.read(QueueKey("T", 0), 0, 32, frozenset([kernel.java_hash("a")])).next_offset == 3
        with pytest.raises(Refusal, match="seals"):
            store.append_encoded(lambda *_: (b"", [], b"", None))
    assert findings(config) == []


def test_recovery_that_wants_seals_cuts_where_one_is_wrong_and_refuses_a_log_without(tmp_path):
    with pytest.raises(ConfigError, match="enabledAppendPropCRC"):
        small(tmp_path, seal_checked=True)
    sealed = small(tmp_path / "sealed", sealed=True, seal_checked=True)
    store = opened(sealed)
    places = store.append([draft(b"%d" % i) for i in range(3)]).physical_offsets
    crash(store)
    log = sealed.log_directory / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[places[2] + 16] ^= 1  # the flag, which the body's checksum does not cover
    log.write_bytes(content)
    with opened(sealed) as store:
        assert bodies(store) == [b"0", b"1"]
    store = opened(small(tmp_path / "plain"))
    store.append([draft(b"x")])
    crash(store)
    with pytest.raises(StoreError, match="unset forceVerifyPropCRC"):
        opened(small(tmp_path / "plain", sealed=True, seal_checked=True))
    with opened(small(tmp_path / "plain")) as store:
        assert bodies(store) == [b"x"]
