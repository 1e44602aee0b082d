"""`bolide transaction`: what is neither committed nor rolled back, what brokers gave up, and taking it up again."""

from typing import Annotated

import typer

from bolide.admin.admin import Admin
from bolide.admin.transactions import OpenTransaction
from bolide.cli.output import Format, Namesrv, Output, ask, show
from bolide.cli.times import moment
from bolide.clock import SystemClock

app = typer.Typer(help="Transactions: list the undecided, resume the given up.", no_args_is_help=True)


@app.command("list")
def list_(
    given_up: Annotated[bool, typer.Option("--given-up", help="those that were asked about too often instead")] = False,
    group: Annotated[str | None, typer.Option(help="only those of this producer group")] = None,
    limit: Annotated[int, typer.Option(help="at most this many")] = 100,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Half messages that nobody decided yet."""

    async def look(admin: Admin) -> list[OpenTransaction]:
        found: list[OpenTransaction] = []
        async for each in admin.given_up_transactions() if given_up else admin.open_transactions():
            if group is None or each.group == group:
                found.append(each)
            if len(found) >= limit:
                break
        return found

    now_ms = SystemClock().now_ms()
    table = [
        {
            "id": each.id,
            "topic": each.topic,
            "group": each.group,
            "keys": " ".join(each.message.keys),
            "begun": moment(each.message.born_at),
            "age_s": (now_ms - each.message.born_at) // 1000,
            "checks": each.check_count,
            "broker": each.broker_name,
            "offset_id": each.offset_id,
        }
        for each in ask(namesrv, look)
    ]
    what = "no transaction was given up" if given_up else "no open transactions: all are committed or rolled back"
    show(table, output, empty=what)


@app.command()
def resume(
    ids: Annotated[list[str], typer.Argument(help="offset ids, as `list --given-up` shows them")],
    namesrv: Namesrv = None,
) -> None:
    """Have transactions that were given up asked about again."""

    async def take_up(admin: Admin) -> None:
        for offset_id in ids:
            await admin.resume_transaction(offset_id)

    ask(namesrv, take_up)
    typer.echo(f"{len(ids)} taken up again; their producers are asked within the next rounds")
