"""A group of our brokers under our controller, each process on a host of its own."""

from pathlib import Path

from bolide.testing.clusters import SMALL_FILES
from bolide.testing.nodes import free_port
from tests.replication.faults import write_manners
from tests.replication.group import CLUSTER, GROUP, Group, Loopback, endpoints
from tests.replication.network import Network
from tests.replication.nodes import Node, python_command, python_environment

PROGRAM = "tests.replication.program"
# Shorter than the defaults, so that a fault is noticed in seconds; no rule depends on them.
QUICK_TIMES = {
    "brokerHeartbeatInterval": 500,
    "controllerHeartBeatTimeoutMills": 3000,
    "syncBrokerMetadataPeriod": 1000,
    "syncControllerMetadataPeriod": 1000,
    "checkSyncStateSetPeriod": 1000,
    "haMaxTimeSlaveNotCatchup": 3000,
    "haSendHeartbeatInterval": 1000,
    "haHousekeepingInterval": 3000,
    "slaveTimeout": 1000,
}


def write_properties(path: Path, properties: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), "utf-8")
    return path


def name_server_node(directory: Path, network: Network | Loopback, **settings: object) -> tuple[Node, tuple[str, int]]:
    place, home = network.host("namesrv"), directory / "namesrv"
    address = (place.address, free_port())
    file = write_properties(home / "namesrv.conf", {"kvConfigPath": home / "kvConfig.json", **settings})
    words = (PROGRAM, "namesrv", "--host", address[0], "--port", address[1], "-c", file)
    return Node("namesrv", place, home, python_command(*words), python_environment()), address


def controller_node(
    directory: Path, network: Network | Loopback, name: str = "controller", etcd: str = ""
) -> tuple[Node, tuple[str, int]]:
    """A controller whose register is a file of its own, or etcd."""
    place, home = network.host(name), directory / name
    address = (place.address, free_port())
    register = ("--etcd", etcd) if etcd else ("--data", home / "store")
    words = (PROGRAM, "controller", "--host", address[0], "--port", address[1], *register)
    return Node(name, place, home, python_command(*words), python_environment()), address


def etcd_nodes(directory: Path, network: Network | Loopback, count: int) -> tuple[list[Node], str]:
    """A cluster of Debian's etcd, and its endpoints."""
    places = [network.host(f"etcd-{number}") for number in range(count)]
    clients, peers = ([f"http://{place.address}:{free_port()}" for place in places] for _ in range(2))
    everyone = ",".join(f"{place.name}={peer}" for place, peer in zip(places, peers, strict=True))
    nodes = []
    for place, client, peer in zip(places, clients, peers, strict=True):
        options = ["--name", place.name, "--data-dir", str(directory / place.name / "data"), "--logger", "zap"]
        options += ["--listen-client-urls", client, "--advertise-client-urls", client]
        options += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        options += ["--initial-cluster", everyone, "--initial-cluster-state", "new"]
        nodes.append(Node(place.name, place, directory / place.name, ["etcd", *options]))
    return nodes, ",".join(clients)


def broker_node(
    directory: Path, network: Network | Loopback, name: str, namesrv: str, **settings: object
) -> tuple[Node, tuple[str, int]]:
    place, home = network.host(name), directory / name
    address = (place.address, free_port())
    properties: dict[str, object] = {
        "brokerClusterName": CLUSTER,
        "brokerName": GROUP,
        **SMALL_FILES,
        "haListenPort": address[1] + 1,
        "brokerIP1": place.address,
        "brokerIP2": place.address,
        **settings,
    }
    file = write_properties(home / "broker.conf", properties)
    options = ("--host", address[0], "--port", address[1], "-n", namesrv, "--data", home / "store", "-c", file)
    return Node(name, place, home, python_command(PROGRAM, "broker", *options), python_environment()), address


def bolide_group(
    directory: Path,
    network: Network | Loopback,
    broker_count: int = 3,
    manners: dict[str, object] | None = None,
    etcd_count: int = 0,
    **settings: object,
) -> Group:
    """Controllers and their brokers, not started yet: one with a file, or two over etcd.

    `manners` are those of each broker's process (`program.py`).
    """
    namesrv, namesrv_address = name_server_node(directory, network)
    addresses = {namesrv.name: namesrv_address}
    etcds, etcd = etcd_nodes(directory, network, etcd_count)
    controllers = []
    for name in ("controller-0", "controller-1") if etcd else ("controller",):
        node, addresses[name] = controller_node(directory, network, name, etcd)
        controllers.append(node)
    known = endpoints([addresses[node.name] for node in controllers])
    safe = {**QUICK_TIMES, "controllerAddr": known, "bolideReplication": "safe", **settings}
    brokers = []
    for number in range(broker_count):
        name = f"broker-{number}"
        node, addresses[name] = broker_node(directory, network, name, endpoints([namesrv_address]), **safe)
        write_manners(node, **(manners or {}))
        brokers.append(node)
    return Group(directory, network, network.host("clients"), namesrv, controllers, brokers, addresses, etcds)
