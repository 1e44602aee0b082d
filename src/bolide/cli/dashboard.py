"""`bolide dashboard`: a cluster in the browser, Bolide's or Apache's."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.connection import name_servers
from bolide.cli.exits import plain_errors
from bolide.cli.main import SERVERS
from bolide.cli.start import (
    ReadyFile,
    StopSignal,
    add_running_options,
    demand_linux,
    ready_file,
    run_until_done,
    set_up_logs,
)
from bolide.errors import ConfigError

if TYPE_CHECKING:
    from bolide.dashboard.config import DashboardConfig

_EPILOG = (
    "It shows and changes nothing unless --allow-changes is given. Who asks the cluster is said by the profile or by "
    "BOLIDE_ACCESS_KEY; with access control on, everybody signs in with a user of the cluster."
)
PACKAGES = ("starlette", "jinja2", "uvicorn", "python_multipart")


def main(arguments: list[str]) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    options = parser().parse_args(arguments)
    demand_linux()
    with plain_errors():
        set_up_logs(options)
        config = read_config(options)
        with ready_file(options.ready_file) as file:
            run_until_done(_serve(config, file))


def parser() -> argparse.ArgumentParser:
    """The options; `bolide up --dashboard` gives some of them on."""
    found = argparse.ArgumentParser(
        "bolide dashboard", description=SERVERS["dashboard"], epilog=_EPILOG, allow_abbrev=False
    )
    found.add_argument("-n", "--namesrv", metavar="ADDRS", help="name servers, host:port;host:port")
    found.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )
    found.add_argument("--port", type=int, default=8082, help="port to listen on, 0 takes a free one (default 8082)")
    found.add_argument("--allow-changes", action="store_true", help="show buttons that change something")
    found.add_argument("--hide-bodies", action="store_true", help="never show what is in messages")
    found.add_argument("--password-file", type=Path, metavar="FILE", help="who may sign in: a line name:password each")
    found.add_argument("--public-url", default="", metavar="URL", help="the origin that browsers see, behind a proxy")
    found.add_argument(
        "--prometheus", default="", metavar="URL", help="charts come from this Prometheus, which scrapes the brokers"
    )
    found.add_argument("--audit-file", type=Path, metavar="FILE", help="where changes are noted, a line each")
    add_running_options(found)
    return found


def demand_packages() -> None:
    """Raise where the extra is not installed."""
    if not all(find_spec(name) is not None for name in PACKAGES):
        raise ConfigError("bolide dashboard", "", "needs packages that are not here: pip install 'bolide[dashboard]'")


def read_config(options: argparse.Namespace) -> "DashboardConfig":
    """What was said on the command line, checked."""
    demand_packages()
    from bolide.dashboard.config import DashboardConfig

    return DashboardConfig(
        namesrv=name_servers(options.namesrv),
        host=options.host,
        port=options.port,
        public_url=options.public_url,
        allows_changes=options.allow_changes,
        hides_bodies=options.hide_bodies,
        password_file=options.password_file,
        audit_file=options.audit_file,
        prometheus=options.prometheus,
    )


async def _serve(config: "DashboardConfig", file: ReadyFile) -> None:
    from bolide.clock import SystemClock
    from bolide.dashboard.server import serve

    stop = StopSignal()
    async with serve(config, SystemClock()) as url:
        file.write(dashboard=url)
        what = "changes allowed" if config.allows_changes else "read only"
        sys.stdout.write(f"Bolide's dashboard of {config.namesrv} is at {url} ({what})\n")
        sys.stdout.flush()
        await stop.wait()
