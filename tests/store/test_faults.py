"""A disk that fills up or fails: senders hear it, nothing is lost, and nobody is told what is not so."""

import asyncio
import errno
import itertools
import os
import threading
from concurrent.futures import Future

import pytest

from bolide.clock import SystemClock
from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.store.open import open_store
from bolide.store.store import Store
from bolide.store.verify import findings
from bolide.testing.disk import FaultyDisk, path_of
from tests.store.given import HOST, START_MS, HeldClock, bodies, crash, draft, opened, query, small


def send_until_refused(store, sent, make):
    """Append one by one; the bodies taken are added to sent, and what was refused at last is returned."""
    for i in itertools.count(len(sent)):
        try:
            store.append([make(i)])
        except Refusal as refusal:
            return refusal
        sent.append(bytes(make(i).body))
    return None


@pytest.mark.feature("F151", "F167")
def test_a_full_disk_at_roll_time_is_an_error_and_writing_resumes_when_space_returns(tmp_path):
    disk = FaultyDisk()
    with opened(small(tmp_path), disk=disk) as store:
        disk.full_for = "0000000016384"
        store.commitlog.discard_next()
        sent = []
        refusal = send_until_refused(store, sent, lambda i: draft(bytes([i]) * 900))
        assert refusal.code == ResponseCode.SYSTEM_ERROR
        assert "CREATE_MAPPED_FILE_FAILED" in refusal.remark
        with pytest.raises(Refusal, match="No space"):
            store.append([draft(bytes(900))])
        assert store.append([draft(b"small")]).end <= 16384  # what still fits is taken
        assert bodies(store) == [*sent, b"small"]
        assert os.listdir(tmp_path / "commitlog") == ["00000000000000000000"]
        disk.full_for = None
        store.append([draft(bytes([77]) * 900)])
        assert bodies(store) == [*sent, b"small", bytes([77]) * 900]
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [*sent, b"small", bytes([77]) * 900]
    assert findings(small(tmp_path)) == []


@pytest.mark.feature("F151")
def test_a_directory_that_cannot_be_written_answers_code_1(tmp_path):
    with opened(small(tmp_path)) as store:
        store.commitlog.discard_next()
        store.config.log_directory.rmdir()
        store.config.log_directory.write_text("a file in the way")
        with pytest.raises(Refusal) as refused:
            store.append([draft(b"x")])
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
        store.config.log_directory.unlink()
        assert store.append([draft(b"x")]).queue_offsets == [0]


@pytest.mark.parametrize("where", ["consumequeue", "index"])
def test_a_full_disk_in_a_derived_file_loses_nothing(tmp_path, where):
    disk = FaultyDisk()
    with opened(small(tmp_path), disk=disk) as store:
        store.append([draft(b"0", KEYS="k0")] if where == "consumequeue" else [draft(b"0")])
        disk.full_for = where
        sent = [b"0"]
        # The log takes them until a queue file, or the index, needs room.
        refusal = send_until_refused(store, sent, lambda i: draft(b"%d" % i, KEYS=f"k{i}"))
        assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "cannot be written" in refusal.remark
        disk.full_for = None
        store.append([draft(b"last", KEYS="last")])
        assert bodies(store) == [*sent, b"last"]
        assert [record.body for record in query(store, "T", "last", 1, 0, 1 << 60)] == [b"last"]
        assert len(sent) > 1
    assert findings(small(tmp_path)) == []


def test_messages_whose_queue_could_not_be_written_are_there_after_a_crash(tmp_path):
    disk = FaultyDisk()
    store = opened(small(tmp_path), disk=disk)
    disk.full_for = "consumequeue"
    store.append([draft(b"a", KEYS="k")])
    assert bodies(store) == []
    crash(store)
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"a"]
    assert findings(small(tmp_path)) == []


def test_a_store_that_could_not_dispatch_keeps_its_abort_file(tmp_path):
    disk = FaultyDisk()
    with opened(small(tmp_path), disk=disk) as store:
        disk.full_for = "consumequeue"
        store.append([draft(b"a")])
    assert (tmp_path / "abort").exists()
    with opened(small(tmp_path)) as store:
        assert bodies(store) == [b"a"]


