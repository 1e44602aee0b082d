"""`bolide group`: who consumes, how far they are, how failures are retried, and moving them."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import click

from bolide.admin.rows import config_cells, group_cells, member_cells, move_cells, progress_cells, version_text
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.completion import broker_names, group_names, topic_names
from bolide.cli.exits import fail
from bolide.cli.output import Format, Namesrv, Output, ask, look, report, show
from bolide.cli.times import span_ms, time_ms
from bolide.errors import ClientError

if TYPE_CHECKING:
    from bolide.admin.admin import Admin, ProgressRow
    from bolide.admin.backtracking import Target
    from bolide.admin.membership import MemberRow
    from bolide.model.queue import MessageQueue
    from bolide.protocol.bodies.clients import ConsumerConnections
    from bolide.protocol.bodies.groups import GroupConfig, RetryPolicy

app = Commands("Consumer groups: who, how far, how retried, and moving them.")
Group = Annotated[str, Argument(help="the consumer group", complete=group_names)]
_LISTED = "`bolide group list` shows those there are"


@app.add("list", watched=True)
def list_(
    has_more: Annotated[bool, Option("--more", help="also how fast, and how its members consume")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """All groups: members, how far behind, what failed."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        rows = await admin.group_rows()
        return [group_cells(row) | (await _more(admin, row.group) if has_more else {}) for row in rows]

    table = look(namesrv, asked)
    show(table, output, empty="no groups yet; `bolide consume TOPIC --group NAME` makes one")


async def _more(admin: "Admin", group: str) -> dict[str, object]:
    members = await admin.members(group)
    versions = sorted({version_text(each.version) for each in members.connection_set}) if members is not None else []
    return {
        "out_per_s": await admin.consume_rate(group),
        "versions": ", ".join(versions),
        "type": members.consume_type.value if members is not None else None,
        "model": members.message_model.value if members is not None else None,
        "from": members.consume_from_where.value if members is not None else None,
    }


