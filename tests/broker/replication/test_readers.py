"""Consumers of a master and its slave: where they read, what is suggested, and how they go on without a master."""

import asyncio
from pathlib import Path

import pytest

from bolide import aio
from bolide.broker.role import SLAVE, RoleState
from bolide.errors import BolideError
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers import PullMessageAnswer
from tests.broker.replication.replicas import Life, equal, group, pull
from tests.client.scenes import collecting, numbers
from tests.remoting.loops import eventually, virtual_time


@pytest.mark.feature("F142", "F143", "F200")
@virtual_time
async def test_far_behind_a_master_suggests_slave_1_and_near_the_end_itself(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master(slaveReadEnable="true")
        slave = await brokers.slave(slaveReadEnable="true")
        for number in range(10):
            assert (await brokers.send(master, b"%d" % number)).code == 0
        await equal(master, slave)

        async def suggested(life: Life) -> int:
            return PullMessageAnswer.decode((await pull(brokers, life, 0)).fields).suggested_broker_id

        await eventually(lambda: slave.broker.state.topics.find("T") is not None, 30)
        assert [await suggested(life) for life in (master, slave)] == [0, 0]
        for life in (master, slave):
            life.store.reader._near_size = 0  # everything is far from the end
        assert [await suggested(life) for life in (master, slave)] == [1, 1]


@pytest.mark.feature("F144")
@virtual_time
async def test_at_the_end_of_a_slaves_queue_a_consumer_is_sent_back_to_the_master_while_there_is_one(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        for number in range(3):
            assert (await brokers.send(master, b"%d" % number)).code == 0
        await equal(master, slave)
        await eventually(lambda: slave.broker.state.topics.find("T") is not None, 30)
        began_s = brokers.clock.monotonic_s()
        answer = await pull(brokers, slave, 3, suspend_ms=15_000)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert brokers.clock.monotonic_s() - began_s < 8, "it need not wait for long"
        assert (await pull(brokers, slave, 9)).code == ResponseCode.PULL_RETRY_IMMEDIATELY, "the master knows better"
        await master.stop()
        await eventually(lambda: not slave.broker.following.is_master_here(), 60)
        began_s = brokers.clock.monotonic_s()
        answer = await pull(brokers, slave, 3, suspend_ms=15_000)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert brokers.clock.monotonic_s() - began_s > 14, "nobody else has more: it is held"
        assert (await pull(brokers, slave, 9, suspend_ms=1_000)).code == ResponseCode.PULL_NOT_FOUND


@virtual_time
async def test_a_pull_that_waits_at_a_slave_is_answered_with_the_message_that_is_copied(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        assert (await brokers.send(master, b"0")).code == 0
        await equal(master, slave)
        await eventually(lambda: slave.broker.state.topics.find("T") is not None, 30)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(pull(brokers, slave, 1, suspend_ms=15_000), name="pull")
            await eventually(lambda: slave.broker.parked.count == 1)
            began_s = brokers.clock.monotonic_s()
            assert (await brokers.send(master, b"1")).code == 0
        assert waiting.result().code == 0
        assert brokers.clock.monotonic_s() - began_s < 0.5


@pytest.mark.feature("F145", "F129", "F214")
@virtual_time
async def test_with_the_master_gone_consumers_read_on_from_the_slave_and_nothing_can_be_sent(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        namesrv, clock = brokers.ns.address, brokers.clock
        async with aio.Producer("pg", namesrv, clock=clock) as producer:
            for body in numbers(0, 20):
                await producer.send("T", body)
            await equal(master, slave)
            await asyncio.sleep(15)  # virtual: the slave's tables follow
            async with collecting("g", "T", namesrv, clock=clock) as reader:
                await eventually(lambda: len(reader.taken) == 20)
                await asyncio.sleep(35)  # virtual: offsets are committed, and the slave's tables follow
                for body in numbers(20, 30):
                    await producer.send("T", body)
                await equal(master, slave)
                await master.stop()
                await eventually(lambda: len(reader.taken) >= 30, 120)
                assert sorted(reader.counts) == sorted(numbers(0, 30))
            async with collecting("late", "T", namesrv, clock=clock) as other:
                await eventually(lambda: len(other.taken) == 30, 120)
            with pytest.raises(BolideError):
                await producer.send("T", b"nobody takes it")


@pytest.mark.feature("F141")
@virtual_time
async def test_two_masters_without_slaves_share_a_topic(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        one, two = await brokers.master("one"), await brokers.master("two", brokerName="broker-b")
        for life in (one, two):
            for number in range(4):
                assert (await brokers.send(life, b"%d" % number)).code == 0
        async with collecting("g", "T", brokers.ns.address, clock=brokers.clock) as reader:
            await eventually(lambda: len(reader.taken) == 8)


@virtual_time
async def test_a_fenced_broker_is_in_no_route_until_it_has_a_role_again(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()

        async def is_known() -> bool:
            return (await brokers.ns.look_up("T")).code == 0

        assert await is_known()
        await master.broker.change.fence()
        await asyncio.sleep(1)  # virtual
        assert not await is_known()
        await master.broker.change.to_slave(RoleState(SLAVE, 1))
        await master.broker.change.to_master(RoleState())
        await asyncio.sleep(1)  # virtual
        assert await is_known()
