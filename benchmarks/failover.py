"""How long is a group without writes after its master is killed, beside Apache's?

Three brokers, a controller and our name server as processes on loopback, all with their default times; two producers of
our client send all the while. The master is killed (SIGKILL) --kills times; each time the longest silence between two
acknowledgements is counted that ends behind the kill. Between two kills the dead one comes back and all are in sync
again. Both groups acknowledge a message when every replica in sync has it, and take none with fewer than two. What was
acknowledged is read back in the end: a group that answers soon and forgets has not won.

    python -m benchmarks.failover --kills 20 --java-kills 5 --kinds bolide,5.5.0

It does not show what a machine that vanishes costs (no connection ends: the heartbeat's time-out counts, 10 s on both
sides), nor Java's clients, which look for the new route every 30 s or after a failure.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.measure import commit, machine, publish, read_arguments
from interop.replicas import mixed_group
from tests.replication.group import Group, Loopback
from tests.replication.nodes import ended

QUESTION = "How long is a group without writes after its master is killed?"
BROKER_COUNT = 3
AFTER_COUNT = 5
LIMIT_S = 120.0
LOOK_BACK_S = 1.0


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    options = read_arguments(QUESTION, argv, kills=20, java_kills=20, kinds="bolide,5.5.0")
    rows: dict[str, dict[str, object]] = {}
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="bolide-failover-") as directory:
            group = group_of(Path(directory), kind)
            with ended(lambda: group.nodes):  # noqa: B023
                rows[kind] = measured(group, options.kills if kind == "bolide" else options.java_kills)
        print(f"{kind}: {json.dumps(rows[kind])}", flush=True)
    told: dict[str, object] = {"question": QUESTION, "rows": rows, "machine": machine(), "commit": commit()}
    line = json.dumps(told)
    publish(line, is_kept=options.keep)
    return told


def group_of(directory: Path, kind: str) -> Group:
    """Brokers and a controller of one kind."""
    return mixed_group(directory, Loopback(), kind, [kind] * BROKER_COUNT, has_quick_times=False)


def measured(group: Group, kill_count: int) -> dict[str, object]:
    group.start()
    group.begin_load(producer_count=2)
    gaps_s = sorted(gap_of_a_kill(group) for _ in range(kill_count))
    group.end_load()
    verdict = group.verdict()
    return {
        "kills": kill_count,
        "p50_s": round(statistics.median(gaps_s), 3),
        "worst_s": round(gaps_s[-1], 3),
        "all_s": [round(gap_s, 3) for gap_s in gaps_s],
        "acknowledged": verdict.counts["sends acknowledged"],
        "lost": len(verdict.lost),
    }


def gap_of_a_kill(group: Group) -> float:
    master = group.await_whole(LIMIT_S)
    group.await_acknowledged(AFTER_COUNT, LIMIT_S)
    killed_s = time.monotonic()
    master.kill()
    group.await_acknowledged(AFTER_COUNT, LIMIT_S)
    master.start()
    # The longest silence that ends behind the kill: an answer may still have been under way when the master died.
    ends_s = sorted(send.ended_s for send in group.acknowledged_after(killed_s - LOOK_BACK_S))
    return max(after_s - before_s for before_s, after_s in pairwise(ends_s) if after_s > killed_s)


if __name__ == "__main__":
    main()
