"""After a crash: all that was whole before it, nothing after, and derived files that fit."""

import os
import random
import struct

import pytest

from bolide import kernel
from bolide.errors import StoreError
from bolide.model.queue import QueueKey
from bolide.store import recovery
from bolide.store.record import decode
from bolide.store.store import Store
from bolide.store.verify import findings
from bolide.testing.disk import ForgetfulDisk
from tests.store.given import HOST, START_MS, HeldClock, bodies, crash, draft, opened, query, read_all, small

RECORD_SIZE = 91 + 1 + 1 + len("TAGS.t.KEYS.k.")


def write_three(root):
    store = opened(small(root))
    ends = [store.append([draft(body, TAGS="t", KEYS="k")]).end for body in (b"a", b"b", b"c")]
    crash(store)
    return ends


@pytest.mark.parametrize("torn_at", range(RECORD_SIZE))
@pytest.mark.feature("F178")
def test_recovery_keeps_all_before_a_torn_record_and_nothing_after(tmp_path, torn_at):
    ends = write_three(tmp_path)
    with open(tmp_path / "commitlog" / "00000000000000000000", "r+b") as log:
        log.seek(ends[1] + torn_at)
        log.write(bytes(RECORD_SIZE - torn_at))
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"a", b"b"]
        assert store.append([draft(b"d")]).physical_offsets == [ends[1]]
        assert bodies(store) == [b"a", b"b", b"d"]
    assert findings(small(tmp_path)) == []


@pytest.mark.feature("F177")
def test_what_follows_the_log_after_a_clean_stop_is_cut_off_and_zeroed(tmp_path):
    with opened(small(tmp_path)) as store:
        end = store.append([draft(b"a"), draft(b"b")]).end
    with open(tmp_path / "commitlog" / "00000000000000000000", "r+b") as log:
        log.seek(end)
        log.write(b"garbage" * 100)
    with opened(small(tmp_path)) as store:
        assert store.recovered.was_clean
        assert bodies(store) == [b"a", b"b"]
        assert store.progress.appended == end
    assert not any((tmp_path / "commitlog" / "00000000000000000000").read_bytes()[end:])


def test_a_whole_record_behind_a_damaged_one_stays_where_it_is(tmp_path):
    """What is whole was stored, and may have been confirmed: a log that ends at the first bad byte would lose it."""
    ends = write_three(tmp_path)
    log_path = tmp_path / "commitlog" / "00000000000000000000"
    whole = log_path.read_bytes()
    with open(log_path, "r+b") as log:
        log.seek(ends[0] + 88)
        log.write(b"X")
    with opened(small(tmp_path)) as store:
        assert [(record.queue_offset, record.body) for record in read_all(store)] == [(0, b"a"), (2, b"c")]
    assert log_path.read_bytes()[ends[1] : ends[2]] == whole[ends[1] : ends[2]]
    crashed = opened(small(tmp_path))
    assert crashed.append([draft(b"d")]).physical_offsets == [ends[2]]
    crash(crashed)
    with opened(small(tmp_path)) as store:
        assert [(record.queue_offset, record.body) for record in read_all(store)] == [(0, b"a"), (2, b"c"), (3, b"d")]


def test_a_record_copied_to_another_place_is_not_taken(tmp_path):
    ends = write_three(tmp_path)
    with open(tmp_path / "commitlog" / "00000000000000000000", "r+b") as log:
        first = log.read(ends[0])
        log.seek(ends[2])
        log.write(first)
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"a", b"b", b"c"]
        assert store.progress.appended == ends[2]


def test_zeroed_pages_in_the_middle_cost_the_records_they_cover(tmp_path):
    """A page that was lost in the middle of the log is no end of it: whole records follow."""
    store = opened(small(tmp_path))
    ends = [store.append([draft(bytes([i]) * 500, KEYS=f"k{i}")]).end for i in range(60)]
    crash(store)
    files = [name for name in sorted(os.listdir(tmp_path / "commitlog")) if int(name) < ends[-1]]
    with open(tmp_path / "commitlog" / "00000000000000016384", "r+b") as log:
        log.seek(4096)
        log.write(bytes(4096))
    with opened(small(tmp_path)) as store:
        kept = [i for i, end in enumerate(ends) if end <= 16384 + 4096 or end - 607 >= 16384 + 8192]
        assert [record.queue_offset for record in read_all(store)] == kept
        assert store.recovered.losses.size >= 4096
        assert sorted(os.listdir(tmp_path / "commitlog"))[: len(files)] == files


