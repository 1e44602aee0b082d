"""`bolide up`: a name server and a broker in one process and one loop, for this machine.

The broker is told nothing that the name server does not know better: it registers with the host it reaches the name
server by, and the name server shows it to each asker under the host that asker used (`namesrv/nearness.py`). So
`--host 0.0.0.0` serves other machines too, without `brokerIP1`; one that is given is shown as it is.
"""

import argparse
import logging
import os
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bolide.cli.broker import add_broker_options, pages_of, read_broker_settings
from bolide.cli.exits import plain_errors
from bolide.cli.grpc_port import add_grpc_option, grpc_beside, grpc_keys, read_grpc_config
from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    StopSignal,
    add_admin_option,
    demand_linux,
    reachable,
    ready_file,
    run_until_done,
    server_parser,
    set_up_logs,
)
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.broker.config import BrokerConfig
    from bolide.cli.secure import Kept, Opened
    from bolide.namesrv.config import NamesrvConfig
    from bolide.proxy.config import ProxyConfig
    from bolide.remoting.server import Server

HOST = "127.0.0.1"
DATA = "bolide-data"
NAMESRV_PORT = 9876
DASHBOARD_PORT = 8082
# Off in RocketMQ unless an operator thinks of them; here there is none, and anyone who tries them expects them to work.
WELCOMING = {
    "enableMixedMessageType": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
}
_EPILOG = (
    "Settings have RocketMQ's names, a broker's or a name server's; later ones win: FILE, then --set, then options of "
    "their own."
)
_POLL_INTERVAL_S = 0.005
_EVERYWHERE = ("0.0.0.0", "::", "")
# Users are the broker's: its name server, as RocketMQ's, tells routes to everybody.
_OF_THE_BROKER = frozenset({"aclEnable", "authenticationEnabled", "authorizationEnabled"})
log = logging.getLogger(__name__)


def main(arguments: list[str]) -> None:
    """Run both until SIGTERM or Ctrl-C."""
    options = _parser().parse_args(arguments)
    demand_linux()
    with plain_errors({_number(options.namesrv_port): "--namesrv-port"}):
        set_up_logs(options)
        with ready_file(options.ready_file) as file:
            is_one = options.replicas is None
            run_until_done(_serve_one(options, file) if is_one else _serve_replicas(options, file))


def _serve_replicas(options: argparse.Namespace, file: ReadyFile) -> Coroutine[Any, Any, None]:
    from bolide.broker import config as broker
    from bolide.cli import replicas

    settings, kept = _read_settings(options)
    settings.setdefault("brokerName", broker.BrokerConfig().name)
    planned = replicas.plan(options, settings, Path(settings["storePathRootDir"]))
    return replicas.serve(planned, replicas.unit(planned, options, settings, kept), file, kept, options.dashboard)


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("up", SERVERS["up"], _EPILOG)
    parser.add_argument("--data", metavar="DIR", help=f"where messages are kept (storePathRootDir; default {DATA})")
    parser.add_argument("--host", help=f"address to listen on (bindAddress; default {HOST}: this machine only)")
    parser.add_argument(
        "--namesrv-port", default=str(NAMESRV_PORT), help=f"the name server's port, 0 takes a free one ({NAMESRV_PORT})"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="TLS alone, an administrator with a random secret, and a profile by which commands and clients find it",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="run N brokers that keep the same messages and a controller that chooses who leads, a process each",
    )
    parser.add_argument(
        "--dashboard",
        nargs="?",
        type=int,
        const=DASHBOARD_PORT,
        metavar="PORT",
        help=f"run the dashboard beside it, as a process of its own ({DASHBOARD_PORT}; it may change things)",
    )
    add_broker_options(parser)
    add_grpc_option(parser, "8081")
    add_admin_option(parser, "local: this machine only")
    return parser


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _serve_one(options: argparse.Namespace, file: ReadyFile) -> Coroutine[Any, Any, None]:
    settings, kept = _read_settings(options)
    _refuse_replicas(Path(settings["storePathRootDir"]))
    if kept is not None:
        # One table of users for both: the name server follows what the broker writes.
        users = {"authConfigPath": str(Path(settings["storePathRootDir"]) / "config")}
        settings = kept.settings() | users | settings
    return _serve(*_configs(settings, options.namesrv_port), file, kept, options.dashboard)


