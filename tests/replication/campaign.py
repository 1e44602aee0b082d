"""One run of faults against a group under load, and the judgement of it: by the master, and by each that follows it.

    python -m tests.replication.campaign --seconds 300 --seed 7

What was acknowledged must be readable from every broker that may lead: so in the end, when all are in sync, the master
is killed again and again and each successor is asked for everything. A failure says the seed and the timeline, and the
directories stay where they are.
"""

import argparse
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.replication import network
from tests.replication.bolide_group import bolide_group
from tests.replication.faults import RECOVERY_LIMIT_S, Faults
from tests.replication.group import Group, Loopback
from tests.replication.network import Network
from tests.replication.nodes import ended
from tests.replication.verdict import Verdict

log = logging.getLogger(__name__)
ACKNOWLEDGED_AFTERWARDS = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was and what became of it."""

    verdicts: list[Verdict]
    faults: dict[str, int]
    timeline: str

    @property
    def found(self) -> dict[str, list[str]]:
        """The faults that any survivor shows."""
        return {kind: told for verdict in self.verdicts for kind, told in verdict.faults().items()}

    def __str__(self) -> str:
        told = "\n".join(str(verdict) for verdict in self.verdicts)
        return f"{sum(self.faults.values())} faults: {self.faults}\n{told}"


@contextmanager
def any_network(seed: int = 0) -> Iterator[Network | Loopback]:
    """One that can be parted, where this process may make it."""
    if not network.is_possible():
        yield Loopback()
        return
    with Network(seed) as net:
        yield net


def run_campaign(
    group: Group, seed: int, for_s: float, kinds: Sequence[str] | None = None, lasts_s: tuple[float, float] = (0.5, 6.0)
) -> Outcome:
    """Start a group, load it, hurt it, mend it, and judge it by every broker that comes to lead."""
    faults = Faults(group, seed)
    try:
        group.start()
        group.begin_load()
        faults.carry_out(faults.plan(kinds or faults.kinds(), lasts_s), for_s)
        group.await_whole(RECOVERY_LIMIT_S)
        group.await_acknowledged(ACKNOWLEDGED_AFTERWARDS, RECOVERY_LIMIT_S)
        group.end_load()
        verdicts = [group.verdict(), *_verdicts_of_successors(group)]
    except BaseException as problem:
        problem.add_note(f"seed {seed}; everything is kept in {group.directory}\n{group.timeline}")
        raise
    return Outcome(verdicts, dict(faults.counts), str(group.timeline))


def _verdicts_of_successors(group: Group) -> Iterator[Verdict]:
    """Each master dies once all are in sync; its successor must have everything."""
    for _ in range(len(group.brokers) - 1):
        master = group.await_whole(RECOVERY_LIMIT_S)
        group.timeline.note(f"kill {master.name}: its successor is asked for everything")
        master.kill()
        group.await_master_but(master, RECOVERY_LIMIT_S)
        yield group.verdict()
        master.start()


def judged(
    directory: Path, seed: int, for_s: float, etcd_count: int = 0, is_parted: bool = True, **manners: object
) -> Outcome:
    """A run of every fault against a group of ours."""
    with any_network(seed) if is_parted else nullcontext(Loopback()) as net:
        group = bolide_group(directory, net, manners=manners, etcd_count=etcd_count)
        with ended(lambda: group.nodes):
            return run_campaign(group, seed, for_s)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--etcd", type=int, default=0, help="how many nodes; 0 keeps the register in a file")
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    home = given.directory or Path(tempfile.mkdtemp(prefix="bolide-campaign-"))
    outcome = judged(home, given.seed, given.seconds, given.etcd, is_recorded=True)
    log.info("%s\n%s\nseed %d, kept in %s", outcome.timeline, outcome, given.seed, home)
    raise SystemExit(1 if outcome.found else 0)
