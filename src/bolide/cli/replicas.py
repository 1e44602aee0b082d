"""`bolide up --replicas N`: a name server, a controller and N brokers of one group, each a process, to try failover.

The brokers keep the same messages, and one of them leads. Kill it, and another takes over while clients go on; the one
that was killed is started again and follows. The terminal says who leads. With three replicas or more the group is
`safe`: what was acknowledged outlives any one of them. Two cannot be that and go on when one is gone, so there a
message is acknowledged by those that are there.

The gRPC port is a proxy's, a process too: a broker's own would end with the broker, and clients know one address.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bolide.cli.grpc_port import OFF, grpc_keys, planned_port
from bolide.cli.start import ReadyFile, StopSignal, given, log_options, reachable
from bolide.cli.supervisor import Child, Supervisor
from bolide.errors import BolideError, ConfigError
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.ports import BROKER_NEIGHBOURS, free_port, is_free

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.cli.secure import Kept, Opened

REPLICAS_MAX = 9
CONTROLLER_PORT = 9877
BROKER_PORT = 10911
PORT_STEP = 10  # from one broker to the next
SAFE_COUNT = 3
NUMBER_LIMIT_S = 10.0
IDENTITY_NAME = "brokerIdentity"
_DIRECTORY = "replica-"  # and its number
_LOOK_INTERVAL_S = 0.25
_POLL_INTERVAL_S = 0.01


@dataclass(frozen=True, slots=True)
class Plan:
    """Where everybody is."""

    host: str
    data: Path
    broker_name: str
    namesrv_port: int
    controller_port: int
    broker_ports: tuple[int, ...]
    grpc_port: int | None = None

    @property
    def namesrv(self) -> str:
        return reachable(self.host, self.namesrv_port)

    @property
    def controller(self) -> str:
        return reachable(self.host, self.controller_port)

    @property
    def grpc(self) -> str | None:
        return None if self.grpc_port is None else reachable(self.host, self.grpc_port)

    def address(self, number: int) -> str:
        return reachable(self.host, self.broker_ports[number - 1])


def plan(options: argparse.Namespace, settings: Mapping[str, str], data: Path) -> Plan:
    """Ports for all of them: those that were asked for, or free ones; raises ConfigError for one that is taken."""
    count, host = options.replicas, settings["bindAddress"]
    if not 2 <= count <= REPLICAS_MAX:
        raise ConfigError("--replicas", count, f"must be 2 to {REPLICAS_MAX}; one broker is what `bolide up` runs")
    _check_data(data, count)
    first = int(settings.get("listenPort", BROKER_PORT))
    ports = [free_port(*BROKER_NEIGHBOURS) if first == 0 else first + PORT_STEP * i for i in range(count)]
    namesrv_port = int(options.namesrv_port) or free_port()
    controller_port = free_port() if first == 0 or not int(options.namesrv_port) else CONTROLLER_PORT
    for port in (namesrv_port, controller_port, *ports):
        if not is_free(port, reachable(host, 0).rpartition(":")[0]):
            raise ConfigError("listenPort", port, "is taken")
    grpc_port = planned_port(settings)
    return Plan(host, data, settings["brokerName"], namesrv_port, controller_port, tuple(ports), grpc_port)


def replicas_in(data: Path) -> int:
    """How many replicas have kept messages in a directory."""
    numbers = [path.parent.name.removeprefix(_DIRECTORY) for path in data.glob(f"{_DIRECTORY}*/{IDENTITY_NAME}")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _check_data(data: Path, count: int) -> None:
    """Raises ConfigError where messages would stay behind, unread."""
    found = replicas_in(data)
    if not found and (data / "commitlog").exists():
        why = "one broker has kept messages here, which replicas would not show: choose another directory"
        raise ConfigError("--data", str(data), f"{why}, or leave --replicas out")
    if found > count:
        why = f"{found} replicas have kept messages here, and the one that leads may be among those left out"
        raise ConfigError("--replicas", count, f"{why}: say --replicas {found}, or choose another --data")


class Unit(NamedTuple):
    """The processes, in the order in which they are started: what brokers need, brokers, what needs them."""

    first: list[Child]
    brokers: list[Child]
    last: list[Child]


def unit(planned: Plan, options: argparse.Namespace, settings: Mapping[str, str], kept: "Kept | None" = None) -> Unit:
    logs, admin_from = planned.data / "logs", ("--admin-from", settings["bolideAdminFrom"])
    shared = (*log_options(options), *(() if kept is None else ("--set", f"@{kept.settings_file}")))
    # Brokers have a table of users each; the others follow the first one's.
    users = {} if kept is None else {"authConfigPath": planned.data / f"{_DIRECTORY}1" / "config"}

    def child(name: str, command: str, port: int, *words: str, sets: Mapping[str, object]) -> Child:
        return Child(name, (command, *_at(planned.host, port), *words, *shared, *_sets(sets)), logs)

    files = {
        "kvConfigPath": planned.data / "namesrv" / "kvConfig.json",
        "configStorePath": planned.data / "namesrv" / "namesrv.properties",
    }
    namesrv = child("namesrv", "namesrv", planned.namesrv_port, *admin_from, sets=files | users)
    register = ("--data", str(planned.data / "controller"))
    controller = child("controller", "controller", planned.controller_port, *register, sets=users)
    file = () if options.file is None else ("-c", str(options.file))
    brokers = [
        child(
            f"{_DIRECTORY}{number}",
            "broker",
            port,
            *("-n", planned.namesrv, *admin_from, *file, "--grpc-port", OFF),
            *("--data", str(planned.data / f"{_DIRECTORY}{number}")),
            sets=_of_group(planned, settings) | _page_of(settings, number),
        )
        for number, port in enumerate(planned.broker_ports, 1)
    ]
    last = []
    if planned.grpc_port is not None:
        of_proxy = {key: settings[key] for key in sorted(grpc_keys() & settings.keys() - {"grpcServerPort"})}
        last = [child("proxy", "proxy", planned.grpc_port, "-n", planned.namesrv, sets={**of_proxy, **users})]
    return Unit([namesrv, controller], brokers, last)


def _of_group(planned: Plan, settings: Mapping[str, str]) -> dict[str, str]:
    is_safe = len(planned.broker_ports) >= SAFE_COUNT
    promise = {"bolideReplication": "safe"} if is_safe else {"allAckInSyncStateSet": "true"}
    place = {"bindAddress", "listenPort", "storePathRootDir", "bolideAdminFrom", "brokerConfigPath", "namesrvAddr"}
    own = {key: value for key, value in settings.items() if key not in place | grpc_keys()}
    return {**promise, **own, "enableControllerMode": "true", "controllerAddr": planned.controller}


def _page_of(settings: Mapping[str, str], number: int) -> dict[str, str]:
    """Each has its page of metrics where its own ports would be; 0 is a free one for each."""
    port = int(settings.get("metricsPromExporterPort", 0))
    return {"metricsPromExporterPort": str(port + PORT_STEP * (number - 1))} if port else {}


def _at(host: str, port: int) -> tuple[str, ...]:
    return ("--host", host, "--port", str(port))


def _sets(settings: Mapping[str, object]) -> Iterable[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


async def serve(
    planned: Plan,
    processes: Unit,
    file: ReadyFile,
    kept: "Kept | None" = None,
    dashboard_port: int | None = None,
) -> None:
    """Run them until SIGTERM or Ctrl-C."""
    from bolide.cli.up import dashboard_beside

    stop = StopSignal()
    async with Supervisor(_say) as supervisor, IsolatedTasks() as tasks:
        await supervisor.start(*processes.first)
        for broker in processes.brokers:
            await supervisor.start(broker)
            await _numbered(planned.data / broker.name)
        await supervisor.start(*processes.last)
        profile = None if kept is None else kept.client_file
        async with dashboard_beside(dashboard_port, planned.namesrv, planned.data, profile) as dashboard:
            watch = tasks.start(_watch(planned, processes.brokers, file, kept, dashboard), name="replicas.watch")
            try:
                await stop.wait()
            finally:
                watch.cancel()


async def _numbered(directory: Path) -> None:
    """Wait until the controller has given a replica its number: the first process is replica 1, for people's sake."""
    with suppress(TimeoutError):
        async with asyncio.timeout(NUMBER_LIMIT_S):
            while not (directory / IDENTITY_NAME).exists():  # noqa: ASYNC110 (another process makes it)
                await asyncio.sleep(_POLL_INTERVAL_S)


