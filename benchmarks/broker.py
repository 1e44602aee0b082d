"""How much faster than Apache's broker is ours, at what cost in CPU and memory, and how soon does a message arrive?

Both brokers run at the same time on one disk and take turns, round by round, so that a slow minute of the machine hits
both. The raw loads are `broker_load.c`: sends of code 310 with the header of the Java client, pulls of 32, and paced
sends to long polls. The Java loads are RocketMQ's own benchmark programs. CPU is that of the broker's process, all
threads, in the measured time only; what was acknowledged is compared with what the queues hold afterwards.

What it does not show: a network (all is loopback), more cores than this machine has (load and broker share them), and
replication. Java's heap is 2 GiB; a larger one changes little here.

    python -m benchmarks.broker --keep                       # everything, about forty minutes
    python -m benchmarks.broker --rows send,pull --rounds 1
    python -m benchmarks.broker --smoke                      # seconds, without Java; what the tests run
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measure import active_kernel, commit, machine, publish
from benchmarks.measured_brokers import (
    JAVA_RELEASE,
    LOAD_SOURCE,
    QUEUES,
    Measured,
    bolide_up,
    file_system,
    java_up,
)
from benchmarks.programs import built
from interop.cluster import java_command, prepare_home
from interop.process import await_that, running
from interop.release import Role
from interop.wire import call

QUESTION = "How does the broker compare with Java's?"
EXAMPLES = "org.apache.rocketmq.example.benchmark"
CLIENT_HEAP = ("-Xms512m", "-Xmx1g")
SEND = 310
SMOKE_SEGMENT_SIZE = 16 << 20
LOAD_SLACK_S = 120
QUIET_LOAD = 0.7
CLIENT_TIMEOUT_S = 60.0

Figures = dict[str, float]
Run = Callable[["Bench", Measured], Figures]


@dataclass(frozen=True, slots=True)
class Row:
    """One question: how it is measured, and what is asked of ours as a share of Java's figure."""

    group: str
    name: str
    run: Run
    rate_min: float = 0.0
    cpu_max: float = 0.0
    p50_max: float = 0.0
    p99_max: float = 0.0


@dataclass(slots=True)
class Bench:
    """What all rows use."""

    options: argparse.Namespace
    program: Path
    directory: Path
    settings: dict[str, object] = field(default_factory=dict)  # of all brokers
    numbers: Iterator[int] = field(default_factory=count)
    backlogs: dict[str, str] = field(default_factory=dict)

    def fresh_topic(self, server: Measured, queue_count: int = 4) -> str:
        topic = f"Bench{next(self.numbers)}"
        server.make_topic(topic, queue_count)
        return topic

    def load(self, server: Measured, topic: str, **changes: object) -> dict[str, Any]:
        """Run the load generator for the warm-up and the measured time."""
        words: dict[str, object] = {
            "port": server.broker[1],
            "pid": server.program.pid,
            "topic": topic,
            "seconds": self.options.seconds,
            "warmup": self.options.warmup,
            **changes,
        }
        command = [str(self.program), *(f"{name}={value}" for name, value in words.items())]
        limit_s = self.options.seconds + self.options.warmup + LOAD_SLACK_S
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=limit_s)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def backlog(self, server: Measured, message_count: int) -> str:
        """A topic with so many messages of 128 bytes, made once."""
        key = f"{server.kind} {message_count}"
        if key not in self.backlogs:
            topic = self.fresh_topic(server)
            self.load(server, topic, mode="send", connections=4, in_flight=64, count=message_count)
            expect_stored(server, topic, message_count)
            self.backlogs[key] = topic
        return self.backlogs[key]


def expect_stored(server: Measured, topic: str, message_count: int) -> None:
    """What was acknowledged is there, no more and no less; Java's queues follow its log with a delay."""
    claim = f"{server.kind} has the {message_count:,} messages of {topic} that it acknowledged"
    await_that(claim, lambda: server.message_count(topic) == message_count, CLIENT_TIMEOUT_S)


