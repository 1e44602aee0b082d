"""Groups of ours in the middle of faults: what was acknowledged is there. Broken builds: the judge finds it."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replication import network
from tests.replication.bolide_group import bolide_group
from tests.replication.campaign import any_network, judged, run_campaign
from tests.replication.faults import Faults, Plan
from tests.replication.group import Group
from tests.replication.network import Network
from tests.replication.nodes import ended
from tests.replication.scenarios import shrink_without_controller, strand_the_master
from tests.replication.verdict import Verdict

needs_root = pytest.mark.skipif(not network.is_possible(), reason="namespaces take root and /dev/net/tun")
QUICK_KINDS = ("kill a master", "restart a master", "kill a broker", "cut the master from a slave", "switch masters")


def possible(kinds: tuple[str, ...], faults: Faults) -> list[str]:
    return [kind for kind in kinds if kind in faults.kinds()]


@pytest.mark.feature("X05")
def test_nothing_acknowledged_is_lost_when_brokers_die_again_and_again(tmp_path: Path) -> None:
    with any_network() as net:
        group = bolide_group(tmp_path, net)
        with ended(lambda: group.nodes):
            kinds = possible(QUICK_KINDS, Faults(group, 0))
            outcome = run_campaign(group, seed=5, for_s=30, kinds=kinds, lasts_s=(0.2, 2.0))
    assert not outcome.found, f"{outcome.timeline}\n{outcome}"
    assert outcome.verdicts[0].counts["sends acknowledged"] > 100, f"{outcome.timeline}\n{outcome}"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1))
def test_nothing_acknowledged_is_lost_in_five_minutes_of_every_fault(tmp_path: Path, seed: int) -> None:
    outcome = judged(tmp_path, seed, for_s=300, is_recorded=True)
    assert not outcome.found, f"{outcome.timeline}\n{outcome}"


Scenario = Callable[[Group, int, float], int]
SCENARIOS = [shrink_without_controller, strand_the_master]


def judged_after(scenario: Scenario, directory: Path, wait_s: float, **manners: object) -> tuple[Verdict, str]:
    """What became of a group of ours after a chain of faults, and the story of it."""
    with Network() as net:
        group = bolide_group(directory, net, manners=manners)
        with ended(lambda: group.nodes):
            group.start()
            group.begin_load()
            scenario(group, 50, wait_s)
            group.end_load()
            verdict = group.verdict()
    return verdict, f"{group.timeline}\n{verdict}"


@pytest.mark.soak
@needs_root
@pytest.mark.feature("X05")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_lost_where_others_lost_something(tmp_path: Path, scenario: Scenario) -> None:
    verdict, story = judged_after(scenario, tmp_path, wait_s=10)
    assert not verdict.faults(), story


# A judge that has caught nothing proves nothing.


@pytest.mark.soak
@needs_root
@pytest.mark.parametrize(
    ("fault", "scenario"),
    [("shrink before controller", shrink_without_controller), ("ack before replica", strand_the_master)],
)
def test_a_build_that_is_broken_on_purpose_is_found(tmp_path: Path, fault: str, scenario: Scenario) -> None:
    verdict, story = judged_after(scenario, tmp_path, wait_s=30, fault=fault)
    assert verdict.lost, story


def test_a_seed_draws_the_same_faults_again() -> None:
    first, second, other = (Plan(QUICK_KINDS, random.Random(seed), (0.1, 1.0), 1.0) for seed in (3, 3, 4))
    drawn = [first.draw() for _ in range(50)]
    assert drawn == [second.draw() for _ in range(50)]
    assert drawn != [other.draw() for _ in range(50)]
    assert {fault.kind for fault in drawn} == set(QUICK_KINDS)