def _refuse_replicas(data: Path) -> None:
    """A group has kept messages here, which one broker would not show."""
    if not (data / "commitlog").exists() and any(data.glob("replica-*")):
        from bolide.cli.replicas import replicas_in

        if found := replicas_in(data):
            why = f"{found} replicas have kept messages here: say --replicas {found}, or choose another directory"
            raise ConfigError("--data", str(data), why)


def _configs(settings: Mapping[str, str], namesrv_port: str) -> tuple["NamesrvConfig", "BrokerConfig", "Grpc"]:
    from bolide.broker import config as broker
    from bolide.namesrv import config as namesrv

    data = Path(settings["storePathRootDir"])
    left_out = frozenset[str]() if "authConfigPath" in settings else _OF_THE_BROKER  # a table of users for both
    of_namesrv = {
        "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
        "configStorePath": str(data / "namesrv" / "namesrv.properties"),
        **{key: value for key, value in settings.items() if key in namesrv.USED_KEYS - left_out},
        "listenPort": namesrv_port,
    }
    if "metricsPromExporterPort" in of_namesrv:
        of_namesrv["metricsPromExporterPort"] = _above(of_namesrv["metricsPromExporterPort"])
    of_broker = {
        key: value
        for key, value in settings.items()
        if key in broker.USED_KEYS or key not in namesrv.USED_KEYS | grpc_keys()
    }
    grpc = Grpc(read_grpc_config(settings, is_default=True), "grpcServerPort" in settings)
    return namesrv.read_config(of_namesrv), broker.read_config(of_broker), grpc


class Grpc(NamedTuple):
    """The gRPC port, and whether somebody asked for it."""

    config: "ProxyConfig | None"
    is_asked: bool


def _above(port: str) -> str:
    """The name server's page is one port above the broker's."""
    return port if port in ("", "0") else str(_number(port) + 1)


def _read_settings(options: argparse.Namespace) -> tuple[dict[str, str], "Kept | None"]:
    """What was set but for what makes it secure, which is kept apart: it has secrets."""
    from bolide.metrics.config import PORT as METRICS_PORT

    # Anyone who tries it has nobody who watches the ports: what is sent and read may come from anywhere, orders may
    # not, unless it is known who asks.
    admin_from = "anywhere" if options.secure else "local"
    settings = {"bindAddress": HOST, "storePathRootDir": DATA, "bolideAdminFrom": admin_from, **WELCOMING}
    settings |= {"metricsPromExporterHost": HOST, "metricsPromExporterPort": str(METRICS_PORT)}
    settings |= read_broker_settings(options, DATA)
    if settings.pop("namesrvAddr", ""):
        log.warning("namesrvAddr is set aside: bolide up brings its own name server; bolide broker registers elsewhere")
    if settings.get("tls.server.mode") == "enforcing":
        settings.setdefault("useTLS", "true")  # the broker, too, speaks with its name server
    data = Path(settings["storePathRootDir"]).absolute()
    settings["storePathRootDir"] = str(data)
    if not options.secure:
        return settings, None
    from bolide.cli.secure import prepared

    return settings, prepared(data)


async def _serve(
    namesrv_config: "NamesrvConfig",
    broker_config: "BrokerConfig",
    grpc: Grpc,
    file: ReadyFile,
    kept: "Kept | None",
    dashboard_port: int | None = None,
) -> None:
    import asyncio
    import dataclasses

    from bolide.broker import broker
    from bolide.clock import SystemClock
    from bolide.namesrv import server as namesrv

    stop = StopSignal()
    clock = SystemClock()
    host = await _host_to_reach(namesrv_config.listen.host)
    own_host = None if broker_config.advertised_host else host
    async with namesrv.serve(namesrv_config, clock, own_host) as (name_server, namesrv_server):
        address = f"{host}:{namesrv_server.port}"
        config = dataclasses.replace(broker_config, namesrv=address)
        async with (
            broker.serve(config, clock) as (served, broker_server),
            grpc_beside(served, grpc.config, clock, is_asked=grpc.is_asked) as grpc_address,
        ):
            # The first message is accepted when clients find the broker, which on a busy machine may take a moment.
            while config.name not in name_server.tables.brokers and not stop.has_come:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL_S)
            opened = None if kept is None else _opened(kept, address)
            addresses = {"grpc": grpc_address} if grpc_address is not None else {}
            pages = pages_of(served.metrics_port.server)
            profile = None if opened is None else opened.path
            async with dashboard_beside(dashboard_port, address, config.store.root, profile) as dashboard:
                pages |= {"dashboard": dashboard} if dashboard else {}
                file.write(namesrv=address, broker=f"{host}:{broker_server.port}", **addresses, **pages)
                _greet(config, (namesrv_server, broker_server), grpc_address, pages, opened)
                await stop.wait()


