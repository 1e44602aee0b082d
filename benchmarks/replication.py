"""What does a slave cost its master, how far behind is it, and how fast does it catch up, beside Apache's?

A master and a slave of each kind, without a controller, on one disk: alone (the slave is down), asynchronous, and
synchronous (an answer waits until the slave has the message; Java is told inSyncReplicas=2, or it would not wait). The
loads are `broker_load.c`. Both kinds run at the same time and take turns. `lag` is how long after it was seen at the
end of the master's log a byte was seen at the end of the slave's, asked over the wire, so a round trip is part of it;
the load is then half of what the master can take. `catch-up` sends --backlog-mb while the slave is down and times how
its log grows to the same end, beside `cp` of the same files, and how fast 8 x 16 senders are meanwhile.

Load, master and slave share the cores of this machine: on a machine for each a slave costs its master less.

    python -m benchmarks.replication --seconds 5
    python -m benchmarks.replication --rows rates --roles alone,async
    python -m benchmarks.replication --rows catch-up --kinds bolide
"""

import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS, commit, machine, read_arguments
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
        rows="rates,lag,catch-up",
        roles=",".join(ROLES),
        backlog_mb=2048,
    )
    told: dict[str, Any] = {"question": QUESTION, "machine": machine(), "commit": commit(), "options": vars(options)}
    bench = Bench(options.seconds, options.kinds.split(","))
    with tempfile.TemporaryDirectory(prefix="bolide-replication-") as directory:
        if "rates" in options.rows:
            chosen = options.roles.split(",")
            told["rates"] = {role: bench.rates(Path(directory) / role, role, options.rounds) for role in chosen}
        if "lag" in options.rows:
            told["lag"] = bench.lags(Path(directory) / "lag")
        if "catch-up" in options.rows:
            told["catch-up"] = bench.catch_ups(Path(directory) / "catch-up", options.backlog_mb << 20)
    line = json.dumps(told)
    print(line)
    if options.keep:
        RESULTS.mkdir(exist_ok=True)
        with (RESULTS / "replication.jsonl").open("a", encoding="utf-8") as results:
            results.write(f"{line}\n")
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
                settings = {"mappedFileSizeCommitLog": SEGMENT_SIZE, "waitTimeMillsInSendQueue": 5000, **ROLES[role]}
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
        done = subprocess.run(self._command(pair, mode, **words), stdout=subprocess.PIPE, check=True, timeout=600)
        return figures(json.loads(done.stdout))

    # Rates

    def rates(self, directory: Path, role: str, rounds: int) -> dict[str, Any]:
        """Load → kind → the better of some rounds: sends a second and the master's CPU."""
        found: dict[str, Any] = {}
        with self._pairs(directory, role) as pairs:
            for connections, in_flight in LOADS:
                row = found[f"{connections} x {in_flight}"] = {}
                runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in pairs}
                for _ in range(rounds):
                    for kind, pair in pairs.items():
                        runs[kind].append(self._load(pair, "send", connections=connections, in_flight=in_flight))
                for kind, told in runs.items():
                    row[kind] = max(told, key=lambda each: each["rate"])
                    print(f"{role} {connections} x {in_flight} {kind}: {row[kind]}", flush=True)
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
        pair.slave.start()
        await_answer(pair.addresses[pair.slave.name], START_LIMIT_S)
        start = await_that("the slave grows", lambda: grown(pair), COPY_LIMIT_S)
        begun_s = time.monotonic()
        busy_words = self._command(pair, "send", connections=8, in_flight=16, warmup=0, seconds=2)
        busy = subprocess.Popen(busy_words, stdout=subprocess.PIPE)
        wanted = size
        await_that("the slave has the backlog", lambda: pair.log_end(pair.slave) >= wanted, COPY_LIMIT_S)
        elapsed_s = time.monotonic() - begun_s
        told, _ = busy.communicate()
        return {
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


def figures(told: dict[str, Any]) -> dict[str, float]:
    message_count = told["sends"]
    return {
        "rate": round(message_count / told["seconds"]),
        "cpu_us": round(told["cpu_s"] / max(message_count, 1) * 1e6, 2),
        "p99_ms": told["p99_us"] / 1000,
    }


def make_topic(pair: Pair, topic: str = "Bench") -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"readQueueNums": "4", "writeQueueNums": "4", "topicSysFlag": "0", "order": "false"}
    answer = wire.call(pair.addresses[pair.master.name], UPDATE_TOPIC, fields)
    assert answer.code == 0, answer


if __name__ == "__main__":
    main()
