"""`bolide up --replicas 3` under every kind of load, its processes killed by turns: what was promised comes.

What comes twice is allowed here: offsets, delays and timers are copied every few seconds (docs/replication.md). What
was taken back may never come.
"""

import asyncio
import json
import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from bolide import Admin
from tests.crash.campaign import await_delivery
from tests.crash.flows import FLOWS, SETTINGS, Flow
from tests.e2e.up import ANY_DISK, FREE_PORTS, Up, running
from tests.remoting.loops import POLL_INTERVAL_S, eventually

BETWEEN_COUNT_MAX = 200  # of promises from one fault to the next
BACK_LIMIT_S = 60.0
PROMISED_A_FAULT = 3
log = logging.getLogger(__name__)


class UpReplicas:
    """The brokers of a `bolide up`, as its ready file tells them."""

    def __init__(self, up: Up) -> None:
        self._up = up

    @property
    def master(self) -> str:
        return str(json.loads(self._up.ready_path.read_text())["broker"])

    def pids(self) -> dict[str, int]:
        rows: list[dict[str, Any]] = json.loads(self._up.ready_path.read_text())["brokers"]
        return {row["address"]: row["pid"] for row in rows}

    def victims(self, chance: random.Random) -> list[int]:
        """The master, a slave, or the master and a slave together: with `safe` nothing acknowledged may go with two."""
        pids, master = self.pids(), self.master
        slaves = [pid for address, pid in pids.items() if address != master and pid]
        chance.shuffle(slaves)
        leader = [pids[master]] if pids.get(master) else []
        return chance.choice([leader, slaves[:1], leader + slaves[:1]])

    async def kill(self, chance: random.Random) -> None:
        """SIGKILL, and wait until all are there again."""
        victims = self.victims(chance)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: self._is_whole_without(victims), BACK_LIMIT_S)

    def _is_whole_without(self, dead: list[int]) -> bool:
        return bool(self.master) and all(pid and pid not in dead for pid in self.pids().values())


async def follow_master(group: UpReplicas, flows: list[Flow]) -> None:
    """Poppers of the flows speak with one broker: it is to be the one that leads."""
    while True:
        port = int(group.master.rpartition(":")[2] or 0)
        for flow in flows:
            flow.broker_port = port or flow.broker_port
        await asyncio.sleep(POLL_INTERVAL_S)


def promised_count(flows: list[Flow]) -> int:
    return sum(len(flow.promised) for flow in flows)


async def survive(up: Up, fault_count: int, seed: int) -> None:
    group, chance = UpReplicas(up), random.Random(seed)
    flows = [flow(up.namesrv, int(up.broker.rpartition(":")[2])) for flow in FLOWS]
    async with asyncio.TaskGroup() as tasks:
        ends = [
            tasks.create_task(end(), name=f"{end.__name__}.{flow.topic}")
            for flow in flows
            for end in (flow.consume, flow.produce)
        ]
        ends.append(tasks.create_task(follow_master(group, flows), name="follow_master"))
        for _ in range(fault_count):
            wanted = promised_count(flows) + chance.randrange(BETWEEN_COUNT_MAX)
            await eventually(lambda: promised_count(flows) >= wanted, BACK_LIMIT_S)  # noqa: B023
            await group.kill(chance)
        for flow in flows:
            await flow.stop()
        for flow in flows:
            await await_delivery(flow)
        for task in ends:
            task.cancel()
    for flow in flows:
        log.info("%s: %s", flow.topic, flow.counts())
        assert len(flow.promised) > PROMISED_A_FAULT * fault_count, "the group was up for too little"
        assert not flow.withheld & flow.deliveries.keys(), f"{flow.topic} gave what was taken back"


@pytest.mark.soak
@pytest.mark.feature("X05")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_masters_and_slaves_killed_under_every_flow_lose_nothing_that_was_promised(tmp_path: Path, seed: int) -> None:
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    with running(tmp_path, "up", "--replicas", "3", *FREE_PORTS, *ANY_DISK, *settings) as up:
        with Admin(up.namesrv) as admin:
            for flow in FLOWS:
                admin.create_topic(flow.topic, 4)
        asyncio.run(survive(up, 12, seed))
        assert up.stop()[0] == 0
