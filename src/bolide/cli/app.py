"""The commands for people, and the list of all commands."""

from typing import Annotated

import typer

from bolide import __version__
from bolide.cli import bench, cluster, dlq, groups, lake, messages, spark, store, topics, traces, transactions
from bolide.cli.main import SERVERS
from bolide.cli.output import begin, end

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    result_callback=end,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"bolide {__version__}")
        raise typer.Exit


@app.callback()
def bolide(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The RocketMQ you can pip install: name server, broker, client and Spark pipeline."""
    begin()


def _only_listed() -> None:
    raise AssertionError("main.py runs the servers")


for name, summary in SERVERS.items():
    app.command(name, help=summary)(_only_listed)
app.command("spark-shell")(spark.spark_shell)
for command in (
    messages.send,
    messages.recall,
    messages.consume,
    messages.tail,
    messages.run,
    cluster.cluster,
    traces.trace,
):
    app.command()(command)
app.add_typer(bench.app, name="bench")
app.add_typer(topics.app, name="topic")
app.add_typer(groups.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(transactions.app, name="transaction")
app.add_typer(store.app, name="store")
app.add_typer(lake.app, name="lake")


def main(arguments: list[str]) -> None:
    app(arguments, prog_name="bolide")
