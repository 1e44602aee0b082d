"""`bolide lake`: whole topics and whole stores, on Spark.

Every command says where it runs (`--master`, this machine by default), shows how far it is, and with `--dry-run` only
what it would do. What Spark is imported for is imported when a command runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import click
from click.exceptions import Exit

from bolide.cli.commands import Argument, Commands, Option
from bolide.cli.connection import name_servers
from bolide.cli.exits import fail, pairs_of, plain_errors
from bolide.cli.output import Format, Namesrv, Output, ask, say, show
from bolide.cli.progress import Bar
from bolide.cli.spark import Master, Settings, interruptible
from bolide.cli.store import Settings as ConfigFile
from bolide.cli.store import config_for
from bolide.cli.times import time_ms
from bolide.errors import ConfigError
from bolide.files import local_path
from bolide.model.topics import DEAD_LETTER_PREFIX, dead_letter_topic
from bolide.spark.problems import plain_tasks
from bolide.spark.session import demand_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bolide.admin.admin import Admin
    from bolide.spark.jobs.frames import Where
    from bolide.spark.jobs.sources import Source

T = TypeVar("T")
_ROWS_SHOWN = 50
app = Commands("Work on whole topics and whole stores, on Spark.")


def here(text: str) -> Path:
    """A path of this machine, as an option takes it."""
    with plain_errors():
        return local_path(text)


Topics = Annotated[list[str] | None, Argument(help="topics; without any, all of the user's own")]
Stores = Annotated[
    list[Path] | None,
    Option("--store", parser=here, help="read the files of this store directory, without a broker; may be repeated"),
]
DryRun = Annotated[bool, Option("--dry-run", help="only say what would be done")]
Since = Annotated[
    str | None,
    Option("--since", help="stored from then on: 2026-11-16 or 2026-11-16T08:00 (UTC), or milliseconds"),
]
Until = Annotated[str | None, Option("--until", help="stored before then")]


def moment_ms(text: str | None, option: str) -> int | None:
    return None if text is None else time_ms(option, text, UTC)


def before_spark(prepare: Callable[[], T]) -> T:
    """What can be refused without Spark is refused before it takes its seconds to start."""
    with plain_errors():
        demand_spark()
        return prepare()


@contextmanager
def job(
    name: str, master: str | None, settings: list[str] | None
) -> "Iterator[tuple[SparkSession, Callable[[int, int], None]]]":
    """A session for one command, a bar that its tasks move, and errors as sentences."""
    with plain_errors():
        demand_spark()
        with (
            Bar("starting Spark") as bar,
            interruptible(f"bolide lake {name}", master, pairs_of("--conf", settings)) as spark,
            plain_tasks(),
        ):
            bar.tell(0, what=name)
            yield spark, bar.tell


def source_of(
    namesrv: str | None, stores: list[Path] | None, topics: list[str] | None, since: str | None, until: str | None
) -> "Source":
    """Store files where they are named, else the brokers of a cluster."""
    from bolide.spark.columns import EVERYTHING, Wanted
    from bolide.spark.jobs import sources

    from_ms, until_ms = moment_ms(since, "--since"), moment_ms(until, "--until")
    if stores:
        chosen = frozenset(topic.encode() for topic in topics) if topics else None
        first = EVERYTHING.from_ms if from_ms is None else from_ms
        return sources.StoreFiles(
            [str(path) for path in stores],
            Wanted(chosen, None, first, EVERYTHING.until_ms if until_ms is None else until_ms),
        )
    options = cluster_of(namesrv, topics)
    if from_ms is not None:
        options["startingTimestamp"] = str(from_ms)
    if until_ms is not None:
        options["endingTimestamp"] = str(until_ms)
    return sources.Topics(options, topics or [])


@app.add()
def export(
    topics: Topics = None,
    to: Annotated[Path, Option("--to", parser=here, metavar="DIRECTORY", help="the directory of Parquet files")] = Path(
        "lake"
    ),
    stores: Stores = None,
    namesrv: Namesrv = None,
    compression: Annotated[str, Option(help="zstd, snappy or none")] = "zstd",
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Add what is new to Parquet files, by topic and date."""
    source = before_spark(lambda: source_of(namesrv, stores, topics, None, None))
    if compression not in ("zstd", "snappy", "none"):
        fail(f"--compression {compression}: may be zstd, snappy or none")
    with job("export", master, settings) as (spark, tell):
        from bolide.spark.jobs.export import export as run

        added = run(spark, source, to, topics=topics or [], compression=compression, is_dry=dry_run, tell=tell)
    rows = [{"topic": topic, "date": date, "messages": count} for (topic, date), count in added.topics.items()]
    show(rows, output, empty="nothing new")
    if output is Output.TABLE:
        verb = "would be added" if dry_run else f"added in {added.file_count} files of {added.size:,} bytes"
        click.echo(f"{added.message_count:,} messages {verb}")
        if added.missed:
            click.echo(f"{added.missed:,} that were due had expired before this run")


