"""How fast is the gRPC port, and how does that compare with Apache's proxy in local mode (proxy and broker in one JVM)?

A program in Go on gRPC's own library (`grpc_load/`) makes the calls of RocketMQ's clients, with their headers: sends of
one message over 4 connections with 16 in flight, 64 with one, and one with one; receives of 32 messages, each of them
acknowledged in a call of its own, with a backlog; and receives that wait, woken one by one. Both servers run at once
and take turns, so that a slow moment meets both. CPU is that of the server's process.

`cores` and `load_cores` are how many of the machine's cores the server and the load had: where both together are all of
them, the rate is bound by the machine, and by the load as much as by the server.

What it does not show: TLS, a network, and disks that are slow.

    python -m benchmarks.grpc --keep
    python -m benchmarks.grpc --without-java --rows send --seconds 2
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measure import commit, machine, publish
from benchmarks.measured_brokers import JAVA_HEAP, SEGMENT_SIZE, bolide_up
from benchmarks.programs import BUILD
from interop.cluster import java_name_server
from interop.proxies import apache_proxy
from interop.wire import call

QUESTION = "How fast is the gRPC port beside Apache's proxy?"
SOURCES = Path(__file__).parent / "grpc_load"
TOPIC, GROUP, PARKED_TOPIC, PARKED_GROUP = "Load", "load", "Parked", "parked"
SENDS = {"4x16": (4, 16), "64x1": (64, 1), "1x1": (1, 1)}
LIMIT_S = 280
Figures = dict[str, float]


def load_program() -> Path:
    """The program, built by the Go that is here when its source is newer."""
    program = BUILD / "grpc_load"
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        command = ["go", "build", "-buildvcs=false", "-o", str(program), "."]
        subprocess.run(command, cwd=SOURCES, check=True, timeout=600, stdin=subprocess.DEVNULL)
    return program


class Port:
    """A server that is measured."""

    def __init__(self, kind: str, endpoint: str, pid: int, broker: tuple[str, int], broker_name: str) -> None:
        self.kind = kind
        self.endpoint = endpoint
        self.pid = pid
        self.broker = broker
        self.broker_name = broker_name

    def make_topic(self, topic: str) -> None:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        answer = call(self.broker, 17, fields | {"attributes": "+message.type=NORMAL"})
        assert answer.code == 0, answer

    def make_group(self, group: str) -> None:
        answer = call(self.broker, 200, body=json.dumps({"groupName": group, "consumeEnable": True}).encode())
        assert answer.code == 0, answer

    def load(self, mode: str, **options: object) -> Figures:
        given = {"mode": mode, "endpoint": self.endpoint, "pid": self.pid, "broker": self.broker_name, **options}
        command = [str(load_program()), *(f"{key}={value}" for key, value in given.items())]
        told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if told.returncode:
            raise SystemExit(f"the load of {self.kind} ended: {told.stderr}")
        found: Figures = json.loads(told.stdout)
        return found


@contextmanager
def ours(directory: Path) -> Iterator[Port]:
    with bolide_up(directory, {"grpcServerPort": 0, "brokerName": "bolide"}) as up:
        (ready,) = directory.glob("ready-*")
        yield Port("bolide", json.loads(ready.read_text())["grpc"], up.program.pid, up.broker, "bolide")


@contextmanager
def apaches(directory: Path) -> Iterator[Port]:
    settings = {"mappedFileSizeCommitLog": SEGMENT_SIZE, "waitTimeMillsInSendQueue": 5000}
    with (
        java_name_server(directory, "5.5.0") as names,
        apache_proxy(directory, names.endpoint, local=settings, jvm=JAVA_HEAP) as proxy,
    ):
        assert proxy.broker is not None
        yield Port("apache", proxy.endpoint, proxy.program.pid, proxy.broker, proxy.broker_name)


def send_rows(port: Port, seconds: float, warmup: float) -> dict[str, Figures]:
    return {
        name: port.load("send", connections=connections, in_flight=in_flight, seconds=seconds, warmup=warmup)
        for name, (connections, in_flight) in SENDS.items()
    }


def receive_row(port: Port, backlog: int, seconds: float, warmup: float) -> Figures:
    """A new topic for each round, with its backlog."""
    topic = f"Backlog-{backlog}"
    port.make_topic(topic)
    port.make_group(GROUP)
    port.load("fill", topic=topic, count=backlog)
    return port.load("receive", topic=topic, group=GROUP, connections=4, in_flight=8, seconds=seconds, warmup=warmup)


def park_row(port: Port, parked: int, count: int) -> Figures:
    port.make_topic(PARKED_TOPIC)
    port.make_group(PARKED_GROUP)
    options = {"topic": PARKED_TOPIC, "group": PARKED_GROUP, "connections": 10, "in_flight": parked // 10}
    return port.load("park", **options, count=count, warmup=2)


def shown(rows: dict[str, list[Figures]]) -> dict[str, Figures]:
    """The medians of the rounds, as people read them."""
    found = {}
    for name, rounds in rows.items():
        found[name] = {
            "rate": round(statistics.median(each["count"] / each["seconds"] for each in rounds)),
            "cpu_us": round(1e6 * statistics.median(each["cpu_s"] / max(each["count"], 1) for each in rounds), 1),
            "cores": round(statistics.median(each["cpu_s"] / each["seconds"] for each in rounds), 2),
            "load_cores": round(statistics.median(each["load_cpu_s"] / each["seconds"] for each in rounds), 2),
            "p50_ms": round(statistics.median(each["p50_ms"] for each in rounds), 3),
            "p99_ms": round(statistics.median(each["p99_ms"] for each in rounds), 3),
        }
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rows", default="send,receive,park")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--first-warmup", type=float, default=15.0, help="of each server; a JVM compiles meanwhile")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backlog", type=int, default=200_000)
    parser.add_argument("--parked", type=int, default=1_000)
    parser.add_argument("--wakes", type=int, default=1_000)
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    load_program()
    rows: dict[str, dict[str, list[Figures]]] = {}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = []
        for number, up in enumerate((ours, apaches)[: 1 if options.without_java else 2]):
            (root / str(number)).mkdir()
            ports.append(stack.enter_context(up(root / str(number))))
        for port in ports:
            port.make_topic(TOPIC)
            port.load("send", connections=4, in_flight=16, seconds=0.1, warmup=options.first_warmup)
        for _ in range(options.rounds):
            for port in ports:
                kept = rows.setdefault(port.kind, {})
                if "send" in options.rows:
                    for name, found in send_rows(port, options.seconds, options.warmup).items():
                        kept.setdefault(f"send {name}", []).append(found)
        for port in ports:
            kept = rows.setdefault(port.kind, {})
            if "receive" in options.rows:
                kept["receive and ack"] = [receive_row(port, options.backlog, options.seconds, options.warmup)]
            if "park" in options.rows:
                kept[f"{options.parked} parked"] = [park_row(port, options.parked, options.wakes)]
    tables = {kind: shown(measured) for kind, measured in rows.items()}
    for kind, table in tables.items():
        for name, figures in table.items():
            print(f"{kind:8} {name:18} " + "  ".join(f"{key} {value:>9,}" for key, value in figures.items()))
    told = {"question": QUESTION, "rows": tables, "machine": machine(), "commit": commit()}
    publish(json.dumps(told), is_kept=options.keep)


if __name__ == "__main__":
    main()
