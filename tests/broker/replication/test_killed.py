"""Master and slave as processes that are killed in the middle of everything: the slave's log is the master's again."""

import asyncio
from pathlib import Path

import pytest

from bolide import aio
from bolide.clock import SystemClock
from bolide.errors import BolideError
from bolide.protocol.bodies.brokers import ReplicationState
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.testing import cluster
from bolide.testing.nodes import AsyncNode
from tests.client.scenes import on_uvloop
from tests.remoting.loops import eventually
from tests.store.replicas import contents

POLL_INTERVAL_S = 0.02
LIMIT_S = 60
SEGMENT_SIZE = 1 << 19
COMPRESSED_SIZE = 4_000  # none is that long, so none is compressed, and files roll
SETTINGS = {"mappedFileSizeCommitLog": str(SEGMENT_SIZE), "bolideHaReconnectInterval": "50", "maxMessageSize": "65536"}


async def status(client: Client, node: AsyncNode) -> ReplicationState:
    return ReplicationState.decode((await client.request(node.address, Command(907), 5)).body)


async def caught_up(client: Client, master: AsyncNode, slave: AsyncNode) -> int:
    """Wait until the slave has all that its master has; returns how much that is."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                end = (await status(client, master)).master_commit_log_max_offset
                if (await status(client, slave)).ha_client_runtime_info.max_offset == end:
                    return end
            except BolideError:
                pass  # it was killed a moment ago
            await asyncio.sleep(POLL_INTERVAL_S)


async def send_one(producer: aio.Producer, number: int) -> None:
    """One of every kind in turn: plain, with keys, several at once, and for later by level and by the clock."""
    body = b"%d " % number + b"x" * (number * 97 % COMPRESSED_SIZE)
    match number % 5:
        case 0:
            await producer.send("T", body)
        case 1:
            await producer.send("T", body, keys=(f"k{number}", "all"), tags="A")
        case 2:
            await producer.send_batch([aio.Message("T", b"%d " % each + body) for each in range(3)])
        case 3:
            await producer.send("T", body, delay_level=1)
        case _:
            await producer.send("T", body, delay=1.0)


@pytest.mark.feature("F186")
@on_uvloop
async def test_slave_and_master_killed_in_mid_stream_end_with_equal_logs_queues_and_index(tmp_path: Path) -> None:
    async with (
        cluster(brokers=0, processes=True, directory=tmp_path, settings=SETTINGS) as rocket,
        Client(ConnectConfig(), SystemClock()) as client,
        asyncio.TaskGroup() as sending,
    ):
        master = await rocket.add_broker("master", {"brokerName": "a"})
        slave = await rocket.add_broker("slave", {"brokerName": "a", "brokerRole": "SLAVE", "brokerId": 1})
        sent = 0

        async def send_forever() -> None:
            nonlocal sent
            async with aio.Producer("pg", rocket.namesrv) as producer:
                while True:
                    try:
                        await send_one(producer, sent)
                        sent += 1
                    except BolideError:
                        await asyncio.sleep(POLL_INTERVAL_S)

        async def more(count: int) -> None:
            wanted = sent + count
            await eventually(lambda: sent >= wanted, LIMIT_S)

        task = sending.create_task(send_forever(), name="sending")
        for victim in (slave, master):
            await more(100)
            await victim.kill()
            if victim is slave:
                await more(100)
            await victim.start()
        await more(50)
        task.cancel()
        await asyncio.wait([task])
        end = await caught_up(client, master, slave)
        assert end > SEGMENT_SIZE, "files have rolled"
        roots = [node.directory / "store" for node in (master, slave)]
        # What was to come later is delivered and copied meanwhile.
        await eventually(lambda: contents(roots[0]) == contents(roots[1]), LIMIT_S)
        assert {name.partition("/")[0] for name in contents(roots[0])} == {"commitlog", "consumequeue", "index"}