def test_a_failed_sync_makes_the_store_read_only_for_good(tmp_path):
    disk = FaultyDisk()
    with opened(small(tmp_path, flush_mode="SYNC_FLUSH"), disk=disk) as store:
        store.append([draft(b"kept")])
        store.flush()
        doubtful = store.append([draft(b"doubtful")]).physical_offsets[0]
        assert store.record_at(doubtful) is None
        disk.broken_for = "commitlog"
        with pytest.raises(Refusal, match="read-only") as refused:
            store.flush()
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.broken_for = None  # a second sync would succeed and mean nothing
        for act in (store.flush, lambda: store.append([draft(b"more")])):
            with pytest.raises(Refusal, match="read-only"):
                act()
        assert bodies(store) == [b"kept"]  # reading goes on, and shows only what is durable
    assert (tmp_path / "abort").exists()


@pytest.mark.feature("F179")
def test_every_sender_that_waits_hears_of_a_failed_sync(tmp_path):
    disk = FaultyDisk()

    async def scenario():
        config = small(tmp_path, flush_mode="SYNC_FLUSH", segment_size=1 << 20)
        async with open_store(config, SystemClock(), HOST, disk) as store:
            first = store.append([draft(b"kept")])
            assert await store.durable(first.end)
            assert store.progress.flushed == first.end
            disk.broken_for = "commitlog"
            ends = [store.append([draft(b"%d" % i)]).end for i in range(8)]
            answers = await asyncio.gather(*[store.durable(end) for end in ends], return_exceptions=True)
            assert [getattr(answer, "code", None) for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 8
            with pytest.raises(Refusal, match="read-only"):
                await store.durable(ends[0])
            assert bodies(store) == [b"kept"]

    asyncio.run(scenario())


@pytest.mark.feature("F179", "F171")
def test_one_sync_serves_all_who_wait_and_arrivals_are_told_after_it(tmp_path):
    disk = FaultyDisk()
    told = []

    async def scenario():
        config = small(tmp_path, flush_mode="SYNC_FLUSH", segment_size=1 << 20)
        async with open_store(config, SystemClock(), HOST, disk) as store:
            store.listen(lambda arrival: told.append((arrival.queue_offset, store.progress.flushed)))
            store.append([draft(b"first")])  # makes the segment, which is synced too
            await store.durable(store.progress.appended)
            told.clear()
            before = len(disk.synced)
            ends = [store.append([draft(b"%d" % i)]).end for i in range(64)]
            assert told == []
            assert all(await asyncio.gather(*[store.durable(end) for end in ends]))
            log = tmp_path / "commitlog" / "00000000000000000000"
            assert 1 <= disk.synced[before:].count(log) <= 2
            assert [offset for offset, _ in told] == list(range(1, 65))
            assert all(flushed >= ends[offset - 1] for offset, flushed in told)

    asyncio.run(scenario())


@pytest.mark.feature("F179")
def test_a_flush_that_takes_too_long_says_so_and_the_message_is_stored(tmp_path):
    class SlowDisk(FaultyDisk):
        is_slow = False

        def sync(self, fd):
            super().sync(fd)
            if self.is_slow:
                released.wait(30)

    released, disk = threading.Event(), SlowDisk()

    async def scenario():
        config = small(tmp_path, flush_mode="SYNC_FLUSH", segment_size=1 << 20)
        async with open_store(config, SystemClock(), HOST, disk) as store:
            assert await store.durable(store.append([draft(b"first")]).end)
            disk.is_slow = True
            end = store.append([draft(b"late")]).end
            assert not await store.durable(end, timeout_s=0.01)
            released.set()
            assert await store.durable(end)
            assert bodies(store) == [b"first", b"late"]

    asyncio.run(scenario())


def test_a_sync_that_fails_while_the_store_closes_is_not_forgotten(tmp_path):
    class SlowDisk(FaultyDisk):
        is_slow = False

        def sync(self, fd):
            if self.is_slow and path_of(fd) == log:  # a segment may be made ahead meanwhile, and is synced too
                self.is_slow = False  # the system tells of a lost page once
                begun.set()
                released.wait(30)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(fd)

    log = tmp_path / "commitlog" / ("0" * 20)
    begun, released, disk = threading.Event(), threading.Event(), SlowDisk()

    async def scenario():
        async with open_store(small(tmp_path, flush_mode="SYNC_FLUSH"), SystemClock(), HOST, disk) as store:
            assert await store.durable(store.append([draft(b"first")]).end)
            disk.is_slow = True
            store.append([draft(b"second")])
            store.log_flush.wanted.set()
            assert await asyncio.to_thread(begun.wait, 10)
            threading.Timer(0.05, released.set).start()

    with pytest.raises(Refusal, match="read-only"):
        asyncio.run(scenario())
    assert (tmp_path / "abort").exists()


@pytest.mark.feature("F174")
def test_the_pool_is_written_by_a_thread_and_appends_go_on_meanwhile(tmp_path):
    class SlowDisk(FaultyDisk):
        def write(self, fd, content, position):
            if path_of(fd).parent.name == "commitlog":
                writers.append(threading.current_thread().name)
                begun.set()
                released.wait(30)
            super().write(fd, content, position)

    begun, released, writers = threading.Event(), threading.Event(), []

    async def scenario():
        config = small(tmp_path, pool_enabled=True, commit_interval_ms=1)
        arrived = asyncio.Event()
        async with open_store(config, SystemClock(), HOST, SlowDisk()) as store:
            store.listen(lambda arrival: arrived.set() if arrival.queue_offset == 39 else None)
            store.append([draft(b"0")])
            assert await asyncio.to_thread(begun.wait, 10)
            for i in range(1, 40):
                store.append([draft(bytes([i]) * 900)])  # rolls, while the first batch is being written
            assert bodies(store) == []
            released.set()
            async with asyncio.timeout(10):
                await arrived.wait()
            assert len(bodies(store)) == 40
            assert store.commitlog.gathered_size == 0

    asyncio.run(scenario())
    assert {name.rpartition("_")[0] for name in writers} == {"store.commit"}
    with opened(small(tmp_path)) as store:
        assert len(bodies(store)) == 40
    assert findings(small(tmp_path)) == []


@pytest.mark.feature("F174")
def test_every_segment_that_the_pool_was_written_to_is_synced(tmp_path):
    disk = FaultyDisk()
    with opened(small(tmp_path, pool_enabled=True, flush_mode="SYNC_FLUSH"), disk=disk) as store:
        for i in range(40):
            store.append([draft(bytes([i]) * 900)])
        store.commit()
        assert bodies(store) == []
        store.commitlog.await_next()  # which is synced when it is made
        disk.synced.clear()
        store.flush()
        assert [path.name for path in disk.synced if path.parent.name == "commitlog"] == [
            f"{base:020d}" for base in store.commitlog.segments.bases
        ]
        assert len(bodies(store)) == 40


@pytest.mark.feature("F174", "F151")
def test_a_pool_that_cannot_be_written_keeps_its_messages_until_it_can(tmp_path):
    class StuckDisk(FaultyDisk):
        is_stuck = False

        def write(self, fd, content, position):
            if self.is_stuck and path_of(fd).parent.name == "commitlog" and position:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(fd, content, position)

    disk = StuckDisk()
    with opened(small(tmp_path, pool_enabled=True), disk=disk) as store:
        sent = [bytes([i]) * 900 for i in range(40)]
        disk.is_stuck = True
        for body in sent:
            store.append([draft(body)])
        store.commit()
        assert bodies(store) == sent[:1]
        store.flush()
        assert store.checkpoint.log_ms == 0  # it must not vouch for what is in memory only
        disk.is_stuck = False
        store.commit()
        assert bodies(store) == sent
        store.flush()
        assert store.checkpoint.log_ms == START_MS


@pytest.mark.feature("F180")
def test_asynchronous_flush_answers_first_and_syncs_within_its_interval(tmp_path):
    reached = Future()

    class WatchedDisk(FaultyDisk):
        def sync(self, fd):
            super().sync(fd)
            if is_watched and path_of(fd).name == "0" * 20 and not reached.done():
                reached.set_result(None)

    is_watched = False

    async def scenario():
        nonlocal is_watched
        config = small(tmp_path, flush_interval_ms=5, flush_thorough_interval_ms=20, segment_size=1 << 20)
        async with open_store(config, SystemClock(), HOST, WatchedDisk()) as store:
            end = store.append([draft(b"x")]).end
            is_watched = True
            assert bodies(store) == [b"x"]
            assert store.progress.flushed < end
            async with asyncio.timeout(10):
                await asyncio.wrap_future(reached)

    asyncio.run(scenario())


def test_queues_that_cannot_be_synced_end_nothing_and_are_looked_at_anew_by_the_next_start(tmp_path):
    failed = Future()

    class BrokenDisk(FaultyDisk):
        def sync(self, fd):
            try:
                super().sync(fd)
            except OSError:
                if not failed.done():
                    failed.set_result(None)
                raise

    disk = BrokenDisk()

    async def scenario():
        often = {"queue_flush_interval_ms": 5, "queue_flush_thorough_interval_ms": 5}
        async with open_store(small(tmp_path, **often), SystemClock(), HOST, disk) as store:
            disk.broken_for = "consumequeue"
            store.append([draft(b"x")])
            async with asyncio.timeout(10):
                await asyncio.wrap_future(failed)
            disk.broken_for = None
            store.append([draft(b"y")])
            assert bodies(store) == [b"x", b"y"]

    asyncio.run(scenario())
    assert (tmp_path / "abort").exists()
    with Store.open(small(tmp_path), SystemClock(), HOST) as store:
        assert not store.recovered.was_clean
        assert store.checkpoint.queue_ms == 0
        assert bodies(store) == [b"x", b"y"]


def test_a_disk_that_fills_up_after_the_start_keeps_no_checkpoint_from_being_written(tmp_path):
    disk = FaultyDisk()
    with Store.open(small(tmp_path), SystemClock(), HOST, disk) as store:
        disk.full_for = "checkpoint"
        store.append([draft(b"x")])
        store.flush()
        store.flush_queues()
        assert store.checkpoint.queue_ms > 0


@pytest.mark.feature("F182")
def test_above_the_warning_ratio_writes_are_refused_until_it_falls(tmp_path):
    disk = FaultyDisk()
    config = small(tmp_path, disk_percent_full=90, disk_percent_forcibly=85, disk_percent_max=75)
    with opened(config, disk=disk) as store:
        for i in range(60):
            store.append([draft(bytes([i]) * 900)])
        store.flush()
        count = len(store.commitlog.segments.bases)
        disk.percent = 91
        assert len(store.clean()) == count - 1  # all but the last, whatever their age
        with pytest.raises(Refusal, match="disk is full") as refused:
            store.append([draft(b"x")])
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.percent = 86  # between the two ratios nothing changes its mind
        store.clean()
        with pytest.raises(Refusal, match="disk is full"):
            store.append([draft(b"x")])
        disk.percent = 80
        store.clean()
        store.append([draft(b"x")])
        assert bodies(store)[-1] == b"x"


@pytest.mark.feature("F182")
def test_a_store_opened_on_a_full_disk_knows_it_and_deletes_nothing_yet(tmp_path):
    config = small(tmp_path, disk_percent_full=90, disk_percent_forcibly=85, disk_percent_max=75)
    disk = FaultyDisk()
    with opened(config, disk=disk) as store:
        for i in range(60):
            store.append([draft(bytes([i]) * 900)])
    disk.percent = 91
    with opened(config, disk=disk) as store:
        assert (store.is_disk_full, store.disk_percent) == (True, 91)
        assert len(bodies(store)) == 60
        with pytest.raises(Refusal, match="disk is full"):
            store.append([draft(b"x")])


def test_a_write_that_took_too_long_turns_senders_away_for_a_while(tmp_path):
    clock = HeldClock()

    class SlowDisk(FaultyDisk):
        def write(self, fd, content, position):
            super().write(fd, content, position)
            clock.ms += delay_ms

    delay_ms = 0
    with opened(small(tmp_path), clock, SlowDisk()) as store:
        store.append([draft(b"a")])
        delay_ms = 1500
        store.append([draft(b"b")])
        delay_ms = 0
        with pytest.raises(Refusal, match="PC_SYNCHRONIZED") as refused:
            store.append([draft(b"c")])
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        clock.ms += 2000
        store.append([draft(b"c")])


def test_an_index_that_cannot_be_synced_refuses_no_message_and_is_made_again(tmp_path):
    disk, config = FaultyDisk(), small(tmp_path)
    with opened(config, disk=disk) as store:
        store.append([draft(b"%d" % i, KEYS=f"k{i}") for i in range(100)])
        disk.broken_for = "/index/"
        for i in range(100, 700):  # two files and a half
            store.append([draft(b"%d" % i, KEYS=f"k{i}")])
        store.flush_queues()
        disk.broken_for = None  # a later sync succeeds, and says nothing of the one that failed
    assert (tmp_path / "abort").exists(), "the next start must look at everything"
    for path in sorted((tmp_path / "index").iterdir())[:1]:
        path.write_bytes(bytes(path.stat().st_size))  # what was not synced never reached the disk
    with opened(config) as store:
        for i in (0, 99, 100, 255, 256, 699):
            assert [each.body for each in query(store, "T", f"k{i}", 8, 0, 1 << 62)] == [b"%d" % i]
    assert findings(config) == []
