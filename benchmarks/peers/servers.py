"""The servers that are measured, each with its default settings and its data on a real disk, on ports of this run.

Redis appends to its file and syncs it every second, Kafka's one node acknowledges when the leader has the message,
JetStream keeps its streams in files, Bolide flushes asynchronously: all persistent, none waits for the disk. Redis and
NATS are Debian's packages, Kafka's jars come from Maven Central. What cannot be had is named with the reason.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_brokers import CLOCK_TICKS, bolide_up, java_up
from interop.process import Program, await_that, free_port, running
from interop.release import COPY_GOAL, MissingJava, cache_directory, require_java

JARS = Path(__file__).parent / "jars"
KAFKA_POM = JARS / "kafka-3.9.1.xml"
START_TIMEOUT_S = 60.0
KAFKA_HEAP = ("-Xms512m", "-Xmx512m")


class Absent(Exception):
    """A server or library that this machine does not have; the sentence says what would bring it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and where clients find it."""

    kind: str
    address: str
    pid: int

    def cpu_s(self) -> float:
        """User and system time of its process and of those it started, all threads: RabbitMQ's is a script's child."""
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                fields = stat.read_text().rpartition(")")[2].split()
                parents[int(stat.parent.name)] = int(fields[1])
                ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
        family = {self.pid}
        while found := {child for child, parent in parents.items() if parent in family} - family:
            family |= found
        return sum(ticks[each] for each in family) / CLOCK_TICKS


def _program(name: str, package: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise Absent(f"{name} is not installed: apt-get install {package}")
    return found


def _await_port(program: Program, port: int) -> None:
    def is_open() -> bool:
        if not program.is_running:
            raise Absent(f"{program.name} ended at its start: {program.output()[-400:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    await_that(f"{program.name} listens", is_open, START_TIMEOUT_S)


@contextmanager
def bolide_server(directory: Path) -> Iterator[Server]:
    with bolide_up(directory) as measured:
        yield Server("bolide", measured.namesrv, measured.program.pid)


@contextmanager
def apache_server(directory: Path) -> Iterator[Server]:
    """Apache's own broker, with our client."""
    try:
        require_java()
    except MissingJava as problem:
        raise Absent(str(problem)) from None
    with java_up(directory) as measured:
        yield Server("apache", measured.namesrv, measured.program.pid)


@contextmanager
def redis_server(directory: Path) -> Iterator[Server]:
    port = free_port()
    command = [_program("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--dir", str(directory), "--appendonly", "yes", "--appendfsync", "everysec"]
    with running("redis", command, directory, {}) as program:
        _await_port(program, port)
        yield Server("redis", f"127.0.0.1:{port}", program.pid)


@contextmanager
def rabbit_server(directory: Path) -> Iterator[Server]:
    """Without Debian's wrapper, which would want to be its own user."""
    _program("rabbitmqctl", "rabbitmq-server")
    port, dist_port = free_port(), free_port()
    environment = {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"measured-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(directory),
        "RABBITMQ_LOG_BASE": str(directory),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "LANG": "C.UTF-8",
    }
    with running("rabbit", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], directory, environment) as program:
        _await_port(program, port)
        yield Server("rabbit", f"127.0.0.1:{port}", program.pid)


@contextmanager
def nats_server(directory: Path) -> Iterator[Server]:
    port = free_port()
    command = [_program("nats-server", "nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)]
    with running("nats", command, directory, {}) as program:
        _await_port(program, port)
        yield Server("nats", f"127.0.0.1:{port}", program.pid)


@contextmanager
def kafka_server(directory: Path, pom: Path = KAFKA_POM) -> Iterator[Server]:
    """One node that is broker and controller."""
    classes = os.pathsep.join(str(jar) for jar in sorted(resolved(pom).glob("*.jar")))
    port, controller_port = free_port(), free_port()
    settings = directory / "server.properties"
    settings.write_text(
        "\n".join(
            (
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
                f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
                "controller.listener.names=CONTROLLER",
                "inter.broker.listener.name=PLAINTEXT",
                f"log.dirs={directory / 'kafka-logs'}",
                "num.partitions=4",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
            )
        )
    )
    java = ["java", *KAFKA_HEAP, "-cp", classes]
    cluster = "AAAAAAAAAAAAAAAAAAAAAA"  # any 16 bytes in base 64
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=START_TIMEOUT_S,
    )
    with running("kafka", [*java, "kafka.Kafka", str(settings)], directory, {}) as program:
        _await_port(program, port)
        yield Server("kafka", f"127.0.0.1:{port}", program.pid)


def resolved(pom: Path, *options: str) -> Path:
    """The directory of the user's cache with the jars that a pom names; Absent where they cannot be had."""
    directory = cache_directory().parent / pom.stem
    if not directory.is_dir():
        try:
            require_java()
            unfinished = directory.with_suffix(".unfinished")
            command = ["mvn", "-q", "-B", "-f", str(pom), COPY_GOAL, "-DincludeScope=runtime", *options]
            subprocess.run([*command, f"-DoutputDirectory={unfinished}"], check=True, timeout=600)
            unfinished.rename(directory)
        except (MissingJava, subprocess.SubprocessError, OSError) as problem:
            raise Absent(f"no {pom.stem}: {problem}") from None
    return directory


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "bolide": bolide_server,
    "redis": redis_server,
    "rabbit": rabbit_server,
    "kafka": kafka_server,
    "nats": nats_server,
    "apache": apache_server,
}
