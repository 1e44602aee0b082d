"""Servers as real processes: Java name servers and brokers, and our own.

Each has a home directory of its own under the scenario's temporary directory, with its configuration, store and logs,
and listens on free ports. A server counts as started when it says so and its port answers. The flags make a JVM start
fast and stay small; they change no behaviour.
"""

import dataclasses
import json
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bolide.testing.clusters import SMALL_FILES
from interop.process import Program, await_that, free_port, running
from interop.release import Role, class_path
from interop.wire import Address, broker_addresses, call, queue_counts

HOST = "127.0.0.1"
SOURCE = Path(__file__).parents[1] / "src"
START_TIMEOUT_S = 60.0
REGISTRATION_TIMEOUT_S = 20.0
DEFAULT_TOPIC = "TBW102"
UPDATE_TOPIC, UPDATE_BROKER_CONFIG = 17, 25
# RocketMQ reaches into the JDK; from version 17 on each door must be opened by name.
JDK_DOORS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
SMALL = (*QUICK_START, "-Xms64m", "-Xmx128m")
LARGE = (*QUICK_START, "-Xms256m", "-Xmx512m")

# 4.x does not start without these files; 5.x carries its own.
LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>${{user.home}}/{role}.log</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{0}} - %message%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class NameServer:
    """A name server that answers; `kind` is `bolide` or a Java release."""

    kind: str
    program: Program
    address: Address

    @property
    def endpoint(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


@dataclass(frozen=True, slots=True)
class Station:
    """A broker that accepts messages, ours unless a scenario is examined itself, and where clients find it."""

    program: Program
    name: str
    cluster: str
    endpoint: str
    name_servers: str

    @property
    def address(self) -> Address:
        return _address(self.endpoint)

    @property
    def namesrv_address(self) -> Address:
        return _address(self.name_servers)

    def make_topic(self, topic: str, queue_count: int = 4) -> str:
        """Have the broker make a topic, and wait until it is routed."""
        counts = {"readQueueNums": str(queue_count), "writeQueueNums": str(queue_count)}
        fields = {"topic": topic, "defaultTopic": DEFAULT_TOPIC, "perm": "6", "topicFilterType": "SINGLE_TAG", **counts}
        answer = call(self.address, UPDATE_TOPIC, {**fields, "topicSysFlag": "0", "order": "false"})
        assert answer.code == 0, answer
        await_that(
            f"{topic} is routed", lambda: self.name in queue_counts(self.namesrv_address, topic), REGISTRATION_TIMEOUT_S
        )
        return topic


@dataclass(frozen=True, slots=True)
class Broker:
    """A Java broker that has started; whether a name server knows it is for the scenario to see."""

    release: str
    program: Program
    name: str
    cluster: str
    endpoint: str
    home: Path

    @property
    def address(self) -> Address:
        return _address(self.endpoint)

    @property
    def ha_endpoint(self) -> str:
        host, port = self.address
        return f"{host}:{port + 1}"

    def register_now(self) -> None:
        """Make it register at once: a changed permission is told to all name servers.

        A 5.x broker often misses its own first registration (it has not yet looked which name servers answer) and is
        then silent for ten seconds.
        """
        answer = call(self.address, UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
        assert answer.code == 0, answer

    def await_route(self, server: NameServer, timeout_s: float = REGISTRATION_TIMEOUT_S) -> None:
        """Wait until a name server routes to this broker; it is asked to hurry first."""
        if self.endpoint not in known_endpoints(server):
            self.register_now()
        await_that(f"{self.name} is known", lambda: self.endpoint in known_endpoints(server), timeout_s)


def _address(endpoint: str) -> Address:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def java_command(
    release: str, role: Role, home: Path, main_class: str, *arguments: str, jvm: tuple[str, ...] = SMALL
) -> list[str]:
    return [
        "java",
        *JDK_DOORS,
        *jvm,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        "-cp",
        class_path(release, role),
        main_class,
        *arguments,
    ]


def prepare_home(home: Path) -> Path:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for role in ("namesrv", "broker", "tools"):
        (home / "conf" / f"logback_{role}.xml").write_text(LOGBACK.format(role=role))
    return home


def fresh_directory(directory: Path, name: str) -> Path:
    """A directory that no earlier program of the scenario has used."""
    number = 0
    while (path := directory / f"{name}-{number}").exists():
        number += 1
    return path


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={_property(value)}\n" for key, value in properties.items()))
    return path


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def java_name_server(
    directory: Path,
    release: str,
    settings: Mapping[str, object] | None = None,
    port: int | None = None,
    jvm: tuple[str, ...] = SMALL,
) -> Iterator[NameServer]:
    port = port or free_port()
    home = prepare_home(directory / f"namesrv-{release}-{port}")
    properties = {"listenPort": port, "bindAddress": HOST, **(settings or {})}
    file = write_properties(home / "namesrv.conf", properties)
    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
    command = java_command(release, Role.NAMESRV, home, main_class, "-c", str(file), jvm=jvm)
    with running("namesrv", command, home, {"ROCKETMQ_HOME": str(home)}) as program:
        program.await_output("boot success", START_TIMEOUT_S)
        yield NameServer(release, program, (HOST, port))


@contextmanager
def bolide_name_server(
    directory: Path, settings: Mapping[str, object] | None = None, port: int | None = None
) -> Iterator[NameServer]:
    """Our name server; with a port given it can be started again where it was."""
    port = port or free_port()
    home = directory / f"bolide-namesrv-{port}"
    home.mkdir(parents=True, exist_ok=True)
    ready_file = home / "ready"
    ready_file.unlink(missing_ok=True)
    properties = {"kvConfigPath": home / "kvConfig.json", **(settings or {})}
    file = write_properties(home / "namesrv.conf", properties)
    options = ["--host", HOST, "--port", str(port), "-c", str(file), "--ready-file", str(ready_file)]
    command = [sys.executable, "-c", "from bolide.cli.main import main; main()", "namesrv", *options]
    with running("namesrv", command, home, {"PYTHONPATH": str(SOURCE)}) as program:
        await_that(f"{program.log} shows a start", lambda: ready_file.exists() or _ended(program), START_TIMEOUT_S)
        yield NameServer("bolide", program, (HOST, port))


@contextmanager
def bolide_up(
    directory: Path,
    settings: Mapping[str, object] | None = None,
    ports: tuple[int, int] | None = None,
    words: Sequence[str] = (),
) -> Iterator[Station]:
    """`bolide up`; with its name server's and its broker's port given it can be started again where it was."""
    namesrv_port, port = ports or (free_port(), free_port(-2))
    options = ["--namesrv-port", str(namesrv_port), "--port", str(port), *words]
    with _bolide(directory / f"bolide-up-{port}", "up", options, settings) as broker:
        yield broker


@contextmanager
def bolide_broker(
    directory: Path,
    name_servers: str,
    settings: Mapping[str, object] | None = None,
    port: int | None = None,
    advertise: str | None = None,
) -> Iterator[Station]:
    """`bolide broker`, registered with the given name servers, under another address if need be."""
    port = port or free_port(-2)
    options = ["--host", HOST, "--port", str(port), "-n", name_servers]
    options += ["--advertise", advertise] if advertise else []
    with _bolide(directory / f"bolide-broker-{port}", "broker", options, settings) as broker:
        yield dataclasses.replace(broker, name_servers=name_servers)


@contextmanager
def _bolide(home: Path, command: str, options: list[str], settings: Mapping[str, object] | None) -> Iterator[Station]:
    home.mkdir(parents=True, exist_ok=True)
    ready_file = home / "ready"
    ready_file.unlink(missing_ok=True)
    properties = {
        "brokerName": "broker-b",
        "brokerClusterName": "InteropCluster",
        **SMALL_FILES,  # among them: a full disk of this machine neither refuses messages nor deletes any
        "mappedFileSizeCommitLog": 16 << 20,
        **(settings or {}),
    }
    file = write_properties(home / "broker.conf", properties)
    options = [*options, "--data", str(home / "store"), "-c", str(file), "--ready-file", str(ready_file)]
    words = [sys.executable, "-c", "from bolide.cli.main import main; main()", command, *options]
    # Profiles that it writes are not its user's.
    given = {"PYTHONPATH": str(SOURCE), "XDG_CONFIG_HOME": str(home / "config")}
    with running(command, words, home, given) as program:
        await_that(f"{program.log} shows a start", lambda: ready_file.exists() or _ended(program), START_TIMEOUT_S)
        ready = json.loads(ready_file.read_text())
        name, cluster = str(properties["brokerName"]), str(properties["brokerClusterName"])
        yield Station(program, name, cluster, ready["broker"], ready.get("namesrv", ""))


def name_server(
    directory: Path, kind: str, settings: Mapping[str, object] | None = None, port: int | None = None
) -> AbstractContextManager[NameServer]:
    """Ours, or a Java one: a scenario that the original does not pass says nothing about ours."""
    if kind == "bolide":
        return bolide_name_server(directory, settings, port)
    return java_name_server(directory, kind, settings, port)


def _ended(program: Program) -> bool:
    if not program.is_running:
        raise AssertionError(f"{program.name} ended at its start:\n{program.output()}")
    return False


@contextmanager
def java_broker(
    directory: Path,
    release: str,
    name_servers: str,
    settings: Mapping[str, object] | None = None,
    jvm: tuple[str, ...] = LARGE,
) -> Iterator[Broker]:
    """A Java broker; `settings` are keys of its broker.conf."""
    port = free_port(-2, 1)
    properties: dict[str, object] = {
        "brokerClusterName": "InteropCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": name_servers,
        **loopback_settings(),
        **small_store_settings(directory / f"store-{port}"),
        **(settings or {}),
    }
    name = str(properties["brokerName"])
    home = prepare_home(directory / f"{name}-{properties['brokerId']}-{release}-{port}")
    file = write_properties(home / "broker.conf", properties)
    main_class = "org.apache.rocketmq.broker.BrokerStartup"
    command = java_command(release, Role.BROKER, home, main_class, "-c", str(file), jvm=jvm)
    with running(name, command, home, {"ROCKETMQ_HOME": str(home)}) as program:
        program.await_output("boot success", START_TIMEOUT_S)
        await_that(f"port {port} of {name} answers", lambda: is_listening((HOST, port)), START_TIMEOUT_S)
        yield Broker(release, program, name, str(properties["brokerClusterName"]), f"{HOST}:{port}", home)


@contextmanager
def java_station(directory: Path, release: str) -> Iterator[Station]:
    """A Java name server and broker in the place of `bolide up`."""
    with java_name_server(directory, release) as server, java_broker(directory, release, server.endpoint) as broker:
        broker.await_route(server)
        yield Station(broker.program, broker.name, broker.cluster, broker.endpoint, server.endpoint)


def known_endpoints(server: NameServer, topic: str = DEFAULT_TOPIC) -> set[str]:
    """The addresses of all brokers, masters and slaves, in the route of a topic that every broker has."""
    routed = broker_addresses(server.address, topic)
    return {endpoint for addresses in routed.values() for endpoint in addresses.values()}


def loopback_settings() -> dict[str, object]:
    return {"brokerIP1": HOST, "brokerIP2": HOST, "bindAddress": HOST}


def small_store_settings(store: Path) -> dict[str, object]:
    """Keep the files small; both spellings of the size, for 4.x and 5.x differ."""
    return {
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "mapedFileSizeCommitLog": 16 << 20,
        "mappedFileSizeCommitLog": 16 << 20,
        "autoCreateTopicEnable": True,
        "enablePropertyFilter": True,
        "waitTimeMillsInSendQueue": 5000,
        "registerNameServerPeriod": 10_000,
    }


def is_listening(address: Address) -> bool:
    with suppress(OSError), socket.create_connection(address, 1):
        return True
    return False
