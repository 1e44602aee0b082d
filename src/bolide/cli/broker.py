"""`bolide broker`: a broker in a process of its own."""

import argparse
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.grpc_port import add_grpc_option, grpc_beside, grpc_keys, read_grpc_config
from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    StopSignal,
    add_admin_option,
    assigned,
    given,
    print_settings,
    reachable,
    read_file,
    read_parts,
    run_command,
    run_until_done,
    server_parser,
    usable,
)
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.broker.broker import Broker
    from bolide.broker.config import BrokerConfig
    from bolide.proxy.config import ProxyConfig
    from bolide.remoting.pages import PageServer
    from bolide.remoting.server import Server

    Configs = tuple[BrokerConfig, ProxyConfig | None]

_EPILOG = (
    "Settings have RocketMQ's names; later ones win: FILE, then --set, then options of their own. "
    "Without -n the name servers are those of namesrvAddr in FILE, or of the environment's NAMESRV_ADDR."
)


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    options = _parser().parse_args(arguments)
    run = _run if options.instances is None else partial(_run_instances, options)
    run_command(options, _read_config, _print, run)


def _run(configs: "Configs", file: ReadyFile) -> None:
    run_until_done(_serve(*configs, file))


def _run_instances(options: argparse.Namespace, configs: "Configs", file: ReadyFile) -> None:
    from bolide.cli import instances

    run_until_done(instances.serve(configs[0], instances.planned(options, *configs), file))


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("broker", SERVERS["broker"], _EPILOG)
    parser.add_argument("-n", "--namesrv", metavar="ADDRS", help="name servers, host:port;host:port (namesrvAddr)")
    add_broker_options(parser)
    add_grpc_option(parser, "none")
    add_admin_option(parser, "anywhere")
    parser.add_argument("--host", help="address to listen on (bindAddress; default 0.0.0.0)")
    parser.add_argument("--data", metavar="DIR", help="where messages are kept (storePathRootDir; default ~/store)")
    parser.add_argument(
        "--advertise", metavar="HOST:PORT", help="the address clients are told (brokerIP1; default: as found)"
    )
    parser.add_argument(
        "--controller", metavar="ADDRS", help="controllers, host:port;host:port, which say who leads (controllerAddr)"
    )
    parser.add_argument(
        "--safe",
        action="store_true",
        help="what is acknowledged outlives any one replica (bolideReplication=safe; takes --controller)",
    )
    parser.add_argument(
        "--instances", metavar="N", type=int, help="run N brokers as one unit: NAME-1 and so on, ports 10 apart"
    )
    parser.add_argument("-p", "--print", dest="prints", action="store_true", help="print all settings and exit")
    return parser


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Options that `bolide up` has too."""
    parser.add_argument("--port", help="the broker's port, 0 takes a free one (listenPort; default 10911)")
    parser.add_argument("-c", "--config", dest="file", metavar="FILE", type=Path, help="a RocketMQ broker.conf")
    parser.add_argument(
        "--metrics",
        nargs="?",
        const="",
        metavar="PORT",
        help="metrics for Prometheus, /healthz and /readyz (metricsExporterType=PROM; port 5557, 0 takes a free one)",
    )


def _read_config(options: argparse.Namespace) -> "Configs":
    from bolide.broker.config import read_config

    settings = read_broker_settings(options, str(Path.home() / "store"))
    if options.namesrv is not None:
        settings["namesrvAddr"] = options.namesrv
    else:
        settings.setdefault("namesrvAddr", os.environ.get("NAMESRV_ADDR", ""))
    check_addresses(settings["namesrvAddr"])
    if options.advertise is not None:
        settings |= advertised(options.advertise)
    if options.controller is not None:
        check_addresses(options.controller, "controllerAddr")
        settings |= {"enableControllerMode": "true", "controllerAddr": options.controller}
    if options.safe:
        settings["bolideReplication"] = "safe"
    own = {key: text for key, text in settings.items() if key not in grpc_keys()}
    return read_config(own), read_grpc_config(settings, is_default=False)


def read_broker_settings(options: argparse.Namespace, root: str) -> dict[str, str]:
    """The settings of the file, of `--set` and of the options that `broker` and `up` share; later ones win.

    `root` is where messages are kept when nobody says otherwise.
    """
    from bolide.broker.config import RULES

    own, kept = read_parts(options.file, RULES) if options.file is not None else ({}, {})
    if options.data is not None:
        # The directory holds all of it: a log that the file keeps elsewhere would not belong to its queues.
        own = {key: value for key, value in own.items() if not key.startswith("storePath")}
    chosen = {"bindAddress": options.host, "listenPort": options.port, "storePathRootDir": options.data}
    chosen |= {"grpcServerPort": options.grpc_port, "bolideAdminFrom": options.admin_from}
    if options.metrics is not None:
        chosen |= {"metricsExporterType": "PROM", "metricsPromExporterPort": options.metrics or None}
    over = assigned(options.assignments) | given(chosen)
    directory = Path((own | kept | over).get("storePathRootDir", root))
    if directory.exists() and not directory.is_dir():
        raise ConfigError("storePathRootDir", str(directory), "is a file; choose a directory with --data")
    if options.file is not None:
        over["brokerConfigPath"] = str(options.file.absolute())  # as in RocketMQ: run-time changes go to it
        return own | usable(kept, options.file, lambda left: _judge(own | left | over)) | over
    path = directory.absolute() / "config" / "broker.properties"
    # What was changed at run time in a broker that had no file; Java leaves more than that in the same place.
    kept = {key: value for key, value in _read_kept(path).items() if key in RULES.changeable}
    return usable(kept, path, lambda left: _judge(left | over)) | over


def _read_kept(path: Path) -> dict[str, str]:
    return read_file(path) if path.is_file() else {}


def _judge(settings: dict[str, str]) -> None:
    """Raises ConfigError; a name server's settings, which `bolide up` takes from the same file, are left aside."""
    from bolide.broker.config import USED_KEYS, read_config

    read_config({key: value for key, value in settings.items() if key in USED_KEYS})


