"""Brokers that copy from each other, ours and Apache's in any mixture, with or without a controller of either.

Nodes and groups are those of `tests/replication`; here is only how each kind is started. A kind is `bolide` or a Java
release. The name server is ours: it decides nothing here. Times are shorter than the defaults, so that a scenario takes
seconds; no rule depends on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bolide.testing.nodes import free_port
from interop import wire
from interop.cluster import LARGE, SMALL, java_command, prepare_home, write_properties
from interop.process import await_that
from interop.release import Role
from tests.replication import bolide_group
from tests.replication.bolide_group import QUICK_TIMES, name_server_node
from tests.replication.group import CLUSTER, GROUP, Group, Loopback, endpoints
from tests.replication.network import Network
from tests.replication.nodes import Node

CONTROLLER_RELEASE = "5.5.0"
BROKER_CLASS = "org.apache.rocketmq.broker.BrokerStartup"
CONTROLLER_CLASS = "org.apache.rocketmq.controller.ControllerStartup"
FILE_SIZE = 16 << 20  # both ends of a stream need the same
RUNTIME_INFO = 28
JAVA_SETTINGS = {
    # 4.x spells it otherwise
    "mapedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeCommitLog": FILE_SIZE,
    "waitTimeMillsInSendQueue": 5000,
    "registerNameServerPeriod": 10_000,
}


def controlled(controllers: str) -> dict[str, object]:
    """The keys of a broker whose role a controller gives, and who waits for everyone in the set."""
    return {
        "enableControllerMode": "true",
        "controllerAddr": controllers,
        "allAckInSyncStateSet": "true",
        "minInSyncReplicas": 2,
    }


def java_controller_node(directory: Path, network: Network | Loopback) -> tuple[Node, tuple[str, int]]:
    place, home = network.host("controller"), prepare_home(directory / "controller")
    address = (place.address, free_port())
    properties = {
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{address[0]}:{address[1]}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": home / "store",
        "scanNotActiveBrokerInterval": 1000,
        "scanInactiveMasterInterval": 1000,
    }
    file = write_properties(home / "controller.conf", properties)
    command = java_command(CONTROLLER_RELEASE, Role.NAMESRV, home, CONTROLLER_CLASS, "-c", str(file), jvm=SMALL)
    return Node("controller", place, home, command, {"ROCKETMQ_HOME": str(home)}), address


def java_broker_node(
    directory: Path,
    network: Network | Loopback,
    name: str,
    namesrv: str,
    release: str,
    settings: dict[str, object],
    jvm: tuple[str, ...] = LARGE,
) -> tuple[Node, tuple[str, int]]:
    place, home = network.host(name), prepare_home(directory / name)
    address = (place.address, free_port())
    properties = {
        "brokerClusterName": CLUSTER,
        "brokerName": GROUP,
        "listenPort": address[1],
        "haListenPort": address[1] + 1,
        "namesrvAddr": namesrv,
        "brokerIP1": place.address,
        "brokerIP2": place.address,
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        **JAVA_SETTINGS,
        **settings,
    }
    file = write_properties(home / "broker.conf", properties)
    command = java_command(release, Role.BROKER, home, BROKER_CLASS, "-c", str(file), jvm=jvm)
    return Node(name, place, home, command, {"ROCKETMQ_HOME": str(home)}), address


def broker_node(
    directory: Path,
    network: Network | Loopback,
    name: str,
    namesrv: str,
    kind: str,
    settings: dict[str, object],
    jvm: tuple[str, ...] = LARGE,
) -> tuple[Node, tuple[str, int]]:
    if kind == "bolide":
        settings = {"mappedFileSizeCommitLog": FILE_SIZE, **settings}
        return bolide_group.broker_node(directory, network, name, namesrv, **settings)
    return java_broker_node(directory, network, name, namesrv, kind, settings, jvm)


def mixed_group(
    directory: Path,
    network: Network | Loopback,
    controller_kind: str,
    broker_kinds: Sequence[str],
    *,
    has_quick_times: bool = True,
    **settings: object,
) -> Group:
    """A controller and its brokers, not started yet; a broker's name says its kind."""
    namesrv, namesrv_address = name_server_node(directory, network)
    make_controller = bolide_group.controller_node if controller_kind == "bolide" else java_controller_node
    controller, controller_address = make_controller(directory, network)
    addresses = {namesrv.name: namesrv_address, controller.name: controller_address}
    times = QUICK_TIMES if has_quick_times else {}
    keys = {**times, **controlled(endpoints([controller_address])), **settings}
    brokers = []
    for number, kind in enumerate(broker_kinds):
        node, address = broker_node(directory, network, f"{kind}-{number}", endpoints([namesrv_address]), kind, keys)
        brokers.append(node)
        addresses[node.name] = address
    return Group(directory, network, network.host("clients"), namesrv, [controller], brokers, addresses)


@dataclass(frozen=True, slots=True)
class Pair:
    """A master and a slave without a controller."""

    namesrv: Node
    namesrv_address: tuple[str, int]
    master: Node
    slave: Node
    addresses: dict[str, tuple[str, int]]

    @property
    def nodes(self) -> list[Node]:
        return [self.namesrv, self.master, self.slave]

    def log_end(self, node: Node) -> int:
        """Where the log of a broker ends, by its own account."""
        answer = wire.call(self.addresses[node.name], RUNTIME_INFO)
        assert answer.code == 0, answer
        return int(wire.parse(answer.body)["table"]["commitLogMaxOffset"])


def plain_pair(
    directory: Path,
    master_kind: str,
    slave_kind: str,
    *,
    has_quick_times: bool = True,
    jvm: tuple[str, ...] = LARGE,
    **settings: object,
) -> Pair:
    """Not started yet."""
    network = Loopback()
    shows_who_acts = settings.get("enableSlaveActingMaster", "false")
    namesrv, namesrv_address = name_server_node(directory, network, supportActingMaster=shows_who_acts)
    known = endpoints([namesrv_address])
    settings = {**(QUICK_TIMES if has_quick_times else {}), **settings}
    as_slave = {**settings, "brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}
    master, master_address = broker_node(directory, network, f"master-{master_kind}", known, master_kind, settings, jvm)
    slave, slave_address = broker_node(directory, network, f"slave-{slave_kind}", known, slave_kind, as_slave, jvm)
    addresses = {master.name: master_address, slave.name: slave_address}
    return Pair(namesrv, namesrv_address, master, slave, addresses)


def await_answer(address: tuple[str, int], timeout_s: float) -> None:
    """Wait until a broker answers."""

    def probe() -> bool:
        try:
            return wire.call(address, RUNTIME_INFO).code == 0
        except OSError:
            return False

    await_that(f"{address} answers", probe, timeout_s)


def log_bytes(node: Node, end: int) -> dict[int, bytes]:
    """The log of a broker up to `end`: file by file, as it lies on disk."""
    files = sorted((node.directory / "store" / "commitlog").iterdir())
    starts = {int(path.name): path for path in files if path.name.isdigit() and int(path.name) < end}
    return {start: path.read_bytes()[: end - start] for start, path in starts.items()}
