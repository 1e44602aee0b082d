"""How many route look-ups a second does the name server answer, and what do they cost, beside the Java one?

Both name servers run at the same time with the same topics, and the same load (`routes_load.c`) goes to one and then to
the other, round by round, so that a slow minute of the machine hits both. CPU is that of the server's process, all
threads; memory is resident after the rounds. Then a paced load runs while a registration of all topics arrives, every
queue count changed: how long the registration takes, and how long the slowest look-up waits.

What it does not show: a network (all is loopback), more than two cores' worth of clients (load and server share the
machine), clients that connect and leave, TLS, and a Java name server with the four gigabytes of heap that its own start
script asks for (here 256 to 512 MB). Java is warmed up with as many look-ups as a round has.

    python -m benchmarks.routes --keep
    python -m benchmarks.routes --smoke              # seconds, without Java; what the tests run
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import active_kernel, commit, machine, publish
from benchmarks.programs import built
from interop.cluster import NameServer, bolide_name_server, java_name_server
from interop.wire import Address, decode, read_frame, request_frame

QUESTION = "How many route look-ups a second, beside Java?"
SOURCE = Path(__file__).with_name("routes_load.c")
JAVA_RELEASE = "5.5.0"
JAVA_FLAGS = ("-Xms256m", "-Xmx512m")
REGISTER_BROKER = 103
PACED_RATE = 5000
REGISTRATION_COUNT = 5
LOAD_TIMEOUT_S = 120
QUIET_LOAD = 0.7
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """The shape of the client load."""

    program: Path
    connections: int
    in_flight: int
    count: int

    def run(self, address: Address, topic_count: int) -> dict[str, Any]:
        """Look up `count` routes as fast as they are answered."""
        return self._start(address, topic_count, count=self.count, seconds=0, rate=0)

    def run_paced(self, address: Address, topic_count: int, seconds: float) -> dict[str, Any]:
        """Look up routes by the clock, to see delays."""
        return self._start(address, topic_count, count=0, seconds=seconds, rate=PACED_RATE)

    def _start(self, address: Address, topic_count: int, count: int, seconds: float, rate: int) -> dict[str, Any]:
        words = [address[1], self.connections, self.in_flight, count, seconds, rate, topic_count]
        command = [str(self.program), *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LOAD_TIMEOUT_S)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@dataclass(frozen=True, slots=True)
class Throughput:
    """One server at one number of topics: medians over the rounds."""

    server: str
    topics: int
    lookups_per_s: float
    spread: tuple[float, float]
    cpu_us: float
    p99_us: float
    rss_mb: float
    checksum: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Look-ups at a fixed rate without and with registrations of all topics; times in milliseconds."""

    server: str
    topics: int
    registration_first_ms: float
    registration_ms: float
    registration_worst_ms: float
    quiet: dict[str, float]
    busy: dict[str, float]


class Registrar:
    """A broker as the name server sees it: one connection on which it registers all its topics."""

    def __init__(self, address: Address, topic_count: int) -> None:
        self._connection = socket.create_connection(address, 30)
        self._topic_count = topic_count
        self._version = 0

    def prepare(self) -> bytes:
        """The frame of a registration with a new version, which changes every topic."""
        self._version += 1
        return self._frame()

    def register(self, frame: bytes | None = None) -> float:
        """Send a registration, a new one unless it was prepared; returns the milliseconds to the answer."""
        frame = frame or self.prepare()
        start = time.perf_counter()
        self._connection.sendall(frame)
        answer = decode(read_frame(self._connection))
        assert answer.code == 0, answer
        return (time.perf_counter() - start) * 1e3

    def heartbeat(self) -> None:
        """Register again without a change, so that nobody takes the broker for dead."""
        self.register(self._frame())

    def _frame(self) -> bytes:
        fields = {
            "brokerName": "broker-a",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "DefaultCluster",
            "haServerAddr": "127.0.0.1:10912",
            "brokerId": "0",
        }
        body = registration_body(self._topic_count, self._version)
        return request_frame(REGISTER_BROKER, fields, body, version=479)

    def close(self) -> None:
        self._connection.close()


