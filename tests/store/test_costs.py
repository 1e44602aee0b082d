"""What makes the store fast, as far as it can be counted: benchmarks/store_*.py have the times."""

import mmap
import os
import struct
import sys
import threading

import pytest

from bolide.model.queue import QueueKey
from bolide.store.disk import Disk
from bolide.store.record import decode
from bolide.store.segment import Segment
from bolide.testing.disk import path_of
from tests.store.given import START_MS, HeldClock, bodies, crash, draft, opened, query, small

QUEUE_FILE_SIZE = 6_000_000


class CountedDisk(Disk):
    """Remembers every write to the log, and how often the disk was asked for anything."""

    def __init__(self):
        self.writes = []
        self.calls = 0

    def write(self, fd, content, position):
        self.calls += 1
        if path_of(fd).parent.name == "commitlog":
            self.writes.append((int(path_of(fd).name) + position, len(content)))
        super().write(fd, content, position)

    def open(self, path):
        self.calls += 1
        return super().open(path)

    def reserve(self, fd, position, size):
        self.calls += 1
        super().reserve(fd, position, size)

    def sync(self, fd):
        self.calls += 1
        super().sync(fd)


@pytest.mark.feature("F173")
def test_a_segment_is_one_mapped_file_that_shows_what_is_written_to_it(tmp_path):
    segment = Segment.create(Disk(), tmp_path, 8192, 16384, reserve=4096)
    path = tmp_path / "00000000000000008192"
    assert path.stat().st_size == 16384
    segment.write(b"by call", 100)
    segment.put(b"by map", 10_000)
    assert isinstance(segment.map, mmap.mmap)
    assert bytes(segment.view[100:107]) == b"by call"
    assert path.read_bytes()[10_000:10_006] == b"by map"
    assert path.stat().st_blocks * 512 < 16384 + 4096  # between the two it may stay sparse
    view = segment.view[100:107]
    segment.clear(50)
    assert bytes(view) == bytes(7)
    segment.write(b"again", 100)
    segment.sync()
    segment.close()
    path.unlink()
    assert bytes(view) == b"again\0\0"  # who holds a view keeps its pages
    with pytest.raises(FileNotFoundError):
        Segment.open(Disk(), tmp_path, 8192, 16384)


@pytest.mark.feature("F188")
def test_the_log_is_written_in_one_direction_a_batch_at_a_time_and_read_without_a_copy(tmp_path):
    disk = CountedDisk()
    with opened(small(tmp_path), disk=disk) as store:
        for i in range(30):
            store.append([draft(b"%d" % i * 50, topic=f"T{j}", queue_id=j) for j in range(4)])
        ends = [at + size for at, size in disk.writes]
        rolls = len(store.commitlog.segments.bases) - 1
        assert rolls > 0
        assert len(disk.writes) == 30 + rolls  # one call a batch, whatever its queues, and one for a blank record
        for end, (at, _) in zip(ends, disk.writes[1:], strict=False):
            assert at == end or (at % 16384 == 0 and at - end < 16384)
        views = store.read(QueueKey("T2", 2), 0, 8).views
        assert len(views) == 8
        assert {id(view.obj) for view in views} <= {id(store.commitlog.segments.open(0).map)}
        # One byte in the file is one byte in the answer: they are the same page.
        place = store.commitlog.segments.open(0)
        at = bytes(place.view).index(b"0" * 50)
        with open(place.path, "r+b") as file:
            os.pwrite(file.fileno(), b"Z", at)
        assert b"Z" in bytes(store.read(QueueKey("T0", 0), 0, 1).views[0])


