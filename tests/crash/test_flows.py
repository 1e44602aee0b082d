"""A broker killed at random points of every flow: what was promised comes, nothing comes twice without a kill.

Real time passes here, for a process that is killed knows no other; delays are as short as the broker takes them.
"""

import asyncio
import logging
import random
from pathlib import Path

import pytest
import uvloop

from bolide.testing import AsyncCluster, cluster
from tests.crash.flows import FLOWS, SETTINGS, Delivery, Flow, Outage, clock, is_explained, repeats
from tests.remoting.loops import eventually, run_on

log = logging.getLogger(__name__)
KILLS_IN_TEST = 20
KILLS_IN_SOAK = 200
LIFE_MAX = 40  # messages of a flow
DELIVERY_LIMIT_S = 60


async def live_and_die(rocket: AsyncCluster, flows: list[Flow], kill_count: int, chance: random.Random) -> list[Outage]:
    """Kill and restart the broker, each time after so many more messages: none, or some in every flow."""
    (broker,) = rocket.brokers
    outages = []
    for _ in range(kill_count):
        wanted = sum(len(flow.promised) for flow in flows) + chance.randrange(LIFE_MAX * len(flows))
        await eventually(lambda: sum(len(flow.promised) for flow in flows) >= wanted)  # noqa: B023
        killed_ms = clock.now_ms()
        await broker.kill()
        await broker.start()
        await rocket.registered(broker)
        outages.append(Outage(killed_ms, clock.now_ms()))
    return outages


async def run_flows(directory: Path, kill_count: int, seed: int) -> None:
    async with cluster(processes=True, directory=directory, settings=SETTINGS) as rocket, asyncio.TaskGroup() as tasks:
        flows = [flow(rocket.namesrv, rocket.brokers[0].port) for flow in FLOWS]
        for flow in flows:
            await rocket.create_topic(flow.topic)
        ends = [
            tasks.create_task(end(), name=f"{end.__name__}.{flow.topic}")
            for flow in flows
            for end in (flow.consume, flow.produce)
        ]
        outages = await live_and_die(rocket, flows, kill_count, random.Random(seed))
        for flow in flows:
            await flow.stop()
        for flow in flows:
            await await_delivery(flow)
        for task in ends:
            task.cancel()
    for flow in flows:
        log.info("%s: %s", flow.topic, flow.counts())
        check(flow, outages)


async def await_delivery(flow: Flow) -> None:
    try:
        await eventually(lambda: not flow.missing(), DELIVERY_LIMIT_S)
    except TimeoutError:
        missing = sorted(flow.missing(), key=int)
        raise AssertionError(f"{flow.topic} lost {len(missing)}, such as {missing[:5]}: {flow.counts()}") from None


def check(flow: Flow, outages: list[Outage]) -> None:
    assert len(flow.promised) > 2 * len(outages), "the broker was up for too little"
    assert not flow.withheld & flow.deliveries.keys(), f"{flow.topic} gave what was taken back"
    unexplained = flow.unexplained(outages)
    assert not unexplained, f"{flow.topic} repeated without a kill: {sorted(unexplained.items())[:3]}"


def kill_through_flows(directory: Path, kill_count: int, seed: int) -> None:
    """The store stays where it is when this fails, and the failure says where that is."""
    try:
        run_on(uvloop.new_event_loop, lambda: run_flows(directory, kill_count, seed))
    except BaseException as problem:
        problem.add_note(f"seed {seed}, {kill_count} kills; the broker's store and log are kept in {directory}")
        raise


def test_twenty_kills_lose_nothing_and_repeat_nothing_that_they_do_not_explain(tmp_path: Path) -> None:
    kill_through_flows(tmp_path, KILLS_IN_TEST, seed=7)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_kills_lose_nothing_and_repeat_nothing_that_they_do_not_explain(tmp_path: Path, seed: int) -> None:
    kill_through_flows(tmp_path, KILLS_IN_SOAK // 4, seed)


def test_only_a_kill_between_two_copies_or_two_deliveries_explains_them() -> None:
    first, copied = Delivery(100, 110, ("T", 0, 0), 0, 100), Delivery(200, 210, ("T", 0, 1), 0, 200)
    handed_again = Delivery(100, 300, ("T", 0, 0), 0, 100)
    in_steps = Delivery(100, 110, ("T", 0, 0), 0, 40)
    assert repeats([copied, first, Delivery(250, 260, ("T", 0, 2), 1, 250)]) == [(first, copied)]
    assert is_explained(first, copied, [Outage(150, 160)])
    assert not is_explained(first, copied, [Outage(50, 60), Outage(201, 220)])
    assert is_explained(in_steps, copied, [Outage(50, 60)])
    assert is_explained(first, handed_again, [Outage(250, 260)])
    assert not is_explained(first, handed_again, [Outage(50, 105)])
