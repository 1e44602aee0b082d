"""`bolide store`: look into a store directory without a broker.

`inspect` and `cat` read the files as they are and take no lock, so they may run beside a broker; `verify` should not.
Nothing here writes.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from bolide.cli.output import Format, Output, json_text, show
from bolide.cli.start import fail, plain_errors, read_file
from bolide.cli.times import moment
from bolide.model.message import StoredMessage
from bolide.settings import build
from bolide.store.config import StoreConfig
from bolide.store.inspect import StoreView
from bolide.store.verify import Finding, Verification

app = typer.Typer(help="Look into a store directory.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(help="the store's root, RocketMQ's storePathRootDir", exists=True)]
Settings = Annotated[Path | None, typer.Option("-c", "--config", help="the broker.conf the store was written with")]
AsJson = Annotated[bool, typer.Option("--json", help="the same as --output json")]


def config_for(root: Path, settings: Path | None) -> StoreConfig:
    """The given settings; without them, file sizes are taken from the files that are there."""
    properties = read_file(settings) if settings else sizes_found(root)
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


@app.command()
def inspect(
    directory: Directory, settings: Settings = None, output: Format = Output.TABLE, as_json: AsJson = False
) -> None:
    """Segments, queues, offsets, times and health."""
    with plain_errors():
        summary = StoreView(config_for(directory, settings)).summary()
    if as_json or output is Output.JSON:
        _print_json(summary)
        return
    typer.echo(f"{directory}: {summary['health']}, log {summary['log_start']} to {summary['log_end']}")
    for title, rows in (
        ("checkpoint", [summary["checkpoint"]]),
        ("log segments", summary["segments"]),
        ("queues", summary["queues"]),
        ("index files", summary["index"]),
    ):
        typer.echo(f"\n{title}")
        show(map(_readable, rows), output, empty="none")


@app.command()
def verify(
    directory: Directory, settings: Settings = None, output: Format = Output.TABLE, as_json: AsJson = False
) -> None:
    """Check every record, queue entry and key against the log.

    Exits with 1 when something does not fit. For stores of many gigabytes, `bolide lake audit` does it on Spark.
    """
    found: list[Finding] = []
    count = 0
    verification = Verification(config_for(directory, settings))
    with plain_errors(), Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verifying", total=None)
        for step in verification.run():
            if isinstance(step, Finding):
                found.append(step)
            else:
                count = step.record_count
                bar.update(task, completed=step.done, total=step.total)
    if as_json or output is Output.JSON:
        rows = [{"file": one.file, "position": one.position, "what": one.what} for one in found]
        _print_json({"records": count, "passed_over_bytes": verification.passed_over_size, "findings": rows})
    else:
        for one in found:
            typer.echo(f"{one.file} at {one.position}: {one.what}")
        lost = f", {verification.passed_over_size} bytes of log passed over" if verification.passed_over_size else ""
        typer.echo(f"{count} records, {len(found)} findings{lost}")
    raise typer.Exit(1 if found else 0)


@app.command()
def cat(
    directory: Directory,
    topic: Annotated[str, typer.Option(help="which topic")],
    queue: Annotated[int, typer.Option(help="which of its queues")] = 0,
    from_: Annotated[int, typer.Option("--from", help="the first queue offset")] = 0,
    count: Annotated[int, typer.Option(help="how many messages at most")] = 100,
    settings: Settings = None,
    output: Format = Output.TABLE,
    as_json: AsJson = False,
) -> None:
    """Messages of one queue, decoded."""
    with plain_errors():
        for record in StoreView(config_for(directory, settings)).messages(topic, queue, from_, count):
            if as_json or output is Output.JSON:
                _print_json(_as_row(record))
            else:
                typer.echo(_as_text(record))


def _as_row(record: StoredMessage) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in record.__slots__}
    row["body"] = record.body.decode("utf-8", "backslashreplace")
    return row


def _as_text(record: StoredMessage) -> str:
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


def _print_json(document: object) -> None:
    typer.echo(json_text(document))
