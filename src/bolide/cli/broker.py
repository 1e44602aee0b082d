"""`bolide broker`: a broker in a process of its own."""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    StopSignal,
    add_admin_option,
    pairs_of,
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
    from bolide.remoting.server import Server

_EPILOG = (
    "Settings have RocketMQ's names; later ones win: FILE, then --set, then options of their own. "
    "Without -n the name servers are those of namesrvAddr in FILE, or of the environment's NAMESRV_ADDR."
)


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    run_command(
        _parser().parse_args(arguments), _read_config, _print, lambda config, file: run_until_done(_serve(config, file))
    )


def _parser() -> argparse.ArgumentParser:
    parser = server_parser("broker", SERVERS["broker"], _EPILOG)
    parser.add_argument("-n", "--namesrv", metavar="ADDRS", help="name servers, host:port;host:port (namesrvAddr)")
    add_broker_options(parser)
    add_admin_option(parser, "anywhere")
    parser.add_argument("--host", help="address to listen on (bindAddress; default 0.0.0.0)")
    parser.add_argument("--data", metavar="DIR", help="where messages are kept (storePathRootDir; default ~/store)")
    parser.add_argument(
        "--advertise", metavar="HOST:PORT", help="the address clients are told (brokerIP1; default: as found)"
    )
    parser.add_argument("-p", "--print", dest="prints", action="store_true", help="print all settings and exit")
    return parser


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Options that `bolide up` has too."""
    parser.add_argument("--port", help="the broker's port, 0 takes a free one (listenPort; default 10911)")
    parser.add_argument("-c", "--config", dest="file", metavar="FILE", type=Path, help="a RocketMQ broker.conf")


def _read_config(options: argparse.Namespace) -> "BrokerConfig":
    from bolide.broker.config import read_config

    settings = read_broker_settings(options, str(Path.home() / "store"))
    if options.namesrv is not None:
        settings["namesrvAddr"] = options.namesrv
    else:
        settings.setdefault("namesrvAddr", os.environ.get("NAMESRV_ADDR", ""))
    check_addresses(settings["namesrvAddr"])
    if options.advertise is not None:
        settings |= advertised(options.advertise)
    return read_config(settings)


def read_broker_settings(options: argparse.Namespace, root: str) -> dict[str, str]:
    """The settings of the file, of `--set` and of the options that `broker` and `up` share; later ones win.

    `root` is where messages are kept when nobody says otherwise.
    """
    from bolide.broker.config import RULES

    own, kept = read_parts(options.file, RULES) if options.file is not None else ({}, {})
    if options.data is not None:
        # The directory holds all of it: a log that the file keeps elsewhere would not belong to its queues.
        own = {key: value for key, value in own.items() if not key.startswith("storePath")}
    given = {"bindAddress": options.host, "listenPort": options.port, "storePathRootDir": options.data}
    over = pairs_of("--set", options.assignments)
    given["bolideAdminFrom"] = options.admin_from
    over |= {key: value for key, value in given.items() if value is not None}
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


def check_addresses(addresses: str) -> None:
    """Name servers are host:port, several with `;` between."""
    from bolide.remoting.address import split_address

    for address in filter(None, (part.strip() for part in addresses.split(";"))):
        try:
            split_address(address)
        except ConfigError as problem:
            raise ConfigError("namesrvAddr", addresses, f"{address!r} {problem.why}") from None


def advertised(address: str) -> dict[str, str]:
    """The settings that `--advertise` stands for."""
    from bolide.remoting.address import split_address

    host, port = split_address(address)
    return {"brokerIP1": host, "bolideAdvertisedPort": str(port)}


def _print(config: "BrokerConfig") -> None:
    from bolide.broker.config import shown
    from bolide.settings import write_properties

    sys.stdout.write(write_properties(shown(config)))


async def _serve(config: "BrokerConfig", file: ReadyFile) -> None:
    from bolide.broker.broker import serve
    from bolide.clock import SystemClock

    stop = StopSignal()
    async with serve(config, SystemClock()) as (broker, server):
        file.write(broker=reachable(config.listen.host, server.port))
        _greet(config, broker, server)
        await stop.wait()


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
    lines.append("  stop              Ctrl-C")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
