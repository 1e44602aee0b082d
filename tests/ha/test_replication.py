"""Masters and slaves with real stores, over real and bad lines."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from bolide.clock import SystemClock
from bolide.ha.acks import Count, Members
from bolide.testing.link import open_link
from tests.ha.brokers import Broker, broker
from tests.remoting.loops import both_loops, eventually, virtual_time, within
from tests.store.given import bodies
from tests.store.replicas import assert_equal_files

EPOCHS = pytest.mark.parametrize("epochs", [None, [(1, 0)]], ids=["plain", "autoswitch"])


def is_level(master: Broker, slave: Broker) -> bool:
    return master.store.log_end == slave.store.log_end and bool(master.replication.acks.ends)


@EPOCHS
@both_loops
async def test_a_slave_becomes_the_same_files_while_messages_come(
    tmp_path: Path, epochs: list[tuple[int, int]] | None
) -> None:
    clock = SystemClock()
    own: list[tuple[int, int]] | None = None if epochs is None else []
    async with (
        broker(tmp_path / "m", clock=clock, epochs=epochs) as master,
        broker(tmp_path / "s", clock=clock, is_slave=True, epochs=own) as slave,
    ):
        slave.replication.follow(master.address)
        await eventually(lambda: bool(master.replication.acks.ends))
        for _ in range(60):
            master.put(10, size=400)
            await asyncio.sleep(0)
        await eventually(lambda: is_level(master, slave))
        assert slave.log() == master.log()
    assert_equal_files(tmp_path / "m", tmp_path / "s")


@EPOCHS
@virtual_time
async def test_a_line_that_breaks_and_halves_loses_and_doubles_nothing(
    tmp_path: Path, epochs: list[tuple[int, int]] | None
) -> None:
    chance = random.Random(5)
    own: list[tuple[int, int]] | None = None if epochs is None else []
    async with (
        broker(tmp_path / "m", epochs=epochs) as master,
        broker(tmp_path / "s", is_slave=True, epochs=own) as slave,
        open_link(master.address) as line,
    ):
        slave.replication.follow(line.address)
        for _ in range(25):
            master.put(chance.randrange(1, 30), size=chance.randrange(10, 900))
            await asyncio.sleep(chance.random())  # virtual
            match chance.randrange(4):
                case 0:
                    line.cut()
                case 1:
                    line.halve()
                    await asyncio.sleep(1)  # virtual
                    line.cut()
                    line.heal()
                case 2:
                    line.freeze()
                    await asyncio.sleep(30)  # virtual: both give up
                    line.heal()
        await eventually(lambda: is_level(master, slave), 60)
        assert slave.log(slave.store.log_start) == master.log(slave.store.log_start)
        assert len(bodies(slave.store)) == len(bodies(master.store))


@pytest.mark.feature("F127", "F139")
@virtual_time
async def test_two_slaves_have_the_masters_log_and_a_third_follows_one_of_them(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "m") as master,
        broker(tmp_path / "a", is_slave=True) as first,
        broker(tmp_path / "b", is_slave=True) as second,
        broker(tmp_path / "c", is_slave=True) as third,
    ):
        first.replication.follow(master.address)
        second.replication.follow(master.address)
        third.replication.follow(first.address)
        await asyncio.sleep(0.1)  # virtual
        end = master.put(100)
        await eventually(lambda: {each.store.log_end for each in (first, second, third)} == {end})
        assert first.log() == second.log() == third.log() == master.log()
        assert len(master.replication.slaves) == 2


@pytest.mark.feature("F197")
@virtual_time
async def test_a_message_is_acknowledged_when_its_slave_has_it_and_not_while_that_is_away(tmp_path: Path) -> None:
    async with broker(tmp_path / "m") as master, broker(tmp_path / "s", is_slave=True) as slave:
        master.replication.acks.policy = Count(1)
        slave.replication.follow(master.address)
        await within(1, master.replication.acks.wait(master.put(1)))
        slave.replication.follow(None)
        waiter = master.replication.acks.wait(master.put(1))
        await asyncio.sleep(60)  # virtual
        assert not waiter.done()
        slave.replication.follow(master.address)
        await within(1, waiter)


@virtual_time
async def test_sixty_four_who_wait_for_large_messages_are_all_told_beside_a_slave_that_is_slow(tmp_path: Path) -> None:
    large: dict[str, Any] = {"segment_size": 1 << 23}
    async with (
        broker(tmp_path / "m", **large) as master,
        broker(tmp_path / "s", is_slave=True, **large) as slave,
        broker(tmp_path / "t", is_slave=True, **large) as slow,
        open_link(master.address) as line,
    ):
        line.bytes_per_s = 10_000
        master.replication.acks.policy = Count(1)
        slave.replication.follow(master.address)
        slow.replication.follow(line.address)
        await asyncio.sleep(1)  # virtual
        waiters = [master.replication.acks.wait(master.put(1, size=1 << 20)) for _ in range(64)]
        await within(3, asyncio.gather(*waiters))
        assert slow.store.log_end < slave.store.log_end


@virtual_time
async def test_a_slave_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    async with broker(tmp_path / "m") as master:
        for count in (20, 1, 300):
            async with broker(tmp_path / "s", is_slave=True, role="SLAVE") as slave:
                slave.replication.follow(master.address)
                master.put(count)
                await eventually(lambda: is_level(master, slave))
                assert slave.log() == master.log()


@virtual_time
async def test_a_slave_that_is_ahead_copies_nothing_and_says_so(tmp_path: Path) -> None:
    async with broker(tmp_path / "m") as master, broker(tmp_path / "s") as slave:
        slave.put(5)
        slave.store.follow()
        before = slave.log()
        slave.replication.follow(master.address)
        await asyncio.sleep(12)  # virtual
        master.put(300)
        await asyncio.sleep(1)  # virtual
        assert slave.log() == before
        assert master.replication.acks.reached == master.store.log_end, "nobody is waited for"
        assert master.replication.acks.ends == []


class Group:
    """Two brokers that change places, as a controller would tell them."""

    def __init__(self, *brokers: Broker) -> None:
        self.brokers = brokers
        self.epoch = 0

    async def elect(self, master: Broker) -> None:
        self.epoch += 1
        for each in self.brokers:
            await each.replication.pause()
        for each in self.brokers:
            if each is not master:
                each.store.follow()
        end = master.store.lead()
        assert master.epochs is not None
        master.epochs.cut_to(end)
        master.epochs.record(self.epoch, end)
        master.replication.lead()
        for each in self.brokers:
            if each is not master:
                each.replication.follow(master.address)


@virtual_time
async def test_masters_that_change_ten_times_without_and_with_messages_keep_one_log(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "a", epochs=[], slave_id=1) as one,
        broker(tmp_path / "b", epochs=[], slave_id=2) as other,
    ):
        group, count = Group(one, other), 0
        for each in (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1):
            master, slave = (one, other) if group.epoch % 2 else (other, one)
            await group.elect(master)
            master.put(each)
            count += each
            await eventually(lambda: is_level(master, slave))  # noqa: B023
            assert slave.log() == master.log()
            assert len(bodies(master.store)) == count
        assert one.epochs is not None
        assert other.epochs is not None
        assert one.epochs.last == other.epochs.last or abs(len(one.epochs.entries) - len(other.epochs.entries)) <= 1


@virtual_time
async def test_what_a_deposed_master_wrote_alone_is_cut_when_it_returns(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "a", epochs=[], slave_id=1) as old,
        broker(tmp_path / "b", epochs=[], slave_id=2) as new,
    ):
        group = Group(old, new)
        await group.elect(old)
        old.put(10)
        await eventually(lambda: is_level(old, new))
        new.replication.follow(None)
        old.put(7, size=300)  # nobody copies it
        await group.elect(new)
        new.put(3, size=50)
        await eventually(lambda: is_level(new, old))
        assert old.log() == new.log()
        assert len(bodies(old.store)) == 13
        assert old.replication.following.problem == ""


@virtual_time
async def test_members_by_id_confirm_what_slaves_may_show(tmp_path: Path) -> None:
    async with (
        broker(tmp_path / "a", epochs=[], slave_id=1) as master,
        broker(tmp_path / "b", epochs=[], slave_id=2) as slave,
    ):
        acks = master.replication.acks

        def confirm() -> None:
            master.store.confirm(acks.reached)
            master.replication.nudge()

        await Group(master, slave).elect(master)
        acks.policy = Members(frozenset({2}))
        acks.listen(confirm)
        master.store.confirm(0)
        loop = asyncio.get_running_loop()
        await eventually(lambda: bool(acks.ends))
        began_s = loop.time()
        master.put(3)
        await eventually(lambda: len(bodies(slave.store)) == 3, 3)
        assert loop.time() - began_s < 3, "not with the next heartbeat"
        assert len(bodies(master.store)) == 3
        slave.replication.follow(None)
        master.put(2)
        await asyncio.sleep(10)  # virtual
        assert len(bodies(master.store)) == 3, "no reader sees what only we have"