def cost_of_appends(store, disk, count):
    """Calls of functions and of the disk for so many appends to four queues."""
    calls = 0

    def on_event(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = disk.calls
    sys.setprofile(on_event)
    try:
        for i in range(count):
            store.append([draft(b"x", queue_id=i % 4)])
    finally:
        sys.setprofile(None)
    return calls, disk.calls - before


@pytest.mark.feature("F189")
def test_an_append_behind_ten_million_messages_costs_what_the_first_one_costs(tmp_path):
    depth = 10_200_010  # a little more than a whole number of files
    disks = [CountedDisk(), CountedDisk()]
    configs = [small(tmp_path / name, queue_file_size=QUEUE_FILE_SIZE) for name in ("empty", "deep")]
    with opened(configs[1], HeldClock()) as store:
        store.append([draft(b"log", topic="Other")])
    for queue_id in range(4):
        directory = tmp_path / "deep" / "consumequeue" / "T" / str(queue_id)
        directory.mkdir(parents=True)
        base = depth * 20 // QUEUE_FILE_SIZE * QUEUE_FILE_SIZE
        with open(directory / f"{base:020d}", "wb") as file:
            file.write(struct.pack(">qiq", 0, 0x7FFF_FFFF, 0) * (depth - base // 20))
            file.truncate(QUEUE_FILE_SIZE)
    costs = []
    for config, disk in zip(configs, disks, strict=True):
        with opened(config, HeldClock(), disk) as store:
            for queue_id in range(4):
                store.append([draft(b"warm", queue_id=queue_id)])
            costs.append(cost_of_appends(store, disk, 400))
            newest = store.queue(QueueKey("T", 3)).next_offset
            assert newest == 101 + (depth if config is configs[1] else 0)
            assert decode(store.read(QueueKey("T", 3), newest - 1, 1).views[0]).body == b"x"
    (empty_calls, empty_disk), (deep_calls, deep_disk) = costs
    assert deep_calls < 1.05 * empty_calls
    assert deep_disk < 1.05 * empty_disk
    assert empty_disk < 1.1 * 400  # the log's own writes, and little else


@pytest.mark.feature("F163")
def test_a_delayed_message_keeps_its_real_place_and_its_entry_says_when_it_is_due(tmp_path):
    """What the store does for delay levels; turning the message round and delivering it is the broker's part."""
    with opened(small(tmp_path)) as store:
        delayed = draft(b"later", "SCHEDULE_TOPIC_XXXX", 2, DELAY="3", REAL_TOPIC="Orders", REAL_QID="5", TAGS="a")
        (place,) = store.append([delayed]).physical_offsets
        record = decode(store.record_at(place))
        assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
        assert (record.properties["REAL_TOPIC"], record.properties["REAL_QID"]) == ("Orders", "5")
        entry = store.queue(QueueKey("SCHEDULE_TOPIC_XXXX", 2)).entry(0)
        assert entry == (place, len(store.record_at(place)), START_MS + 10_000)  # the third level is ten seconds
        assert bodies(store, "Orders", 5) == []


class WatchedDisk(Disk):
    """Remembers which files were made durable by the thread that appends."""

    def __init__(self):
        super().__init__()
        self.appender = threading.current_thread()
        self.waited_for = []

    def _note(self, name):
        if threading.current_thread() is self.appender:
            self.waited_for.append(name)

    def sync(self, fd):
        self._note(path_of(fd))
        super().sync(fd)

    def sync_directory(self, path):
        self._note(str(path))
        super().sync_directory(path)


def test_no_append_waits_for_a_sync_not_the_first_nor_one_that_begins_a_file_of_log_queue_or_index(tmp_path):
    disk = WatchedDisk()
    config = small(tmp_path, segment_size=1 << 16, index_entries_max=16)
    with opened(config, disk=disk) as store:
        store.commitlog.await_next()
        disk.waited_for.clear()
        for number in range(400):
            store.append([draft(b"%d" % number + b"." * 300, KEYS=f"k{number}")])
            store.commitlog.await_next()
        assert disk.waited_for == []
        assert len(store.commitlog.segments.bases) > 1
        assert len(store.dispatch.index.files) > 20
        assert query(store, "T", "k7", 1, 0, 1 << 60)[0].body[:1] == b"7"


def test_index_files_that_are_full_are_durable_and_believed_after_a_crash_once_the_queues_are_flushed(tmp_path):
    config = small(tmp_path, index_entries_max=16)
    clock = HeldClock()
    store = opened(config, clock)
    for number in range(100):
        clock.ms += 1
        store.append([draft(b"%d" % number, KEYS=f"k{number}")])
    store.flush()
    store.flush_queues()
    full = {file.path.name: file.path.stat().st_ino for file in store.dispatch.index.files[:-1]}
    crash(store)
    with opened(config) as store:
        kept = {file.path.name: file.path.stat().st_ino for file in store.dispatch.index.files}
        assert full.items() <= kept.items()
        assert all(len(query(store, "T", f"k{number}", 9, 0, 1 << 60)) == 1 for number in range(100))
