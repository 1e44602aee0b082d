"""How commands for people answer: a table that lines up, or JSON for programs; errors as one sentence."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from bolide.admin.admin import Admin
from bolide.cli.start import fail, plain_errors

T = TypeVar("T")
LIMIT_S = 15
_PIPE_WIDTH = 10_000


class Output(StrEnum):
    """In which form an answer is wanted."""

    TABLE = "table"
    JSON = "json"


Namesrv = Annotated[
    str | None, typer.Option("-n", "--namesrv", envvar="NAMESRV_ADDR", help="name servers, host:port;host:port")
]
Format = Annotated[Output, typer.Option("-o", "--output", help="how to answer")]
DEFAULT_NAMESRV = "127.0.0.1:9876"


def ask(namesrv: str | None, question: Callable[[Admin], Coroutine[Any, Any, T]], limit_s: float | None = LIMIT_S) -> T:
    """Ask a cluster; without a name server the one that `bolide up` starts here is tried.

    What walks through millions of messages has no limit for the whole, only for each of its requests.
    """

    async def asking() -> T:
        async with asyncio.timeout(limit_s), Admin(namesrv or DEFAULT_NAMESRV) as admin:
            return await question(admin)

    with plain_errors():
        try:
            return asyncio.run(asking())
        except TimeoutError:
            fail(f"the cluster of {namesrv or DEFAULT_NAMESRV} did not answer within {limit_s} s")


def show(rows: Iterable[Mapping[str, object]], output: Output, *, empty: str) -> None:
    """Print rows that have the same columns; `empty` says what it means that there are none.

    A column `last_stored` is that in JSON, for programs, and `last stored` at the head of a table.
    """
    found = list(rows)
    if output is Output.JSON:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    if not found:
        typer.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in found[0].items():
        # On a narrow terminal texts go on in the next line; numbers stay whole, and nothing is cut off.
        is_number = isinstance(value, int | float)
        table.add_column(
            name.replace("_", " "), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    for row in found:
        table.add_row(*(_cell(value) for value in row.values()))
    # Into a pipe every row is a line: a program reads it.
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)
    console.print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return "" if value is None else str(value)