def sends(connections: int, in_flight: int, body: int) -> Run:
    def run(bench: Bench, server: Measured) -> Figures:
        topic = bench.fresh_topic(server)
        told = bench.load(server, topic, mode="send", connections=connections, in_flight=in_flight, body=body)
        expect_stored(server, topic, told["total_sends"])
        return of_load(told, told["sends"])

    return run


def pulls(bench: Bench, server: Measured) -> Figures:
    told = bench.load(server, bench.backlog(server, bench.options.backlog), mode="pull")
    return of_load(told, told["pulled"])


def polls(rate: int) -> Run:
    def run(bench: Bench, server: Measured) -> Figures:
        told = bench.load(server, bench.fresh_topic(server), mode="poll", rate=rate)
        return of_load(told, told["pulled"])

    return run


def of_load(told: dict[str, Any], message_count: int) -> Figures:
    return {
        "rate": round(message_count / told["seconds"]),
        "cpu_us": round(told["cpu_s"] / max(message_count, 1) * 1e6, 2),
        "p50_ms": told["p50_us"] / 1000,
        "p99_ms": told["p99_us"] / 1000,
    }


def java_producer(program: str, *words: str) -> Run:
    """One of RocketMQ's benchmark programs that send, until it was measured long enough."""

    def run(bench: Bench, server: Measured) -> Figures:
        topic = bench.fresh_topic(server)
        with java_client(bench, server, program, "-t", topic, *words):
            await_that(f"{program} sends", lambda: server.message_count(topic) > 0, CLIENT_TIMEOUT_S)
            time.sleep(bench.options.warmup + 5)  # the client's own code has to be compiled first
            before, cpu_s, began_s = server.message_count(topic), server.cpu_s(), time.monotonic()
            time.sleep(bench.options.seconds)
            message_count = server.message_count(topic) - before
            return of_window(message_count, time.monotonic() - began_s, server.cpu_s() - cpu_s)

    return run


def java_consumer(bench: Bench, server: Measured) -> Figures:
    """RocketMQ's benchmark consumer on a backlog, from a tenth of it to nine tenths."""
    message_count = bench.options.consumer_backlog
    topic = bench.backlog(server, message_count)
    start = server.handed_out_count()
    with java_client(bench, server, "Consumer", "-t", topic, "-g", f"group{next(bench.numbers)}", "-p", "false"):

        def handed_out(share: float) -> bool:
            return bool(server.handed_out_count() - start >= share * message_count)

        await_that("the consumer reads", lambda: handed_out(0.1), CLIENT_TIMEOUT_S)
        before, cpu_s, began_s = server.handed_out_count(), server.cpu_s(), time.monotonic()
        await_that("the consumer comes to the end", lambda: handed_out(0.9), 10 * CLIENT_TIMEOUT_S)
        return of_window(server.handed_out_count() - before, time.monotonic() - began_s, server.cpu_s() - cpu_s)


def of_window(message_count: int, elapsed_s: float, cpu_s: float) -> Figures:
    return {"rate": round(message_count / elapsed_s), "cpu_us": round(cpu_s / max(message_count, 1) * 1e6, 2)}


@contextmanager
def java_client(bench: Bench, server: Measured, program: str, *words: str) -> Iterator[None]:
    home = prepare_home(bench.directory / f"client{next(bench.numbers)}")
    arguments = ["-n", server.namesrv, *words]
    command = java_command(JAVA_RELEASE, Role.CLIENT, home, f"{EXAMPLES}.{program}", *arguments, jvm=CLIENT_HEAP)
    with running(program, command, home):
        yield


