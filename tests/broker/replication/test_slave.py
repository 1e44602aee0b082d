"""A slave beside its master, both whole: it keeps the same log and tables, serves who reads, and takes the place."""

import asyncio
from pathlib import Path

import pytest

from bolide.broker.role import ASYNC_MASTER, RoleState
from bolide.model.queue import QueueKey
from bolide.protocol.bodies import GroupConfig
from bolide.protocol.bodies.brokers import ReplicationState
from bolide.protocol.bodies.routes import Clusters
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.replication import ExchangeHaStateAnswer
from bolide.store.timercheck import TimerCheck
from tests.broker.replication.replicas import LIMIT_S, NAME, Group, Life, bodies, equal, group, pop
from tests.remoting.loops import eventually, virtual_time

T0, T1 = QueueKey("T", 0), QueueKey("T", 1)


async def mixed_load(brokers: Group, master: Life, count: int = 30) -> None:
    """Sends of all sizes: plain, keyed, delayed, timed, halves."""
    for number in range(count):
        properties = [
            {},
            {"KEYS": f"k{number}", "TAGS": "A"},
            {"DELAY": "1"},
            {"TIMER_DELIVER_MS": str(brokers.clock.now_ms() + 3_000)},
            {"TRAN_MSG": "true", "PGROUP": "P"},
        ][number % 5]
        answer = await brokers.send(master, b"%d " % number + b"x" * (37 * number), number % 2, **properties)
        assert answer.code == 0, answer.remark


