"""`bolide send`, `consume`, `tail` and `run`: messages from and to the shell."""

import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from bolide.cli.commands import Argument, Option
from bolide.cli.connection import name_servers
from bolide.cli.exits import fail, pairs_of, plain_errors
from bolide.cli.forms import printable
from bolide.cli.output import Format, Namesrv, Output, ask, say
from bolide.cli.times import span_ms, time_ms

if TYPE_CHECKING:
    from bolide import Consumer, MessageQueue, Receipt, Received, Sql
    from bolide.admin.admin import Admin, ProgressRow
    from bolide.client.options import When
    from bolide.client.pulling.puller import PullConsumer

EVERYTHING = "*"
SqlText = Annotated[
    str | None, Option("--sql", help="which properties, as \"price > 10 AND region IN ('north', 'south')\"")
]
_SHOWN_SIZE = 2000
# Name servers hear of a new topic a moment after its first message was taken, so one that has no route is waited for.
_ROUTE_PAUSE_S = 0.1
_PAUSES_UNTIL_SAID = 5
_PAUSES_MAX = 30


def send(
    topic: Annotated[str, Argument(help="where to")],
    body: Annotated[str | None, Argument(help="the message; without it, each line of standard input is one")] = None,
    file: Annotated[Path | None, Option("--file", help="send the content of this file as one message")] = None,
    tags: Annotated[str | None, Option(help="the message's tag")] = None,
    keys: Annotated[list[str] | None, Option("--keys", help="a key to find it by; may be repeated")] = None,
    properties: Annotated[list[str] | None, Option("--property", help="name=value; may be repeated")] = None,
    shard: Annotated[str | None, Option(help="messages of one shard keep their order")] = None,
    delay: Annotated[str | None, Option(help="deliver it after so long: 90 (seconds), 30m, 2h")] = None,
    deliver_at: Annotated[
        str | None, Option(help="deliver it then: 2026-01-31T08:00, or with a zone, 2026-01-31T08:00+01:00")
    ] = None,
    delay_level: Annotated[
        int | None, Option(help="deliver it after one of RocketMQ's 18 delays: 1 is 1 s, 18 is 2 h")
    ] = None,
    group: Annotated[str, Option(help="the producer group")] = "bolide-cli",
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Send a message, a file or lines of text, now or for later."""
    from bolide import Producer

    when = _when(delay, deliver_at, delay_level)
    with plain_errors(), Producer(group, name_servers(namesrv)) as producer:
        own = pairs_of("--property", properties)
        count = 0
        for content in _bodies(body, file):
            receipt = producer.send(topic, content, tags=tags, keys=keys or (), properties=own, shard=shard, **when)
            count += 1
            row = {
                "id": receipt.msg_id,
                "broker": receipt.queue.broker_name,
                "queue": receipt.queue.queue_id,
                "offset": receipt.queue_offset,
                "status": receipt.status.name,
                "recall_handle": receipt.recall_handle,
            }
            if output is Output.TABLE:
                click.echo(_receipt_line(receipt))
            else:
                say(row, output)
        if not count:
            fail("nothing to send: standard input was empty")


def _receipt_line(receipt: "Receipt") -> str:
    line = f"{receipt.msg_id} {receipt.queue.broker_name}:{receipt.queue.queue_id}@{receipt.queue_offset}"
    return f"{line} recall with: bolide recall {receipt.recall_handle}" if receipt.recall_handle else line


def _when(delay: str | None, deliver_at: str | None, delay_level: int | None) -> "When":
    when: When = {}
    if delay is not None:
        when["delay"] = span_ms("--delay", delay) / 1000
    if deliver_at is not None:
        when["deliver_at"] = time_ms("--deliver-at", deliver_at) / 1000
    if delay_level is not None:
        when["delay_level"] = delay_level
    return when


def recall(
    handle: Annotated[str, Argument(help="what `bolide send --delay` printed")],
    group: Annotated[str, Option(help="the producer group")] = "bolide-cli",
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Take a timed message back before it is delivered."""
    from bolide import Producer
    from bolide.protocol.ids import parse_recall_handle

    if parse_recall_handle(handle) is None:
        fail(f"{printable(handle[:40])} is no recall handle; `bolide send --delay` prints one")
    with plain_errors(), Producer(group, name_servers(namesrv)) as producer:
        message_id = producer.recall(handle)
        if output is Output.TABLE:
            click.echo(f"{message_id} is recalled")
        else:
            say({"id": message_id}, output)


def _bodies(body: str | None, file: Path | None) -> Iterator[bytes]:
    if body is not None and file is not None:
        fail("give the message or --file, not both")
    if file is not None:
        yield file.read_bytes()
    elif body is not None:
        yield body.encode()
    else:
        for line in sys.stdin.buffer:
            if content := line.rstrip(b"\r\n"):
                yield content


def consume(
    topic: Annotated[str, Argument(help="which topic")],
    group: Annotated[
        str | None, Option(help="read as a member of this group, which remembers how far it has come")
    ] = None,
    expression: Annotated[str, Option("--tags", help="which tags, as 'A || B'")] = EVERYTHING,
    sql: SqlText = None,
    from_beginning: Annotated[
        bool, Option(help="begin with the oldest message; a group that has read before goes on where it was")
    ] = False,
    limit: Annotated[int | None, Option(help="stop after this many")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Print messages as they come, alone or in a group."""
    if group is None:
        _read_alone(topic, expression, sql, limit, namesrv, output, is_whole=from_beginning)
        return
    from bolide import Consumer, StartFrom

    start = StartFrom.oldest() if from_beginning else StartFrom.newest()
    if from_beginning:
        _say_where(namesrv, group, topic)
    with plain_errors():
        topics = {topic: _wanted(expression, sql)}
        consumer = Consumer(group, topics, name_servers(namesrv), start_from=start)
    _print_all(consumer, limit, output)


def _say_where(namesrv: str | None, group: str, topic: str) -> None:
    """A group begins once; who asks for the beginning again would wait in silence."""
    from bolide.errors import AccessRefused

    async def progress(admin: "Admin") -> "list[ProgressRow]":
        try:
            return await admin.group_progress(group)
        except AccessRefused:
            return []  # a consumer needs no right to look at its group, and reads all the same

    rows = ask(namesrv, progress)
    if any(row.queue.topic == topic for row in rows):
        click.echo(
            f"group {group} has read {topic} before and goes on where it was; "
            f"`bolide group reset {group} --topic {topic} --to earliest` has it begin again",
            err=True,
        )


def _wanted(tags: str, sql: str | None) -> "str | Sql":
    if sql is None:
        return tags
    if tags != EVERYTHING:
        fail("give --tags or --sql, not both: say TAGS = 'A' in the expression")
    from bolide import Sql

    return Sql(sql)


def tail(
    topic: Annotated[str, Argument(help="which topic")],
    expression: Annotated[str, Option("--tags", help="which tags, as 'A || B'")] = EVERYTHING,
    sql: SqlText = None,
    limit: Annotated[int | None, Option(help="stop after this many")] = None,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Print what is sent from now on, without a group."""
    _read_alone(topic, expression, sql, limit, namesrv, output, is_whole=False)


def _read_alone(
    topic: str,
    expression: str,
    sql: str | None,
    limit: int | None,
    namesrv: str | None,
    output: Output,
    *,
    is_whole: bool,
) -> None:
    import asyncio

    with plain_errors():
        wanted = _wanted(expression, sql)
        asyncio.run(_follow(topic, wanted, limit, name_servers(namesrv), output, is_whole=is_whole))


async def _follow(
    topic: str, expression: "str | Sql", count_max: int | None, namesrv: str, output: Output, *, is_whole: bool
) -> None:
    """Read every queue without a group: from its first message, or from now on."""
    import asyncio

    from bolide.client.pulling.puller import PullConsumer

    left = count_max if count_max is not None else -1

    async def follow(consumer: PullConsumer, queue: "MessageQueue", offset: int, done: asyncio.Event) -> None:
        nonlocal left
        while left:
            pulled = await consumer.pull(queue, offset, expression=expression, wait_s=15)
            offset = pulled.next_offset
            for message in pulled.messages[: left if left >= 0 else None]:
                left -= 1
                _print(message, output)
                if not left:
                    break
        done.set()

    async with PullConsumer("bolide-tail", namesrv) as consumer, asyncio.TaskGroup() as queues:
        done = asyncio.Event()
        found, is_new = await _routed(consumer, topic)
        find = consumer.min_offset if is_whole or is_new else consumer.max_offset
        starts = {queue: await find(queue) for queue in found}
        tasks = [
            queues.create_task(follow(consumer, queue, offset, done), name=f"tail.{queue.queue_id}")
            for queue, offset in starts.items()
        ]
        await done.wait()
        for task in tasks:
            task.cancel()


async def _routed(consumer: "PullConsumer", topic: str) -> "tuple[list[MessageQueue], bool]":
    """The queues of a topic, and whether it is one that came while somebody was told that we wait for it."""
    import asyncio

    from bolide.client.instance import NO_ROUTE, NoBroker
    from bolide.errors import ClientError

    for pause in range(_PAUSES_MAX + 1):
        try:
            return await consumer.queues(topic), pause > _PAUSES_UNTIL_SAID
        except ClientError as problem:
            if problem.code != NO_ROUTE or isinstance(problem, NoBroker) or pause == _PAUSES_MAX:
                raise
        if pause == _PAUSES_UNTIL_SAID:
            left_s = (_PAUSES_MAX - pause) * _ROUTE_PAUSE_S
            click.echo(f"topic {printable(topic)} has no route yet, waiting for {left_s:g} s", err=True)
        await asyncio.sleep(_ROUTE_PAUSE_S)
    raise AssertionError("the last attempt returns or raises")


def _print_all(consumer: "Consumer", count_max: int | None, output: Output) -> None:
    with plain_errors(), consumer:
        _print_messages(consumer, count_max, output)


def _print_messages(messages: "Iterable[Received]", count_max: int | None, output: Output) -> None:
    if count_max is not None and count_max <= 0:
        return
    for count, message in enumerate(messages, 1):
        _print(message, output)
        if count == count_max:
            break


def _print(message: "Received", output: Output) -> None:
    if output is Output.TABLE:
        click.echo(_line(message))
    else:
        say(_row(message), output)


def _row(message: "Received") -> dict[str, Any]:
    return {
        "topic": message.topic,
        "body": message.body.decode("utf-8", "backslashreplace"),
        "tags": message.tags,
        "keys": message.keys,
        "properties": dict(message.properties),
        "id": message.msg_id,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "born_at": message.born_at,
        "stored_at": message.stored_at,
        "attempt": message.attempt,
    }


def _line(message: "Received") -> str:
    body = message.body[:_SHOWN_SIZE].decode("utf-8", "backslashreplace")
    more = f" … {len(message.body)} bytes" if len(message.body) > _SHOWN_SIZE else ""
    tags = f" [{message.tags}]" if message.tags else ""
    line = f"{message.queue.broker_name}:{message.queue.queue_id}@{message.queue_offset}{tags} {body}{more}"
    return printable(line)


def run(
    module: Annotated[str, Argument(help="the module whose handlers are called; module:app for an App of it")],
    namesrv: Namesrv = None,
) -> None:
    """Import a module and call its handlers until Ctrl-C."""
    from bolide.client.consuming import handlers

    sys.path.insert(0, "")
    with plain_errors():
        name, _, attribute = module.partition(":")
        try:
            found = import_module(name)
        except (ImportError, SyntaxError) as problem:
            fail(f"module {name} cannot be imported: {problem}")
        app = getattr(found, attribute, None) if attribute else handlers.default_app
        if not isinstance(app, handlers.App):
            fail(f"{name} has no app {attribute}: name a bolide.App of it, as in `bolide run {name}:app`")
        app.run(name_servers(namesrv))