THREADS_64 = ("-w", "64", "-s", "128")
ROWS = (
    Row("send", "sends 1 x 64, 128 B", sends(1, 64, 128), rate_min=5, cpu_max=1 / 5),
    Row("send", "sends 8 x 16, 128 B", sends(8, 16, 128), rate_min=5, cpu_max=1 / 5),
    Row("send", "sends 1 x 64, 1 KiB", sends(1, 64, 1024), rate_min=5, cpu_max=1 / 5),
    Row("send", "sends 8 x 16, 1 KiB", sends(8, 16, 1024), rate_min=5, cpu_max=1 / 5),
    Row("send", "sends 64 x 1, 128 B", sends(64, 1, 128), rate_min=2.5, cpu_max=1 / 3),
    Row("pull", "pulls of 32, 4 queues, 128 B", pulls, rate_min=1.5, cpu_max=1 / 3),
    Row("poll", "send to long poll, 1,000/s", polls(1000), p50_max=0.5, p99_max=1),
    Row("poll", "send to long poll, 10,000/s", polls(10_000), p50_max=0.5, p99_max=1),
    Row("java", "benchmark.Producer, 64 threads", java_producer("Producer", *THREADS_64), rate_min=1.6, cpu_max=1 / 3),
    Row("java", "benchmark.Producer, 1 thread", java_producer("Producer", "-w", "1", "-s", "128"), rate_min=1),
    Row("java", "BatchProducer, 16 a batch", java_producer("BatchProducer", *THREADS_64, "-b", "16"), rate_min=1.5),
    Row("consumer", "benchmark.Consumer on a backlog", java_consumer, rate_min=1, cpu_max=1 / 2),
)
SYNC_ROW = Row("sync", "synchronous flush, 64 threads", java_producer("Producer", *THREADS_64), rate_min=1.3)
GROUPS = (*dict.fromkeys(row.group for row in ROWS), "sync", "footprint", "scale")


@contextmanager
def contestants(bench: Bench, **settings: object) -> Iterator[list[Measured]]:
    settings |= bench.settings
    with ExitStack() as stack:
        servers = [stack.enter_context(bolide_up(bench.directory, settings))]
        if not bench.options.without_java:
            servers.append(stack.enter_context(java_up(bench.directory, settings)))
        yield servers


def run_rows(bench: Bench, rows: Sequence[Row], servers: list[Measured]) -> dict[str, dict[str, Figures]]:
    """Every row, the brokers taking turns; medians over the rounds."""
    for server in servers:  # Java compiles what it runs often: let it
        bench.load(
            server, bench.fresh_topic(server), mode="send", connections=8, in_flight=16, seconds=bench.options.settle
        )
    answers = {}
    for row in rows:
        rounds: dict[str, list[Figures]] = {server.kind: [] for server in servers}
        for _ in range(bench.options.rounds):
            for server in servers:
                rounds[server.kind].append(row.run(bench, server))
        answers[row.name] = {kind: medians(figures) for kind, figures in rounds.items()}
        print_row(row, answers[row.name])
    return answers


def medians(rounds: list[Figures]) -> Figures:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def judged(row: Row, figures: dict[str, Figures]) -> dict[str, bool]:
    """The targets of a row, and whether they were met."""
    ours, java = figures["bolide"], figures.get("java")
    if java is None:
        return {}
    told = {}
    if row.rate_min:
        told[f"{row.name}: {row.rate_min:g} times the rate"] = ours["rate"] >= row.rate_min * java["rate"]
    if row.cpu_max:
        text = f"{row.name}: at most 1/{1 / row.cpu_max:g} of the CPU"
        told[text] = ours["cpu_us"] <= row.cpu_max * java["cpu_us"]
    if row.p50_max:
        told[f"{row.name}: p50 at most half"] = ours["p50_ms"] <= row.p50_max * java["p50_ms"]
    if row.p99_max:
        told[f"{row.name}: p99 no worse"] = ours["p99_ms"] <= row.p99_max * java["p99_ms"]
    return told


def print_row(row: Row, figures: dict[str, Figures]) -> None:
    ours, java = figures["bolide"], figures.get("java")
    print(f"{row.name:34} {cells(ours)}", end="")
    if java is not None:
        rate, cpu = ours["rate"] / max(java["rate"], 1), java["cpu_us"] / max(ours["cpu_us"], 0.01)
        print(f" | {cells(java)} | {rate:5.2f}x rate, CPU 1/{cpu:.1f}", end="")
    print(flush=True)


def cells(figures: Figures) -> str:
    delays = f"{figures['p50_ms']:>8.2f} {figures['p99_ms']:>8.2f}" if "p50_ms" in figures else " " * 17
    return f"{figures['rate']:>10,.0f} {figures['cpu_us']:>8.2f} {delays}"


