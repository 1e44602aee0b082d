"""The role of a broker that runs is changed back and forth: each work of a master stops and goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bolide.broker.broker import Broker, serve
from bolide.broker.config import read_config
from bolide.broker.pop.checkpoints import Checkpoint, CheckpointKey
from bolide.broker.pop.lanes import Lane
from bolide.broker.role import ASYNC_MASTER, SLAVE, RoleState
from bolide.model import properties as names
from bolide.model.queue import QueueKey
from bolide.model.topics import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC
from bolide.protocol.bodies import GroupConfig, TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.properties import encode_properties
from bolide.store.record import Draft
from bolide.testing import VirtualClock
from tests.broker.whole import SMALL
from tests.remoting.ends import Peer
from tests.remoting.loops import virtual_time

HOST = bytes(8)
SLAVE_1 = RoleState(SLAVE, 1)
MASTER = RoleState(ASYNC_MASTER, 0)
T0 = QueueKey("T", 0)


@asynccontextmanager
async def serving(root: Path, clock: VirtualClock, **settings: str) -> AsyncIterator[tuple[Broker, int]]:
    given = SMALL | {"storePathRootDir": str(root / "store"), "brokerName": "broker-a", "brokerClusterName": "C1"}
    given |= {"listenPort": "0", "bindAddress": "127.0.0.1", "namesrvAddr": ""}
    async with serve(read_config(given | settings), clock) as (broker, server):
        broker.state.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1, perm=6))
        broker.state.groups.update(GroupConfig(group_name="G"))
        yield broker, server.port


def put(broker: Broker, body: bytes, **properties: str) -> None:
    """A message as a send stores it, now or for later."""
    where = broker.intake.route("T", 0, properties)
    text = encode_properties(where.properties)
    now_ms = broker.state.clock.now_ms()
    broker.intake.append([Draft(where.topic, where.queue_id, body, text, 0, 0, now_ms, HOST)])


def count(broker: Broker, key: QueueKey = T0) -> int:
    return broker.state.store.max_offset(key)


async def to_slave_and_back(broker: Broker, claim: str) -> None:
    """Nothing happens while it is a slave, whatever is due."""
    before = broker.state.store.log_end
    await broker.change.to_slave(SLAVE_1)
    await asyncio.sleep(120)  # virtual
    assert broker.state.store.log_end == before, claim
    await broker.change.to_master(MASTER)
    await asyncio.sleep(5)  # virtual
    assert broker.state.store.log_end > before, claim


@virtual_time
async def test_delay_levels_wait_while_another_is_the_master_and_go_on_after(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as (broker, _):
        put(broker, b"1", DELAY="1")
        await asyncio.sleep(2)  # virtual
        assert count(broker) == 1
        put(broker, b"2", DELAY="1")
        await to_slave_and_back(broker, "a slave delivers nothing")
        assert count(broker) == 2, "once, and not the first again"


@virtual_time
async def test_timed_messages_wait_while_another_is_the_master_and_go_on_after(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with serving(tmp_path, clock) as (broker, _):
        put(broker, b"1", TIMER_DELIVER_MS=str(clock.now_ms() + 2_000))
        await asyncio.sleep(10)  # virtual
        assert count(broker) == 1
        put(broker, b"2", TIMER_DELIVER_MS=str(clock.now_ms() + 20_000))
        put(broker, b"3", TIMER_DELIVER_MS=str(clock.now_ms() + 300_000))
        await asyncio.sleep(3)  # virtual
        await to_slave_and_back(broker, "a slave delivers nothing")
        assert count(broker) == 2, "what was due comes once, and what was delivered before not again"
        await asyncio.sleep(300)  # virtual
        assert count(broker) == 3, "what was not due comes in its time"


@virtual_time
async def test_only_the_master_decides_about_old_half_messages(tmp_path: Path) -> None:
    settings = {"fileReservedTime": "0", "transactionCheckInterval": "1000", "deleteWhen": "03"}
    async with serving(tmp_path, VirtualClock(), **settings) as (broker, _):
        properties = {names.PRODUCER_GROUP: "P", names.REAL_TOPIC: "T", names.REAL_QUEUE_ID: "0"}
        text, now_ms = encode_properties(properties), broker.state.clock.now_ms() - 10
        broker.intake.append([Draft(HALF_TOPIC, 0, b"half", text, 0, 0, now_ms, HOST)])
        await to_slave_and_back(broker, "a slave asks nobody and gives nothing up")
        assert count(broker, QueueKey(CHECK_EXHAUSTED_TOPIC, 0)) == 1


@virtual_time
async def test_popped_messages_come_again_from_the_master_alone_and_it_reads_from_the_log_what_is_out(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, VirtualClock()) as (broker, _):
        put(broker, b"popped")
        key = CheckpointKey(Lane("G", "T", 0), 0, broker.state.clock.now_ms())
        broker.pop.revivals.give([Checkpoint(key, (0,), 10_000, 0)])
        assert broker.pop.revivals.out_count == 1
        await broker.change.to_slave(SLAVE_1)
        assert broker.pop.revivals.out_count == 0, "another knows that now"
        await broker.change.to_master(MASTER)
        assert broker.pop.revivals.out_count == 1
        await to_slave_and_back(broker, "a slave gives nothing again")
        assert count(broker, QueueKey("%RETRY%G_T", 0)) == 1


@virtual_time
async def test_a_slave_refuses_sends_on_both_paths_and_takes_them_again_as_master(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as (broker, port):
        peer = await Peer.connect(port)

        async def send() -> int:
            header = SendMessageRequest(
                producer_group="P",
                topic="T",
                default_topic="TBW102",
                default_topic_queue_count=4,
                queue_id=0,
                sys_flag=0,
                born_ms=broker.state.clock.now_ms(),
                flag=0,
                properties="",
                reconsume_times=0,
            )
            return (await peer.ask(Command(310, fields=header.encode(short=True), body=b"x"))).code

        assert await send() == 0
        for change, code in (
            (broker.change.to_slave(SLAVE_1), ResponseCode.SYSTEM_BUSY),
            (broker.change.to_master(MASTER), 0),
            (broker.change.fence(), ResponseCode.SYSTEM_BUSY),
            (broker.change.to_master(MASTER), 0),
        ):
            await change
            assert await send() == code
        assert count(broker) == 3
        peer.leave()


@virtual_time
async def test_the_end_of_the_log_is_told_before_the_first_message_of_a_master(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as (broker, _):
        put(broker, b"before")
        told: list[tuple[int, bool]] = []

        def before_open(end: int) -> None:
            told.append((end, broker.state.role.is_leading))

        await broker.change.to_slave(SLAVE_1)
        await broker.change.to_master(RoleState(epoch=7), before_open)
        assert told == [(broker.state.store.log_end, False)]
        assert broker.state.topics.version.state_version == 7
        await broker.change.to_master(RoleState(epoch=8), before_open)
        assert (len(told), broker.state.topics.version.state_version) == (2, 8)


@virtual_time
async def test_a_slave_makes_no_topic_and_no_group_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as (broker, _):
        await broker.change.to_slave(SLAVE_1)
        topics, groups = broker.state.topics, broker.state.groups
        before = topics.version, groups.version
        assert topics.for_send("New", "TBW102", 4, 0) is None
        assert topics.ensure("%RETRY%New", 1).topic_name == "%RETRY%New"
        assert groups.find("New") is not None, "it may read all the same"
        assert (topics.version, groups.version) == before
        assert "%RETRY%New" not in topics.table
        assert "New" not in groups.table
