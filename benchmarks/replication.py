"""What does a slave cost its master, how far behind is it, and how fast does it catch up, beside Apache's?

A master and a slave of each kind, without a controller, on one disk: alone (the slave is down), asynchronous, and
synchronous (an answer waits until the slave has the message; Java is told inSyncReplicas=2, or it would not wait). The
loads are `broker_load.c`. All kinds and roles run at the same time and take turns, Java's after it has sent for some
seconds. A rate is the median of the rounds, with the CPU that a message cost the master (`cpu_us`), the slave and the
load. `cost` is the master's CPU for a message at a rate that leaves the slave a core. `lag` is how long after it was
seen at the end of the master's log a byte was seen at the end of the slave's, asked over the wire, so a round trip is
part of it; the load is then half of what the master can take. `catch-up` sends --backlog-mb while the slave is down and
times how its log grows to the same end, beside `cp` of the same files, and how fast 8 x 16 senders are meanwhile.

Load, master and slave share the cores of this machine: on a machine for each a slave costs its master less.

    python -m benchmarks.replication --seconds 5
    python -m benchmarks.replication --rows rates --roles alone,async
    python -m benchmarks.replication --rows catch-up --kinds bolide
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, product
from pathlib import Path
from typing import Any

from benchmarks.before_after import cpu_s
from benchmarks.measure import commit, machine, publish, read_arguments
from benchmarks.measured_brokers import JAVA_HEAP, LOAD_SOURCE, SEGMENT_SIZE
from benchmarks.programs import built
from interop import wire
from interop.process import await_that
from interop.replicas import Pair, await_answer, plain_pair
from tests.replication.nodes import ended

QUESTION = "What does a slave cost, and how far behind is it?"
LOADS = ((1, 64), (8, 16), (64, 1))
ROLES: dict[str, dict[str, object]] = {
    "alone": {},
    "async": {},
    "sync": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
}
# Nodes of the tests have small files; here both kinds have RocketMQ's sizes.
FILE_SIZES: dict[str, object] = {
    "mappedFileSizeCommitLog": SEGMENT_SIZE,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
PACED_RATES = {"bolide": 40_000, "5.5.0": 4_000}  # a second; some half of a core
WARM_S = 6  # of 8 x 16 until Java has compiled what counts
START_LIMIT_S, COPY_LIMIT_S = 60.0, 300.0
UPDATE_TOPIC = 17
_numbers = count()


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    options = read_arguments(
        QUESTION,
        argv,
        seconds=5,
        rounds=2,
        kinds="bolide,5.5.0",
        rows="rates,cost,lag,catch-up",
        roles=",".join(ROLES),
        backlog_mb=2048,
    )
    told: dict[str, Any] = {"question": QUESTION, "machine": machine(), "commit": commit(), "options": vars(options)}
    bench = Bench(options.seconds, options.kinds.split(","))
    with tempfile.TemporaryDirectory(prefix="bolide-replication-") as directory:
        if "rates" in options.rows:
            told["rates"] = bench.rates(Path(directory) / "rates", options.roles.split(","), options.rounds)
        if "cost" in options.rows:
            told["cost"] = bench.costs(Path(directory) / "cost", options.rounds)
        if "lag" in options.rows:
            told["lag"] = bench.lags(Path(directory) / "lag")
        if "catch-up" in options.rows:
            told["catch-up"] = bench.catch_ups(Path(directory) / "catch-up", options.backlog_mb << 20)
    line = json.dumps(told)
    publish(line, is_kept=options.keep)
    return told


class Bench:
    """What is measured of all kinds, each in its turn."""

    def __init__(self, seconds: int, kinds: Sequence[str]) -> None:
        self._seconds = seconds
        self._kinds = kinds
        self._program = built(LOAD_SOURCE)

    @contextmanager
    def _pairs(self, directory: Path, role: str) -> Iterator[dict[str, Pair]]:
        """A master and a slave of every kind, at the same time."""
        with ExitStack() as stack:
            pairs = {}
            for kind in self._kinds:
                settings = {**FILE_SIZES, "waitTimeMillsInSendQueue": 5000, **ROLES[role]}
                (directory / kind).mkdir(parents=True)
                pairs[kind] = pair = plain_pair(
                    directory / kind, kind, kind, has_quick_times=False, jvm=JAVA_HEAP, **settings
                )
                stack.enter_context(ended(lambda pair=pair: pair.nodes))  # type: ignore[misc]
                for node in pair.nodes[: 2 if role == "alone" else 3]:
                    node.start()
                    if node is not pair.namesrv:
                        await_answer(pair.addresses[node.name], START_LIMIT_S)
                make_topic(pair)
                if role != "alone":
                    await_that("the slave acknowledges", lambda pair=pair: self._is_taken(pair), START_LIMIT_S)  # type: ignore[misc]
                    await_copied(pair)
            yield pairs
        shutil.rmtree(directory)

    def _command(self, pair: Pair, mode: str, **words: object) -> list[str]:
        port = pair.addresses[pair.master.name][1]
        chosen: dict[str, object] = {"port": port, "mode": mode, "pid": pair.master.pid, "topic": "Bench"}
        chosen |= {"seconds": self._seconds, "warmup": 1, **words}
        return [str(self._program), *(f"{name}={value}" for name, value in chosen.items())]

    def _is_taken(self, pair: Pair) -> bool:
        """A synchronous master has no slave yet for some seconds."""
        words = self._command(pair, "send", count=1, warmup=0, connections=1, in_flight=1)
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60).returncode == 0

    def _load(self, pair: Pair, mode: str, **words: object) -> dict[str, float]:
        """What a load found; `slave_us` is of all that was sent, for a slave works on behind the end."""
        before_s = cpu_s(pair.slave.pid) if pair.slave.is_running else 0.0
        done = subprocess.run(self._command(pair, mode, **words), stdout=subprocess.PIPE, check=True, timeout=600)
        told = json.loads(done.stdout)
        found = figures(told)
        if pair.slave.is_running:
            await_copied(pair)
            found["slave_us"] = round((cpu_s(pair.slave.pid) - before_s) / max(told["total_sends"], 1) * 1e6, 2)
        return found

    # Rates

    def rates(self, directory: Path, roles: Sequence[str], rounds: int) -> dict[str, Any]:
        """Role → load → kind → sends a second and CPU a message; `share` is of the first role's rate, by rounds."""
        found: dict[str, Any] = {role: {f"{lines} x {each}": {} for lines, each in LOADS} for role in roles}
        with ExitStack() as stack:
            pairs = {role: stack.enter_context(self._pairs(directory / role, role)) for role in roles}
            for role, kind in product(roles, self._kinds):
                if kind != "bolide":
                    self._load(pairs[role][kind], "send", connections=8, in_flight=16, seconds=WARM_S)
            for connections, in_flight in LOADS:
                load = f"{connections} x {in_flight}"
                told: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
                for _, role, kind in product(range(rounds), roles, self._kinds):
                    words = {"connections": connections, "in_flight": in_flight}
                    told[role, kind].append(self._load(pairs[role][kind], "send", **words))
                for role, kind in product(roles, self._kinds):
                    found[role][load][kind] = of_rounds(told[role, kind], told[roles[0], kind])
                    print(f"{load} {role} {kind}: {found[role][load][kind]}", flush=True)
        return found

    def costs(self, directory: Path, rounds: int) -> dict[str, Any]:
        """Kind → role → the master's microseconds for a message at the same rate, the least of some rounds."""
        roles = ("alone", "async")
        found: dict[str, Any] = {kind: {} for kind in self._kinds}
        with ExitStack() as stack:
            pairs = {role: stack.enter_context(self._pairs(directory / role, role)) for role in roles}
            for _, kind, role in product(range(rounds), self._kinds, roles):
                make_topic(pairs[role][kind], topic := f"Paced{next(_numbers)}")
                cost_us = self._load(pairs[role][kind], "poll", topic=topic, rate=PACED_RATES[kind])["cpu_us"]
                found[kind][role] = min(cost_us, found[kind].get(role, cost_us))
        print(f"cost: {found}", flush=True)
        return found

    # Lag

    def lags(self, directory: Path) -> dict[str, Any]:
        """Kind → how late the slave is at half of what the master takes, in ms."""
        found: dict[str, Any] = {}
        with self._pairs(directory, "async") as pairs:
            for kind, pair in pairs.items():
                most = self._load(pair, "send", connections=8, in_flight=16)["rate"]
                await_copied(pair)
                make_topic(pair, topic := f"Paced{next(_numbers)}")
                words = self._command(pair, "poll", topic=topic, rate=int(most / 2), seconds=self._seconds + 2)
                with subprocess.Popen(words, stdout=subprocess.PIPE) as load:
                    lags_ms = sorted(lags_while(pair, load))
                found[kind] = {
                    "rate": int(most / 2),
                    "p50_ms": round(statistics.median(lags_ms), 2),
                    "p99_ms": round(lags_ms[int(len(lags_ms) * 0.99)], 2),
                }
                print(f"lag {kind}: {found[kind]}", flush=True)
        return found

    # Catching up

    def catch_ups(self, directory: Path, size: int) -> dict[str, Any]:
        """Kind → MB/s of a slave that was away, of `cp`, and the share of their rate that senders keep meanwhile."""
        found: dict[str, Any] = {}
        for kind in self._kinds:
            bench = Bench(self._seconds, [kind])
            with bench._pairs(directory / kind, "async") as pairs:
                found[kind] = bench._catch_up(pairs[kind], size)
            print(f"catch-up {kind}: {found[kind]}", flush=True)
        return found

    def _catch_up(self, pair: Pair, size: int) -> dict[str, float]:
        pair.slave.kill()
        quiet = self._load(pair, "send", connections=8, in_flight=16)["rate"]
        while pair.log_end(pair.master) < size:
            self._load(pair, "send", connections=4, in_flight=16, body=4000, warmup=0, count=50_000)
        copied_s = time_of_copy(pair)
        os.sync()  # what the backlog and `cp` left to be written is not the slave's
        pair.slave.start()
        await_answer(pair.addresses[pair.slave.name], START_LIMIT_S)
        start = await_that("the slave grows", lambda: grown(pair), COPY_LIMIT_S)
        begun_s = time.monotonic()
        busy_words = self._command(pair, "send", connections=8, in_flight=16, warmup=0, seconds=2)
        nodes = {"master_cores": pair.master, "slave_cores": pair.slave}
        before_s = {name: cpu_s(node.pid) for name, node in nodes.items()}
        busy = subprocess.Popen(busy_words, stdout=subprocess.PIPE)
        wanted = size
        await_that("the slave has the backlog", lambda: pair.log_end(pair.slave) >= wanted, COPY_LIMIT_S)
        elapsed_s = time.monotonic() - begun_s
        cores = {name: round((cpu_s(node.pid) - before_s[name]) / elapsed_s, 2) for name, node in nodes.items()}
        told, _ = busy.communicate()
        return {
            **cores,
            "load_cores": round(json.loads(told)["own_cpu_s"] / json.loads(told)["seconds"], 2),
            "seconds": round(elapsed_s, 1),
            "mb_per_s": round((wanted - start) / elapsed_s / 1e6),
            "cp_mb_per_s": round(pair.log_end(pair.master) / copied_s / 1e6),
            "senders_keep": round(figures(json.loads(told))["rate"] / quiet, 2),
        }


