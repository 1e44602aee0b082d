"""`bolide up`: a name server and a broker in one process and one loop, for this machine.

The broker is told nothing that the name server does not know better: it registers with the host it reaches the name
server by, and the name server shows it to each asker under the host that asker used (`namesrv/nearness.py`). So
`--host 0.0.0.0` serves other machines too, without `brokerIP1`; one that is given is shown as it is.
"""

import argparse
import asyncio
import dataclasses
import logging
import shlex
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.broker import add_broker_options, read_broker_settings
from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    StopSignal,
    add_admin_option,
    demand_linux,
    plain_errors,
    reachable,
    ready_file,
    run_until_done,
    server_parser,
    set_up_logs,
)
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.broker.config import BrokerConfig
    from bolide.namesrv.config import NamesrvConfig
    from bolide.remoting.server import Server

HOST = "127.0.0.1"
DATA = "bolide-data"
NAMESRV_PORT = 9876
# Off in RocketMQ unless an operator thinks of them; here there is none, and anyone who tries them expects them to work.
WELCOMING = {"enablePropertyFilter": "true", "recallMessageEnable": "true", "traceTopicEnable": "true"}
_EPILOG = (
    "Settings have RocketMQ's names, a broker's or a name server's; later ones win: FILE, then --set, then options of "
    "their own."
)
_POLL_INTERVAL_S = 0.005
_EVERYWHERE = ("0.0.0.0", "::", "")
log = logging.getLogger(__name__)


def main(arguments: list[str]) -> None:
    """Run both until SIGTERM or Ctrl-C."""
    options = _parser().parse_args(arguments)
    demand_linux()
    with plain_errors({_number(options.namesrv_port): "--namesrv-port"}):
        set_up_logs(options.log_level)
        namesrv, broker = _read_configs(options)
        with ready_file(options.ready_file) as file:
            run_until_done(_serve(namesrv, broker, file))


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("up", SERVERS["up"], _EPILOG)
    parser.add_argument("--data", metavar="DIR", help=f"where messages are kept (storePathRootDir; default {DATA})")
    parser.add_argument("--host", help=f"address to listen on (bindAddress; default {HOST}: this machine only)")
    parser.add_argument(
        "--namesrv-port", default=str(NAMESRV_PORT), help=f"the name server's port, 0 takes a free one ({NAMESRV_PORT})"
    )
    add_broker_options(parser)
    add_admin_option(parser, "local: this machine only")
    return parser


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _read_configs(options: argparse.Namespace) -> tuple["NamesrvConfig", "BrokerConfig"]:
    from bolide.broker import config as broker
    from bolide.namesrv import config as namesrv

    # Anyone who tries it has nobody who watches the ports: what is sent and read may come from anywhere, orders may
    # not.
    settings = {"bindAddress": HOST, "storePathRootDir": DATA, "bolideAdminFrom": "local", **WELCOMING}
    settings |= read_broker_settings(options, DATA)
    if settings.pop("namesrvAddr", ""):
        log.warning("namesrvAddr is set aside: bolide up brings its own name server; bolide broker registers elsewhere")
    if settings.get("tls.server.mode") == "enforcing":
        settings.setdefault("useTLS", "true")  # the broker, too, speaks with its name server
    data = Path(settings["storePathRootDir"]).absolute()
    settings["storePathRootDir"] = str(data)
    of_namesrv = {
        "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
        "configStorePath": str(data / "namesrv" / "namesrv.properties"),
        **{key: value for key, value in settings.items() if key in namesrv.USED_KEYS},
        "listenPort": options.namesrv_port,
    }
    of_broker = {
        key: value for key, value in settings.items() if key in broker.USED_KEYS or key not in namesrv.USED_KEYS
    }
    return namesrv.read_config(of_namesrv), broker.read_config(of_broker)


async def _serve(namesrv_config: "NamesrvConfig", broker_config: "BrokerConfig", file: ReadyFile) -> None:
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
        async with broker.serve(config, clock) as (_, broker_server):
            # The first message is accepted when clients find the broker, which on a busy machine may take a moment.
            while config.name not in name_server.tables.brokers and not stop.has_come:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL_S)
            file.write(namesrv=address, broker=f"{host}:{broker_server.port}")
            _greet(config, namesrv_server, broker_server)
            await stop.wait()


async def _host_to_reach(host: str) -> str:
    """The address by which the broker will reach a name server that listens on `host`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise ConfigError("bindAddress", host, f"cannot listen on {host}: {problem.strerror or problem}") from problem
    return reachable(str(found[0][4][0]), 0).rpartition(":")[0]


def _greet(config: "BrokerConfig", namesrv: "Server", broker: "Server") -> None:
    from bolide import __version__, kernel

    lines = [
        f"Bolide {__version__} is up ({kernel.NAME} kernel)",
        f"  name server       {', '.join(namesrv.addresses)}",
        f"  broker            {', '.join(broker.addresses)}, name {config.name}",
        f"  messages          {config.store.root.absolute()}",
        f"  clients           export NAMESRV_ADDR={config.namesrv}",
        f"  send one          bolide send -n {config.namesrv} Hello 'Hello, Bolide'",
        f"  read it           bolide consume -n {config.namesrv} Hello --from-beginning",
        f"  look around       bolide topic show -n {config.namesrv} Hello",
        f"  look at the log   bolide store inspect {shlex.quote(str(config.store.root))}",
        "  stop              Ctrl-C",
    ]
    if config.listen.host in _EVERYWHERE:
        lines.insert(-1, f"  other machines    the same with an address of this machine, port {namesrv.port}")
        if config.admin_from == "local":
            lines.insert(-1, "  changes           from this machine only; from others too with --admin-from anywhere")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