@app.add()
def audit(
    directory: Annotated[Path, Argument(help="the store's root, RocketMQ's storePathRootDir", exists=True)],
    config: ConfigFile = None,
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Check a stopped store: records, queue entries and keys.

    Exits with 1 if something does not fit its log.
    """
    kept = before_spark(lambda: config_for(directory, config))
    with job("audit", master, settings) as (spark, tell):
        from bolide.spark.jobs.audit import audit as run
        from bolide.spark.jobs.audit import scope_of

        scope = scope_of(kept)
        if not dry_run:
            found = run(spark, kept, tell=tell)
    if dry_run:
        row = {
            "log_files": len(scope.log_files),
            "log_bytes": sum(file.size for file in scope.log_files),
            "tasks": len(scope.parts),
            "queues": len(scope.queues),
            "index_files": len(scope.index_files),
        }
        show([row], output, empty="")
        return
    rows = [{"file": one.file, "position": one.position, "what": one.what} for one in found.findings]
    if output is not Output.TABLE:
        say({"records": found.record_count, "findings": rows}, output)
    else:
        show(rows, output, empty="everything fits")
        click.echo(f"{found.record_count:,} records, {found.queue_count} queues, {len(rows)} findings")
    raise Exit(1 if rows else 0)


@app.add()
def rebuild(
    directory: Annotated[Path, Argument(help="the store's root, RocketMQ's storePathRootDir", exists=True)],
    config: ConfigFile = None,
    to: Annotated[Path | None, Option("--to", parser=here, help="write there instead of into the store")] = None,
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Make queues and index of a stopped store from its log."""
    kept = before_spark(lambda: config_for(directory, config))
    with job("rebuild", master, settings) as (spark, tell):
        from bolide.spark.jobs.rebuild import rebuild as run

        done = run(spark, kept, to=to, is_dry=dry_run, tell=tell)
    rows = [{"topic": topic, "queue": queue_id, "entries": count} for (topic, queue_id), count in done.queues.items()]
    show(rows, output, empty="the log holds no message")
    if output is Output.TABLE:
        verb = "would be made" if dry_run else "made"
        keys = f"{sum(done.index.values()):,} keys in {len(done.index)} index files"
        click.echo(f"{done.entry_count:,} entries in {len(done.queues)} queues and {keys} {verb}")


Lake = Annotated[
    Path | None,
    Option("--lake", parser=here, metavar="DIRECTORY", help="a directory that bolide lake export has filled"),
]


def where_of(
    namesrv: str | None,
    stores: list[Path] | None,
    lake: Path | None,
    topics: list[str] | None,
    since: str | None,
    until: str | None,
) -> "Where":
    """A lake or store files where they are named, else the brokers of a cluster."""
    from bolide.spark.jobs.frames import Where
    from bolide.spark.jobs.manifest import demand_lake

    if lake is not None:
        demand_lake(lake)
    return Where(
        stores=[str(path) for path in stores or []],
        lake=lake,
        cluster={} if stores or lake else cluster_of(namesrv, topics),
        topics=topics or [],
        from_ms=moment_ms(since, "--since"),
        until_ms=moment_ms(until, "--until"),
    )


def cluster_of(namesrv: str | None, topics: list[str] | None = None) -> dict[str, str]:
    """The options by which Spark reaches a cluster that answers and has these topics."""

    async def demand(admin: "Admin") -> None:
        await admin.master_addresses()
        for topic in topics or []:
            if not topic.startswith(DEAD_LETTER_PREFIX):  # that one comes with the first dead letter
                await admin.route(topic)

    ask(namesrv, demand)
    return {"bolide.bootstrap.servers": name_servers(namesrv)}


def sink_of(namesrv: str | None, broker: str | None, *, is_exactly_once: bool) -> dict[str, str]:
    if broker and not is_exactly_once:
        raise ConfigError("--broker", broker, "only --exactly-once sends to one broker; add it, or leave this out")
    sink = cluster_of(namesrv) | ({"deliveryGuarantee": "exactly-once"} if is_exactly_once else {})
    return sink | ({"broker": broker} if broker else {})


@app.add()
def replay(
    topics: Annotated[list[str] | None, Argument(help="which topics; without any, all that are there")] = None,
    lake: Lake = None,
    stores: Stores = None,
    dead_letters: Annotated[str | None, Option(help="the dead letters of this consumer group")] = None,
    to: Annotated[str | None, Option("--to", help="where to; dead letters know where they came from")] = None,
    since: Since = None,
    until: Until = None,
    rate: Annotated[float | None, Option(help="messages a second at most")] = None,
    exactly_once: Annotated[bool, Option(help="none twice, whatever fails; needs Bolide's brokers")] = False,
    broker: Annotated[
        str | None, Option(help="with --exactly-once: the broker that takes them, where a topic has several")
    ] = None,
    namesrv: Namesrv = None,
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Send a lake, store files or dead letters to a topic again."""
    if dead_letters:
        topics = [dead_letter_topic(dead_letters)]
    where = before_spark(lambda: where_of(namesrv, stores, lake, topics, since, until))
    sink = before_spark(lambda: sink_of(namesrv, broker, is_exactly_once=exactly_once))
    with job("replay", master, settings) as (spark, tell):
        from bolide.spark.jobs.replay import replay as run

        done = run(spark, where, sink, to=to, rate=rate, is_dry=dry_run, tell=tell)
    rows = [{"from": origin, "to": target, "messages": count} for (origin, target), count in done.routes.items()]
    show(rows, output, empty="no message fits")
    if output is Output.TABLE:
        click.echo(f"{done.message_count:,} messages {'would be sent' if dry_run else 'sent'}")


@app.add()
def stats(
    topics: Annotated[list[str] | None, Argument(help="which topics; without any, all that are there")] = None,
    stores: Stores = None,
    lake: Lake = None,
    namesrv: Namesrv = None,
    since: Since = None,
    until: Until = None,
    html: Annotated[Path | None, Option("--html", help="write a page with tables and charts there")] = None,
    dry_run: DryRun = False,
    master: Master = None,
    settings: Settings = None,
    output: Format = Output.TABLE,
) -> None:
    """Traffic, sizes, delays, lag, retries and dead letters."""
    from dataclasses import asdict

    where = before_spark(lambda: where_of(namesrv, stores, lake, topics, since, until))
    with job("stats", master, settings) as (spark, tell):
        from bolide.spark.jobs.frames import messages
        from bolide.spark.jobs.page import page_of
        from bolide.spark.jobs.stats import READ, statistics

        if dry_run:
            asked = messages(spark, where, READ).columns
        else:
            lag = _lag(namesrv) if where.cluster else None
            found = statistics(spark, where, lag=lag, tell=tell)
    if dry_run:
        click.echo(f"the columns {', '.join(asked)} of these messages would be read twice")
        return
    if html is not None:
        html.write_text(page_of(found, "Bolide: what went through"), "utf-8")
    if output is not Output.TABLE:
        say(asdict(found), output)
        return
    for name, rows in asdict(found).items():
        if rows and name != "minutes":
            click.echo(f"\n{name.replace('_', ' ')}")
            show(rows[:_ROWS_SHOWN], output, empty="")
    if not found.topics:
        click.echo("no message fits")


def _lag(namesrv: str | None) -> list[dict[str, object]]:
    """What the brokers say of every group."""

    async def asked(admin: "Admin") -> list[dict[str, object]]:
        rows: dict[tuple[str, str], int] = {}
        for group in await admin.groups():
            for progress in await admin.group_progress(group):
                key = (group, progress.queue.topic)
                rows[key] = rows.get(key, 0) + progress.behind
        return [{"group": group, "topic": topic, "behind": behind} for (group, topic), behind in sorted(rows.items())]

    return ask(namesrv, asked)