def run_footprint(bench: Bench) -> dict[str, Figures]:
    """From the command to the first message, and memory idle and after many messages."""
    answers = {}
    for start in (bolide_up,) if bench.options.without_java else (bolide_up, java_up):
        began_s = time.monotonic()
        with start(bench.directory, bench.settings) as server:
            await_that("the first message is taken", lambda: first_message(server), CLIENT_TIMEOUT_S)
            first_s = time.monotonic() - began_s
            time.sleep(bench.options.idle)
            idle = server.memory_mb()
            load = {"mode": "send", "connections": 8, "in_flight": 16, "body": 1024}
            bench.load(server, bench.fresh_topic(server), count=bench.options.footprint_count, **load)
            full = server.memory_mb()
        answers[server.kind] = {
            "first_message_s": round(first_s, 2),
            "idle_own_mb": idle["own"],
            "idle_mapped_mb": idle["mapped"],
            "full_own_mb": full["own"],
            "full_mapped_mb": full["mapped"],
        }
        print(f"footprint of {server.kind}: {answers[server.kind]}", flush=True)
    return answers


def first_message(server: Measured) -> bool:
    fields = {"a": "bench", "b": "First", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "j": "0"}
    try:
        return call(server.broker, SEND, {**fields, "i": "", "k": "false"}, b"first").code == 0
    except OSError:
        return False


def run_scale(bench: Bench) -> dict[str, Figures]:
    """What many of something cost a message, beside the same load without; ours alone."""
    answers: dict[str, Figures] = {}
    options = bench.options
    with bolide_up(bench.directory, bench.settings) as server:

        def note(name: str, topic: str, base: str | None = None, **load: object) -> None:
            before = server.memory_mb()["own"]
            told = bench.load(server, topic, **{"mode": "send", "connections": 8, "in_flight": 16, **load})
            figures = of_load(told, told["sends"] + told["pulled"])
            figures["own_mb"] = round(server.memory_mb()["own"] - before, 1)
            if base is not None:
                figures["cost"] = round(figures["cpu_us"] / max(answers[base]["cpu_us"], 0.01), 2)
            answers[name] = figures
            print(
                f"{name:34} {cells(figures)}  {figures.get('cost', 1):5.2f} x base, {figures['own_mb']:+.1f} MB",
                flush=True,
            )

        plain = bench.fresh_topic(server)
        note("base, 8 x 16", plain)
        note("base, 64 x 1", plain, connections=64, in_flight=1)
        note(
            f"{options.many_connections:,} connections x 1",
            plain,
            "base, 64 x 1",
            connections=options.many_connections,
            in_flight=1,
        )
        many = f"Many{next(bench.numbers)}"
        server.make_topics(many, options.many_topics)
        for queue_count in (1, QUEUES):
            # The first message of a queue makes its files; what is asked here is what the others cost.
            first = {"topics": options.many_topics, "queues": queue_count, "count": options.many_topics * queue_count}
            bench.load(server, many, mode="send", connections=8, in_flight=16, **first)
            name = f"{options.many_topics:,} topics x {queue_count}"
            note(name, many, "base, 8 x 16", topics=options.many_topics, queues=queue_count)
        parked = bench.fresh_topic(server)
        server.make_topic(f"{parked}-parked", 100)
        note(f"{options.many_parked:,} parked pulls", parked, "base, 8 x 16", parked=options.many_parked)
        note("base, pulls", bench.backlog(server, options.backlog), mode="pull", connections=1)
        read = bench.fresh_topic(server)
        server.make_topic(f"{read}-backlog")
        bench.load(server, f"{read}-backlog", mode="send", connections=4, in_flight=64, count=options.many_backlog)
        note(f"{options.many_backlog:,} read while sending", read, "base, 8 x 16", reader=1)
    return answers