@pytest.mark.parametrize("cut", range(0, 81, 5))
def test_a_queue_torn_anywhere_is_made_whole_after_a_crash(tmp_path, cut):
    store = opened(small(tmp_path))
    for i in range(4):
        store.append([draft(b"%d" % i, TAGS="tag")])
    crash(store)
    path = tmp_path / "consumequeue" / "T" / "0" / "00000000000000000000"
    before = path.read_bytes()
    with open(path, "r+b") as queue:
        queue.seek(cut)
        queue.write(b"\x00\x00\x00\x00\x00" if cut % 2 else b"\x7fjunk")
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"0", b"1", b"2", b"3"]
    assert path.read_bytes() == before


@pytest.mark.feature("F177")
def test_a_clean_start_reads_from_the_segment_the_queues_end_in(tmp_path):
    with opened(small(tmp_path)) as store:
        for i in range(60):
            store.append([draft(bytes([i]) * 500)])
        last = store.commitlog.segments.bases[-1]
    with opened(small(tmp_path)) as store:
        assert store.recovered.started_at == last > 0
        assert len(bodies(store)) == 60


@pytest.mark.feature("F178")
def test_after_a_crash_reading_starts_at_the_newest_segment_the_checkpoint_covers(tmp_path):
    clock, config = HeldClock(), small(tmp_path, index_enabled=False)
    store = opened(config, clock)
    for i in range(90):
        clock.ms += 1000
        store.append([draft(bytes([i]) * 500)])
        if i == 56:  # the third segment begins with 54: within the margin of three seconds
            store.flush()
            store.flush_queues()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    crash(store)
    with opened(config, clock) as store:
        assert store.recovered.started_at == 16384
        assert [record.body[:1] for record in read_all(store)] == [bytes([i]) for i in range(90)]
    assert findings(config) == []


def test_the_first_record_not_yet_dispatched_is_dispatched_at_a_clean_start(tmp_path):
    """Java compares with greater and skips it."""
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a"), draft(b"b")])
    path = tmp_path / "consumequeue" / "T" / "0" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[20:40] = bytes(20)
    path.write_bytes(content)
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"a", b"b"]


def test_a_queue_that_begins_above_zero_starts_with_blank_entries(tmp_path):
    clock, config = HeldClock(), small(tmp_path, keep_hours=0, delete_hours=";".join(map(str, range(24))))
    with opened(config, clock) as store:
        for i in range(100):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        clock.ms = 1 << 42
        assert len(store.clean()) > 3
        first = store.queue_min = read_all(store)[0].queue_offset
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with opened(config, clock) as store:
        assert read_all(store)[0].queue_offset == first
        assert store.append([draft(b"x")]).queue_offsets == [100]
    base = first * 20 - first * 20 % 400
    content = (tmp_path / "consumequeue" / "T" / "0" / f"{base:020d}").read_bytes()
    assert content[: first * 20 - base] == struct.pack(">qiq", 0, 0x7FFF_FFFF, 0) * (first - base // 20)


def test_an_all_zero_queue_file_is_deleted_and_adds_no_entry(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"%d" % i) for i in range(20)])  # exactly one file of 400 bytes
    (tmp_path / "consumequeue" / "T" / "0" / "00000000000000000400").write_bytes(bytes(400))
    for _ in range(2):
        with opened(small(tmp_path)) as store:
            assert len(bodies(store)) == 20
        assert os.listdir(tmp_path / "consumequeue" / "T" / "0") == ["00000000000000000000"]
        (tmp_path / "abort").touch()


def test_a_log_that_lost_all_it_had_goes_on_behind_what_was_confirmed(tmp_path):
    """Neither a place in the log nor a queue offset is given twice."""
    config = small(tmp_path, log_size_max=16384)
    with opened(config) as store:
        for i in range(17):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        assert store.clean() == [0]
        end = store.progress.appended
    with open(tmp_path / "commitlog" / "00000000000000016384", "r+b") as log:
        log.write(bytes(16384))
    for _ in range(2):
        with opened(config) as store:
            assert (store.commitlog.start, store.progress.appended) == (16384, end)
            assert store.recovered.losses.confirmed_size == end - 16384
    with opened(config) as store:
        assert store.append([draft(b"x")]).physical_offsets == [end]
        assert [record.queue_offset for record in read_all(store)] == [17]


