"""The slave's side, against masters that speak raw bytes."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bolide.ha.epochs import Epochs
from bolide.ha.following import MasterLink
from bolide.ha.frames import Epoch, Greeting, Head, greeting, head, plain_head, plain_report, report, welcome
from bolide.ha.wire import Parts
from bolide.store.disk import Disk
from bolide.store.store import Store
from bolide.testing.disk import path_of
from tests.ha.brokers import FILE_SIZE, Peer, broker, fake_master, turns
from tests.remoting.loops import both_loops, eventually, virtual_time, within
from tests.store.given import bodies, crash, draft, opened, small

COUNT = 8


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of a master with some messages."""
    with opened(small(tmp_path_factory.mktemp("master"))) as store:
        for number in range(COUNT):
            store.append([draft(str(number).encode())])
        view = store.log_view(0, FILE_SIZE)
        assert view
        return bytes(view)


def ends_of_records(content: bytes) -> Iterator[int]:
    at = 0
    while at < len(content):
        at += int.from_bytes(content[at : at + 4], "big")
        yield at


@pytest.mark.feature("F193")
@virtual_time
async def test_the_slave_connects_and_reports_where_it_is_at_once(tmp_path: Path, log: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.store.append_copy(0, log)
        slave.replication.follow(master.address)
        peer = await master.slave()
        assert await within(2, peer.hear(8)) == plain_report(len(log))
        assert slave.replication.following.is_connected


@pytest.mark.feature("F195")
@both_loops
async def test_what_comes_is_stored_and_reported(tmp_path: Path, log: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        assert await peer.hear(8) == plain_report(0)
        peer.say(plain_head(Head(0, len(log))) + log)
        assert await peer.hear(8) == plain_report(len(log))
        assert slave.log() == log
        assert bodies(slave.store) == [str(number).encode() for number in range(COUNT)]
        assert slave.replication.following.master_end == len(log)


@both_loops
async def test_a_report_follows_the_write_and_goes_before_queues_and_index(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    send = MasterLink.send

    def noted(link: MasterLink, parts: Parts) -> bool:
        said.append(f"report {int.from_bytes(parts[0], 'big')} of {slave.store.log_end}")
        return send(link, parts)

    monkeypatch.setattr(MasterLink, "send", noted)
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.store.listen(lambda arrival: said.append("filed"))
        slave.replication.follow(master.address)
        peer = await master.slave()
        await peer.hear(8)
        peer.say(plain_head(Head(0, len(log))) + log[: len(log) // 2])
        await eventually(lambda: slave.store.log_end == len(log) // 2, 30)
        peer.say(log[len(log) // 2 :])
        assert await peer.hear(8) == plain_report(len(log))
    end = len(log)
    assert [word for word in said if word != "filed"] == ["report 0 of 0", f"report {end} of {end}"]
    assert said[-1] == "filed"


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100])
@virtual_time
async def test_the_stream_may_be_cut_anywhere(tmp_path: Path, log: bytes, is_plain: bool, size: int) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=None if is_plain else []) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        half = len(log) // 2 + 3
        frames = [(0, log[:half]), (half, b""), (half, log[half:])]
        if is_plain:
            stream = b"".join(plain_head(Head(offset, len(body))) + body for offset, body in frames)
        else:
            stream = welcome(len(log), [Epoch(1, 0)]) + b"".join(
                head(Head(offset, len(body), 1, 0, len(log))) + body for offset, body in frames
            )
        for at in range(0, len(stream), size):
            peer.say(stream[at : at + size])
            if size < 100 and at % 10 == 0:
                await peer.writer.drain()
                await asyncio.sleep(0)
        await eventually(lambda: slave.store.log_end == len(log), 30)
        assert slave.log() == log
        assert len(bodies(slave.store)) == COUNT


@pytest.mark.feature("F198")
@virtual_time
async def test_an_idle_slave_reports_every_five_seconds(tmp_path: Path) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        loop = asyncio.get_running_loop()
        for second in (0, 5, 10, 15):
            assert await peer.hear(8) == plain_report(0)
            assert loop.time() == pytest.approx(second, abs=0.1)
            peer.say(plain_head(Head(0, 0)))


@virtual_time
async def test_a_silent_master_is_left_after_twenty_seconds_and_asked_again_after_five(tmp_path: Path) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        await peer.is_ended()
        loop = asyncio.get_running_loop()
        assert loop.time() == pytest.approx(20, abs=0.2)
        assert "said nothing for 20 s" in slave.replication.following.problem
        await master.slave()
        assert loop.time() == pytest.approx(25, abs=0.3)


@virtual_time
async def test_a_master_that_is_not_there_is_asked_again_every_five_seconds(tmp_path: Path) -> None:
    async with broker(tmp_path, is_slave=True) as slave:
        async with fake_master() as master:
            pass
        slave.replication.follow(master.address)
        await asyncio.sleep(1)  # virtual
        status = slave.replication.following
        assert (status.is_connected, status.problem, status.address) == (False, "Connection refused", master.address)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(1, 10), (FILE_SIZE, 0), (0, -1), (0, (1 << 31) - 1), (0, FILE_SIZE + 1), (0, 5 << 20), (-5, 0), (-1, 3)],
)
@virtual_time
async def test_a_frame_that_cannot_be_ends_the_connection_and_changes_nothing(
    tmp_path: Path, log: bytes, offset: int, size: int
) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.store.append_copy(0, log)
        slave.replication.follow(master.address)
        peer = await master.slave()
        await peer.hear(8)
        peer.say(plain_head(Head(offset or len(log), size)) + bytes(50))
        assert await within(1, peer.is_ended())
        assert slave.log() == log
        assert slave.replication.following.problem
        again = await master.slave()
        assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.2)
        assert await again.hear(8) == plain_report(len(log))


@virtual_time
async def test_a_connection_that_breaks_inside_a_record_goes_on_there(tmp_path: Path, log: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        await peer.hear(8)
        cut = next(ends_of_records(log)) + 30
        peer.say(plain_head(Head(0, len(log))) + log[:cut])
        assert await peer.hear(8) == plain_report(cut)
        peer.close()
        peer = await master.slave()
        assert await peer.hear(8) == plain_report(cut)
        peer.say(plain_head(Head(cut, len(log) - cut)) + log[cut:])
        assert await peer.hear(8) == plain_report(len(log))
        assert len(bodies(slave.store)) == COUNT


@virtual_time
async def test_another_master_is_followed_at_once_and_none_ends_it(tmp_path: Path) -> None:
    async with fake_master() as old, fake_master() as new, broker(tmp_path, is_slave=True) as slave:
        slave.replication.follow(old.address)
        first = await old.slave()
        slave.replication.follow(new.address)
        second = await new.slave()
        assert await within(0.1, first.is_ended())
        slave.replication.follow(new.address)  # nothing new
        assert await second.hear(8) == plain_report(0)
        slave.replication.follow(None)
        assert await within(0.1, second.is_ended())
        assert slave.replication.following.address == ""
        assert asyncio.get_running_loop().time() < 1


@virtual_time
async def test_a_pause_between_two_attempts_ends_when_another_master_is_told(tmp_path: Path) -> None:
    async with fake_master() as new, broker(tmp_path, is_slave=True) as slave:
        async with fake_master() as gone:
            pass
        slave.replication.follow(gone.address)
        await asyncio.sleep(1)  # virtual
        slave.replication.follow(new.address)
        await new.slave()
        assert asyncio.get_running_loop().time() == pytest.approx(1, abs=0.1)


class HeldDisk(Disk):
    """Syncs of the log wait until they are let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def sync(self, fd: int) -> None:
        if "commitlog" in str(path_of(fd)):
            self.gate.wait(30)
        super().sync(fd)


@both_loops
async def test_under_synchronous_flush_only_what_is_flushed_is_reported(tmp_path: Path, log: bytes) -> None:
    disk = HeldDisk()
    settings: dict[str, Any] = {"is_slave": True, "disk": disk, "flush_mode": "SYNC_FLUSH"}
    async with fake_master() as master, broker(tmp_path, **settings) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        await peer.hear(8)
        peer.say(plain_head(Head(0, 50)) + log[:50])
        assert await peer.hear(8) == plain_report(50)  # its file is made
        disk.gate.clear()
        peer.say(plain_head(Head(50, len(log) - 50)) + log[50:])
        await eventually(lambda: slave.store.log_end == len(log))
        with pytest.raises(TimeoutError):
            await within(0.05, peer.hear(1))
        disk.gate.set()
        assert await peer.hear(8) == plain_report(len(log))


# AutoSwitch


def records_of(store: Store, count: int, mark: str) -> int:
    for number in range(count):
        store.append([draft(f"{mark}{number}".encode())])
    return store.log_end


async def welcomed(peer: Peer, end: int, *epochs: tuple[int, int]) -> None:
    assert await peer.hear(16) == greeting(Greeting(2))
    peer.say(welcome(end, [Epoch(*each) for each in epochs]))


@virtual_time
async def test_the_slave_shakes_hands_and_reports_at_once(tmp_path: Path, log: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[]) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (1, 0))
        assert await within(0.1, peer.hear(12)) == report(0)
        peer.say(head(Head(0, len(log), 1, 0, 0)) + log)
        assert await peer.hear(12) == report(len(log))
        assert slave.log() == log
        assert slave.epochs is not None
        assert slave.epochs.entries == (Epoch(1, 0),)


@virtual_time
async def test_a_learner_says_so_and_a_handshake_without_an_answer_is_said_again(tmp_path: Path) -> None:
    ha = {"is_learner": True, "begins_at_last_file": True}
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[], ha=ha, slave_id=9) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        said = greeting(Greeting(9, True, True))
        assert await peer.hear(16) == said
        assert await peer.hear(16) == said
        assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)


@virtual_time
async def test_what_the_master_does_not_have_is_cut_by_epochs(tmp_path: Path, log: bytes) -> None:
    first, second, third = list(ends_of_records(log))[:3]
    async with (
        fake_master() as master,
        broker(tmp_path, is_slave=True, epochs=[(1, 0), (2, first), (3, third)]) as slave,
    ):
        slave.store.append_copy(0, log)
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, third, (1, 0), (2, first), (4, second))
        assert await within(0.1, peer.hear(12)) == report(second)
        assert slave.log() == log[:second]
        assert slave.epochs is not None
        assert slave.epochs.entries == (Epoch(1, 0), Epoch(2, first))
        peer.say(head(Head(second, third - second, 4, second, 0)) + log[second:third])
        assert await peer.hear(12) == report(third)
        assert Epochs(tmp_path / "epochFileCheckpoint").entries[-1] == Epoch(4, second)


@pytest.mark.parametrize("others", [[(5, 0)], [(1, 7)], []])
@virtual_time
async def test_a_log_without_a_common_epoch_is_left_alone_and_the_operator_told(
    tmp_path: Path, log: bytes, others: list[tuple[int, int]]
) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[(1, 0)]) as slave:
        slave.store.append_copy(0, log)
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, 10_000, *others)
        assert await within(1, peer.is_ended())
        assert slave.log() == log
        assert "no epoch in common" in slave.replication.following.problem
        await master.slave()
        assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.2)


@virtual_time
async def test_a_cut_inside_a_record_is_refused(tmp_path: Path, log: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[(1, 0)]) as slave:
        slave.store.append_copy(0, log)
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, 30, (1, 0))
        assert await within(1, peer.is_ended())
        assert slave.log() == log
        assert slave.replication.following.problem


@virtual_time
async def test_half_a_record_is_cut_before_the_handshake_and_an_epoch_of_nothing_forgotten(
    tmp_path: Path, log: bytes
) -> None:
    first = next(ends_of_records(log))
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[(1, 0), (2, first + 9)]) as slave:
        slave.store.append_copy(0, log[: first + 5])
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (1, 0), (3, first))
        assert await peer.hear(12) == report(first)
        assert slave.epochs is not None
        assert slave.epochs.entries == (Epoch(1, 0),)


@virtual_time
async def test_the_epoch_is_on_disk_before_its_bytes_are_in_the_log(tmp_path: Path, log: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[]) as slave:
        seen: list[tuple[Epoch, ...]] = []
        slave.store.listen_written(lambda: seen.append(Epochs(tmp_path / "epochFileCheckpoint").entries))
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (7, 0))
        peer.say(head(Head(0, len(log), 7, 0, 0)) + log)
        await eventually(lambda: slave.store.log_end == len(log))
        assert seen
        assert set(seen) == {(Epoch(7, 0),)}


@virtual_time
async def test_the_last_piece_of_an_epoch_may_have_the_label_of_the_next_as_java_writes_it(
    tmp_path: Path, log: bytes
) -> None:
    first, second = list(ends_of_records(log))[:2]
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[]) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (1, 0), (2, second))
        peer.say(head(Head(0, first, 1, 0, 0)) + log[:first])
        peer.say(head(Head(first, second - first, 2, second, 0)) + log[first:second])
        peer.say(head(Head(second, len(log) - second, 2, second, 0)) + log[second:])
        await eventually(lambda: slave.store.log_end == len(log))
        assert slave.epochs is not None
        assert slave.epochs.entries == (Epoch(1, 0), Epoch(2, second))


@pytest.mark.parametrize(("epoch", "start"), [(1, 5), (0, 0), (2, 10**9), (-1, -1)])
@virtual_time
async def test_bytes_of_an_epoch_that_cannot_be_are_refused(tmp_path: Path, log: bytes, epoch: int, start: int) -> None:
    first = next(ends_of_records(log))
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[(1, 0)]) as slave:
        slave.store.append_copy(0, log[:first])
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (1, 0))
        await peer.hear(12)
        peer.say(head(Head(first, len(log) - first, epoch, start, 0)) + log[first:])
        assert await within(1, peer.is_ended())
        assert slave.log() == log[:first]


@virtual_time
async def test_a_heartbeat_without_an_offset_or_with_an_old_label_is_none_to_close_for(
    tmp_path: Path, log: bytes
) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[(1, 0), (2, 0)]) as slave:
        slave.store.append_copy(0, log)
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (1, 0), (2, 0))
        await peer.hear(12)
        peer.say(head(Head(-1, 0, 1, 0, -1)) + head(Head(-1, 0, -1, -1, -1)) + head(Head(len(log), 0, 1, 0, 0)))
        await asyncio.sleep(4)  # virtual
        assert slave.replication.following.is_connected


@virtual_time
async def test_readers_see_what_the_master_says_is_confirmed_and_never_more_than_is_here(
    tmp_path: Path, log: bytes
) -> None:
    first, second = list(ends_of_records(log))[:2]
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[]) as slave:
        slave.store.confirm(0)
        slave.replication.follow(master.address)
        peer = await master.slave()
        await welcomed(peer, len(log), (1, 0))
        peer.say(head(Head(0, first, 1, 0, 0)) + log[:first])
        peer.say(head(Head(first, second - first, 1, 0, first)) + log[first:second])
        await eventually(lambda: slave.store.log_end == second)
        assert bodies(slave.store) == [b"0"]
        peer.say(head(Head(second, 0, 1, 0, 10**12)))
        await eventually(lambda: len(bodies(slave.store)) == 2)
        peer.say(head(Head(second, len(log) - second, 1, 0, second)) + log[second:])
        await eventually(lambda: slave.store.log_end == len(log))
        assert slave.store.visible_end <= len(log)


@pytest.mark.parametrize(
    "stream",
    [head(Head(0, 0, 1, 0, 0)), welcome(0, [Epoch(1, 0)]) + welcome(0, [Epoch(1, 0)]) + bytes(9), b"\xff" * 40],
)
@virtual_time
async def test_a_master_that_leaves_the_order_of_the_stream_is_left(tmp_path: Path, stream: bytes) -> None:
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=[]) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        peer.say(stream)
        assert await within(1, peer.is_ended())
        await turns(lambda: not slave.replication.following.is_connected)
        assert "a master in state" in slave.replication.following.problem


def damaged(root: Path, log: bytes) -> int:
    """Leave a slave's store as a power cut does that took a record from the middle; returns where the hole begins."""
    ends = list(ends_of_records(log))
    with opened(small(root)) as store:
        store.follow()
        store.append_copy(0, log)
        crash(store)
    with (root / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(ends[2])
        file.write(bytes(ends[3] - ends[2]))
    return ends[2]


@pytest.mark.feature("X05")
@both_loops
async def test_a_slave_whose_log_has_a_hole_copies_all_from_there_again(tmp_path: Path, log: bytes) -> None:
    hole = damaged(tmp_path, log)
    async with fake_master() as master, broker(tmp_path, is_slave=True) as slave:
        assert slave.store.recovered.damaged_from == hole
        slave.replication.follow(master.address)
        peer = await master.slave()
        assert await peer.hear(8) == plain_report(hole)
        peer.say(plain_head(Head(hole, len(log) - hole)) + log[hole:])
        assert await peer.hear(8) == plain_report(len(log))
        assert slave.log() == log
        assert len(bodies(slave.store)) == COUNT
        assert slave.store.recovered.damaged_from is None


@pytest.mark.feature("X05")
@both_loops
async def test_a_replica_whose_log_has_a_hole_copies_all_from_there_again(tmp_path: Path, log: bytes) -> None:
    hole, second = damaged(tmp_path, log), list(ends_of_records(log))[4]
    epochs = [(1, 0), (2, second)]
    async with fake_master() as master, broker(tmp_path, is_slave=True, epochs=epochs) as slave:
        slave.replication.follow(master.address)
        peer = await master.slave()
        await peer.hear(16)
        peer.say(welcome(len(log), [Epoch(1, 0), Epoch(2, second)]))
        assert await peer.hear(12) == report(hole)
        assert slave.epochs is not None
        assert list(slave.epochs.entries) == [Epoch(1, 0)]
        peer.say(head(Head(hole, second - hole, 1, 0, 0)) + log[hole:second])
        assert await peer.hear(12) == report(second)
        peer.say(head(Head(second, len(log) - second, 2, second, 0)) + log[second:])
        assert await peer.hear(12) == report(len(log))
        assert slave.log() == log
        assert list(slave.epochs.entries) == [Epoch(1, 0), Epoch(2, second)]
