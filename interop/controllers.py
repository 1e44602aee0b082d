"""Controllers as real processes: ours with a file or an etcd behind it, and Apache's own, of one node."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bolide.protocol.bodies.controller import ReplicaGroupState, ReplicaTable, encode_broker_names
from interop.cluster import HOST, SOURCE, START_TIMEOUT_S, is_listening, java_command, prepare_home, write_properties
from interop.process import Program, await_that, free_port, running
from interop.release import Role
from interop.wire import Address, call
from tests.controller.etcds import etcds

RELEASE = "5.5.0"
GET_METADATA, GET_SYNC_STATE = 1005, 1006


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller that leads."""

    program: Program
    address: Address

    @property
    def endpoint(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def state(self, name: str) -> ReplicaGroupState | None:
        """What it keeps of a broker name; None before it knows it."""
        answer = call(self.address, GET_SYNC_STATE, body=encode_broker_names([name]))
        if answer.code != 0 or not answer.body:
            return None
        return ReplicaTable.decode(answer.body).replicas_info_table.get(name)

    def await_set(self, name: str, members: list[int], timeout_s: float = 60) -> ReplicaGroupState:
        """Wait until these are in sync, and a master is among them."""

        def probe() -> ReplicaGroupState | None:
            state = self.state(name)
            found = [] if state is None else sorted(replica.broker_id for replica in state.in_sync_replicas)
            return state if state is not None and state.master_broker_id is not None and found == members else None

        return await_that(f"{members} are in sync", probe, timeout_s)


@contextmanager
def controller(directory: Path, kind: str) -> Iterator[Controller]:
    """A controller of one kind, on a free port."""
    if kind == "apache":
        with _apache(directory) as found:
            yield found
    elif kind == "etcd":
        with etcds(directory) as nodes, _bolide(directory, ["--etcd", nodes.endpoints]) as found:
            yield found
    else:
        with _bolide(directory, ["--data", str(directory / "controller-data")]) as found:
            yield found


@contextmanager
def _bolide(directory: Path, options: list[str]) -> Iterator[Controller]:
    home = directory / "bolide-controller"
    home.mkdir(parents=True)
    port = free_port()
    program = ["controller", "--host", HOST, "--port", str(port), "--set", "controllerDLegerGroup=group1", *options]
    command = [sys.executable, "-c", "from bolide.cli.main import main; main()", *program]
    with running("controller", command, home, {"PYTHONPATH": str(SOURCE)}) as started:
        yield _leading(Controller(started, (HOST, port)))


@contextmanager
def _apache(directory: Path) -> Iterator[Controller]:
    port = free_port()
    home = prepare_home(directory / "apache-controller")
    settings = {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-{HOST}:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": home / "store",
        "mappedFileSize": 1048576,
    }
    file = write_properties(home / "controller.conf", settings)
    main_class = "org.apache.rocketmq.controller.ControllerStartup"
    command = java_command(RELEASE, Role.NAMESRV, home, main_class, "-c", str(file))
    with running("controller", command, home, {"ROCKETMQ_HOME": str(home)}) as started:
        yield _leading(Controller(started, (HOST, port)))


def _leading(found: Controller) -> Controller:
    await_that("the controller's port answers", lambda: is_listening(found.address), START_TIMEOUT_S)
    await_that("it leads", lambda: call(found.address, GET_METADATA).fields.get("isLeader") == "true", START_TIMEOUT_S)
    return found
