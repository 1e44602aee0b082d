"""`bolide completion`: what a shell asks for when Tab is pressed; topics and groups are those of the cluster.

A user who presses Tab waits: the cluster has a second to answer, and one that does not completes nothing.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import click

from bolide.cli.commands import Argument, listed
from bolide.cli.connection import name_servers

if TYPE_CHECKING:
    from bolide.admin.admin import Admin

_LIMIT_S = 1.0
VARIABLE = "_BOLIDE_COMPLETE"


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, Argument(help="which shell")]) -> None:
    """Print what makes a shell complete commands, topics and groups.

    bash: eval "$(bolide completion bash)" in ~/.bashrc; zsh the same in ~/.zshrc; fish: bolide completion fish >
    ~/.config/fish/completions/bolide.fish
    """
    from click.shell_completion import get_completion_class

    from bolide.cli.app import app

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    click.echo(kind(app, {}, "bolide", VARIABLE).source())


def topic_names(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The topics of the cluster that go on like this."""
    return _found(context, lambda admin: admin.topics(), begun)


def group_names(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The consumer groups of the cluster that go on like this."""
    return _found(context, lambda admin: admin.groups(), begun)


def broker_names(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """The brokers of the cluster that go on like this."""
    return _found(context, lambda admin: admin.broker_addresses(), begun)


def _found(context: click.Context, question: "Callable[[Admin], Awaitable[Iterable[str]]]", begun: str) -> list[str]:
    import asyncio
    import logging

    from bolide.admin.admin import Admin
    from bolide.errors import BolideError

    async def asking() -> list[str]:
        where = name_servers(context.params.get("namesrv"))
        async with asyncio.timeout(_LIMIT_S), Admin(where, timeout_s=_LIMIT_S) as admin:
            return listed(await question(admin), begun)

    logging.disable()  # a shell that completes a word shows no warnings
    try:
        with contextlib.suppress(BolideError, OSError, TimeoutError):
            return asyncio.run(asking())
        return []
    finally:
        logging.disable(logging.NOTSET)