def registration_body(topic_count: int, version: int) -> bytes:
    """All topics, with queue counts that differ from neighbour to neighbour and from version to version.

    A route does not name its topic: without the difference a checksum could not tell the right route from another.
    """
    topics = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 1 + (number + version) % 16,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 1 + (number + version) % 16,
        }
        for number, name in enumerate(f"Topic-{number:05}" for number in range(topic_count))
    }
    data_version = {"counter": version, "stateVersion": 0, "timestamp": 1_700_000_000_000 + version}
    table = {"dataVersion": data_version, "topicConfigTable": topics}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": table}, separators=(",", ":")).encode()


def cpu_s(pid: int) -> float:
    """User and system time of a process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def contestants(with_java: bool) -> Iterator[list[NameServer]]:
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers = [stack.enter_context(bolide_name_server(Path(scratch)))]
        if with_java:
            servers.append(stack.enter_context(java_name_server(Path(scratch), JAVA_RELEASE, jvm=JAVA_FLAGS)))
        yield servers


def run_size(servers: list[NameServer], load: Load, topic_count: int, rounds: int) -> list[Throughput]:
    """Register, warm up, and then let the servers take turns."""
    registrars = [Registrar(server.address, topic_count) for server in servers]
    for server, registrar in zip(servers, registrars, strict=True):
        registrar.register()
        load.run(server.address, topic_count)
    turns: dict[str, list[tuple[float, float, dict[str, Any]]]] = {server.kind: [] for server in servers}
    for _ in range(rounds):
        for server, registrar in zip(servers, registrars, strict=True):
            registrar.heartbeat()
            before = cpu_s(server.program.pid)
            told = load.run(server.address, topic_count)
            spent = cpu_s(server.program.pid) - before
            turns[server.kind].append((told["answers"] / told["seconds"], spent / told["answers"] * 1e6, told))
    results = [summary(server, topic_count, turns[server.kind]) for server in servers]
    for registrar in registrars:
        registrar.close()
    return results


def summary(server: NameServer, topic_count: int, turns: list[tuple[float, float, dict[str, Any]]]) -> Throughput:
    rates = [rate for rate, _, _ in turns]
    checksums = {told["checksum"] for _, _, told in turns}
    if len(checksums) != 1:
        raise SystemExit(f"{server.kind} answered the same look-ups differently: checksums {sorted(checksums)}")
    return Throughput(
        server=server.kind,
        topics=topic_count,
        lookups_per_s=round(statistics.median(rates)),
        spread=(round(min(rates)), round(max(rates))),
        cpu_us=round(statistics.median(cost for _, cost, _ in turns), 2),
        p99_us=statistics.median(told["p99_us"] for _, _, told in turns),
        rss_mb=round(rss_mb(server.program.pid), 1),
        checksum=checksums.pop(),
    )


def run_delay(server: NameServer, load: Load, topic_count: int, seconds: float) -> Delay:
    """A paced load without and then with registrations, spread over its time."""
    registrar = Registrar(server.address, topic_count)
    first_ms = registrar.register()
    registrar.register()
    quiet = load.run_paced(server.address, topic_count, seconds)
    # Made beforehand, for a client that works hard beside the server would be seen as the server's delay.
    registrations = [registrar.prepare() for _ in range(REGISTRATION_COUNT)]
    busy: list[dict[str, Any]] = []
    clients = threading.Thread(target=lambda: busy.append(load.run_paced(server.address, topic_count, seconds)))
    clients.start()
    times_ms = []
    for frame in registrations:
        time.sleep(seconds / (REGISTRATION_COUNT + 1))
        times_ms.append(registrar.register(frame))
    clients.join()
    registrar.close()
    return Delay(
        server=server.kind,
        topics=topic_count,
        registration_first_ms=round(first_ms, 1),
        registration_ms=round(statistics.median(times_ms), 1),
        registration_worst_ms=round(max(times_ms), 1),
        quiet=quantiles_ms(quiet),
        busy=quantiles_ms(busy[0]),
    )


def quantiles_ms(told: dict[str, Any]) -> dict[str, float]:
    return {name: round(told[f"{name}_us"] / 1000, 2) for name in ("p50", "p99", "p999", "max")}


def print_table(throughputs: list[Throughput], delays: list[Delay]) -> None:
    print(f"{'server':8} {'topics':>7} {'look-ups/s':>11} {'spread':>17} {'CPU µs':>7} {'p99 ms':>7} {'RSS MB':>7}")
    for row in throughputs:
        spread = f"{row.spread[0]:,.0f}–{row.spread[1]:,.0f}"
        print(
            f"{row.server:8} {row.topics:>7,} {row.lookups_per_s:>11,.0f} {spread:>17} {row.cpu_us:>7.2f} "
            f"{row.p99_us / 1000:>7.2f} {row.rss_mb:>7.1f}"
        )
    print(f"\nat {PACED_RATE:,} look-ups/s, in ms    registration (first)     quiet p50/p99/p999/max    busy")
    for delay in delays:
        quiet, busy = ("/".join(f"{value:g}" for value in side.values()) for side in (delay.quiet, delay.busy))
        taken = f"{delay.registration_ms:g} to {delay.registration_worst_ms:g} ({delay.registration_first_ms:g})"
        print(f"{delay.server:8} {delay.topics:>7,} topics        {taken:>22}     {quiet:>22}     {busy}")


def verdicts(throughputs: list[Throughput], delays: list[Delay]) -> dict[str, bool]:
    """The targets that this run can decide, and whether they were met."""
    ours = {row.topics: row for row in throughputs if row.server == "bolide"}
    theirs = {row.topics: row for row in throughputs if row.server != "bolide"}
    told = {}
    for topics, java in theirs.items():
        own = ours[topics]
        told[f"{topics} topics: the same bytes in all answers"] = own.checksum == java.checksum
        told[f"{topics} topics: 3 times the look-ups"] = own.lookups_per_s >= 3 * java.lookups_per_s
        told[f"{topics} topics: a quarter of the CPU a look-up"] = own.cpu_us <= java.cpu_us / 4
        told[f"{topics} topics: a fifth of the memory"] = own.rss_mb <= java.rss_mb / 5
    for delay in delays:
        if delay.server == "bolide":
            told[f"registration of {delay.topics} topics under 100 ms"] = delay.registration_worst_ms < 100
            added_ms = delay.busy["max"] - delay.quiet["p50"]
            told["look-ups delayed by at most 20 ms"] = added_ms <= 20
    return told


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument(
        "--topics", type=lambda text: [int(part) for part in text.split(",")], default=[10, 1000, 10_000]
    )
    parser.add_argument("--count", type=int, default=300_000, help="look-ups a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each paced load")
    parser.add_argument("--kernel", choices=("auto", "plain", "compiled"), default="auto")
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="small numbers, without Java")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    if options.smoke:
        options.topics, options.count, options.rounds, options.seconds = [10, 100], 2000, 1, 0.5
        options.without_java = True
    return options


def main(argv: Sequence[str] | None = None) -> None:
    options = read_options(argv)
    load_average = os.getloadavg()[0]
    if load_average > QUIET_LOAD:
        print(f"the machine is busy (load average {load_average:.1f}): the numbers below are worth less")
    if options.kernel != "auto":
        os.environ["BOLIDE_KERNEL"] = options.kernel  # for the server that is started below
    load = Load(built(SOURCE), options.connections, options.in_flight, options.count)
    throughputs: list[Throughput] = []
    delays: list[Delay] = []
    for topic_count in options.topics:
        with contestants(not options.without_java) as servers:
            throughputs += run_size(servers, load, topic_count, options.rounds)
            if topic_count == max(options.topics):
                delays += [run_delay(server, load, topic_count, options.seconds) for server in servers]
    print(QUESTION)
    print_table(throughputs, delays)
    for target, is_met in verdicts(throughputs, delays).items():
        print(f"{'met   ' if is_met else 'MISSED'} {target}")
    line = json.dumps(
        {
            "question": QUESTION,
            "throughput": [asdict(row) for row in throughputs],
            "delay": [asdict(row) for row in delays],
            "machine": {**machine(), "load_average_before": round(load_average, 2)},
            "commit": commit(),
            "kernel": active_kernel() if options.kernel == "auto" else options.kernel,
            "parameters": {name: value for name, value in vars(options).items() if name not in ("kernel", "keep")},
        }
    )
    publish(line, is_kept=options.keep)


if __name__ == "__main__":
    main()