def grown(pair: Pair) -> int:
    """The end of the slave's log once it has more than it had when it was killed."""
    end = pair.log_end(pair.slave)
    return end if end > 1 << 20 else 0


def time_of_copy(pair: Pair) -> float:
    """How long `cp` takes for the master's log on the same disk."""
    target = pair.master.directory / "copy"
    begun_s = time.monotonic()
    source = str(pair.master.directory / "store" / "commitlog")
    subprocess.run(["cp", "--sparse=always", "-r", source, str(target)], check=True)
    elapsed_s = time.monotonic() - begun_s
    shutil.rmtree(target)
    return elapsed_s


def lags_while(pair: Pair, load: "subprocess.Popen[bytes]") -> Iterator[float]:
    """Samples until the load ends; what comes behind its end says nothing."""
    while True:
        sample_ms = lag_ms(pair)
        if load.poll() is not None:
            return
        yield sample_ms


def lag_ms(pair: Pair) -> float:
    """How long the slave needs to have what the master has now."""
    end = pair.log_end(pair.master)
    begun_s = time.monotonic()
    while pair.log_end(pair.slave) < end:
        pass
    return (time.monotonic() - begun_s) * 1000


def await_copied(pair: Pair) -> None:
    def is_copied() -> bool:
        return pair.log_end(pair.slave) == pair.log_end(pair.master)

    await_that("the slave has everything", is_copied, COPY_LIMIT_S)


def of_rounds(told: list[dict[str, float]], first: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure, the best rate, and the median share of what the first role had in the same round.

    Neighbours of this machine come and go in seconds, so a share is trusted within a round only.
    """
    found = {name: round(statistics.median(each[name] for each in told), 2) for name in told[0]}
    shares = [each["rate"] / other["rate"] for each, other in zip(told, first, strict=True)]
    return {**found, "best": max(each["rate"] for each in told), "share": round(statistics.median(shares), 2)}


def figures(told: dict[str, Any]) -> dict[str, float]:
    message_count = told["sends"]
    return {
        "rate": round(message_count / told["seconds"]),
        "cpu_us": round(told["cpu_s"] / max(message_count, 1) * 1e6, 2),
        "load_us": round(told["own_cpu_s"] / max(message_count, 1) * 1e6, 2),
        "p99_ms": told["p99_us"] / 1000,
    }


def make_topic(pair: Pair, topic: str = "Bench") -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"readQueueNums": "4", "writeQueueNums": "4", "topicSysFlag": "0", "order": "false"}
    answer = wire.call(pair.addresses[pair.master.name], UPDATE_TOPIC, fields)
    assert answer.code == 0, answer


if __name__ == "__main__":
    main()
