"""What a slave far behind needs of the log is in memory before the loop sends it."""

import asyncio
import threading
from pathlib import Path

import pytest

from bolide.ha import ahead
from bolide.ha.frames import plain_report
from tests.ha.brokers import FILE_SIZE, broker, connected, taken
from tests.remoting.loops import both_loops, eventually

STEP_SIZE = 3_000


@pytest.fixture(autouse=True)
def everything_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "RECENT_SIZE", 0)
    monkeypatch.setattr(ahead, "STEP_SIZE", STEP_SIZE)


@both_loops
async def test_a_slave_far_behind_is_sent_the_whole_log_over_the_ends_of_files(tmp_path: Path) -> None:
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(300)
        assert end > 2 * FILE_SIZE
        peer.say(plain_report(1))
        _, log = await taken(peer, 1, end)
        assert log == master.log(1)
        more = master.put(10)
        _, log = await taken(peer, end, more)
        assert log == master.log(end)


@both_loops
async def test_while_the_disk_is_slow_the_loop_goes_on_and_nothing_is_sent_that_was_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    may_read = threading.Semaphore(0)

    def slow(path: Path, position: int, size: int) -> None:
        asked.append(int(path.name) + position + size)
        may_read.acquire(timeout=60)

    monkeypatch.setattr(ahead, "bring", slow)
    async with broker(tmp_path) as master, connected(master.address) as peer:
        end = master.put(100)
        peer.say(plain_report(1))
        await eventually(lambda: bool(asked))
        (slave,) = master.replication.slaves
        assert slave.sent_end == 1
        may_read.release()
        await eventually(lambda: len(asked) > 1)  # and it is asked for more before that is sent
        (slave,) = master.replication.slaves
        assert slave.sent_end == asked[0] == 1 + STEP_SIZE
        for _ in range(100):
            may_read.release()
        _, log = await taken(peer, 1, end)
        assert log == master.log(1)


@both_loops
async def test_a_slave_that_leaves_while_the_disk_is_read_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, may_read = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        is_asked.set()
        may_read.wait(60)

    monkeypatch.setattr(ahead, "bring", slow)
    async with broker(tmp_path) as master:
        end = master.put(100)
        async with connected(master.address) as peer:
            peer.say(plain_report(1))
            await asyncio.to_thread(is_asked.wait, 60)
        await eventually(lambda: not master.replication.slaves)
        may_read.set()
        async with connected(master.address) as peer:
            peer.say(plain_report(1))
            _, log = await taken(peer, 1, end)
            assert log == master.log(1)


def test_a_part_that_cannot_be_read_is_left_to_who_sends_it(tmp_path: Path) -> None:
    ahead.bring(tmp_path / "missing", 0, 5_000)
    (tmp_path / "short").write_bytes(b"x" * 100)
    ahead.bring(tmp_path / "short", 50, 5_000)
