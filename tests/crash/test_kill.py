"""A writer killed at any moment: every acknowledged message is there after the restart, once, in order."""

import os
import random
import signal
import subprocess
import sys

import pytest

from bolide.clock import SystemClock
from bolide.model.queue import QueueKey
from bolide.store.store import Store
from bolide.store.verify import findings
from tests.crash.writer import HOST, crash_config
from tests.store.given import query, read_all

KILLS_IN_TEST = 20
KILLS_IN_SOAK = 200


def kill_a_writer(root, mode: str, life: int, chance: random.Random) -> int:
    """Start a writer, kill it in the middle of something, return how many messages it acknowledged."""
    command = [sys.executable, "-m", "tests.crash.writer", str(root), mode, str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as writer:
        assert writer.stdout is not None
        acknowledged = 0
        try:
            assert writer.stdout.readline() == b"open\n"
            for _ in range(chance.randrange(0, 120)):
                acknowledged = int(writer.stdout.readline())
        finally:
            writer.send_signal(signal.SIGKILL)
        # What it said before it died counts too; a line cut short does not.
        said = [line for line in writer.stdout.read().split(b"\n")[:-1] if line]
        writer.wait()
    return int(said[-1]) if said else acknowledged


def check_lives(root, mode: str, acknowledged: dict[int, int]) -> None:
    with Store.open(crash_config(root, mode), SystemClock(), HOST) as store:
        names = []
        for queue_id in range(3):
            records = read_all(store, "T", queue_id)
            assert [record.queue_offset for record in records] == list(range(len(records)))
            order = [tuple(map(int, record.body.rstrip(b".").split(b"."))) for record in records]
            assert order == sorted(order)
            names += order
        assert len(names) == len(set(names))
        for life, count in acknowledged.items():
            there = {number for this, number in names if this == life}
            assert there >= set(range(count)), f"life {life} lost {sorted(set(range(count)) - there)[:5]}"
        life = max(acknowledged)
        if acknowledged[life]:
            name = f"{life}.{acknowledged[life] - 1}"
            assert len(query(store, "T", name, 5, 0, 1 << 60)) == 1
        assert store.queue(QueueKey("T", 0)) is not None or not sum(acknowledged.values())
    assert findings(crash_config(root, mode)) == []


def run_lives(root, mode: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: dict[int, int] = {}
    for life in range(kills):
        acknowledged[life] = kill_a_writer(root, mode, life, chance)
        if life % 5 == 4 or life == kills - 1:
            check_lives(root, mode, acknowledged)
    assert sum(acknowledged.values()) > kills


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.feature("F178", "F185", "F184")
def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path, mode):
    run_lives(tmp_path, mode, KILLS_IN_TEST // 2, seed=7)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("seed", range(4))
def test_a_writer_killed_again_and_again_loses_nothing_it_acknowledged(tmp_path, mode, seed):
    run_lives(tmp_path, mode, KILLS_IN_SOAK // 8, seed)
