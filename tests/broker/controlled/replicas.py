"""Three brokers of one name under a controller, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bolide.clock import Clock
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import ElectMasterRequest
from bolide.testing import VirtualClock
from tests.broker.replication.replicas import LIMIT_S, NAME, TOPIC, Group, Life, group
from tests.controller.nodes import Running, running
from tests.remoting.loops import eventually

SAFE = {"bolideReplication": "safe", "flushDiskType": "ASYNC_FLUSH"}


class Replicas:
    """Three brokers of one name and their controller."""

    def __init__(self, brokers: Group, controller: Running) -> None:
        self.brokers = brokers
        self.controller = controller
        self.lives: dict[int, Life] = {}

    async def start(self, number: int, **settings: str) -> Life:
        given = {**SAFE, "controllerAddr": self.controller.address, **settings}
        self.lives[number] = life = await self.brokers.start(f"replica-{number}", **given)
        return life

    async def stop(self, number: int) -> None:
        life = self.lives.pop(number)
        self.brokers.lives.remove(life)
        await life.stop()

    async def in_sync(self, *numbers: int) -> Life:
        """Wait until just these are in sync and have the same log; returns the one that leads."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                state = await self.controller.state(NAME)
                master = self.lives.get(state.master_broker_id or 0)
                found = sorted(one.broker_id for one in state.in_sync_replicas)
                if found == list(numbers) and master is not None and master.broker.state.role.is_leading:
                    return master
                await asyncio.sleep(0.05)  # virtual

    async def promote(self, number: int) -> None:
        """Have the controller hand the lead over."""
        header = ElectMasterRequest(broker_name=NAME, broker_id=number, is_designated=True)
        answer = await self.controller.ask(RequestCode.CONTROLLER_ELECT_MASTER, header.encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def send(self, life: Life, body: bytes, topic: str = "T") -> Command:
        return await self.brokers.send(life, body, topic=topic)


@asynccontextmanager
async def replicas(root: Path, count: int = 3, **settings: str) -> AsyncIterator[tuple[Replicas, Life]]:
    clock: Clock = VirtualClock()
    async with running(root / "controller", clock=clock) as controller, group(root, clock) as brokers:
        all_of_them = Replicas(brokers, controller)
        for number in range(1, count + 1):
            await all_of_them.start(number, **settings)
            await eventually((root / f"replica-{number}" / "brokerIdentity").exists, LIMIT_S)
        master = await all_of_them.in_sync(*range(1, count + 1))
        master.broker.state.topics.update(TOPIC)
        yield all_of_them, master