@asynccontextmanager
async def dashboard_beside(
    port: int | None, namesrv: str, data: Path, profile: Path | None = None
) -> AsyncIterator[str | None]:
    """The dashboard as a process of its own while the block runs, if it was asked for; gives the address to open."""
    if port is None:
        yield None
        return
    from bolide.cli.dashboard import demand_packages
    from bolide.cli.supervisor import Child, ChildFailed, Supervisor

    demand_packages()
    changes = str(data / "dashboard-changes.jsonl")
    words = ("dashboard", "-n", namesrv, "--port", str(port), "--allow-changes", "--audit-file", changes)
    environment = {} if profile is None else {"BOLIDE_PROFILE": str(profile)}
    child = Child("dashboard", words, data / "logs", environment)
    async with Supervisor(log.warning) as supervisor:
        try:
            await supervisor.start(child)
        except ChildFailed as problem:
            raise ChildFailed(str(problem).replace("--port", "--dashboard")) from problem  # the option of this command
        yield str(child.ready["dashboard"])


def _opened(kept: "Kept", namesrv: str) -> "Opened":
    from bolide.cli.secure import open_to_user

    return open_to_user(kept, namesrv, os.environ)


async def _host_to_reach(host: str) -> str:
    """The address by which the broker will reach a name server that listens on `host`."""
    import asyncio

    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise ConfigError("bindAddress", host, f"cannot listen on {host}: {problem.strerror or problem}") from problem
    return reachable(str(found[0][4][0]), 0).rpartition(":")[0]


def _greet(
    config: "BrokerConfig",
    servers: tuple["Server", "Server"],
    grpc_address: str | None,
    pages: Mapping[str, str],
    opened: "Opened | None",
) -> None:
    namesrv, broker = servers
    from bolide import __version__, kernel

    tls = " --tls" if config.listen.tls_mode == "enforcing" else ""
    found = f" -n {config.namesrv}{tls}" if opened is None else opened.option
    lines = [
        f"Bolide {__version__} is up ({kernel.NAME} kernel{', secured' if opened else ''})",
        f"  name server       {', '.join(namesrv.addresses)}",
        f"  broker            {', '.join(broker.addresses)}, name {config.name}",
        f"  messages          {config.store.root.absolute()}",
        *(opened.lines if opened else (f"  clients           export NAMESRV_ADDR={config.namesrv}",)),
        f"  send one          bolide send{found} Hello 'Hello, Bolide'",
        f"  read it           bolide consume{found} Hello --from-beginning",
        f"  look around       bolide topic show{found} Hello",
        f"  look at the log   bolide store inspect {shlex.quote(str(config.store.root))}",
        "  stop              Ctrl-C",
    ]
    if grpc_address is not None:
        lines.insert(3, f"  gRPC              {grpc_address}, for RocketMQ 5's own clients")
    if "metrics" in pages:
        lines.insert(-1, f"  metrics           {pages['metrics']}")
    if "dashboard" in pages:
        lines.insert(1, f"  dashboard         {pages['dashboard']}")
    if config.listen.host in _EVERYWHERE:
        lines.insert(-1, f"  other machines    the same with an address of this machine, port {namesrv.port}")
        if config.admin_from == "local":
            lines.insert(-1, "  changes           from this machine only; from others too with --admin-from anywhere")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
