"""Every fault of a machine against a broker in the middle of everything, by seed: what was promised comes.

The flows of `flows.py` run through kills, power cuts, and disks that lie or stall. What was confirmed comes, except the
messages whose own records were damaged; what was taken back never comes. Real time passes, for a process that is killed
knows no other; delays are as short as the broker takes them.
"""

import asyncio
import json
import logging
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bolide.testing import AsyncCluster, cluster
from tests.crash.damage import Harm, damage_derived, damage_log
from tests.crash.flows import CONNECT, FLOWS, SETTINGS, Flow, Outage, clock
from tests.crash.power import PowerCut, SyncNotes
from tests.crash.recorded import MANNERS, NOTES, STORE
from tests.remoting.loops import eventually, run_on

log = logging.getLogger(__name__)
LIFE_MAX = 30  # messages of a flow
DELIVERY_LIMIT_S = 60
LIFE_LIMIT_S = 60  # on a machine that does much else
KILL, POWER_CUT, LOG_ROT, DERIVED_ROT = "kill", "power cut", "rot of the log", "rot of derived files"
KINDS = (KILL, POWER_CUT, LOG_ROT, DERIVED_ROT)
PROGRAM = "tests.crash.recorded"
STALLS = {"share": 0.05, "longest_s": 0.3}
STALLS_SHARE = 0.2  # of lives
STOPS_SHARE = 0.5  # of the lives before rot: a disk lies after a clean stop as well


@dataclass(slots=True)
class Campaign:
    """One broker's lives and deaths."""

    rocket: AsyncCluster
    flows: list[Flow]
    chance: random.Random
    outages: list[Outage] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)

    async def run(self, kinds: Sequence[str], count: int) -> None:
        due: list[str] = []
        for _ in range(count):
            due = due or self.chance.sample(kinds, len(kinds))  # each of them, in any order, then each again
            await self._live()
            killed_ms = clock.now_ms()
            await self._die(due.pop())
            await self.rocket.brokers[0].start()
            await self.rocket.registered(self.rocket.brokers[0])
            # A client that was refused a moment ago looks again after its pause, and fails until then.
            self.outages.append(Outage(killed_ms, clock.now_ms() + CONNECT.backoff_max_ms))

    async def _live(self) -> None:
        """Some more messages of every flow, or none at all."""
        wanted = self._promised_count() + self.chance.randrange(LIFE_MAX * len(self.flows))
        await eventually(lambda: self._promised_count() >= wanted, LIFE_LIMIT_S)

    def _promised_count(self) -> int:
        return sum(len(flow.promised) for flow in self.flows)

    async def _die(self, kind: str) -> None:
        (broker,) = self.rocket.brokers
        if kind in (LOG_ROT, DERIVED_ROT) and self.chance.random() < STOPS_SHARE:
            await broker.stop()
        else:
            await broker.kill()
        harm = Harm(kind)
        if kind == POWER_CUT:
            self._cut_power(broker.directory)
        elif kind == LOG_ROT:
            harm = damage_log(broker.directory / STORE, self.chance)
        elif kind == DERIVED_ROT:
            harm = damage_derived(broker.directory / STORE, self.chance)
        if kind != KILL:
            shutil.rmtree(broker.directory / NOTES)  # what the disk holds now is what it holds
        for flow in self.flows:
            flow.excused |= {body for topics, body in harm.lost if flow.is_of(topics)}
        self.harms.append(harm)
        log.info("outage %d: %s", len(self.harms), harm.what)
        manners = STALLS | {"seed": self.chance.randrange(1 << 30)} if self.chance.random() < STALLS_SHARE else {}
        (broker.directory / MANNERS).write_text(json.dumps(manners))

    def _cut_power(self, directory: Path) -> None:
        store, world = directory / STORE, directory / "world"
        PowerCut(SyncNotes(store, directory / NOTES), self.chance).leave(world)
        shutil.rmtree(store)
        world.rename(store)


async def run_campaign(directory: Path, kinds: Sequence[str], count: int, seed: int, program: str) -> None:
    # A power cut takes what was not synced; a kill takes nothing that was written.
    settings = SETTINGS | {"flushDiskType": "ASYNC_FLUSH" if kinds == [KILL] else "SYNC_FLUSH"}
    async with (
        cluster(processes=True, directory=directory, settings=settings, program=program) as rocket,
        asyncio.TaskGroup() as tasks,
    ):
        flows = [flow(rocket.namesrv, rocket.brokers[0].port) for flow in FLOWS]
        for flow in flows:
            await rocket.create_topic(flow.topic)
        ends = [
            tasks.create_task(end(), name=f"{end.__name__}.{flow.topic}")
            for flow in flows
            for end in (flow.consume, flow.produce)
        ]
        campaign = Campaign(rocket, flows, random.Random(seed))
        await campaign.run(kinds, count)
        for flow in flows:
            await flow.stop()
        for flow in flows:
            await await_delivery(flow)
        for task in ends:
            task.cancel()
    report(campaign)
    for flow in flows:
        check(flow, campaign.outages)


async def await_delivery(flow: Flow) -> None:
    try:
        await eventually(lambda: not flow.missing(), DELIVERY_LIMIT_S)
    except TimeoutError:
        missing = sorted(flow.missing(), key=int)
        raise AssertionError(f"{flow.topic} lost {len(missing)}, such as {missing[:5]}: {flow.counts()}") from None


def check(flow: Flow, outages: Sequence[Outage]) -> None:
    assert len(flow.promised) > 2 * len(outages), "the broker was up for too little"
    assert not flow.withheld & flow.deliveries.keys(), f"{flow.topic} gave what was taken back"
    unexplained = flow.unexplained(outages)
    assert not unexplained, f"{flow.topic} repeated without a fault: {sorted(unexplained.items())[:3]}"


def report(campaign: Campaign) -> None:
    """How often what happened, and what each flow saw of it."""
    log.info("faults: %s", Counter(harm.what.partition(" in ")[0] for harm in campaign.harms))
    for flow in campaign.flows:
        log.info("%s: %s, %d excused", flow.topic, flow.counts(), len(flow.excused & flow.promised))


def survive(directory: Path, kinds: Sequence[str], count: int, seed: int, program: str = PROGRAM) -> None:
    """The store stays where it is when this fails, and the failure says where that is."""
    try:
        run_on(uvloop.new_event_loop, lambda: run_campaign(directory, kinds, count, seed, program))
    except BaseException as problem:
        problem.add_note(f"seed {seed}, {count} faults of {kinds}; the store and its log are kept in {directory}")
        raise
