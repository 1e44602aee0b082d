"""How commands for people answer: a table that lines up, or JSON, YAML or CSV for programs; errors as one sentence.

What messages and strangers wrote never reaches the terminal as it is: an escape sequence in a body could colour it,
name its window or type for its user. Control characters are written out, in tables, lines and JSON alike.

An answer that lacks a broker's part says so on standard error, and the command ends with exit code 3 (`exits.py` has
all exit codes).
"""

import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click
from click.exceptions import Exit

from bolide.cli.commands import Option
from bolide.cli.connection import connection_options, name_servers
from bolide.cli.exits import PARTIAL_ANSWER, UNREACHABLE, fail, plain_errors
from bolide.cli.forms import csv_lines, json_text, printable, with_times, yaml_text
from bolide.cli.tables import bold, cut, table_lines, terminal_width, width_of

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.admin.reach import SilentBroker

T = TypeVar("T")
LIMIT_S = 15
_LONG_WIDTH_MIN = 20
LONG_SIZE_MAX = 200


class Output(StrEnum):
    """In which form an answer is wanted."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


Namesrv = Annotated[
    str | None,
    Option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        help="name servers, host:port;host:port",
        brings=connection_options,
    ),
]
Format = Annotated[Output, Option("-o", "--output", help="how to answer")]
_missing: set["SilentBroker"] = set()  # in the answer of the command that runs
_headed: set[tuple[str, ...]] = set()  # columns whose names were written, where rows come one by one


def ask(
    namesrv: str | None, question: Callable[["Admin"], Coroutine[Any, Any, T]], limit_s: float | None = LIMIT_S
) -> T:
    """Ask a cluster (`name_servers` says which).

    What walks through millions of messages has no limit for the whole, only for each of its requests.
    """
    return _ask(namesrv, question, limit_s, partial=False)


def look(
    namesrv: str | None, question: Callable[["Admin"], Coroutine[Any, Any, T]], limit_s: float | None = LIMIT_S
) -> T:
    """The same for what only reads: brokers that do not answer are named, and the others' part is given."""
    return _ask(namesrv, question, limit_s, partial=True)


def _ask(
    namesrv: str | None, question: Callable[["Admin"], Coroutine[Any, Any, T]], limit_s: float | None, *, partial: bool
) -> T:
    import asyncio  # a page of help asks nobody

    async def asking() -> T:
        from bolide.admin.admin import Admin

        async with asyncio.timeout(limit_s), Admin(name_servers(namesrv), partial=partial) as admin:
            if partial:
                await admin.check_brokers_left()  # which tells who did
            answer = await question(admin)
            if partial:
                _tell_silent(list(admin.silent.values()))
            return answer

    with plain_errors():
        try:
            return asyncio.run(asking())
        except TimeoutError:
            fail(f"the cluster of {name_servers(namesrv)} did not answer within {limit_s} s", UNREACHABLE)


def _tell_silent(brokers: list["SilentBroker"]) -> None:
    for broker in brokers:
        click.echo(f"warning: {printable(str(broker))}; its part is missing below", err=True)
        _missing.add(broker)


@contextmanager
def noting_what_is_missing() -> Iterator[None]:
    """Around every command: one that was answered in part has an exit code of its own."""
    _missing.clear()
    _headed.clear()
    yield
    if _missing:
        raise Exit(PARTIAL_ANSWER)


def say(value: object, output: Output) -> None:
    """An answer for programs, whole or row by row."""
    told = with_times(value)
    if output is Output.YAML:
        click.echo(yaml_text(told if isinstance(told, list) else [told]))
    elif output is Output.CSV:
        rows: list[Any] = told if isinstance(told, list) else [told]
        columns = tuple(rows[0]) if rows else ()
        text = csv_lines(rows, is_headed=columns not in _headed)
        _headed.add(columns)
        if text:
            click.echo(text)
    else:
        click.echo(json_text(told))


def report(sentence: str, done: Mapping[str, object], output: Output) -> None:
    """What was done: a sentence for people, its facts for programs."""
    if output is Output.TABLE:
        click.echo(sentence)
    else:
        say(dict(done), output)


def show(rows: Iterable[Mapping[str, object]], output: Output, *, empty: str, long: Collection[str] = ()) -> None:
    """Print rows that have the same columns; `empty` says what it means that there are none.

    A column `last_stored` is that in JSON, for programs, and `last stored` at the head of a table. The columns in
    `long` have no bound: they are cut to what fits, and where all the others fill a line, each row is a block.
    """
    found = list(rows)
    if output is not Output.TABLE:
        say(found, output)
        return
    if not found:
        click.echo(empty)
        return
    width = terminal_width() if sys.stdout.isatty() else None  # into a pipe every row is a line: a program reads it
    cells = [{name: _cell(value, name in long) for name, value in row.items()} for row in found]
    short = [max(len(name), *(width_of(row[name]) for row in cells)) + 1 for name in found[0] if name not in long]
    if width is not None and long and sum(short) + _LONG_WIDTH_MIN * len(long) > width:
        _show_blocks(cells, width)
        return
    numbers = {name.replace("_", " ") for name, value in found[0].items() if isinstance(value, int | float)}
    headed = [{name.replace("_", " "): cell for name, cell in row.items()} for row in cells]
    long = {name.replace("_", " ") for name in long}
    click.echo("\n".join(table_lines(headed, numbers=numbers, long=long, width=width, style_head=bold)))


def _show_blocks(rows: list[dict[str, str]], width: int) -> None:
    name_width = max(map(len, rows[0])) + 1
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for name, cell in row.items():
            room = max(width - name_width - 1, _LONG_WIDTH_MIN)
            click.echo(f"{name.replace('_', ' '):<{name_width}} {cut(cell, room)}")


def _cell(value: object, is_long: bool) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    text = printable("" if value is None else str(value))
    return text if not is_long or len(text) <= LONG_SIZE_MAX else text[: LONG_SIZE_MAX - 1] + "…"
