"""`bolide store`: look into a store directory without a broker, and copy it.

`inspect`, `cat` and `backup` read the files as they are and take no lock, so they may run beside a broker; `verify`
should not. Nothing here writes to the store.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.exceptions import Exit

from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.exits import fail, plain_errors
from bolide.cli.output import Format, Output, say, show
from bolide.cli.progress import Bar
from bolide.cli.times import moment

if TYPE_CHECKING:
    from bolide.model.message import StoredMessage
    from bolide.store.config import StoreConfig

app = Commands("Look into a store directory, and back it up.")

Directory = Annotated[Path, Argument(help="the store's root, RocketMQ's storePathRootDir", exists=True)]
Settings = Annotated[Path | None, Option("-c", "--config", help="the broker.conf the store was written with")]


def config_for(root: Path, settings: Path | None) -> "StoreConfig":
    """The given settings; without them, file sizes are taken from the files that are there."""
    from bolide.settings import build
    from bolide.store.config import StoreConfig

    if settings:
        from bolide.cli.start import read_file

        properties = read_file(settings)
    else:
        properties = sizes_found(root)
    properties["storePathRootDir"] = str(root)
    config = build(StoreConfig, properties)
    if not any(path.is_dir() for path in config.log_directories):
        fail(f"{root} is no store: it has no commitlog directory; name RocketMQ's storePathRootDir")
    return config


def sizes_found(root: Path) -> dict[str, str]:
    found = {}
    for pattern, key in (
        ("commitlog/*", "mappedFileSizeCommitLog"),
        ("consumequeue/*/*/*", "mappedFileSizeConsumeQueue"),
    ):
        sizes = {path.stat().st_size for path in root.glob(pattern) if path.is_file()} - {0}
        if len(sizes) == 1:
            found[key] = str(sizes.pop())
    return found


@app.add()
def inspect(directory: Directory, settings: Settings = None, output: Format = Output.TABLE) -> None:
    """Segments, queues, offsets, times and health."""
    from bolide.store.inspect import StoreView

    with plain_errors():
        summary = StoreView(config_for(directory, settings)).summary()
    if output is not Output.TABLE:
        say(summary, output)
        return
    click.echo(f"{directory}: {summary['health']}, log {summary['log_start']} to {summary['log_end']}")
    for title, rows in (
        ("checkpoint", [summary["checkpoint"]]),
        ("log segments", summary["segments"]),
        ("queues", summary["queues"]),
        ("index files", summary["index"]),
    ):
        click.echo(f"\n{title}")
        show(map(_readable, rows), output, empty="none")


@app.add()
def verify(directory: Directory, settings: Settings = None, output: Format = Output.TABLE) -> None:
    """Check every record, queue entry and key against the log.

    Exits with 1 when something does not fit. For stores of many gigabytes, `bolide lake audit` does it on Spark.
    """
    from bolide.store.queue_files import Finding
    from bolide.store.verify import Verification

    found: list[Finding] = []
    count = 0
    verification = Verification(config_for(directory, settings))
    with plain_errors(), Bar("verifying") as bar:
        for step in verification.run():
            if isinstance(step, Finding):
                found.append(step)
            else:
                count = step.record_count
                bar.tell(step.done, step.total)
    if output is not Output.TABLE:
        rows = [{"file": one.file, "position": one.position, "what": one.what} for one in found]
        say({"records": count, "passed_over_bytes": verification.passed_over_size, "findings": rows}, output)
    else:
        for one in found:
            click.echo(f"{one.file} at {one.position}: {one.what}")
        lost = f", {verification.passed_over_size} bytes of log passed over" if verification.passed_over_size else ""
        click.echo(f"{count} records, {len(found)} findings{lost}")
    raise Exit(1 if found else 0)


@app.add()
def backup(
    directory: Directory,
    to: Annotated[Path, Argument(help="where the copy goes; an earlier backup is brought up to date")],
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Copy messages and tables while a broker runs.

    What was confirmed before is in the copy.

    To restore, start a broker with --data and the copy, or a copy of it: it makes queues and index again.
    """
    from bolide.store.backup import back_up

    with plain_errors():
        steps = list(back_up(config_for(directory, settings), to))
    told = {"to": str(to), "files": len(steps), "copied_bytes": sum(step.size for step in steps)}
    if output is not Output.TABLE:
        say(told, output)
    else:
        click.echo(f"{told['files']} files in {to}, {told['copied_bytes']} bytes copied")


@app.add()
def cat(
    directory: Directory,
    topic: Annotated[str, Option("-t", "--topic", help="which topic")],
    queue: Annotated[int, Option(help="which of its queues")] = 0,
    from_: Annotated[int, Option("--from", help="the first queue offset")] = 0,
    limit: Annotated[int, Option(help="at most this many")] = 100,
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Messages of one queue, decoded."""
    from bolide.store.inspect import StoreView

    with plain_errors():
        for record in StoreView(config_for(directory, settings)).messages(topic, queue, from_, limit):
            if output is not Output.TABLE:
                say(_as_row(record), output)
            else:
                click.echo(_as_text(record))


def _as_row(record: "StoredMessage") -> dict[str, Any]:
    row = {name: getattr(record, name) for name in record.__slots__}
    row["body"] = record.body.decode("utf-8", "backslashreplace")
    return row


def _as_text(record: "StoredMessage") -> str:
    body = record.body[:200].decode("utf-8", "backslashreplace")
    more = f" … {len(record.body)} bytes" if len(record.body) > 200 else ""
    properties = " ".join(f"{name}={value}" for name, value in record.properties.items())
    place = f"{record.queue_offset} at {record.physical_offset} stored {moment(record.stored_at)}"
    return f"{place} [{properties}] {body}{more}"


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people: times as they are said, not counted."""
    return {
        name.removesuffix("_ms"): moment(value or 0) if name.endswith("_ms") else value for name, value in row.items()
    }
