"""`bolide dlq`: the messages that groups gave up: look at them, send them again, take them elsewhere."""

import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import click
from click.exceptions import Exit

from bolide.admin.rows import dead_group_cells
from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.exits import fail
from bolide.cli.forms import json_text, printable
from bolide.cli.output import LONG_SIZE_MAX, Format, Namesrv, Output, ask, look, say, show
from bolide.cli.times import moment, time_ms

if TYPE_CHECKING:
    from bolide.admin.admin import Admin
    from bolide.admin.deadletters import DeadLetter, DeadLetterFilter, Resent

app = Commands("Dead letters: list, show, resend, export.")
Group = Annotated[str, Argument(help="the consumer group that gave them up")]
Ids = Annotated[list[str] | None, Argument(help="ids of messages; without any, all that the options leave")]
OfTopic = Annotated[str | None, Option("-t", "--topic", help="only those that were sent to this topic")]
Reason = Annotated[str | None, Option(help="only those whose reason holds this text")]
Since = Annotated[str | None, Option(help="only those that died at this time or later, like 2026-05-01T12:00")]
Until = Annotated[str | None, Option(help="only those that died before this time")]


@app.add("list", watched=True)
def list_(namesrv: Namesrv = None, output: Format = Output.TABLE) -> None:
    """The groups that have dead letters, and how many."""
    rows = look(namesrv, lambda admin: admin.dead_letter_groups())
    table = [dead_group_cells(row) for row in rows]
    show(table, output, empty="no dead letters: every message was consumed, or is still being tried")


@app.add("show")
def show_(
    group: Group,
    ids: Ids = None,
    topic: OfTopic = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Option(help="at most this many")] = 50,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """The dead letters of a group, oldest first: why, where from, when."""
    wanted = _filter(ids, topic, reason, since, until)

    async def read(admin: "Admin") -> "list[DeadLetter]":
        return await _first(admin.dead_letters(group, wanted), limit)

    letters = ask(namesrv, read, limit_s=None)
    if output is not Output.TABLE:
        from bolide.admin.deadletters import as_row

        show([as_row(letter) for letter in letters], output, empty="")
        return
    table = [
        {
            "id": letter.id,
            "topic": letter.origin_topic,
            "failures": letter.failure_count,
            "sent": moment(letter.message.born_at),
            "died": moment(letter.died_ms),
            "reason": letter.reason,
            "body": letter.message.body[: LONG_SIZE_MAX + 1].decode("utf-8", "backslashreplace"),
        }
        for letter in letters
    ]
    empty = f"no such dead letters of {group}; `bolide dlq list` shows the groups that have some"
    show(table, output, empty=empty, long=("reason", "body"))


async def _first(letters: "AsyncIterator[DeadLetter]", limit: int) -> "list[DeadLetter]":
    found: list[DeadLetter] = []
    async for letter in letters:
        if len(found) >= limit:
            break
        found.append(letter)
    return found


@app.add()
def resend(
    group: Group,
    ids: Ids = None,
    topic: OfTopic = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    is_all: Annotated[bool, Option("--all", help="all dead letters of the group")] = False,
    is_for_group: Annotated[
        bool, Option("--only-group", help="deliver them to this group alone, not to every group of the topic")
    ] = False,
    is_dry: Annotated[bool, Option("--dry-run", help="only say how many would be sent")] = False,
    namesrv: Namesrv = None,
    output: Format = Output.TABLE,
) -> None:
    """Send dead letters again to the topics they came from. They stay where they are, too."""
    if not (ids or topic or reason or since or until or is_all):
        fail("say which: ids, --topic, --reason, --since, --until, or --all for all of them; --dry-run counts only")
    wanted = _filter(ids, topic, reason, since, until)

    def progress(told: "Resent") -> None:
        if output is Output.TABLE and sys.stderr.isatty():
            click.echo(f"\r{told.sent_count} sent, {told.failed_count} failed", nl=False, err=True)

    async def send(admin: "Admin") -> "Resent":
        return await admin.resend_dead_letters(
            group, wanted, is_dry=is_dry, is_for_group=is_for_group, on_progress=progress
        )

    told = ask(namesrv, send, limit_s=None)
    if output is not Output.TABLE:
        row = {"sent": told.sent_count, "failed": told.failed_count, "dry_run": is_dry, "failures": told.failures}
        say(row, output)
    else:
        click.echo(f"{told.sent_count} {'would be sent' if is_dry else 'sent again'}, {told.failed_count} failed")
        for letter_id, why in told.failures.items():
            click.echo(printable(f"{letter_id}: {why}"), err=True)
    missing = ids and not told.examined_count
    if told.failed_count or missing:
        if missing:
            click.echo(f"no dead letter of {group} has such an id; `bolide dlq show {group}` lists them", err=True)
        raise Exit(1)


@app.add()
def export(
    group: Group,
    file: Annotated[Path | None, Argument(help="the file to write; without one, standard output")] = None,
    topic: OfTopic = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    namesrv: Namesrv = None,
) -> None:
    """Write dead letters as JSON lines, with all they say."""
    from bolide.admin.deadletters import as_row

    wanted = _filter(None, topic, reason, since, until)

    async def write(admin: "Admin") -> int:
        count = 0
        with _writing(file) as lines:
            async for letter in admin.dead_letters(group, wanted):
                lines.write(json_text(as_row(letter)) + "\n")
                count += 1
        return count

    count = ask(namesrv, write, limit_s=None)
    if file is not None:
        click.echo(f"{count} dead letters of {group} written to {file}")


def _writing(file: Path | None) -> Any:
    stream: TextIO = sys.stdout
    try:
        return nullcontext(stream) if file is None else file.open("w", encoding="utf-8")
    except OSError as problem:
        fail(f"{file} cannot be written: {problem.strerror}")


def _filter(
    ids: list[str] | None, topic: str | None, reason: str | None, since: str | None, until: str | None
) -> "DeadLetterFilter":
    from bolide.admin.deadletters import EVER_MS, DeadLetterFilter

    return DeadLetterFilter(
        ids=frozenset(ids or ()),
        topic=topic,
        reason=reason,
        since_ms=0 if since is None else time_ms("--since", since),
        until_ms=EVER_MS if until is None else time_ms("--until", until),
    )
