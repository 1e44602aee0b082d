"""`bolide trace`: the way of a message, as those who sent and consumed it told."""

from typing import TYPE_CHECKING, Annotated

import click

from bolide.cli.commands import Argument, Option
from bolide.cli.exits import NOT_THERE, fail
from bolide.cli.forms import printable
from bolide.cli.output import Format, Namesrv, Output, ask, say, show
from bolide.cli.times import moment
from bolide.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.admin.traces import MessageTrace


def trace(
    wanted: Annotated[str, Argument(metavar="ID", help="the id of a message, the broker's id of it, or a key")],
    topic: Annotated[str, Option("--trace-topic", help="the topic that clients trace to")] = TRACE_TOPIC,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Who sent a message and what each group made of it.

    Producers and consumers that were made with trace=True tell it.
    """

    async def look(admin: "Admin") -> "list[MessageTrace]":
        # It is made with the first record that is told.
        return await admin.trace(wanted, topic) if topic in await admin.topics(with_system=True) else []

    found = ask(namesrv, look)
    if output is not Output.TABLE:
        from dataclasses import asdict

        say([asdict(each) for each in found], output)
        return
    if not found:
        fail(
            f"nothing was told of {wanted} in {topic}; producers and consumers tell with trace=True, "
            "and records take a second to arrive",
            NOT_THERE,
        )
    for number, each in enumerate(found):
        if number:
            click.echo()
        _show(each)


def _show(trace: "MessageTrace") -> None:
    facts = {
        "topic": trace.topic,
        "tags": trace.tags,
        "keys": " ".join(trace.keys),
        "size": f"{trace.body_size} bytes" if trace.body_size is not None else None,
        "kind": trace.kind if trace.kind != "normal" else None,
        "offset id": trace.offset_id,
    }
    click.echo(f"message {printable(trace.message_id)}")
    for name, value in facts.items():
        if value:
            click.echo(f"  {name:<10}{printable(value)}")
    begun_ms = trace.steps[0].at_ms
    rows = [
        {
            "at": moment(step.at_ms),
            "after_ms": step.at_ms - begun_ms,
            "what": step.what,
            "group": step.group,
            "client": step.client,
            "cost_ms": step.cost_ms,
            "attempt": step.attempt,
            "status": step.status,
            "where": step.where,
        }
        for step in trace.steps
    ]
    show(rows, Output.TABLE, empty="")