def test_log_files_without_queues_or_queues_without_log(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a", KEYS="k")])
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    with opened(small(tmp_path)) as store:
        assert bodies(store) == []
        assert store.append([draft(b"b")]).queue_offsets == [0]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("commitlog/00000000000000000000", bytes(100), "100 bytes, the configured size is 16384"),
        ("commitlog/.DS_Store", b"x", "not a number"),
        ("consumequeue/CURRENT", b"MANIFEST", "RocksDB"),
        ("batchconsumequeue/T/0/00000000000000000000", b"x", "batch consume queues"),
        ("compaction/compactionLog/T/0/0", b"x", "compaction"),
        ("consumequeue/%LMQ%a/0/00000000000000000000", bytes(400), "light message queues"),
        ("consumequeue/T/x/0", b"", "not a number"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_name(tmp_path, name, content, sentence):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a")])
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=sentence):
        opened(small(tmp_path))


def test_a_last_file_without_length_is_deleted(tmp_path):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a")])
    (tmp_path / "commitlog" / "00000000000000016384").touch()
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"a"]


@pytest.mark.parametrize("properties", [{"INNER_NUM": "2"}, {}])
def test_a_record_of_an_inner_batch_refuses_the_start_and_a_flipped_bit_does_not(tmp_path, properties):
    with opened(small(tmp_path)) as store:
        store.append([draft(b"a", **properties)])
    with open(tmp_path / "commitlog" / "00000000000000000000", "r+b") as log:
        log.seek(36)
        log.write((0x80).to_bytes(4, "big"))
    (tmp_path / "abort").touch()
    if not properties:
        with opened(small(tmp_path)) as store:
            assert bodies(store) == []
        return
    with pytest.raises(StoreError, match="inner batch"):
        opened(small(tmp_path))


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.feature("F184")
def test_nothing_acknowledged_under_synchronous_flush_is_lost_with_the_page_cache(tmp_path, seed):
    chance = random.Random(seed)
    clock = HeldClock()
    root = tmp_path / "0"
    acknowledged: dict[tuple[str, int], list[bytes]] = {}
    for life in range(3):
        disk = ForgetfulDisk(root)
        disk_names(disk, root)
        config = small(root, flush_mode="SYNC_FLUSH", index_entries_max=40)
        store = Store.open(config, clock, HOST, disk)
        for queue, sent in acknowledged.items():
            got = bodies(store, *queue)
            assert got[: len(sent)] == sent
            acknowledged[queue] = got  # what survived though nobody was told may stay
        for i in range(chance.randrange(5, 60)):
            clock.ms += chance.choice((1, 500, 4000))
            topic, queue_id = chance.choice("AB"), chance.randrange(2)
            body = b"%d.%d." % (life, i) + bytes(chance.choice((0, 100, 3000)))
            store.append([draft(body, topic, queue_id, TAGS=f"tag{i}", KEYS=f"k{i} all")])
            key = topic, queue_id
            is_new = key not in store.dispatch.queues
            assert is_new or body not in bodies(store, *key)[-1:]  # not seen before it is durable
            if chance.random() < 0.7:
                store.flush()
                for key, queue in store.dispatch.queues.items():
                    if queue.next_offset != len(acknowledged.get(key, ())):
                        acknowledged[key] = bodies(store, *key)
            if chance.random() < 0.2:
                store.begin_queue_flush(chance.choice((0, 1)))()
        survivor = tmp_path / str(life + 1)
        survivor.mkdir()
        disk.survive(survivor, chance)
        crash(store)
        root = survivor
    with opened(small(root, index_entries_max=40), clock) as store:
        for queue, sent in acknowledged.items():
            assert bodies(store, *queue)[: len(sent)] == sent
    # A stretch of what nobody was told of may be lost, with whole records behind it.
    found = findings(small(root, index_entries_max=40))
    assert [each for each in found if "passed over" not in each.what and "lost" not in each.what] == []


@pytest.mark.parametrize("stretch", [1, 150, 700, 5000])
@pytest.mark.parametrize("queues", [1, 7])
def test_a_log_walked_in_stretches_gives_what_one_walk_gives(tmp_path, monkeypatch, stretch, queues):
    config = small(tmp_path)
    store = opened(config)
    for i in range(120):
        store.append([draft(b"%d" % i * (i % 50), queue_id=i % queues, KEYS=f"k{i}")])
    expected = [bodies(store, queue_id=q) for q in range(queues)]
    crash(store)
    monkeypatch.setattr(recovery, "_STRETCH", stretch)
    with opened(config) as store:
        assert store.recovered.record_count == 120
        assert [bodies(store, queue_id=q) for q in range(queues)] == expected
        assert [found.body for found in query(store, "T", "k77", 1, 0, 1 << 60)] == [b"77" * 27]
    assert findings(config) == []


