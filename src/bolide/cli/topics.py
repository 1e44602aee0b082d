"""`bolide topic`: which there are, what is in them; create, change and delete."""

from enum import StrEnum
from typing import Annotated

import typer

from bolide.admin.admin import Admin
from bolide.cli.output import Format, Namesrv, Output, ask, look, show
from bolide.cli.start import fail
from bolide.cli.times import moment

app = typer.Typer(help="Create, list, show, change and delete topics.", no_args_is_help=True)
Topic = Annotated[str, typer.Argument(help="the topic")]


@app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option(help="queues on each broker", min=1)] = 8,
    cluster: Annotated[str | None, typer.Option(help="only on the brokers of this cluster")] = None,
    namesrv: Namesrv = None,
) -> None:
    """Create a topic on every broker; one that exists stays as it is."""
    addresses = ask(namesrv, lambda admin: admin.create_topic(topic, queues, cluster=cluster))
    typer.echo(f"topic {topic} has {queues} queues on {', '.join(addresses)}")


class Permission(StrEnum):
    """What clients may do with a topic."""

    READ = "r"
    WRITE = "w"
    READ_WRITE = "rw"
    NONE = "none"


_BITS = {Permission.READ: 4, Permission.WRITE: 2, Permission.READ_WRITE: 6, Permission.NONE: 0}


@app.command("set")
def set_(
    topic: Topic,
    queues: Annotated[int | None, typer.Option(help="queues on each broker, to write and to read", min=1)] = None,
    read_queues: Annotated[int | None, typer.Option(help="queues to read, where they differ", min=1)] = None,
    permission: Annotated[Permission | None, typer.Option(help="read, write, both, or none")] = None,
    cluster: Annotated[str | None, typer.Option(help="only on the brokers of this cluster")] = None,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="only show what would change")] = False,
    is_sure: Annotated[bool, typer.Option("-y", "--yes", help="do not ask")] = False,
    namesrv: Namesrv = None,
) -> None:
    """Change a topic: its queues, or what may be done with it.

    Shows first which messages go out of sight, and asks.
    """
    if queues is None and read_queues is None and permission is None:
        fail("say what to change: --queues, --read-queues or --permission")
    for line in ask(namesrv, lambda admin: _consequences(admin, topic, queues, read_queues)):
        typer.echo(line)
    if is_dry:
        typer.echo("nothing was changed; without --dry-run it is done")
        return
    if not is_sure:
        typer.confirm(f"Change topic {topic}?", abort=True)
    bits = None if permission is None else _BITS[permission]
    shapes = ask(
        namesrv,
        lambda admin: admin.set_topic(
            topic, queue_count=queues, read_queue_count=read_queues, permission=bits, cluster=cluster
        ),
    )
    for broker, shape in shapes.items():
        typer.echo(f"topic {topic} has {shape} on {broker}")


async def _consequences(admin: Admin, topic: str, queues: int | None, read_queues: int | None) -> list[str]:
    """What a change of queues does to the messages there are and to those that come."""
    rows = await admin.topic_queues(topic)
    shapes = await admin.topic_shapes(topic)
    read_count = read_queues if read_queues is not None else queues
    hidden = [row for row in rows if read_count is not None and row.queue.queue_id >= read_count and row.message_count]
    lines = [f"topic {topic} has {shape} on {broker} now" for broker, shape in shapes.items()]
    lines += [
        f"{row.message_count} messages in queue {row.queue.queue_id} of {row.queue.broker_name} go out of sight; "
        "they stay on disk, and more read queues show them again"
        for row in hidden
    ]
    if queues is not None and any(shape.write_queue_count != queues for shape in shapes.values()):
        lines.append("messages of one shard go to another queue from then on, so their order is lost once")
    return lines


@app.command("list")
def list_(
    with_system: Annotated[bool, typer.Option("--all", help="also those that RocketMQ keeps for itself")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The names of all topics."""

    async def names(admin: Admin) -> list[str]:
        found = await admin.topics(with_system=with_system)
        if not found:
            await admin.master_addresses()  # without a broker nobody knows whether there are topics
        return found

    rows = [{"topic": name} for name in look(namesrv, names)]
    show(rows, output, empty="no topics yet; `bolide send TOPIC hello` makes one")


@app.command("show")
def show_(topic: Topic, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Every queue of a topic: its offsets, its last message."""
    rows = look(namesrv, lambda admin: admin.topic_queues(topic))
    table = [
        {
            "broker": row.queue.broker_name,
            "queue": row.queue.queue_id,
            "min": row.min_offset,
            "max": row.max_offset,
            "messages": row.message_count,
            "last_stored": moment(row.last_update_ms),
        }
        for row in rows
    ]
    show(table, output, empty=f"topic {topic} has no queues")


@app.command()
def delete(
    topic: Topic,
    namesrv: Namesrv = None,
    is_sure: Annotated[bool, typer.Option("-y", "--yes", help="do not ask")] = False,
) -> None:
    """Delete a topic and everything in it."""
    if not is_sure:
        typer.confirm(f"Delete topic {topic} with all its messages?", abort=True)

    async def remove(admin: Admin) -> None:
        await admin.delete_topic(topic)

    ask(namesrv, remove)
    typer.echo(f"topic {topic} deleted")
