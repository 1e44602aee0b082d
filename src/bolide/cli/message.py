"""`bolide message`: find a message by its id, by a key, by its place, by its time or by what is in it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import click

from bolide.admin.rows import message_cells
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.completion import topic_names
from bolide.cli.connection import name_servers
from bolide.cli.exits import NOT_THERE, fail, plain_errors
from bolide.cli.forms import printable
from bolide.cli.output import Format, Namesrv, Output, ask, say, show
from bolide.cli.times import moment, time_ms

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.client.pulling.puller import PullConsumer
    from bolide.model.message import StoredMessage
    from bolide.model.queue import MessageQueue

app = Commands("Messages: get one, query by key, find by content, print a range.")
Topic = Annotated[str, Argument(help="the topic", complete=topic_names)]
Since = Annotated[str | None, Option(help="stored from then on: 2026-05-01T12:00, -1h")]
Until = Annotated[str | None, Option(help="stored before then")]
Limit = Annotated[int, Option(help="at most this many", min=1)]
Queue = Annotated[str | None, Option("--queue", help="only this queue, as BROKER:NUMBER")]
_EVER_MS = (1 << 62) - 1


@app.add()
def get(
    wanted: Annotated[str, Argument(metavar="ID", help="the id of a producer or of a broker, or BROKER:QUEUE@OFFSET")],
    topic: Annotated[
        str | None, Option("-t", "--topic", help="where to look, for all but a broker's id", complete=topic_names)
    ] = None,
    has_more: Annotated[bool, Option("--more", help="also what each group did with it")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """One message, whole: by its id or by its place."""
    place, _, offset = wanted.rpartition("@")
    if place and offset.isdecimal():
        queue = _queue(_needed(topic), place)
        found = _run(_at(name_servers(namesrv), queue, int(offset)))
    else:
        found = ask(namesrv, lambda admin: _by_id(admin, wanted, topic))
    if not found:
        fail(f"no message {printable(wanted)} {f'in {topic}' if topic else ''}: it may have expired", NOT_THERE)
    rows = [message_cells(message) for message in found]
    if has_more:
        fates = ask(namesrv, lambda admin: _fates(admin, found))
        rows = [row | {"groups": fate} for row, fate in zip(rows, fates, strict=True)]
    _tell_whole(rows, output)


async def _fates(admin: "Admin", found: list["StoredMessage"]) -> list[dict[str, str]]:
    return [await admin.message_fates(message) for message in found]


async def _by_id(admin: "Admin", wanted: str, topic: str | None) -> list["StoredMessage"]:
    from bolide.errors import ClientError
    from bolide.model.message import parse_offset_id

    is_place = parse_offset_id(wanted) is not None
    if topic is None and not is_place:
        raise ClientError(f"{wanted} is an id that a producer gave: say in which topic it is, with --topic")
    found = await admin.messages_by_id(topic, wanted) if topic is not None else []
    if found or not is_place:
        return found
    try:
        return [await admin.message_at(wanted)]
    except ClientError:
        if topic is None:
            raise
        return []  # a producer's id may look like the broker's, and names no host then


@app.add()
def query(
    topic: Topic,
    key: Annotated[str, Argument(help="a key that it was sent with")],
    since: Since = None,
    until: Until = None,
    limit: Limit = 64,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The messages with a key, oldest first."""
    begin, end = _times(since, until)
    _tell(
        ask(namesrv, lambda admin: admin.messages_by_key(topic, key, count_max=limit, begin_ms=begin, end_ms=end)),
        output,
        empty=f"no message of {topic} has the key {key}",
    )


