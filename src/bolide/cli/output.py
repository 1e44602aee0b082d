"""How commands for people answer: a table that lines up, or JSON for programs; errors as one sentence.

What messages and strangers wrote never reaches the terminal as it is: an escape sequence in a body could colour it,
name its window or type for its user. Control characters are written out, in tables, lines and JSON alike.

An answer that lacks a broker's part says so on standard error, and the command ends with exit code 3.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bolide.admin.admin import Admin
from bolide.admin.reach import SilentBroker
from bolide.cli.start import fail, plain_errors

T = TypeVar("T")
LIMIT_S = 15
_PIPE_WIDTH = 10_000
_LONG_WIDTH_MIN = 20
LONG_SIZE_MAX = 200


class Output(StrEnum):
    """In which form an answer is wanted."""

    TABLE = "table"
    JSON = "json"


Namesrv = Annotated[
    str | None, typer.Option("-n", "--namesrv", envvar="NAMESRV_ADDR", help="name servers, host:port;host:port")
]
Format = Annotated[Output, typer.Option("-o", "--output", help="how to answer")]
DEFAULT_NAMESRV = "127.0.0.1:9876"
PARTIAL_ANSWER = 3
_missing: set[SilentBroker] = set()  # in the answer of the command that runs
# Controls of both halves, line ends of other alphabets, and what turns the direction of writing or hides.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def ask(namesrv: str | None, question: Callable[[Admin], Coroutine[Any, Any, T]], limit_s: float | None = LIMIT_S) -> T:
    """Ask a cluster; without a name server the one that `bolide up` starts here is tried.

    What walks through millions of messages has no limit for the whole, only for each of its requests.
    """
    return _ask(namesrv, question, limit_s, partial=False)


def look(
    namesrv: str | None, question: Callable[[Admin], Coroutine[Any, Any, T]], limit_s: float | None = LIMIT_S
) -> T:
    """The same for what only reads: brokers that do not answer are named, and the others' part is given."""
    return _ask(namesrv, question, limit_s, partial=True)


def _ask(
    namesrv: str | None, question: Callable[[Admin], Coroutine[Any, Any, T]], limit_s: float | None, *, partial: bool
) -> T:
    async def asking() -> T:
        async with asyncio.timeout(limit_s), Admin(namesrv or DEFAULT_NAMESRV, partial=partial) as admin:
            if partial:
                await admin.clusters()  # which tells who left
            answer = await question(admin)
            if partial:
                _tell_silent(list(admin.silent.values()))
            return answer

    with plain_errors():
        try:
            return asyncio.run(asking())
        except TimeoutError:
            fail(f"the cluster of {namesrv or DEFAULT_NAMESRV} did not answer within {limit_s} s")


def _tell_silent(brokers: list[SilentBroker]) -> None:
    for broker in brokers:
        typer.echo(f"warning: {printable(str(broker))}; its part is missing below", err=True)
        _missing.add(broker)


def begin() -> None:
    """Before every command."""
    _missing.clear()


def end(*_: object, **__: object) -> None:
    """After every command: what was answered in part has an exit code of its own."""
    if _missing:
        raise typer.Exit(PARTIAL_ANSWER)


def printable(text: str) -> str:
    """The text with everything a terminal would obey, or would show as something else, written out."""
    return _UNPRINTABLE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def json_text(value: object) -> str:
    """JSON on one line, in which no character does anything."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show(rows: Iterable[Mapping[str, object]], output: Output, *, empty: str, long: Collection[str] = ()) -> None:
    """Print rows that have the same columns; `empty` says what it means that there are none.

    A column `last_stored` is that in JSON, for programs, and `last stored` at the head of a table. The columns in
    `long` have no bound: they are cut to what fits, and where all the others fill a line, each row is a block.
    """
    found = list(rows)
    if output is Output.JSON:
        typer.echo(json_text(found))
        return
    if not found:
        typer.echo(empty)
        return
    # Into a pipe every row is a line: a program reads it.
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)
    cells = [{name: _cell(value, name in long) for name, value in row.items()} for row in found]
    widths = [max(len(name), *(len(row[name]) for row in cells)) + 1 for name in found[0] if name not in long]
    if long and sum(widths) + _LONG_WIDTH_MIN * len(long) > console.width:
        _show_blocks(cells, console.width)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in found[0].items():
        # On a narrow terminal texts go on in the next line; numbers stay whole, and nothing else is cut off.
        is_number = isinstance(value, int | float)
        table.add_column(
            name.replace("_", " "),
            justify="right" if is_number else "left",
            no_wrap=is_number or bool(long),
            overflow="ellipsis" if name in long else "fold",
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row.values()))
    console.print(table)


def _show_blocks(rows: list[dict[str, str]], width: int) -> None:
    name_width = max(map(len, rows[0])) + 1
    for number, row in enumerate(rows):
        if number:
            typer.echo()
        for name, cell in row.items():
            room = max(width - name_width - 1, _LONG_WIDTH_MIN)
            shown = cell if len(cell) <= room else cell[: room - 1] + "…"
            typer.echo(f"{name.replace('_', ' '):<{name_width}} {shown}")


def _cell(value: object, is_long: bool) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    text = printable("" if value is None else str(value))
    return text if not is_long or len(text) <= LONG_SIZE_MAX else text[: LONG_SIZE_MAX - 1] + "…"
