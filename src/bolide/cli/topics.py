"""`bolide topic`: which there are, what is in them; create and delete."""

from typing import Annotated

import typer

from bolide.admin.admin import Admin
from bolide.cli.output import Format, Namesrv, Output, ask, show
from bolide.cli.times import moment

app = typer.Typer(help="Create, list, show and delete topics.", no_args_is_help=True)
Topic = Annotated[str, typer.Argument(help="the topic")]


@app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option(help="queues on each broker", min=1)] = 8,
    cluster: Annotated[str | None, typer.Option(help="only on the brokers of this cluster")] = None,
    namesrv: Namesrv = None,
) -> None:
    """Create a topic on every broker, or change its number of queues."""
    addresses = ask(namesrv, lambda admin: admin.create_topic(topic, queues, cluster=cluster))
    typer.echo(f"topic {topic} has {queues} queues on {', '.join(addresses)}")


@app.command("list")
def list_(
    with_system: Annotated[bool, typer.Option("--all", help="also those that RocketMQ keeps for itself")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The names of all topics."""
    names = ask(namesrv, lambda admin: admin.topics(with_system=with_system))
    show([{"topic": name} for name in names], output, empty="no topics yet; `bolide send TOPIC hello` makes one")


@app.command("show")
def show_(topic: Topic, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Every queue of a topic: its offsets, its last message."""
    rows = ask(namesrv, lambda admin: admin.topic_queues(topic))
    table = [
        {
            "broker": row.queue.broker_name,
            "queue": row.queue.queue_id,
            "min": row.min_offset,
            "max": row.max_offset,
            "messages": row.max_offset - row.min_offset,
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