def check_addresses(addresses: str, key: str = "namesrvAddr") -> None:
    """Name servers and controllers are host:port, several with `;` between."""
    from bolide.remoting.address import split_address

    for address in filter(None, (part.strip() for part in addresses.split(";"))):
        try:
            split_address(address)
        except ConfigError as problem:
            raise ConfigError(key, addresses, f"{address!r} {problem.why}") from None


def advertised(address: str) -> dict[str, str]:
    """The settings that `--advertise` stands for."""
    from bolide.remoting.address import split_address

    host, port = split_address(address)
    return {"brokerIP1": host, "bolideAdvertisedPort": str(port)}


def _print(configs: "Configs") -> None:
    from bolide.broker.config import shown

    print_settings(shown(configs[0]))


async def _serve(config: "BrokerConfig", grpc: "ProxyConfig | None", file: ReadyFile) -> None:
    from bolide.broker.broker import serve
    from bolide.clock import SystemClock

    stop, clock = StopSignal(), SystemClock()
    async with (
        serve(config, clock) as (broker, server),
        grpc_beside(broker, grpc, clock, is_asked=True) as grpc_address,
    ):
        addresses = {"grpc": grpc_address} if grpc_address is not None else {}
        addresses |= pages_of(broker.metrics_port.server)
        file.write(broker=reachable(config.listen.host, server.port), **addresses)
        _greet(config, broker, server)
        await stop.wait()


def pages_of(server: "PageServer | None") -> dict[str, str]:
    """Where metrics are shown, for the ready file."""
    if server is None:
        return {}
    host, _, port = server.addresses[0].rpartition(":")
    return {"metrics": f"http://{reachable(host, int(port))}/metrics"}


def _greet(config: "BrokerConfig", broker: "Broker", server: "Server") -> None:
    from bolide import __version__, kernel

    lines = [
        f"Bolide {__version__} broker {config.name} listens on {', '.join(server.addresses)} ({kernel.NAME} kernel)",
        f"  messages          {config.store.root}",
    ]
    if config.namesrv:
        lines.append(f"  name servers      {config.namesrv}")
        lines.append(f"  look around       bolide cluster -n {shlex.quote(config.namesrv)}")
    else:
        lines.append("  name servers      none: clients cannot find this broker; give them with -n host:port")
    lines += [f"  metrics           {address}" for address in pages_of(broker.metrics_port.server).values()]
    lines.append("  stop              Ctrl-C")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
