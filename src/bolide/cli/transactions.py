"""`bolide transaction`: what is neither committed nor rolled back, what brokers gave up, and taking it up again."""

from typing import TYPE_CHECKING, Annotated

import click

from bolide.admin.rows import transaction_cells
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.output import Format, Namesrv, Output, ask, show
from bolide.clock import SystemClock

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.admin.transactions import OpenTransaction

app = Commands("Transactions: list the undecided, resume the given up.")


@app.add("list")
def list_(
    given_up: Annotated[bool, Option("--given-up", help="those that were asked about too often instead")] = False,
    group: Annotated[str | None, Option(help="only those of this producer group")] = None,
    limit: Annotated[int, Option(help="at most this many")] = 100,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Half messages that nobody decided yet."""

    async def look(admin: "Admin") -> "list[OpenTransaction]":
        found: list[OpenTransaction] = []
        async for each in admin.given_up_transactions() if given_up else admin.open_transactions():
            if group is None or each.group == group:
                found.append(each)
            if len(found) >= limit:
                break
        return found

    now_ms = SystemClock().now_ms()
    table = [transaction_cells(each, now_ms) for each in ask(namesrv, look)]
    what = "no transaction was given up" if given_up else "no open transactions: all are committed or rolled back"
    show(table, output, empty=what)


@app.add()
def resume(
    ids: Annotated[list[str], Argument(help="offset ids, as `list --given-up` shows them")],
    namesrv: Namesrv = None,
) -> None:
    """Have transactions that were given up asked about again."""

    async def take_up(admin: "Admin") -> None:
        for offset_id in ids:
            await admin.resume_transaction(offset_id)

    ask(namesrv, take_up)
    click.echo(f"{len(ids)} taken up again; their producers are asked within the next rounds")
