"""`bolide topic`: which there are, what is in them; create, change and delete."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import click

from bolide.admin.rows import queue_cells
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.completion import broker_names, topic_names
from bolide.cli.exits import fail
from bolide.cli.output import Format, Namesrv, Output, ask, look, report, show
from bolide.cli.times import moment

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.admin.operating import Flow

app = Commands("Create, list, show, change and delete topics.")
Topic = Annotated[str, Argument(help="the topic", complete=topic_names)]


class Kind(StrEnum):
    """The types of messages that a topic may be for."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


@app.add()
def create(
    topic: Topic,
    queues: Annotated[int, Option(help="queues on each broker", min=1)] = 8,
    cluster: Annotated[str | None, Option(help="only on the brokers of this cluster")] = None,
    kind: Annotated[Kind | None, Option("--type", help="which messages gRPC clients may send to it")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Create a topic on every broker; one that exists stays as it is."""
    told = None if kind is None else kind.value
    addresses = ask(namesrv, lambda admin: admin.create_topic(topic, queues, cluster=cluster, message_type=told))
    what = "" if kind is None else f" for {kind.value} messages"
    report(
        f"topic {topic} has {queues} queues on {', '.join(addresses)}{what}",
        {"topic": topic, "queues": queues, "type": told, "brokers": addresses},
        output,
    )


class Permission(StrEnum):
    """What clients may do with a topic."""

    READ = "r"
    WRITE = "w"
    READ_WRITE = "rw"
    NONE = "none"


def permission_text(bits: int) -> str:
    """As it is typed."""
    return ("r" if bits & 4 else "") + ("w" if bits & 2 else "") or "none"


_BITS = {Permission.READ: 4, Permission.WRITE: 2, Permission.READ_WRITE: 6, Permission.NONE: 0}


@app.add("set")
def set_(
    topic: Topic,
    queues: Annotated[int | None, Option(help="queues on each broker, to write and to read", min=1)] = None,
    read_queues: Annotated[int | None, Option(help="queues to read, where they differ", min=1)] = None,
    permission: Annotated[Permission | None, Option(help="read, write, both, or none")] = None,
    cluster: Annotated[str | None, Option(help="only on the brokers of this cluster")] = None,
    broker: Annotated[str | None, Option(help="only on this one, by name or address", complete=broker_names)] = None,
    is_created: Annotated[bool, Option("--create", help="make it where it is missing")] = False,
    is_dry: Annotated[bool, Option("--dry-run", help="only show what would change")] = False,
    is_sure: Annotated[bool, Option("-y", "--yes", help="do not ask")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Change a topic: its queues, or what may be done with it.

    Shows first which messages go out of sight, and asks.
    """
    if queues is None and read_queues is None and permission is None:
        fail("say what to change: --queues, --read-queues or --permission")
    bits = None if permission is None else _BITS[permission]
    lines = ask(namesrv, lambda admin: _consequences(admin, topic, queues, read_queues, is_created=is_created))
    for line in lines:
        click.echo(line, err=output is not Output.TABLE)
    if is_dry:
        click.echo("nothing was changed; without --dry-run it is done", err=output is not Output.TABLE)
        return
    if lines and not is_sure:
        click.confirm(f"Change topic {topic}?", abort=True)
    shapes = ask(
        namesrv,
        lambda admin: admin.set_topic(
            topic,
            queue_count=queues,
            read_queue_count=read_queues,
            permission=bits,
            cluster=cluster,
            broker=broker,
            create=is_created,
        ),
    )
    for name, shape in shapes.items():
        counts = {"write_queues": shape.write_queue_count, "read_queues": shape.read_queue_count}
        done = {"topic": topic, "broker": name, **counts, "permission": permission_text(shape.permission)}
        report(f"topic {topic} has {shape} on {name}", done, output)


async def _consequences(
    admin: "Admin", topic: str, queues: int | None, read_queues: int | None, *, is_created: bool
) -> list[str]:
    """Nothing where the topic is to be made."""
    from bolide.admin.topics import shape_consequences

    if is_created and not await admin.topic_shapes(topic):
        return []
    return await shape_consequences(admin, topic, queues, read_queues)


@app.add("list", watched=True)
def list_(
    with_system: Annotated[bool, Option("--all", help="also those that RocketMQ keeps for itself")] = False,
    has_more: Annotated[bool, Option("--more", help="also its clusters, and the groups that consume it")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The names of all topics."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        found = await admin.topics(with_system=with_system)
        if not found:
            await admin.master_addresses()  # without a broker nobody knows whether there are topics
        return [{"topic": name} | (await _places(admin, name) if has_more else {}) for name in found]

    show(look(namesrv, asked), output, empty="no topics yet; `bolide send TOPIC hello` makes one")


async def _places(admin: "Admin", topic: str) -> dict[str, object]:
    clusters = {data.cluster for data in (await admin.route(topic)).broker_datas}
    return {"clusters": ", ".join(sorted(clusters)), "groups": ", ".join(await admin.topic_groups(topic))}


@app.add("show", watched=True)
def show_(topic: Topic, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Every queue of a topic: its offsets, its last message."""
    rows = look(namesrv, lambda admin: admin.topic_queues(topic))
    table = [queue_cells(row) for row in rows]
    show(table, output, empty=f"topic {topic} has no queues")


@app.add(watched=True)
def route(topic: Topic, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Where a topic is: brokers, queues, and what may be done."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        found = await admin.route(topic)
        places = {data.broker_name: data for data in found.broker_datas}
        return [
            {
                "broker": data.broker_name,
                "cluster": places[data.broker_name].cluster if data.broker_name in places else "",
                "addresses": ", ".join(
                    f"{broker_id}={address}"
                    for broker_id, address in sorted(places[data.broker_name].broker_addrs.items())
                )
                if data.broker_name in places
                else "",
                "write_queues": data.write_queue_nums,
                "read_queues": data.read_queue_nums,
                "permission": permission_text(data.perm),
            }
            for data in found.queue_datas
        ]

    show(look(namesrv, asked), output, empty=f"topic {topic} is nowhere")


@app.add(watched=True)
def groups(topic: Topic, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Which groups consume a topic, and how far behind they are."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for group in await admin.topic_groups(topic):
            members = await admin.members(group)
            progress = [row for row in await admin.group_progress(group) if row.queue.topic == topic]
            count = 0 if members is None else len(members.connection_set)
            rows.append({"group": group, "members": count, "behind": sum(row.behind for row in progress)})
        return rows

    show(look(namesrv, asked), output, empty=f"no group has consumed {topic} yet")


@app.add(watched=True)
def stats(
    topics: Annotated[list[str] | None, Argument(help="which; without any, all", complete=topic_names)] = None,
    has_more: Annotated[
        bool, Option("--more", help="a row for each group: how far behind, how many a second and in a day")
    ] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Queues, messages and last message of each topic, and its groups."""

    async def flows(admin: "Admin") -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for topic in topics or await admin.topics():
            await admin.route(topic)  # which says so if there is none
            into = await admin.flow("TOPIC_PUT_NUMS", topic)
            groups: list[str | None] = [*await admin.topic_groups(topic)]
            rows += [await _flow_cells(admin, topic, into, group) for group in groups or [None]]
        return rows

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for topic in topics or await admin.topics():
            queues = await admin.topic_queues(topic)
            consumers = await admin.topic_groups(topic)
            rows.append(
                {
                    "topic": topic,
                    "queues": len(queues),
                    "messages": sum(row.message_count for row in queues),
                    "last_stored": moment(max((row.last_update_ms for row in queues), default=0)),
                    "groups": ", ".join(consumers),
                }
            )
        return rows

    asking = flows if has_more else asked
    show(look(namesrv, asking), output, empty="no topics yet; `bolide send TOPIC hello` makes one")


async def _flow_cells(admin: "Admin", topic: str, into: "Flow", group: str | None) -> dict[str, object]:
    behind, out = None, None
    if group is not None:
        behind = sum(row.behind for row in await admin.group_progress(group) if row.queue.topic == topic)
        out = await admin.flow("GROUP_GET_NUMS", f"{topic}@{group}")
    return {
        "topic": topic,
        "group": group,
        "behind": behind,
        "in_per_s": into.rate,
        "out_per_s": None if out is None else out.rate,
        "in_24h": into.day_count,
        "out_24h": None if out is None else out.day_count,
    }


@app.add()
def delete(
    topic: Topic,
    namesrv: Namesrv = None,
    is_sure: Annotated[bool, Option("-y", "--yes", help="do not ask")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Delete a topic and everything in it."""
    if not is_sure:
        click.confirm(f"Delete topic {topic} with all its messages?", abort=True)

    async def remove(admin: "Admin") -> None:
        await admin.delete_topic(topic)

    ask(namesrv, remove)
    report(f"topic {topic} deleted", {"topic": topic, "deleted": True}, output)
