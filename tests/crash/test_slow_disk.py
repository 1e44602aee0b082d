"""A disk whose syncs take seconds: who does not wait for it goes on, who does is told the truth."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bolide
from bolide.testing import Cluster, cluster
from bolide.testing.clusters import PlannedCluster
from tests.crash.recorded import MANNERS

COUNT = 100
SLOW = {"share": 1.0, "longest_s": 1.2, "seed": 5}


def slow_cluster(directory: Path, flush: str) -> PlannedCluster:
    settings = {"flushDiskType": flush, "syncFlushTimeout": 300}
    return cluster(processes=True, directory=directory, settings=settings, program="tests.crash.recorded")


def become_slow(rocket: Cluster) -> None:
    """From the next life on; its files are there, for a start has to wait for the disk whatever it is for."""
    (broker,) = rocket.brokers
    rocket.create_topic("Slow")
    with bolide.Producer("pg", rocket.namesrv) as producer:
        producer.send("Slow", b"-1")
    (broker.directory / MANNERS).write_text(json.dumps(SLOW))
    broker.restart()


def die(rocket: Cluster) -> None:
    """Killed, and back on a disk that is well."""
    (broker,) = rocket.brokers
    broker.kill()
    (broker.directory / MANNERS).unlink()
    broker.start()


def timed(call: Callable[[], bolide.Receipt]) -> tuple[float, bolide.Receipt]:
    began_s = time.monotonic()
    receipt = call()
    return time.monotonic() - began_s, receipt


def bodies(rocket: Cluster, count: int) -> list[bytes]:
    oldest = bolide.StartFrom.oldest()
    with bolide.Consumer("cg", "Slow", rocket.namesrv, start_from=oldest) as consumer:
        bodies = [next(consumer).body for _ in range(count)]
        consumer.commit()
        return bodies


def test_sends_that_do_not_wait_for_the_disk_go_on_while_it_stalls(tmp_path: Path) -> None:
    with slow_cluster(tmp_path, "ASYNC_FLUSH") as rocket:
        become_slow(rocket)
        with bolide.Producer("pg", rocket.namesrv) as producer:
            times = [timed(lambda number=number: producer.send("Slow", b"%d" % number))[0] for number in range(COUNT)]  # type: ignore[misc]
        # A sync takes 0.6 s in the middle. A send takes what else the machine has to do, and that is not ours to bound.
        assert sorted(times)[COUNT // 4] < 0.1
        assert sum(times) < 0.3 * COUNT, "sends waited for a sync"
        die(rocket)
        assert sorted(bodies(rocket, COUNT + 1), key=int) == [b"%d" % number for number in range(-1, COUNT)]


@pytest.mark.feature("F184")
def test_sends_that_wait_for_the_disk_are_told_that_it_is_late_and_what_is_confirmed_is_there(tmp_path: Path) -> None:
    with slow_cluster(tmp_path, "SYNC_FLUSH") as rocket:
        become_slow(rocket)
        late, long, confirmed = 0, 0, [b"-1"]
        with bolide.Producer("pg", rocket.namesrv, timeout_s=10) as producer:
            for number in range(12):
                taken_s, receipt = timed(lambda number=number: producer.send("Slow", b"%d" % number))  # type: ignore[misc]
                long += taken_s > 1.0
                late += receipt.status is bolide.SendStatus.FLUSH_DISK_TIMEOUT
                confirmed.append(b"%d" % number)
        assert late
        assert long < late / 2, "answers waited longer than syncFlushTimeout"
        die(rocket)
        assert sorted(bodies(rocket, len(confirmed)), key=int) == confirmed
