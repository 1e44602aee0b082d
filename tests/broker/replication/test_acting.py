"""A slave acts for its master while that is away: who, when, what it serves, and what comes through other masters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.aio import Admin, Outcome, StoredMessage, TransactionProducer
from bolide.broker.config import read_config
from bolide.broker.transactions.halves import CHECK_GROUP
from bolide.errors import ConfigError
from bolide.model.message import parse_offset_id
from bolide.model.queue import QueueKey, QueueOffset
from bolide.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from bolide.protocol.bodies import GroupConfig, TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.protocol.records import decode_records
from bolide.store.record import decode
from bolide.testing.loop import VirtualClock
from tests.broker.noting import noting
from tests.broker.replication.replicas import LIMIT_S, TOPIC, Group, Life, equal, group, pop, pull
from tests.client.scenes import collecting, numbers
from tests.remoting.loops import eventually, virtual_time

ON = {"enableSlaveActingMaster": "true", "messageDelayLevel": "2s 8s 14s", "bolideHaReconnectInterval": "2000"}
ESCAPING = {**ON, "enableRemoteEscape": "true"}


def is_acting(life: Life) -> bool:
    return life.broker.state.role.now.is_acting


def bodies_of(life: Life, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    queue = life.store.queue(QueueKey(topic, queue_id))
    records = [] if queue is None else [life.store.record_at(queue.entry(at)[0]) for at in range(queue.next_offset)]
    return [decode(record).body for record in records if record is not None]


@asynccontextmanager
async def pair(root: Path, **settings: str) -> AsyncIterator[tuple[Group, Life, Life]]:
    """A master and a slave that have met, at a name server that shows who acts."""
    async with group(root, supportActingMaster="true") as brokers:
        master = await brokers.master(**settings)
        master.broker.state.groups.update(GroupConfig(group_name="G"))
        slave = await brokers.slave("slave", 1, **settings)
        await eventually(lambda: slave.broker.state.topics.find("T") is not None, LIMIT_S)
        await eventually(lambda: slave.broker.replication.following.is_connected, LIMIT_S)
        yield brokers, master, slave


async def other(brokers: Group, *topics: TopicConfig, **settings: str) -> Life:
    """The master of another name."""
    life = await brokers.start("other", brokerName="broker-b", **settings)
    for topic in topics or (TOPIC,):
        life.broker.state.topics.update(topic)
    assert await life.broker.registration.told(LIMIT_S)
    return life


async def copied(master: Life, slave: Life) -> None:
    """Until the slave has the log, and how far delays and the timer are."""
    await equal(master, slave)
    await asyncio.sleep(4)  # virtual: the tables follow


@pytest.mark.feature("X06")
@virtual_time
async def test_the_slave_with_the_smallest_id_acts_while_no_master_lives(tmp_path: Path) -> None:
    async with pair(tmp_path, **ON) as (brokers, master, first):
        second = await brokers.slave("two", 2, **ON)
        await asyncio.sleep(2)  # virtual
        assert not is_acting(first)
        await master.stop()
        await eventually(lambda: is_acting(first), 5)
        answer = await brokers.send(first, b"x")
        assert (answer.code, "is a slave" in str(answer.remark)) == (ResponseCode.SYSTEM_BUSY, True)
        assert (await pull(brokers, first, 0, suspend_ms=1_500)).code == ResponseCode.PULL_NOT_FOUND, "it is held"
        assert not is_acting(second)
        await first.stop()
        await eventually(lambda: is_acting(second), 5)
        again = await brokers.master(**ON)
        await eventually(lambda: not is_acting(second), 5)
        assert (await brokers.send(again, b"y")).code == 0
        await equal(again, second)
        assert second.broker.state.role.now.is_following


@pytest.mark.feature("X06")
@virtual_time
async def test_tools_show_which_slave_acts(tmp_path: Path) -> None:
    async with pair(tmp_path, **ON) as (brokers, master, slave):

        async def shown() -> tuple[str, str | None]:
            async with Admin(brokers.ns.address, clock=brokers.clock) as admin:
                status = await admin.broker_status(slave.address)
                return (await admin.replicas())[slave.address].role, status.get("brokerActing")

        assert await shown() == ("slave", None)
        await master.stop()
        await eventually(lambda: is_acting(slave), 5)
        assert await shown() == ("acting slave", "true")
        await brokers.master(**ON)
        await eventually(lambda: not is_acting(slave), 5)
        assert await shown() == ("slave", None)


@pytest.mark.feature("X06")
@virtual_time
async def test_an_ordered_consumer_locks_at_the_acting_slave_and_its_offsets_come_home(tmp_path: Path) -> None:
    async with pair(tmp_path, **ON) as (brokers, master, slave):
        for body in numbers(0, 10):
            assert (await brokers.send(master, body)).code == 0
        await copied(master, slave)
        await master.stop()
        await eventually(lambda: is_acting(slave), 5)
        async with collecting("G", "T", brokers.ns.address, ordered=True, clock=brokers.clock) as reader:
            await eventually(lambda: len(reader.taken) == 10, 60)
            assert reader.bodies == numbers(0, 10)
            assert slave.broker.locks.holder("G", QueueKey("T", 0)) is not None
        await eventually(lambda: slave.broker.state.offsets.get("G", "T", 0) == 10, 30)
        await slave.broker.state.offsets.kept()
        again = await brokers.master(**ON)
        assert again.broker.state.offsets.get("G", "T", 0) == 10
        await eventually(lambda: not is_acting(slave), 5)


@pytest.mark.feature("X06")
@virtual_time
async def test_what_is_due_comes_through_another_master_when_it_is_due_and_once(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING) as (brokers, master, slave):
        neighbour = await other(brokers)
        clock = brokers.clock
        sent_ms = clock.now_ms()
        assert (await brokers.send(master, b"level", DELAY="2")).code == 0
        assert (await brokers.send(master, b"timer", TIMER_DELIVER_MS=str(sent_ms + 8_000))).code == 0
        assert (await brokers.send(master, b"later", DELAY="3")).code == 0
        await copied(master, slave)
        await master.stop()
        await eventually(lambda: is_acting(slave), 5)
        while clock.now_ms() < sent_ms + 7_900:
            assert bodies_of(neighbour) == []
            await asyncio.sleep(1)  # virtual
        await eventually(lambda: sorted(bodies_of(neighbour)) == [b"level", b"timer"], 5)
        assert clock.now_ms() < sent_ms + 10_000
        await asyncio.sleep(2)  # virtual: how far it went is written
        again = await brokers.master(**ESCAPING)
        await eventually(lambda: not is_acting(slave), 5)
        await eventually(lambda: b"later" in bodies_of(again), 60)
        assert bodies_of(again) == [b"later"]
        assert sorted(bodies_of(neighbour)) == [b"level", b"timer"]
        await equal(again, slave)
        assert slave.broker.state.role.now.is_following


@pytest.mark.feature("X06")
@virtual_time
async def test_what_nobody_takes_waits_and_what_is_behind_it_is_sent_once(tmp_path: Path) -> None:
    alone = TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1, perm=6)
    async with pair(tmp_path, **ESCAPING) as (brokers, master, slave):
        master.broker.state.topics.update(alone)
        neighbour = await other(brokers)
        assert (await brokers.send(master, b"first", topic="U", DELAY="1")).code == 0
        assert (await brokers.send(master, b"second", DELAY="1")).code == 0
        await equal(master, slave)
        await master.stop()
        await eventually(lambda: bodies_of(neighbour) == [b"second"], 30)
        await asyncio.sleep(5)  # virtual
        assert slave.broker.delays.table.get(1, 0) == 0, "nothing is marked as done"
        neighbour.broker.state.topics.update(alone)
        await eventually(lambda: bodies_of(neighbour, "U") == [b"first"], 30)
        await eventually(lambda: slave.broker.delays.table.get(1, 0) == 2, 30)
        assert bodies_of(neighbour) == [b"second"]


@pytest.mark.feature("X06")
@virtual_time
async def test_without_the_escape_what_is_due_waits_for_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path, **ON) as (brokers, master, slave):
        neighbour = await other(brokers)
        assert (await brokers.send(master, b"level", DELAY="1")).code == 0
        assert (await brokers.send(master, b"timer", TIMER_DELAY_SEC="3")).code == 0
        await equal(master, slave)
        await master.stop()
        await eventually(lambda: is_acting(slave), 5)
        await asyncio.sleep(5)  # virtual
        assert bodies_of(neighbour) == []
        again = await brokers.master(**ON)
        await eventually(lambda: sorted(bodies_of(again)) == [b"level", b"timer"], 30)


@pytest.mark.feature("X06")
@virtual_time
async def test_a_timed_message_that_the_slave_never_had_is_delivered_by_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING) as (brokers, master, slave):
        neighbour = await other(brokers)
        assert (await brokers.send(master, b"copied", TIMER_DELAY_SEC="8")).code == 0
        await copied(master, slave)
        await slave.broker.replication.pause()
        assert (await brokers.send(master, b"not copied", TIMER_DELAY_SEC="3")).code == 0
        await master.stop()
        await eventually(lambda: bodies_of(neighbour) == [b"copied"], 60)
        again = await brokers.master(**ESCAPING)
        await eventually(lambda: b"not copied" in bodies_of(again), 30)


@pytest.mark.feature("X06")
@virtual_time
async def test_nobody_acts_for_a_master_that_is_only_cut_off_from_its_slave(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING) as (brokers, master, slave):
        await slave.broker.replication.pause()
        assert not slave.broker.replication.following.is_connected
        for _ in range(12):
            await asyncio.sleep(1)  # virtual
            assert not is_acting(slave), "the name server knows the master"
        assert (await brokers.send(master, b"x")).code == 0


@pytest.mark.feature("X06")
@virtual_time
async def test_nobody_acts_for_a_master_whose_log_comes_though_name_servers_have_lost_it(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING) as (brokers, master, slave):
        await master.broker.registration.unregister()
        assert not brokers.ns.namesrv.tables.brokers["broker-a"].addresses.get(0)
        for _ in range(5):
            await asyncio.sleep(1)  # virtual
            assert not is_acting(slave), "the master's log comes"


@pytest.mark.feature("X06")
@virtual_time
async def test_off_by_default_nothing_is_told_or_asked_and_no_slave_acts(tmp_path: Path) -> None:
    async with group(tmp_path, supportActingMaster="true") as brokers:
        master, slave = await brokers.master(), await brokers.slave(bolideHaReconnectInterval="2000")
        await equal(master, slave)
        await master.stop()
        await asyncio.sleep(10)  # virtual
        assert not is_acting(slave)
        assert not brokers.ns.namesrv.tables.brokers["broker-a"].has_acting_master


@pytest.mark.feature("X06")
@pytest.mark.parametrize(
    ("settings", "codes"),
    [({}, {103}), (ON, {103, 322}), (ON | {"compatibleWithOldNameSrv": "false"}, {103, 904})],
    ids=["off", "on", "5.x"],
)
@virtual_time
async def test_name_servers_hear_every_second_that_a_broker_lives_if_it_is_on(
    tmp_path: Path, settings: dict[str, str], codes: set[int]
) -> None:
    clock = VirtualClock()

    def answer(command: Command) -> Command:
        return command.answer(0, fields={"changed": "false"} if command.code == RequestCode.QUERY_DATA_VERSION else {})

    async with noting(clock) as ns, group(tmp_path, clock) as brokers:
        ns.answer = answer
        await brokers.start("alone", namesrvAddr=ns.address, **settings)
        await asyncio.sleep(10)  # virtual
        assert set(ns.codes) - {RequestCode.GET_BROKER_CLUSTER_INFO} == codes
        (first, *_) = [command.fields for _, command in ns.heard if command.code == RequestCode.REGISTER_BROKER]
        expected = ("true", "10000") if settings else ("false", None)
        assert (first["enableActingMaster"], first.get("heartbeatTimeoutMillis")) == expected
        if settings:
            assert 9 <= sum(code in (322, 904) for code in ns.codes) <= 11, "one a second"


@pytest.mark.feature("X06")
@virtual_time
async def test_a_name_server_that_tells_of_a_change_has_the_slave_ask_at_once(tmp_path: Path) -> None:
    settings = ON | {"brokerHeartbeatInterval": "60000", "brokerNotActiveTimeoutMillis": "600000"}
    async with pair(tmp_path, **settings) as (brokers, master, slave):
        notice = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, fields={"minBrokerId": "1", "brokerName": "broker-a"})
        assert (await brokers.client.request(slave.address, notice, 5)).code == 0
        await asyncio.sleep(1)  # virtual
        assert not is_acting(slave), "it is asked, not believed"
        await master.stop()
        assert (await brokers.client.request(slave.address, notice, 5)).code == 0
        await eventually(lambda: is_acting(slave), 2)


@pytest.mark.feature("X06")
def test_a_master_that_is_elected_needs_nobody_to_act_for_it() -> None:
    with pytest.raises(ConfigError) as refused:
        read_config(ON | {"enableControllerMode": "true", "controllerAddr": "127.0.0.1:1"})
    assert refused.value.key == "enableSlaveActingMaster"


# Transactions and pops

CHECKS = {"transactionCheckInterval": "5000", "transactionTimeOut": "2000"}
RETRIES = "%RETRY%G_T"


async def commit(brokers: Group, life: Life, sent: Command) -> None:
    """End the transaction that a half message began."""
    place = parse_offset_id(sent.fields["msgId"])
    assert place is not None
    end = EndTransactionRequest(
        producer_group="P",
        half_queue_offset=QueueOffset(int(sent.fields["queueOffset"])),
        physical_offset=place.physical_offset,
        commit_or_rollback=8,
        message_id="",
    )
    answer = await brokers.client.request(life.address, Command(RequestCode.END_TRANSACTION, fields=end.encode()), 5)
    assert answer.code == 0, answer.remark


@pytest.mark.feature("X06")
@virtual_time
async def test_a_half_message_that_nobody_decided_is_asked_about_by_another_master(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING, **CHECKS) as (brokers, master, slave):
        neighbour = await other(brokers, **CHECKS)
        await commit(brokers, master, await brokers.send(master, b"decided", TRAN_MSG="true", PGROUP="P"))
        assert (await brokers.send(master, b"open", 1, TRAN_MSG="true", PGROUP="P")).code == 0
        await eventually(lambda: slave.store.max_offset(QueueKey(OP_HALF_TOPIC, 0)) == 1, LIMIT_S)
        await copied(master, slave)
        await master.stop()
        asked = list[bytes]()

        def check(message: StoredMessage) -> Outcome:
            asked.append(message.body)
            return Outcome.COMMIT

        await eventually(lambda: bodies_of(neighbour, HALF_TOPIC) == [b"open"], LIMIT_S)
        async with TransactionProducer("P", brokers.ns.address, checker=check, topics=["T"], clock=brokers.clock):
            await eventually(lambda: bodies_of(neighbour, queue_id=1) == [b"open"], LIMIT_S)
        assert asked == [b"open"]
        await slave.broker.state.offsets.kept()
        again = await brokers.master(**ESCAPING, **CHECKS)
        ended = again.broker.transactions.ended
        assert ended.next_undecided(ended.base) == 2, "nobody is asked once more"
        await eventually(lambda: not is_acting(slave), 5)
        await equal(again, slave)


@pytest.mark.feature("X06")
@virtual_time
async def test_a_half_message_that_no_master_takes_waits_and_is_never_passed_over(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING, **CHECKS) as (brokers, master, slave):
        master.broker.state.topics.update(alone := TopicConfig(topic_name="U", perm=6))
        neighbour = await other(brokers, **CHECKS)
        assert (await brokers.send(master, b"first", topic="U", TRAN_MSG="true", PGROUP="P")).code == 0
        assert (await brokers.send(master, b"second", TRAN_MSG="true", PGROUP="P")).code == 0
        await copied(master, slave)
        await master.stop()
        await eventually(lambda: bodies_of(neighbour, HALF_TOPIC) == [b"second"], LIMIT_S)
        await asyncio.sleep(12)  # virtual: two rounds
        assert slave.broker.state.offsets.get(CHECK_GROUP, HALF_TOPIC, 0) in (None, 0), "nothing is noted as settled"
        neighbour.broker.state.topics.update(alone)
        await eventually(lambda: slave.broker.state.offsets.get(CHECK_GROUP, HALF_TOPIC, 0) == 2, LIMIT_S)
        assert bodies_of(neighbour, HALF_TOPIC) == [b"second", b"first"]


@pytest.mark.feature("X06")
@virtual_time
async def test_what_was_popped_and_not_acknowledged_comes_again_through_another_master_and_once(tmp_path: Path) -> None:
    async with pair(tmp_path, **ESCAPING) as (brokers, master, slave):
        neighbour = await other(brokers)
        assert (await brokers.send(master, b"m")).code == 0
        assert (await pop(brokers, master)).code == 0
        await copied(master, slave)
        await master.stop()
        await eventually(lambda: is_acting(slave), 5)
        refused = await pop(brokers, slave)
        assert (refused.code, "is a slave" in str(refused.remark)) == (ResponseCode.SYSTEM_BUSY, True)
        await eventually(lambda: bodies_of(neighbour, RETRIES) == [b"m"], LIMIT_S)
        assert neighbour.broker.state.groups.table.keys() >= {"G"}
        assert "G_T" not in neighbour.broker.state.groups.table
        (given,) = decode_records((await pop(brokers, neighbour)).body)
        assert (given.body, given.reconsume_times) == (b"m", 1)
        await asyncio.sleep(2)  # virtual: how far it went is noted
        await slave.broker.state.offsets.kept()
        again = await brokers.master(**ESCAPING)
        assert again.broker.pop.revivals.out_count == 0
        await eventually(lambda: not is_acting(slave), 5)
        await equal(again, slave)
        assert bodies_of(again, RETRIES) == []


@pytest.mark.feature("X06")
@virtual_time
async def test_without_the_escape_transactions_and_pops_wait_for_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path, **ON, **CHECKS) as (brokers, master, slave):
        neighbour = await other(brokers, **CHECKS)
        assert (await brokers.send(master, b"m")).code == 0
        assert (await pop(brokers, master)).code == 0
        assert (await brokers.send(master, b"open", TRAN_MSG="true", PGROUP="P")).code == 0
        await copied(master, slave)
        await master.stop()
        await eventually(lambda: is_acting(slave), 5)
        await asyncio.sleep(20)  # virtual
        assert bodies_of(neighbour, HALF_TOPIC) + bodies_of(neighbour, RETRIES) == []
        again = await brokers.master(**ON, **CHECKS)
        await eventually(lambda: bodies_of(again, RETRIES) == [b"m"], LIMIT_S)
        assert again.broker.transactions.ended.next_undecided(0) == 0
