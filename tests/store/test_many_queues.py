"""What thousands of queues need: few descriptors, and no page that was not asked for."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bolide.clock import SystemClock
from bolide.store.disk import Disk
from bolide.store.open import open_store
from tests.store.given import bodies, crash, draft, opened, read_all, small

QUEUE_COUNT = 300
LIMIT_S = 30


def place_of(fd: int | str) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def descriptor_count(root: Path) -> int:
    """How many descriptors lead to files of a store: other servers of this process have theirs."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was that of the list, or is closed by now
            count += place_of(fd).startswith(str(root))
    return count


class CountingDisk(Disk):
    """Notes how many descriptors a store has whenever one of its files is synced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.counts: list[int] = []

    def sync(self, fd: int) -> None:
        self.counts.append(descriptor_count(self.root))
        super().sync(fd)


def test_a_flush_of_many_queues_holds_one_descriptor_at_a_time(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path)
    with opened(small(tmp_path, segment_size=1 << 20), disk=disk) as store:
        store.append([draft(b"x", f"T{number}") for number in range(QUEUE_COUNT)])
        before = descriptor_count(tmp_path)
        disk.counts.clear()
        store.flush_queues()
        assert len(disk.counts) > QUEUE_COUNT
        assert max(disk.counts) <= before + 2


def test_many_queues_are_synced_together_at_the_stop_and_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path, segment_size=1 << 20)
    store = opened(config)
    store.append([draft(b"x", f"T{number}") for number in range(2 * QUEUE_COUNT)])
    crash(store)
    syncs = 0

    def counting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def counted(fd: int) -> None:
            nonlocal syncs
            syncs += place_of(fd).startswith(str(tmp_path))  # other servers of this process sync their files too
            sync(fd)

        return counted

    monkeypatch.setattr(os, "fsync", counting(os.fsync))
    monkeypatch.setattr(os, "fdatasync", counting(os.fdatasync))
    with opened(config) as store:
        assert syncs < 1.5 * QUEUE_COUNT
        syncs = 0
        assert all(bodies(store, f"T{number}") == [b"x"] for number in range(2 * QUEUE_COUNT))
    assert syncs < 1.5 * QUEUE_COUNT


def test_a_topic_removed_before_its_queues_are_synced_does_not_stop_the_others(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        store.append([draft(b"x", "gone"), draft(b"y", "kept")])
        sync = store.begin_queue_flush(0)
        store.remove_topic("gone")
        sync()
        assert store.checkpoint.queue_ms > 0


def test_nothing_is_read_ahead_in_a_queue_file(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as store:
        store.append([draft(b"x")])
        assert "rr" in flags_of_map(tmp_path / "consumequeue" / "T" / "0")


def flags_of_map(directory: Path) -> list[str]:
    """What the kernel was told of the map of a file in a directory; rr is for reads at random."""
    is_there = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            is_there = str(directory) in line
        elif is_there and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(f"no file of {directory} is mapped")


def test_choosing_what_to_sync_opens_no_file(tmp_path: Path) -> None:
    with opened(small(tmp_path, segment_size=1 << 20, open_files_max=16)) as store:
        store.append([draft(b"x", f"T{number}") for number in range(QUEUE_COUNT)])
        mapped = mapped_files(tmp_path)
        assert len(mapped) < QUEUE_COUNT
        sync = store.begin_queue_flush(0)
        assert mapped_files(tmp_path) == mapped
        sync()
        assert not store.dispatch.unsynced(0)[0]


def test_more_queues_than_maps_lose_nothing_and_keep_to_the_maps(tmp_path: Path) -> None:
    config = small(tmp_path, segment_size=1 << 20, open_files_max=16, queue_file_size=2000)
    topics = [f"T{number}" for number in range(40)]
    turns = 150  # beyond the end of a file, and past the turn at which a queue is mapped again
    with opened(config) as store:
        for turn in range(turns):
            store.append([draft(b"%d" % turn, topic) for topic in topics])
            assert len(mapped_files(tmp_path)) <= 16
        for topic in topics:
            assert [record.body for record in read_all(store, topic)] == [b"%d" % turn for turn in range(turns)]
    with opened(config) as store:
        assert {len(read_all(store, topic)) for topic in topics} == {turns}


class StuckDisk(Disk):
    """Syncs of queue files hang until they are let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()

    def sync(self, fd: int) -> None:
        if "/consumequeue/" in place_of(fd):
            self.entered.set()
            self.let_go.wait(LIMIT_S)
        super().sync(fd)


def test_senders_that_wait_for_the_disk_do_not_wait_for_queues(tmp_path: Path) -> None:
    disk = StuckDisk()
    config = small(tmp_path, flush_mode="SYNC_FLUSH", queue_flush_interval_ms=1, queue_flush_pages_min=1)

    async def main() -> None:
        async with open_store(config, SystemClock(), disk=disk) as store:
            try:
                assert await store.durable(store.append([draft(b"x")]).end, LIMIT_S)
                assert await asyncio.to_thread(disk.entered.wait, LIMIT_S)
                assert await store.durable(store.append([draft(b"y")]).end, LIMIT_S)
                assert not disk.let_go.is_set()
            finally:
                disk.let_go.set()

    asyncio.run(main())
    with opened(small(tmp_path)) as store:
        assert [record.body for record in read_all(store)] == [b"x", b"y"]


def mapped_files(root: Path) -> list[str]:
    """The queue files that are mapped, in the order of their addresses."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split()[-1] for line in lines if str(root / "consumequeue") in line]