@pytest.mark.feature("F127", "F139", "F140")
@virtual_time
async def test_two_slaves_have_what_their_master_has_after_every_kind_of_message(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        await mixed_load(brokers, master)
        first, second = await brokers.slave("one", 1), await brokers.slave("two", 2)
        await mixed_load(brokers, master)
        popped = await pop(brokers, master)
        assert popped.code == 0, popped.remark
        await asyncio.sleep(30)  # virtual: what waits is delivered, what was popped comes again, and all is copied
        assert any(key.topic.startswith("%RETRY%") for key in master.store.queue_keys), "what was popped came again"
        for slave in (first, second):
            await equal(master, slave)
            assert slave.broker.replication.following.address == f"127.0.0.1:{master.broker.replication.port}"
        told = Clusters.decode((await brokers.ns.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        addresses = {0: master.address, 1: first.address, 2: second.address}
        assert told.broker_addr_table[NAME].broker_addrs == addresses
        assert first.broker.state.store.max_offset(T0) > 10


@pytest.mark.feature("F145")
@virtual_time
async def test_a_slave_refuses_what_is_sent_to_it_and_stores_what_is_committed(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        master.broker.state.groups.update(GroupConfig(group_name="G"))
        slave = await brokers.slave()
        await eventually(lambda: slave.broker.state.groups.get("G") is not None, 30)
        answer = await brokers.send(slave, b"x")
        assert (answer.code, str(answer.remark)[:15]) == (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]")
        await equal(master, slave)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"}
        command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields)
        answer = await brokers.client.request(slave.address, command, 5)
        assert answer.code == 0
        assert slave.broker.state.offsets.get("G", "T", 0) == 3


@virtual_time
async def test_tables_of_a_slave_follow_within_their_interval_and_never_before_its_log(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        state, copy = master.broker.state, slave.broker.state
        await mixed_load(brokers, master)
        state.offsets.put("G", "T", 0, 5)
        await eventually(lambda: copy.offsets.get("G", "T", 0) == 5, 30)
        assert copy.topics.table == state.topics.table
        assert copy.topics.version == state.topics.version
        assert copy.groups.table == state.groups.table
        await eventually(lambda: slave.broker.delays.table == master.broker.delays.table, 30)
        timers, copied = master.broker.timers, slave.broker.timers
        assert timers is not None
        assert copied is not None
        await eventually(lambda: copied.files.check.queue_offset == timers.files.check.queue_offset, 30)
        # The log does not come any more, and the tables stand still with it.
        await slave.broker.replication.pause()
        before = dict(slave.broker.delays.table)
        await mixed_load(brokers, master)
        state.offsets.put("G", "T", 0, 9)
        await asyncio.sleep(60)  # virtual
        assert slave.broker.delays.table == before
        assert copy.offsets.get("G", "T", 0) == 5


@virtual_time
async def test_a_slave_restarted_as_master_goes_on_with_every_queue_delay_and_timer(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        await mixed_load(brokers, master)
        delayed = await brokers.send(master, b"in a minute", DELAY="5")
        timed = await brokers.send(master, b"at a time", TIMER_DELIVER_MS=str(brokers.clock.now_ms() + 60_000))
        assert delayed.code == timed.code == 0
        await asyncio.sleep(30)  # virtual: several syncs of the tables
        await equal(master, slave)
        count = master.store.max_offset(T0)
        await master.stop()
        await slave.stop()
        promoted = await brokers.start("slave")
        assert promoted.store.max_offset(T0) == count
        assert (await brokers.send(promoted, b"new")).code == 0
        await asyncio.sleep(120)  # virtual
        found = bodies(promoted.store, T0)
        assert len(found) == count + 3, "the new one, and each that waited once"
        assert sum(b"in a minute" in each for each in found) == 1
        assert sum(b"at a time" in each for each in found) == 1


@pytest.mark.feature("X05")
@virtual_time
async def test_timers_that_another_master_filed_come_though_an_earlier_life_filed_more(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        first, second = await brokers.master("one"), await brokers.slave("two")
        for number in range(10):
            assert (await brokers.send(first, b"%d" % number, TIMER_DELAY_SEC="2")).code == 0
        await eventually(lambda: first.store.max_offset(T0) == 10, 30)
        await equal(first, second)
        await second.stop()
        await first.stop()
        second = await brokers.master("two")
        first = await brokers.slave("one")
        assert (await brokers.send(second, b"late", TIMER_DELAY_SEC="20")).code == 0
        timers, copied = second.broker.timers, first.broker.timers
        assert timers is not None
        assert copied is not None
        await eventually(lambda: timers.files.waiting_count == 1, 5)
        await eventually(lambda: copied.files.check.queue_offset == 11, 30)
        await equal(second, first)
        await first.stop()
        await second.stop()
        third = await brokers.master("one")
        await eventually(lambda: any(b"late" in record for record in bodies(third.store, T0)), 60)


@pytest.mark.feature("X05")
@virtual_time
async def test_timers_come_of_which_the_master_told_before_it_had_noted_where_they_are_filed(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master, slave = await brokers.master(), await brokers.slave()
        assert (await brokers.send(master, b"late", TIMER_DELAY_SEC="20")).code == 0
        await equal(master, slave)
        assert slave.broker.timers is not None
        slave.broker.timers.files.adopt(TimerCheck(read_ms=brokers.clock.now_ms() // 1000 * 1000, queue_offset=1))
        await slave.stop()
        await master.stop()
        promoted = await brokers.master("slave")
        await eventually(lambda: any(b"late" in record for record in bodies(promoted.store, T0)), 60)


@virtual_time
async def test_a_promoted_slave_brings_groups_back_to_queues_that_it_never_got(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new slave gets the master's last file only; what is stored in such a queue later begins at 0 there."""
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        for number in range(3):
            assert (await brokers.send(master, b"old %d" % number, 1)).code == 0
        while master.store.log_end < master.store.config.segment_size:
            assert (await brokers.send(master, bytes(10_000))).code == 0
        master.broker.state.offsets.put("G", "T", 0, 2)
        master.broker.state.offsets.put("G", "T", 1, 3)
        slave = await brokers.slave()
        copied = slave.broker.state.offsets
        await eventually(lambda: copied.get("G", "T", 1) == 3, 30)
        assert slave.store.max_offset(T1) == 0
        await slave.stop()
        await master.stop()
        promoted = await brokers.master("slave")
        assert "offsets beyond the end of their queue, brought back to it: count=1" in caplog.text
        assert (await brokers.send(promoted, b"new", 1)).code == 0
        offsets = promoted.broker.state.offsets
        assert (offsets.get("G", "T", 0), offsets.get("G", "T", 1)) == (2, 0)


@virtual_time
async def test_a_slave_that_is_promoted_while_it_runs_goes_on_where_its_master_was(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        await mixed_load(brokers, master)
        assert (await brokers.send(master, b"in a minute", DELAY="5")).code == 0
        assert (await brokers.send(master, b"at a time", TIMER_DELAY_SEC="60")).code == 0
        await asyncio.sleep(30)  # virtual
        await equal(master, slave)
        count = master.store.max_offset(T0)
        await master.stop()
        await slave.broker.change.to_master(RoleState(ASYNC_MASTER))
        assert (await brokers.send(slave, b"new")).code == 0
        await asyncio.sleep(120)  # virtual
        found = bodies(slave.store, T0)
        assert len(found) == count + 3
        told = Clusters.decode((await brokers.ns.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        assert told.broker_addr_table[NAME].broker_addrs == {0: slave.address}


@pytest.mark.feature("F197")
@virtual_time
async def test_a_synchronous_master_waits_for_its_slave_and_says_what_is_missing(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master(brokerRole="SYNC_MASTER")
        assert (await brokers.send(master, b"nobody there")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (await brokers.send(master, b"not waited for", WAIT="false")).code == 0
        slave = await brokers.slave()
        await equal(master, slave)
        assert (await brokers.send(master, b"safe")).code == 0
        assert slave.store.log_end == master.store.log_end
        slave.store.append_copy = lambda offset, content, on_written=None: None  # type: ignore[method-assign]
        began_s = brokers.clock.monotonic_s()
        assert (await brokers.send(master, b"too late")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert 3.0 <= brokers.clock.monotonic_s() - began_s < 3.5
        assert master.store.max_offset(T0) == 4, "all of them are stored here"


@virtual_time
async def test_with_too_few_replicas_nothing_is_stored(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        rules = {"inSyncReplicas": "2", "minInSyncReplicas": "2"}
        master = await brokers.master(brokerRole="SYNC_MASTER", **rules)
        end = master.store.log_end
        answer = await brokers.send(master, b"x")
        assert (answer.code, str(answer.remark)[:27]) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        assert master.store.log_end == end
        slave = await brokers.slave()
        await eventually(lambda: len(master.broker.replication.acks.ends) == 1, LIMIT_S)
        assert (await brokers.send(master, b"x")).code == 0
        await equal(master, slave)


@virtual_time
async def test_a_slave_that_was_away_while_files_rolled_has_everything_when_it_is_back(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        await mixed_load(brokers, master)
        await equal(master, slave)
        await slave.stop()
        for number in range(60):
            assert (await brokers.send(master, b"%d" % number + b"y" * 4000, number % 2)).code == 0
        assert len(master.store.commitlog.segments.bases) > 3
        again = await brokers.slave()
        await mixed_load(brokers, master)
        await equal(master, again)


@virtual_time
async def test_ha_status_and_the_address_to_copy_from_are_told(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers:
        master = await brokers.master()
        slave = await brokers.slave()
        await mixed_load(brokers, master)
        await equal(master, slave)
        await eventually(lambda: not master.broker.replication.slaves[0].lag_size, LIMIT_S)

        async def ask(life: Life, code: int) -> Command:
            return await brokers.client.request(life.address, Command(code), 5)

        told = ExchangeHaStateAnswer.decode((await ask(master, 906)).fields)
        assert told.master_ha_address == f"127.0.0.1:{master.broker.replication.port}"
        assert told.master_address == master.address
        state = ReplicationState.decode((await ask(master, 907)).body)
        assert (state.is_master, state.in_sync_slave_nums) == (True, 1)
        assert (
            state.ha_connection_info[0].slave_ack_offset == state.master_commit_log_max_offset == master.store.log_end
        )
        state = ReplicationState.decode((await ask(slave, 907)).body)
        assert not state.is_master
        assert state.ha_client_runtime_info.max_offset == master.store.log_end
        assert state.ha_client_runtime_info.master_addr == told.master_ha_address
        assert (await ask(master, 1007)).code == ResponseCode.SYSTEM_ERROR
