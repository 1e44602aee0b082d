"""`bolide group`: who consumes, how far they are, and moving them."""

from datetime import datetime
from typing import Annotated

import typer

from bolide.cli.output import Format, Namesrv, Output, ask, show
from bolide.cli.start import fail
from bolide.cli.topics import moment

app = typer.Typer(help="Consumer groups: list, progress, reset.", no_args_is_help=True)
Group = Annotated[str, typer.Argument(help="the consumer group")]


@app.command("list")
def list_(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """All groups: how many members each has, and how far it is behind."""
    rows = ask(namesrv, lambda admin: admin.group_rows())
    table = [{"group": row.group, "members": row.member_count, "behind": row.behind} for row in rows]
    show(table, output, empty="no groups yet; `bolide consume TOPIC --group NAME` makes one")


@app.command()
def progress(group: Group, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """How far a group has come in every queue."""
    rows = ask(namesrv, lambda admin: admin.group_progress(group))
    table = [
        {
            "topic": row.queue.topic,
            "broker": row.queue.broker_name,
            "queue": row.queue.queue_id,
            "offset": row.consumer_offset,
            "end": row.broker_offset,
            "behind": row.behind,
            "last consumed": moment(row.last_consumed_ms),
        }
        for row in rows
    ]
    show(table, output, empty=f"group {group} has read nothing yet; `bolide group list` shows the groups there are")


@app.command()
def reset(
    group: Group,
    topic: Annotated[str, typer.Argument(help="the topic to move it in")],
    to: Annotated[str, typer.Option(help="oldest, newest, or a time like 2026-05-01T12:00")],
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Have a group go on elsewhere: running members jump, stopped ones begin there."""
    time_ms = _time_ms(to)
    moved = ask(namesrv, lambda admin: admin.reset_group(group, topic, time_ms))
    table = [{"broker": queue.broker_name, "queue": queue.queue_id, "offset": moved[queue]} for queue in sorted(moved)]
    show(table, output, empty=f"nothing was moved: {group} has no queue of {topic}")


def _time_ms(text: str) -> int:
    if text == "newest":
        return -1
    if text == "oldest":
        return 0
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        fail(f"--to {text}: must be oldest, newest, or a time like 2026-05-01T12:00")