@app.add()
def find(
    topic: Topic,
    text: Annotated[str, Argument(help="what its body, a property or its tag holds")],
    since: Since = None,
    until: Until = None,
    queue: Queue = None,
    limit: Limit = 20,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The messages that hold a text; reads the whole range, so say --since."""
    wanted = text.encode()

    def holds(message: "StoredMessage") -> bool:
        return wanted in message.body or any(text in value for value in message.properties.values())

    found = _run(_walk(name_servers(namesrv), topic, queue, _times(since, until), limit, holds))
    _tell(found, output, empty=f"no message of {topic} holds {text!r} in this range")


@app.add("print")
def print_(
    topic: Topic,
    since: Since = None,
    until: Until = None,
    queue: Queue = None,
    limit: Limit = 50,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The messages of a range of time, queue by queue."""
    found = _run(_walk(name_servers(namesrv), topic, queue, _times(since, until), limit, lambda _: True))
    _tell(found, output, empty=f"{topic} has no message in this range")


def _run(reading: Any) -> list["StoredMessage"]:
    with plain_errors():
        import asyncio

        found: list[StoredMessage] = asyncio.run(reading)
        return found


def _needed(topic: str | None) -> str:
    if topic is None:
        fail("a place is one of a topic: say which, with --topic")
    return topic


def _times(since: str | None, until: str | None) -> tuple[int, int]:
    begin = 0 if since is None else time_ms("--since", since)
    return begin, _EVER_MS if until is None else time_ms("--until", until)


def _queue(topic: str, text: str) -> "MessageQueue":
    from bolide.model.queue import MessageQueue

    broker_name, _, number = text.rpartition(":")
    if not broker_name or not number.isdecimal():
        fail(f"{text}: must be BROKER:NUMBER, as `bolide topic show {topic}` lists them")
    return MessageQueue(topic, broker_name, int(number))


async def _at(namesrv: str, queue: "MessageQueue", offset: int) -> list["StoredMessage"]:
    from bolide.client.pulling.puller import PullConsumer

    async with PullConsumer("bolide-cli", namesrv) as consumer:
        pulled = await consumer.pull(queue, offset, count_max=1)
        return [message.stored for message in pulled.messages if message.queue_offset == offset]


async def _walk(
    namesrv: str, topic: str, queue: str | None, times: tuple[int, int], limit: int, holds: Any
) -> list["StoredMessage"]:
    from bolide.client.pulling.puller import PullConsumer

    found: list[StoredMessage] = []
    async with PullConsumer("bolide-cli", namesrv) as consumer:
        queues = await consumer.queues(topic) if queue is None else [_queue(topic, queue)]
        for each in sorted(queues):
            async for message in _range(consumer, each, *times):
                if holds(message):
                    found.append(message)
                    if len(found) == limit:
                        return found
    return found


async def _range(
    consumer: "PullConsumer", queue: "MessageQueue", begin_ms: int, end_ms: int
) -> AsyncIterator["StoredMessage"]:
    offset = await consumer.min_offset(queue) if not begin_ms else await consumer.offset_at(queue, begin_ms)
    end = await consumer.max_offset(queue)
    while offset < end:
        pulled = await consumer.pull(queue, offset)
        for message in pulled.messages:
            if message.stored_at >= end_ms:
                return
            if message.stored_at >= begin_ms:
                yield message.stored
        if pulled.next_offset <= offset:
            return
        offset = pulled.next_offset


def _tell_whole(rows: list[dict[str, Any]], output: Output) -> None:
    if output is not Output.TABLE:
        say(rows, output)
        return
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for name, value in row.items():
            click.echo(f"{name.replace('_', ' '):<12} {_cell(name, value)}")


def _tell(found: list["StoredMessage"], output: Output, *, empty: str = "") -> None:
    rows = [message_cells(message) for message in found]
    if output is not Output.TABLE:
        say(rows, output)
        return
    table = [
        {"id": row["id"], "queue": row["queue"], "offset": row["offset"], "tags": row["tags"]}
        | {"keys": " ".join(row["keys"]), "stored": moment(row["stored_at"]), "body": row["body"]}
        for row in rows
    ]
    show(table, output, empty=empty, long=("body",))


def _cell(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, int):
        return moment(value)
    if isinstance(value, dict):
        return printable(" ".join(f"{key}={text}" for key, text in value.items()))
    return printable(" ".join(value) if isinstance(value, list) else "" if value is None else str(value))