async def _watch(
    planned: Plan, brokers: list[Child], file: ReadyFile, kept: "Kept | None", dashboard: str | None
) -> None:
    """Say who leads whenever that changes, and keep the ready file true."""
    from bolide.admin.admin import Admin

    told: GroupState | None = None
    further = given({"grpc": planned.grpc, "dashboard": dashboard})
    credentials, connect = (None, None) if kept is None else kept.as_server()
    async with Admin(planned.namesrv, credentials=credentials, connect=connect) as admin:
        while True:
            with suppress(BolideError):
                state = await _state(planned, brokers, admin)
                is_whole = bool(state.master) and len(state.in_sync) == len(brokers)
                if told is None and is_whole:
                    _greet(planned, state, None if kept is None else _opened(kept, planned.namesrv), dashboard)
                if (told is not None or is_whole) and state != told:
                    if told is not None and state.roles != told.roles:
                        _say(_sentence(planned, state))
                    file.write(
                        namesrv=planned.namesrv,
                        broker=state.address_of(state.master),
                        controller=planned.controller,
                        brokers=[
                            {"name": planned.broker_name, "id": number, "address": address, "pid": pid}
                            for number, address, pid in state.brokers
                        ],
                        **further,
                    )
                    told = state
            await asyncio.sleep(_LOOK_INTERVAL_S)


