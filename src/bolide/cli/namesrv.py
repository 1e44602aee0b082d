"""`bolide namesrv`: a name server in a process of its own; with a word behind it, what an operator asks of one."""

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

if TYPE_CHECKING:
    from bolide.namesrv.config import NamesrvConfig
    from bolide.remoting.server import Server

_EPILOG = (
    "Settings have RocketMQ's names; later ones win: FILE, then --set, then --host and --port. "
    "Of running ones: bolide namesrv status|settings|set|kv --help."
)


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    run_command(_parser().parse_args(arguments), _read_config, _print, _run)


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("namesrv", SERVERS["namesrv"], _EPILOG)
    parser.add_argument("--host", help="address to listen on (bindAddress; default 0.0.0.0)")
    parser.add_argument("--port", help="port to listen on, 0 takes a free one (listenPort; default 9876)")
    parser.add_argument("-c", "--config", dest="file", metavar="FILE", type=Path, help="a RocketMQ namesrv.conf")
    add_admin_option(parser, "anywhere")
    parser.add_argument("-p", "--print", dest="prints", action="store_true", help="print all settings and exit")
    parser.add_argument("-n", dest="_", help=argparse.SUPPRESS)  # Java takes it too, and does nothing with it
    return parser


def _read_config(options: argparse.Namespace) -> "NamesrvConfig":
    from bolide.namesrv.config import RULES, read_config

    chosen = {"bindAddress": options.host, "listenPort": options.port, "bolideAdminFrom": options.admin_from}
    over = assigned(options.assignments) | given(chosen)
    return read_settings(options.file, over, RULES, read_config)


def _print(config: "NamesrvConfig") -> None:
    from bolide.namesrv.config import shown

    print_settings(shown(config))


def _run(config: "NamesrvConfig", file: ReadyFile) -> None:
    from bolide.clock import SystemClock
    from bolide.namesrv.server import serve

    def started(server: "Server") -> None:
        address = reachable(config.listen.host, server.port)
        file.write(namesrv=address)
        _greet(server, address)

    run_until_done(serve_until_signal(serve(config, SystemClock()), started))


def _greet(server: "Server", address: str) -> None:
    from bolide import __version__, kernel

    sys.stdout.write(
        f"Bolide {__version__} name server listens on {', '.join(server.addresses)} ({kernel.NAME} kernel)\n"
        f"  start a broker    bolide broker -n {address}\n"
        f"  look around       bolide cluster -n {address}\n"
        "  stop              Ctrl-C\n"
    )
    sys.stdout.flush()
