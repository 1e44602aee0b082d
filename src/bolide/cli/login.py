"""`bolide login`: a profile for a cluster, kept after the cluster has taken the user's key."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bolide.cli.connection import DEFAULT_NAMESRV
from bolide.cli.exits import fail, plain_errors
from bolide.cli.forms import printable
from bolide.cli.output import LIMIT_S, Namesrv

if TYPE_CHECKING:
    from bolide.client.config import Credentials


def login(namesrv: Namesrv = None) -> None:
    """Keep where a cluster is and who you are to it.

    Asks for the user's name and secret, tries them at the cluster, and writes them to ~/.config/bolide/default.conf, or
    to another profile with --profile, for you alone.
    """
    import asyncio

    from bolide.client import profiles
    from bolide.client.config import Credentials

    paths = (profiles.TRUST, profiles.CERTIFICATE, profiles.KEY)
    kept = (profiles.USE_TLS, profiles.VERIFY, *paths)
    name = os.environ.get(profiles.PROFILE_VARIABLE) or profiles.DEFAULT_NAME
    with plain_errors(), _without_profile():
        path = profiles.path_of(name, os.environ)
        known = profiles.known_settings(namesrv, os.environ)
        known.setdefault(profiles.NAMESRV, DEFAULT_NAMESRV)
        access_key = known.get(profiles.ACCESS_KEY) or _asked("User", is_secret=False)
        secret_key = known.get(profiles.SECRET_KEY) or _asked("Secret", is_secret=True)
        credentials = Credentials(access_key=access_key, secret_key=secret_key)
        found = asyncio.run(_tried(known[profiles.NAMESRV], credentials))
        settings = {key: known[key] for key in kept if known.get(key)}
        settings |= {key: str(Path(settings[key]).absolute()) for key in paths if key in settings}
        settings |= {profiles.NAMESRV: known[profiles.NAMESRV]}
        settings |= {profiles.ACCESS_KEY: access_key, profiles.SECRET_KEY: secret_key}
        profiles.write_profile(path, settings)
    click.echo(f"{found}; profile {printable(name)} is in {path}")
    if name == profiles.DEFAULT_NAME:
        click.echo("commands, clients and Spark find it by themselves; no option and no variable is needed")
    else:
        click.echo(f"choose it with --profile {printable(name)}, or for programs with BOLIDE_PROFILE={printable(name)}")


@contextmanager
def _without_profile() -> Iterator[None]:
    """The one that is written may not be there yet, or be wrong: nothing of it counts, also in what is opened here."""
    from bolide.client.profiles import PROFILE_VARIABLE

    before = os.environ.get(PROFILE_VARIABLE)
    os.environ[PROFILE_VARIABLE] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[PROFILE_VARIABLE]
        else:
            os.environ[PROFILE_VARIABLE] = before


def _asked(what: str, *, is_secret: bool) -> str:
    """From the terminal, a secret without an echo; from a pipe a line."""
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=is_secret))
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        fail(f"standard input ends where the {what.lower()} was to come; give it a line each for user and secret")
    return line


async def _tried(namesrv: str, credentials: "Credentials") -> str:
    """What the cluster says of the key; raises where it refuses."""
    import asyncio

    from bolide.admin.admin import Admin
    from bolide.client.config import client_config

    connect = client_config(namesrv).connect
    async with asyncio.timeout(LIMIT_S):
        async with Admin(namesrv, credentials=credentials, connect=connect) as admin:
            addresses = await admin.check_access()
            if await admin.is_access_checked():
                return f"{', '.join(addresses)} know user {printable(credentials.access_key)}"
    return f"{', '.join(addresses)} check no keys (access control is off), so the key was taken as it is"