def test_a_body_that_looks_like_a_record_at_its_place_does_not_mislead_a_walk(tmp_path, monkeypatch):
    """A sender can know where its message will lie: the next stretch must not begin inside of it."""
    config = small(tmp_path)
    store = opened(config)
    store.append([draft(b"first")])
    body_at = store.progress.appended + 88
    inner = kernel.encode_records([draft(b"inner", topic="Evil")], body_at, START_MS, HOST, {}, (), 1000)[0]
    store.append([draft(inner + bytes(600))])
    for i in range(20):
        store.append([draft(b"%d" % i)])
    expected = bodies(store)
    crash(store)
    monkeypatch.setattr(recovery, "_STRETCH", body_at - 10)
    monkeypatch.setattr(recovery, "_RUN_MIN", 0)  # stretches stay as long as they are
    assert kernel.find_record((tmp_path / "commitlog" / f"{0:020d}").read_bytes(), body_at - 10, 16384, 0) == body_at
    with opened(config) as store:
        assert bodies(store) == expected
        assert store.queue(QueueKey("Evil", 0)) is None
        assert store.recovered.record_count == 22
    assert findings(config) == []


@pytest.mark.parametrize("seed", range(12))
def test_an_entry_that_recovery_cut_off_does_not_come_back_with_a_power_cut(tmp_path, seed):
    """Its place in the log belongs to another queue by then, and the checkpoint vouches for all before it."""
    clock, root = HeldClock(), tmp_path / "0"
    config = small(root, index_enabled=False)  # keys would be read from the first record on
    store = opened(config, clock)
    store.append([draft(b"kept", "A")])
    for _ in range(20):
        clock.ms += 1000
        store.append([draft(bytes(900), "B")])
    clock.ms += 10_000
    (place,) = store.append([draft(b"torn", "A")]).physical_offsets
    store.flush()
    store.flush_queues()
    crash(store)
    with open(root / "commitlog" / f"{16384:020d}", "r+b") as file:
        file.seek(place - 16384)
        file.write(bytes(8))
    with open(root / "checkpoint", "r+b") as file:
        file.seek(64)
        file.write(bytes(28))  # a Java broker has written it: how far the log was durable is not known
    disk = ForgetfulDisk(root)
    disk_names(disk, root)
    store = Store.open(config, clock, HOST, disk)
    assert store.recovered.started_at == 16384
    assert bodies(store, "A") == [b"kept"]
    assert store.append([draft(b"other", "B")]).physical_offsets == [place]
    for _ in range(40):
        clock.ms += 1000
        store.append([draft(bytes(900), "B")])
    store.flush()
    store.flush_queues()
    (tmp_path / "1").mkdir()
    disk.survive(tmp_path / "1", random.Random(seed))
    crash(store)
    with opened(small(tmp_path / "1", index_enabled=False), clock) as store:
        assert store.recovered.started_at > place
        assert bodies(store, "A") == [b"kept"]


def disk_names(disk, root):
    """What lies on the disk at the start is durable."""
    for directory in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        if directory.is_dir():
            disk.sync_directory(directory)
    for path in root.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                disk.sync(file.fileno())


def test_verification_finds_planted_damage(tmp_path):
    config = small(tmp_path)
    with opened(config) as store:
        places = [store.append([draft(b"%d" % i, KEYS=f"k{i}")]).physical_offsets[0] for i in range(20)]
        assert decode(store.record_at(places[3])).body == b"3"
    assert findings(config) == []
    for name, at in (
        ("consumequeue/T/0/00000000000000000000", 5 * 20 + 7),
        ("commitlog/00000000000000000000", places[7] + 88),
        ("commitlog/00000000000000000000", 12_000),
        (f"index/{os.listdir(tmp_path / 'index')[0]}", 40 + 64 * 4 + 3 * 20 + 3),
    ):
        path = tmp_path / name
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        found = findings(config)
        assert found, name
        assert str(path) in {finding.file for finding in found}
        path.write_bytes(whole)
    assert findings(config) == []