def judged_alone(footprint: dict[str, Figures], scale: dict[str, Figures]) -> dict[str, bool]:
    """Targets that need no Java."""
    told = {}
    if ours := footprint.get("bolide"):
        told["the first message within 1 s"] = ours["first_message_s"] <= 1
        told["below 100 MB of its own when idle"] = ours["idle_own_mb"] < 100
        told["below 150 MB of its own after a million"] = ours["full_own_mb"] < 150
    for name, figures in scale.items():
        if "cost" in figures:
            told[f"{name}: at most 1.5 times the base"] = figures["cost"] <= 1.5
    return told


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(GROUPS), help=", ".join(GROUPS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of each figure")
    parser.add_argument("--warmup", type=float, default=3.0, help="seconds before each figure")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds of sends before the first figure")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds of rest before idle memory is read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=400_000, help="messages that are pulled")
    parser.add_argument("--consumer-backlog", type=int, default=2_000_000)
    parser.add_argument("--footprint-count", type=int, default=1_000_000)
    parser.add_argument("--many-connections", type=int, default=1000)
    parser.add_argument("--many-topics", type=int, default=10_000)
    parser.add_argument("--many-parked", type=int, default=1000)
    parser.add_argument("--many-backlog", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the brokers keep their data; a real disk")
    parser.add_argument("--kernel", choices=("auto", "plain", "compiled"), default="auto")
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="small numbers, without Java")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    unknown = set(options.rows) - set(GROUPS)
    if unknown:
        parser.error(f"no rows {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if options.smoke:
        options.without_java, options.rounds = True, 1
        options.seconds, options.warmup, options.settle, options.idle = 0.3, 0.1, 0.1, 0.0
        options.backlog, options.footprint_count = 2000, 2000
        options.many_connections, options.many_topics, options.many_parked, options.many_backlog = 100, 50, 100, 2000
    if options.without_java:
        options.rows = [group for group in options.rows if group not in ("java", "consumer", "sync")]
    return options


def main(argv: Sequence[str] | None = None) -> None:
    options = read_options(argv)
    load_average = os.getloadavg()[0]
    if load_average > QUIET_LOAD:
        print(f"the machine is busy (load average {load_average:.1f}): the numbers below are worth less")
    if options.kernel != "auto":
        os.environ["BOLIDE_KERNEL"] = options.kernel  # for the broker that is started below
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bolide-bench-") as scratch:
        settings: dict[str, object] = {"mappedFileSizeCommitLog": SMOKE_SEGMENT_SIZE} if options.smoke else {}
        bench = Bench(options, built(LOAD_SOURCE), Path(scratch), settings)
        disk = file_system(bench.directory)
        if disk == "tmpfs":
            print("the data is in memory (tmpfs): choose a real disk with --directory")
        answers, verdicts = run_all(bench)
    print(QUESTION)
    for target, is_met in verdicts.items():
        print(f"{'met   ' if is_met else 'MISSED'} {target}")
    line = json.dumps(
        {
            "question": QUESTION,
            **answers,
            "verdicts": verdicts,
            "machine": {**machine(), "disk": disk, "load_average_before": round(load_average, 2)},
            "commit": commit(),
            "kernel": active_kernel() if options.kernel == "auto" else options.kernel,
            "parameters": {name: value for name, value in vars(options).items() if name not in ("kernel", "keep")},
        },
        default=str,
    )
    publish(line, is_kept=options.keep)


def run_all(bench: Bench) -> tuple[dict[str, Any], dict[str, bool]]:
    """The chosen rows; what was measured, and which targets were met."""
    rows = [row for row in ROWS if row.group in bench.options.rows]
    compared: dict[str, dict[str, Figures]] = {}
    print(f"{'':34} {'msg/s':>10} {'CPU µs':>8} {'p50 ms':>8} {'p99 ms':>8}   ours first, Java's beside it")
    if rows:
        with contestants(bench) as servers:
            compared |= run_rows(bench, rows, servers)
    if "sync" in bench.options.rows:
        bench.backlogs.clear()
        with contestants(bench, flushDiskType="SYNC_FLUSH") as servers:
            compared |= run_rows(bench, [SYNC_ROW], servers)
    footprint = run_footprint(bench) if "footprint" in bench.options.rows else {}
    bench.backlogs.clear()
    scale = run_scale(bench) if "scale" in bench.options.rows else {}
    verdicts = {
        text: is_met
        for row in (*ROWS, SYNC_ROW)
        if row.name in compared
        for text, is_met in judged(row, compared[row.name]).items()
    }
    return {"rows": compared, "footprint": footprint, "scale": scale}, verdicts | judged_alone(footprint, scale)


if __name__ == "__main__":
    main()