@dataclass(frozen=True, slots=True)
class GroupState:
    """Who leads since which epoch, who has everything, and who is where: (number, address, process)."""

    master: int
    epoch: int
    in_sync: tuple[int, ...]
    brokers: tuple[tuple[int, str, int], ...]

    @property
    def roles(self) -> tuple[int, int, tuple[int, ...]]:
        return self.master, self.epoch, self.in_sync

    def address_of(self, number: int) -> str:
        return next((address for other, address, _ in self.brokers if other == number), "")


async def _state(planned: Plan, brokers: list[Child], admin: "Admin") -> GroupState:
    table = await admin.sync_state(planned.controller, [planned.broker_name])
    group = table[planned.broker_name]
    pids = {planned.address(number): child.pid for number, child in enumerate(brokers, 1)}
    replicas = sorted((*group.in_sync_replicas, *group.not_in_sync_replicas), key=lambda one: one.broker_id)
    return GroupState(
        group.master_broker_id or 0,
        group.master_epoch,
        tuple(sorted(one.broker_id for one in group.in_sync_replicas if one.alive)),
        tuple((one.broker_id, one.broker_address or "", pids.get(one.broker_address or "", 0)) for one in replicas),
    )


def _say(sentence: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {sentence}\n")
    sys.stdout.flush()


def _sentence(planned: Plan, state: GroupState) -> str:
    in_sync = ", ".join(map(str, state.in_sync)) or "none"
    if not state.master:
        return f"nobody leads at the moment (epoch {state.epoch}), in sync: {in_sync}"
    address = state.address_of(state.master)
    return f"replica {state.master} at {address} leads (epoch {state.epoch}), in sync: {in_sync}"


def _opened(kept: "Kept", namesrv: str) -> "Opened":
    from bolide.cli.secure import open_to_user

    return open_to_user(kept, namesrv, os.environ)


def _greet(planned: Plan, state: GroupState, opened: "Opened | None", dashboard: str | None) -> None:
    from bolide import __version__, kernel

    found = f" -n {planned.namesrv}" if opened is None else opened.option
    about = f"{kernel.NAME} kernel{', secured' if opened else ''}"
    pid = next(pid for number, _, pid in state.brokers if number == state.master)
    lines = [
        f"Bolide {__version__} is up with {len(planned.broker_ports)} replicas ({about})",
        *([f"  dashboard         {dashboard}"] if dashboard else ()),
        f"  name server       {planned.namesrv}",
        f"  controller        {planned.controller}",
        *(
            f"  replica {number}         {address}, pid {pid}{', leads' if number == state.master else ''}"
            for number, address, pid in state.brokers
        ),
        f"  messages          {planned.data.absolute()}",
        *([f"  gRPC              {planned.grpc}, for RocketMQ 5's own clients"] if planned.grpc else ()),
        *(opened.lines if opened else (f"  clients           export NAMESRV_ADDR={planned.namesrv}",)),
        f"  who leads         bolide cluster{found}",
        f"  a planned switch  bolide broker promote {planned.broker_name}{found}",
        f"  try a failover    kill -9 {pid}",
        "  stop              Ctrl-C",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
