"""The members of a group, and where they do not want the same."""

import msgspec

from bolide.filter.agreement import Difference, Wants, differences, wants_of
from bolide.model.message import StoredMessage
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.clients import Connection, ConsumerConnections, MessageModel
from bolide.protocol.bodies.consumers import RunningConsumer


class MemberRow(msgspec.Struct, frozen=True):
    """One member. `wants` is None if it did not say; `differences` are with the first that did, `mate`."""

    client_id: str
    address: str
    language: str
    version: int
    wants: Wants | None
    mate: str | None = None
    queues: tuple[MessageQueue, ...] = ()  # that it holds, as it says
    differences: tuple[Difference, ...] = ()
    since_ms: int | None = None


def member_row(connection: Connection, told: RunningConsumer | None) -> MemberRow:
    """What a broker and the member itself say of it."""
    wants, since = None, ""
    queues: tuple[MessageQueue, ...] = ()
    if told is not None:
        rows = ((each.topic, each.expression_type, each.sub_string) for each in told.subscription_set)
        wants = wants_of(rows) or None
        queues = tuple(sorted({*told.mq_table, *told.mq_pop_table}))
        since = told.properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    return MemberRow(
        connection.client_id,
        connection.client_addr,
        connection.language,
        connection.version,
        wants,
        queues=queues,
        since_ms=int(since) if since.isdecimal() and len(since) < 19 else None,
    )


def fate(message: StoredMessage, members: ConsumerConnections | None, *, is_passed: bool) -> str:
    """What became of a message in a group that has passed it, or not; members that wanted less than all left it out."""
    if members is None:
        return "consumed, nobody is online" if is_passed else "nobody is online"
    if members.message_model is MessageModel.BROADCASTING:
        return "broadcast: each member keeps its own progress"
    if not is_passed:
        return "not yet"
    wanted = members.subscription_table.get(message.topic)
    tags = wanted.tags_set if wanted is not None and wanted.expression_type == "TAG" else ()
    return "consumed" if not tags or message.tags in tags else "filtered out"


def with_differences(rows: list[MemberRow]) -> list[MemberRow]:
    """The same members, each compared with the first that said what it wants."""
    first = next((row for row in rows if row.wants is not None), None)
    if first is None or first.wants is None:
        return rows
    theirs = first.wants
    return [
        row
        if row.wants is None or row.wants == theirs
        else msgspec.structs.replace(row, mate=first.client_id, differences=tuple(differences(row.wants, theirs)))
        for row in rows
    ]