@app.add("show", watched=True)
def show_(group: Group, namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """Who is in a group, and whether they want the same."""

    async def asked(admin: "Admin") -> "tuple[list[MemberRow], ConsumerConnections | None]":
        return await admin.member_rows(group), await admin.members(group)

    rows, members = look(namesrv, asked)
    table = [member_cells(row) for row in rows]
    show(table, output, empty=f"nobody is in group {group} now; `bolide group progress {group}` shows how far it is")
    if members is not None and output is Output.TABLE:
        how = (members.consume_type.value, members.message_model.value, members.consume_from_where.value)
        click.echo(f"the group is {', '.join(how)}")
    mates = {row.mate for row in rows if row.mate}
    if mates and output is Output.TABLE:
        click.echo(
            f"the members do not want the same (the mate is {', '.join(mates)}), so messages are missed; "
            "give them one subscription, or groups of their own"
        )


@app.add(watched=True)
def progress(
    group: Annotated[
        str | None, Argument(help="the consumer group; without it, all groups", complete=group_names)
    ] = None,
    topic: Annotated[str | None, Option("-t", "--topic", help="only in this topic", complete=topic_names)] = None,
    broker: Annotated[str | None, Option(help="only at this one, by name or address", complete=broker_names)] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """How far a group has come in every queue."""

    async def asked(admin: "Admin") -> "tuple[list[tuple[str, ProgressRow]], float | None]":
        names = None if broker is None else set(await admin.broker_addresses(broker))
        by_group = await admin.all_progress() if group is None else {group: await admin.group_progress(group)}
        if group is not None and not by_group[group] and not admin.silent and group not in await admin.groups():
            raise _no_such(group)
        rows = [
            (name, row)
            for name, found in by_group.items()
            for row in found
            if topic in (None, row.queue.topic) and (names is None or row.queue.broker_name in names)
        ]
        return rows, None if group is None else await admin.consume_rate(group)

    rows, rate = look(namesrv, asked)
    table = [({} if group is not None else {"group": name}) | progress_cells(row) for name, row in rows]
    show(
        table,
        output,
        empty="no group has read anything yet" if group is None else f"group {group} has read nothing yet",
    )
    if rows and output is Output.TABLE:
        behind, in_flight = (sum(getattr(row, name) for _, row in rows) for name in ("behind", "in_flight"))
        speed = "" if rate is None else f", {rate:.1f} a second over the last minute"
        click.echo(f"{behind} behind, {in_flight} in flight{speed}")


def _no_such(group: str) -> ClientError:
    from bolide.protocol.codes import ResponseCode

    return ClientError(f"group {group} does not exist; {_LISTED}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


Topic = Annotated[str, Option("-t", "--topic", help="the topic to move it in", complete=topic_names)]
IsDry = Annotated[bool, Option("--dry-run", help="only show what would be done")]


@app.add()
def settings(
    group: Group,
    has_more: Annotated[bool, Option("--more", help="all keys as RocketMQ names them, at every broker")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """May a group consume, and how is it retried?"""
    import msgspec

    async def asked(admin: "Admin") -> "tuple[dict[str, GroupConfig], list[str]]":
        return await admin.group_configs(group), await admin.forbidden_topics(group)

    configs, forbidden = look(namesrv, asked)
    rows = [
        {
            "broker": broker,
            "key": key,
            "value": value if isinstance(value, str) else msgspec.json.encode(value).decode(),
        }
        for broker, config in configs.items()
        for key, value in msgspec.to_builtins(config).items()
    ]
    show(rows if has_more else [_cells(next(iter(configs.values())), forbidden)], output, empty="")


def _cells(config: "GroupConfig", forbidden: list[str]) -> dict[str, object]:
    return config_cells(config) | {"may_not_read": ", ".join(forbidden) or None}


@app.add("set")
def set_(
    group: Group,
    retry_max: Annotated[int | None, Option(help="retries before a message is dead; 16 by default")] = None,
    retry_queues: Annotated[int | None, Option(help="queues of the retry topic; 0 switches retries off")] = None,
    retry_delays: Annotated[
        str | None, Option(help="a delay before each retry, the last for all after it: 1s,10s,5m")
    ] = None,
    backoff: Annotated[
        str | None, Option(help="delays that grow: first:longest:factor, as 5s:2h:2; `levels` for RocketMQ's own")
    ] = None,
    consume: Annotated[bool | None, Option(help="whether the group may consume at all")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Create a group, or change how it is retried."""
    import msgspec

    from bolide.protocol.bodies.groups import GroupConfig

    if retry_delays is not None and backoff is not None:
        fail("give --retry-delays or --backoff, not both")
    changes: dict[str, Any] = {}
    if retry_max is not None:
        changes["retry_max_times"] = retry_max
    if retry_queues is not None:
        changes["retry_queue_nums"] = retry_queues
    if consume is not None:
        changes["consume_enable"] = consume
    if retry_delays is not None or backoff is not None:
        changes["group_retry_policy"] = _policy(retry_delays, backoff or "")

    async def change(admin: "Admin") -> tuple[GroupConfig, list[str]]:
        known = await admin.groups()
        before = await admin.group_config(group) if group in known else GroupConfig(group_name=group)
        await admin.set_group(msgspec.structs.replace(before, **changes))
        return await admin.group_config(group), await admin.forbidden_topics(group)

    show([_cells(*ask(namesrv, change))], output, empty="")


@app.add()
def forbid(
    group: Group,
    topic: Annotated[str, Option("-t", "--topic", help="the topic it may not read", complete=topic_names)],
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Keep a group from reading a topic; how far it is stays."""
    brokers = ask(namesrv, lambda admin: admin.forbid(group, topic))
    sentence = f"group {group} may not read {topic} any more; `bolide group allow {group} -t {topic}` lets it again"
    report(sentence, {"group": group, "topic": topic, "readable": False, "brokers": brokers}, output)


@app.add()
def allow(
    group: Group,
    topic: Annotated[str, Option("-t", "--topic", help="the topic it may read again", complete=topic_names)],
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Let a group read a topic again that was forbidden to it."""
    brokers = ask(namesrv, lambda admin: admin.allow(group, topic))
    sentence = f"group {group} may read {topic}"
    report(sentence, {"group": group, "topic": topic, "readable": True, "brokers": brokers}, output)


def _policy(listed: str | None, growing: str) -> "RetryPolicy":
    from bolide.protocol.bodies.groups import GrowingDelays, ListedDelays, RetryKind, RetryPolicy

    if listed is not None:
        delays = [span_ms("--retry-delays", word) for word in listed.split(",")]
        return RetryPolicy(type=RetryKind.CUSTOMIZED, customized_retry_policy=ListedDelays(next=delays))
    if growing == "levels":
        return RetryPolicy()
    words = growing.split(":")
    if len(words) != 3 or not words[2].isdecimal():
        fail(f"--backoff {growing}: must be first:longest:factor, as 5s:2h:2, or levels")
    first, longest = (span_ms("--backoff", word) for word in words[:2])
    delays_ms = GrowingDelays(initial=first, max=longest, multiplier=int(words[2]))
    return RetryPolicy(type=RetryKind.EXPONENTIAL, exponential_retry_policy=delays_ms)


@app.add()
def reset(
    group: Group,
    topic: Topic,
    to: Annotated[str, Option(help="earliest, latest, a time like 2026-05-01T12:00 or -1h, or an offset")],
    queue: Annotated[str | None, Option(help="only this queue, as BROKER:NUMBER")] = None,
    is_dry: IsDry = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Have a group go on elsewhere.

    Running members jump there, stopped ones begin there.
    """
    _move(namesrv, group, topic, _target(to, _queue(topic, queue)), output, is_dry=is_dry)


@app.add()
def skip(
    group: Group,
    topic: Topic,
    is_dry: IsDry = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Have a group pass over all it has not consumed yet."""
    _move(namesrv, group, topic, _target("latest", None), output, is_dry=is_dry)


@app.add()
def clone(
    source: Annotated[str, Argument(help="the group to copy from")],
    destination: Annotated[str, Argument(help="the group that is to be where that one is; nobody may be in it")],
    topic: Annotated[str | None, Option("-t", "--topic", help="only in this topic")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Let a group be where another is."""
    from bolide.protocol.codes import ResponseCode

    async def copy(admin: "Admin") -> "list[ProgressRow]":
        if not await admin.group_progress(source):
            sentence = f"group {source} has read nothing that could be copied; {_LISTED}"
            raise ClientError(sentence, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        await admin.clone_group(source, destination, topic)
        return await admin.group_progress(destination)

    show(
        [progress_cells(row) for row in ask(namesrv, copy)],
        output,
        empty=f"{source} is nowhere in {topic}: nothing was copied",
    )


@app.add()
def delete(
    group: Group,
    is_sure: Annotated[bool, Option("-y", "--yes", help="do not ask")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Delete a group: how far it is, and what it would retry."""
    if not is_sure:
        click.confirm(f"Delete group {group} with its progress and its retries?", abort=True)

    async def remove(admin: "Admin") -> None:
        if group not in await admin.groups():
            raise _no_such(group)
        if await admin.members(group) is not None:
            raise ClientError(f"group {group} has members online, who would make it again: stop them first")
        await admin.delete_group(group)

    ask(namesrv, remove)
    report(f"group {group} deleted; its dead letters stay", {"group": group, "deleted": True}, output)


def _move(namesrv: str | None, group: str, topic: str, target: "Target", output: Output, *, is_dry: bool) -> None:
    from bolide.admin.backtracking import Move

    at, offset, queue = target.time_ms, target.offset, target.queue

    async def move(admin: "Admin") -> list[Move]:
        if group not in await admin.groups():
            raise ClientError(f"group {group} does not exist; {_LISTED}, and `bolide group set {group}` makes it")
        plan = await admin.plan_reset(group, topic, at, offset=offset, queue=queue)
        if is_dry:
            return plan
        moved = await admin.reset_group(group, topic, at, offset=offset, queue=queue)
        before = {each.queue: each.before for each in plan}
        return [Move(each, before.get(each), moved[each]) for each in sorted(moved)]

    moves = ask(namesrv, move)
    show(map(move_cells, moves), output, empty=f"nothing was moved: {topic} has no queue that can be read")
    outside = 0 if offset is None else sum(each.after != offset for each in moves)
    if outside:
        click.echo(
            f"{outside} of {len(moves)} queues have no offset {offset}: they go on at the end next to it", err=True
        )
    if is_dry and output is Output.TABLE:
        click.echo("nothing was changed; without --dry-run it is done")


def _target(to: str, queue: "MessageQueue | None") -> "Target":
    from bolide.admin.backtracking import Target

    if to in ("latest", "newest"):
        return Target(queue=queue)
    if to in ("earliest", "oldest"):
        return Target(0, queue=queue)
    if to.isdecimal():
        return Target(offset=int(to), queue=queue)
    if not re.match(r"\d{4}-|[-+]\d|now", to):
        fail(f"--to {to}: must be earliest, latest, a time like 2026-05-01T12:00 or -1h, or an offset like 1200")
    return Target(time_ms("--to", to), queue=queue)


def _queue(topic: str, text: str | None) -> "MessageQueue | None":
    if text is None:
        return None
    from bolide.model.queue import MessageQueue

    broker_name, _, number = text.rpartition(":")
    if not broker_name or not number.isdecimal():
        fail(f"--queue {text}: must be BROKER:NUMBER, as `bolide topic show {topic}` lists them")
    return MessageQueue(topic, broker_name, int(number))
