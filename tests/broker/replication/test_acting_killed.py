"""The master's process is killed, and its slave acts for it: ordered readers go on, what is due comes, once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from bolide import aio
from bolide.errors import BolideError
from bolide.model.queue import MessageQueue
from bolide.testing import cluster
from bolide.testing.clusters import AsyncCluster
from bolide.testing.nodes import AsyncNode
from tests.client.scenes import collecting, numbers
from tests.remoting.loops import eventually, run_on

LIMIT_S, POLL_INTERVAL_S = 120, 0.02  # clients look for another route every half minute
A, B = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
A_FEW = aio.PullRules(batch_count=2, held_count_max=4)  # so that most are pulled after the kill
SETTINGS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerHeartbeatInterval": "200",
    "messageDelayLevel": "4s",
}


@asynccontextmanager
async def acting_pair(directory: Path) -> AsyncIterator[tuple[AsyncCluster, AsyncNode, AsyncNode]]:
    """Master and slave of a, and the master of b, as processes."""
    async with cluster(brokers=0, controller=False, processes=True, directory=directory, settings=SETTINGS) as rocket:
        (namesrv,) = rocket.namesrvs
        namesrv.settings["supportActingMaster"] = "true"
        await namesrv.restart()
        master, slave = await rocket.add_group(2, "a")
        await rocket.add_broker("b")
        await rocket.create_topic("T", 1)
        yield rocket, master, slave


async def status(admin: aio.Admin, node: AsyncNode) -> dict[str, str]:
    try:
        return await admin.broker_status(node.address)
    except BolideError:
        return {}  # it is on its way


async def until(probe: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await probe():  # noqa: ASYNC110 (what is waited for happens in another process)
            await asyncio.sleep(POLL_INTERVAL_S)


@pytest.mark.feature("X06")
def test_ordered_readers_go_on_at_the_slave_and_what_is_due_comes_by_another_master_and_once(tmp_path: Path) -> None:
    run_on(uvloop.new_event_loop, lambda: read_through_a_kill(tmp_path))


async def read_through_a_kill(directory: Path) -> None:
    taken, is_read_on = list[aio.Received](), asyncio.Event()

    async def read(consumer: aio.Consumer) -> None:
        async for message in consumer:
            taken.append(message)
            if len(taken) == 5:
                await is_read_on.wait()

    async with (
        acting_pair(directory) as (rocket, master, slave),
        aio.Admin(rocket.namesrv) as admin,
        aio.Producer("P", rocket.namesrv) as producer,
    ):

        async def has_all() -> bool:
            ends = [(await status(admin, node)).get("commitLogMaxOffset") for node in (master, slave)]
            return ends[0] is not None and ends[0] == ends[1]

        async def is_acting() -> bool:
            return (await status(admin, slave)).get("brokerActing") == "true"

        async def is_resting() -> bool:
            told = await status(admin, slave)
            return bool(told) and "brokerActing" not in told

        for body in numbers(0, 20):
            await producer.send("T", body, queue=A)
        async with (
            aio.Consumer(
                "G", "T", rocket.namesrv, ordered=True, start_from=aio.StartFrom.oldest(), pull=A_FEW
            ) as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            reading = tasks.create_task(read(consumer))
            await eventually(lambda: len(taken) == 5, LIMIT_S)
            await producer.send("T", b"due", queue=A, delay_level=1)
            await until(has_all)
            await master.kill()
            await until(is_acting)
            is_read_on.set()
            await eventually(lambda: len(taken) == 21, LIMIT_S)
            assert [message.body for message in taken if message.queue == A] == numbers(0, 20)
            assert [message.body for message in taken if message.queue == B] == [b"due"]
            reading.cancel()
        await master.start()
        await until(is_resting)
        async with collecting("G", "T", rocket.namesrv) as reader:
            await producer.send("T", b"later", queue=A, delay_level=1)
            await eventually(lambda: b"later" in reader.bodies, LIMIT_S)
            assert reader.bodies == [b"later"], "neither what was read nor what was due comes again"
