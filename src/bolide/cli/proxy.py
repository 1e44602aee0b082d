"""`bolide proxy`: RocketMQ 5's own clients in front of any cluster, Apache's included."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.broker import check_addresses, pages_of
from bolide.cli.grpc_port import is_installed
from bolide.cli.main import SERVERS
from bolide.cli.start import ReadyFile, StopSignal, assigned, reachable, run_command, run_until_done, server_parser
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.proxy.config import ProxyConfig

_EPILOG = (
    "Settings have the names of RocketMQ's rmq-proxy.json; later ones win: FILE, --set, then options of their own. "
    "Without -n the name servers are those of namesrvAddr in FILE, or of the environment's NAMESRV_ADDR."
)
log = logging.getLogger(__name__)


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    run_command(_parser().parse_args(arguments), _read_config, _print, _run)


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("proxy", SERVERS["proxy"], _EPILOG)
    parser.add_argument("-n", "--namesrv", metavar="ADDRS", help="name servers, host:port;host:port (namesrvAddr)")
    parser.add_argument("--host", help="address to listen on (bindAddress; default 0.0.0.0)")
    parser.add_argument("--port", help="port to listen on, 0 takes a free one (grpcServerPort; default 8081)")
    parser.add_argument("-c", "--config", dest="file", metavar="FILE", type=Path, help="an rmq-proxy.json")
    parser.add_argument("-p", "--print", dest="prints", action="store_true", help="print all settings and exit")
    return parser


def _read_config(options: argparse.Namespace) -> "ProxyConfig":
    if not is_installed():
        raise ConfigError("bolide proxy", "", "needs packages that are not here: pip install 'bolide[grpc]'")
    from bolide.proxy.config import read_config, read_json

    settings = read_json(options.file) if options.file is not None else {}
    settings |= assigned(options.assignments)
    given = {"namesrvAddr": options.namesrv, "bindAddress": options.host, "grpcServerPort": options.port}
    settings |= {key: value for key, value in given.items() if value is not None}
    settings.setdefault("namesrvAddr", os.environ.get("NAMESRV_ADDR", ""))
    check_addresses(settings["namesrvAddr"])
    config, ignored = read_config(settings)
    if ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(ignored)))
    if config.mode.upper() == "LOCAL":
        raise ConfigError("proxyMode", config.mode, "a broker has the port itself: bolide broker --grpc-port 8081")
    return config


def _print(config: "ProxyConfig") -> None:
    from bolide.proxy.config import shown
    from bolide.settings import write_properties

    sys.stdout.write(write_properties(shown(config)))


def _run(config: "ProxyConfig", file: ReadyFile) -> None:
    run_until_done(_serve(config, file))


async def _serve(config: "ProxyConfig", file: ReadyFile) -> None:
    from bolide.clock import SystemClock
    from bolide.proxy.metrics import show
    from bolide.proxy.server import serve_before

    stop, clock = StopSignal(), SystemClock()
    async with serve_before(config, clock) as (proxy, server), show(proxy, config, clock) as page:
        file.write(grpc=reachable(config.port.listen.host, server.port), **pages_of(page))
        sys.stdout.write(f"Bolide proxy listens on {', '.join(server.addresses)}, before {config.namesrv}\n")
        sys.stdout.flush()
        await stop.wait()
