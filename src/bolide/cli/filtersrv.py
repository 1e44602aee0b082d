"""`bolide filtersrv`: a filter server beside a broker, in a process of its own."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    assigned,
    reachable,
    read_file,
    run_command,
    run_until_done,
    serve_until_signal,
    server_parser,
)

if TYPE_CHECKING:
    from bolide.filtersrv.config import FilterServerConfig
    from bolide.remoting.server import Server

_EPILOG = (
    "Filters are Python that consumers upload; none is taken before accessKey and secretKey are set. Later settings "
    "win: FILE, then --set, then --broker, --host and --port."
)


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    run_command(_parser().parse_args(arguments), _read_config, _print, _run)


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("filtersrv", SERVERS["filtersrv"], _EPILOG)
    parser.add_argument("-b", "--broker", help="the broker beside it (connectWhichBroker; default 127.0.0.1:10911)")
    parser.add_argument("--host", help="address to listen on (bindAddress; default 0.0.0.0)")
    parser.add_argument("--port", help="port to listen on (listenPort; default 0, a free one)")
    parser.add_argument("-c", "--config", dest="file", metavar="FILE", type=Path, help="settings, one key=value a line")
    parser.add_argument("-p", "--print", dest="prints", action="store_true", help="print all settings and exit")
    return parser


def _read_config(options: argparse.Namespace) -> "FilterServerConfig":
    from bolide.filtersrv.config import read_config

    settings = read_file(options.file) if options.file is not None else {}
    settings |= assigned(options.assignments)
    named = {"connectWhichBroker": options.broker, "bindAddress": options.host, "listenPort": options.port}
    return read_config(settings | {key: value for key, value in named.items() if value is not None})


def _print(config: "FilterServerConfig") -> None:
    from bolide.filtersrv.config import shown
    from bolide.settings import write_properties

    sys.stdout.write(write_properties(shown(config)))


def _run(config: "FilterServerConfig", file: ReadyFile) -> None:
    from bolide.clock import SystemClock
    from bolide.filtersrv.server import serve

    def started(server: "Server") -> None:
        address = reachable(config.listen.host, server.port)
        file.write(filtersrv=address)
        sys.stdout.write(f"Bolide filter server listens on {', '.join(server.addresses)}, beside {config.broker}\n")
        sys.stdout.flush()

    run_until_done(serve_until_signal(serve(config, SystemClock()), started))
