"""`bolide group`: who consumes, how far they are, and moving them."""

from datetime import datetime
from typing import Annotated

import typer

from bolide.admin.admin import Admin, ProgressRow
from bolide.admin.backtracking import Move, Target
from bolide.cli.output import Format, Namesrv, Output, ask, show
from bolide.cli.start import fail
from bolide.cli.topics import moment
from bolide.model.queue import MessageQueue

app = typer.Typer(help="Consumer groups: who, how far, and moving them.", no_args_is_help=True)
Group = Annotated[str, typer.Argument(help="the consumer group")]


@app.command("list")
def list_(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """All groups: how many members each has, and how far it is behind."""
    rows = ask(namesrv, lambda admin: admin.group_rows())
    table = [
        {
            "group": row.group,
            "members": row.member_count,
            "behind": row.behind,
            "subscriptions": "conflict" if row.has_conflict else "alike" if row.member_count else "",
        }
        for row in rows
    ]
    show(table, output, empty="no groups yet; `bolide consume TOPIC --group NAME` makes one")


@app.command("show")
def show_(group: Group, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Who is in a group, what each member wants, and where they do not want the same."""
    rows = ask(namesrv, lambda admin: admin.member_rows(group))
    table = [
        {
            "client": row.client_id,
            "address": row.address,
            "language": row.language,
            "wants": "; ".join(f"{topic}: {text}" for topic, _, text in sorted(row.wants)) if row.wants else None,
            "conflict": "; ".join(map(str, row.differences)) or None,
        }
        for row in rows
    ]
    show(table, output, empty=f"nobody is in group {group} now; `bolide group progress {group}` shows how far it is")
    mates = {row.mate for row in rows if row.mate}
    if mates and output is Output.TABLE:
        typer.echo(
            f"the members do not want the same (here: the member of the line, there: {', '.join(mates)}), so messages "
            "are missed; give them one subscription, or groups of their own"
        )


@app.command()
def progress(group: Group, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """How far a group has come in every queue."""
    rows = ask(namesrv, lambda admin: admin.group_progress(group))
    empty = f"group {group} has read nothing yet; `bolide group list` shows the groups there are"
    show(_progress_table(rows), output, empty=empty)


def _progress_table(rows: list[ProgressRow]) -> list[dict[str, object]]:
    return [
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


Topic = Annotated[str, typer.Option("-t", "--topic", help="the topic to move it in")]
IsDry = Annotated[bool, typer.Option("--dry-run", help="only show what would be done")]


@app.command()
def reset(
    group: Group,
    topic: Topic,
    to: Annotated[str, typer.Option(help="earliest, latest, a time like 2026-05-01T12:00, or an offset")],
    queue: Annotated[str | None, typer.Option(help="only this queue, as BROKER:NUMBER")] = None,
    is_dry: IsDry = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Have a group go on elsewhere: running members jump, stopped ones begin there."""
    _move(namesrv, group, topic, _target(to, _queue(topic, queue)), output, is_dry=is_dry)


@app.command()
def skip(
    group: Group,
    topic: Topic,
    is_dry: IsDry = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Have a group pass over all it has not consumed yet."""
    _move(namesrv, group, topic, Target(), output, is_dry=is_dry)


@app.command()
def clone(
    source: Annotated[str, typer.Argument(help="the group to copy from")],
    destination: Annotated[str, typer.Argument(help="the group that is to be where that one is; nobody may be in it")],
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="only in this topic")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Let a group be where another is."""

    async def copy(admin: Admin) -> list[ProgressRow]:
        await admin.clone_group(source, destination, topic)
        return await admin.group_progress(destination)

    rows = ask(namesrv, copy)
    show(_progress_table(rows), output, empty=f"group {source} has read nothing that could be copied")


def _move(namesrv: str | None, group: str, topic: str, target: Target, output: Output, *, is_dry: bool) -> None:
    at, offset, queue = target.time_ms, target.offset, target.queue

    async def move(admin: Admin) -> list[Move]:
        plan = await admin.plan_reset(group, topic, at, offset=offset, queue=queue)
        if is_dry:
            return plan
        moved = await admin.reset_group(group, topic, at, offset=offset, queue=queue)
        before = {each.queue: each.before for each in plan}
        return [Move(each, before.get(each), moved[each]) for each in sorted(moved)]

    table = [
        {
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "from": each.before,
            "to": each.after,
            "change": each.distance,
        }
        for each in ask(namesrv, move)
    ]
    show(table, output, empty=f"nothing was moved: {topic} has no queue that can be read")
    if is_dry and output is Output.TABLE:
        typer.echo("nothing was changed; without --dry-run it is done")


def _target(to: str, queue: MessageQueue | None) -> Target:
    if to in ("latest", "newest"):
        return Target(queue=queue)
    if to in ("earliest", "oldest"):
        return Target(0, queue=queue)
    if to.isdecimal():
        return Target(offset=int(to), queue=queue)
    try:
        return Target(int(datetime.fromisoformat(to).timestamp() * 1000), queue=queue)
    except ValueError:
        fail(f"--to {to}: must be earliest, latest, a time like 2026-05-01T12:00, or an offset like 1200")


def _queue(topic: str, text: str | None) -> MessageQueue | None:
    if text is None:
        return None
    broker_name, _, number = text.rpartition(":")
    if not broker_name or not number.isdecimal():
        fail(f"--queue {text}: must be BROKER:NUMBER, as `bolide topic show {topic}` lists them")
    return MessageQueue(topic, broker_name, int(number))
