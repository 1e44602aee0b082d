"""`bolide controller`: a controller in a process of its own."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    add_admin_option,
    assigned,
    given,
    print_settings,
    reachable,
    read_settings,
    run_command,
    run_until_done,
    serve_until_signal,
    server_parser,
)
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.controller.config import ControllerConfig
    from bolide.remoting.server import Server

_EPILOG = (
    "Settings have RocketMQ's names; later ones win: FILE, then --set, then the options. One controller keeps its state"
    " in --data; several share an --etcd. Of a running one: bolide controller status|leader|elect|clean|config --help."
)


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    run_command(_parser().parse_args(arguments), _read_config, _print, _run)


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("controller", SERVERS["controller"], _EPILOG)
    parser.add_argument("--host", help="address to listen on (bindAddress; default 0.0.0.0)")
    parser.add_argument("--port", help="port to listen on, 0 takes a free one (listenPort; default 9877)")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--data", metavar="DIR", help="directory of one controller (controllerStorePath)")
    place.add_argument("--etcd", metavar="URLS", help="http://host:2379,... of an etcd (bolideEtcdEndpoints)")
    parser.add_argument("-c", "--config", dest="file", metavar="FILE", type=Path, help="a RocketMQ controller.conf")
    add_admin_option(parser, "anywhere")
    parser.add_argument("-p", "--print", dest="prints", action="store_true", help="print all settings and exit")
    return parser


def _read_config(options: argparse.Namespace) -> "ControllerConfig":
    from bolide.controller.config import RULES, read_config

    chosen = {
        "bindAddress": options.host,
        "listenPort": options.port,
        "controllerStorePath": options.data,
        "bolideEtcdEndpoints": options.etcd,
        "bolideAdminFrom": options.admin_from,
    }
    over = assigned(options.assignments) | given(chosen)
    if options.data is not None and over.get("bolideEtcdEndpoints"):
        raise ConfigError("--data", options.data, "goes with no etcd: groups are kept in one place")
    return read_settings(options.file, over, RULES, read_config)


def _print(config: "ControllerConfig") -> None:
    from bolide.controller.config import shown

    print_settings(shown(config))


def _run(config: "ControllerConfig", file: ReadyFile) -> None:
    from bolide.clock import SystemClock
    from bolide.controller.server import serve

    def started(server: "Server") -> None:
        address = config.address or reachable(config.listen.host, server.port)
        file.write(controller=address)
        _greet(config, server, address)

    run_until_done(serve_until_signal(serve(config, SystemClock()), started))


def _greet(config: "ControllerConfig", server: "Server", address: str) -> None:
    from bolide import __version__, kernel

    kept = f"etcd {config.etcd_endpoints}" if config.etcd_endpoints else str(config.data_path)
    sys.stdout.write(
        f"Bolide {__version__} controller listens on {', '.join(server.addresses)} ({kernel.NAME} kernel)\n"
        f"  state in          {kept}\n"
        f"  start a broker    bolide broker --set enableControllerMode=true --set controllerAddr={address}\n"
        f"  look around       bolide controller status -a {address}\n"
        "  stop              Ctrl-C\n"
    )
    sys.stdout.flush()
