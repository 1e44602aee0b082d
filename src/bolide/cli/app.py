"""The commands for people, and the list of all commands."""

from contextlib import AbstractContextManager
from typing import Any

import click

from bolide import __version__
from bolide.cli.commands import LazyCommands, Place
from bolide.cli.main import OF_RUNNING, SERVERS


def _here(module: str, attribute: str, summary: str, *, watched: bool = False) -> Place:
    return Place(summary, f"bolide.cli.{module}", attribute, watched)


PLACES = {
    **{name: _here("app", "only_listed", summary) for name, summary in SERVERS.items() if name not in OF_RUNNING},
    **{name: _here(module, "app", SERVERS[name]) for name, module in OF_RUNNING.items()},
    "acl": _here("acls", "app", "Rights: list, grant, revoke, check, copy."),
    "admin": _here("mqadmin", "app", "The commands of RocketMQ's mqadmin, by their own names and flags."),
    "bench": _here("bench", "app", "Measure this cluster: sending, reading, and the time between."),
    "clients": _here("clients", "clients", "Who is connected: producers and consumers, by group.", watched=True),
    "cluster": _here("cluster", "cluster", "All brokers: where they are, how busy, and who leads.", watched=True),
    "completion": _here("completion", "completion", "Print what makes a shell complete commands, topics and groups."),
    "consume": _here("messages", "consume", "Print messages as they come, alone or in a group."),
    "dlq": _here("dlq", "app", "Dead letters: list, show, resend, export."),
    "doctor": _here("doctor", "doctor", "What is wrong with a cluster, and what to do."),
    "group": _here("groups", "app", "Consumer groups: who, how far, how retried, and moving them."),
    "lake": _here("lake", "app", "Work on whole topics and whole stores, on Spark."),
    "login": _here("login", "login", "Keep where a cluster is and who you are to it."),
    "message": _here("message", "app", "Messages: get one, query by key, find by content, print a range."),
    "recall": _here("messages", "recall", "Take a timed message back before it is delivered."),
    "run": _here("messages", "run", "Import a module and call its handlers until Ctrl-C."),
    "send": _here("messages", "send", "Send a message, a file or lines of text, now or for later."),
    "spark-shell": _here("spark", "spark_shell", "Python with Spark ready in `spark`."),
    "store": _here("store", "app", "Look into a store directory, and back it up."),
    "tail": _here("messages", "tail", "Print what is sent from now on, without a group."),
    "topic": _here("topics", "app", "Create, list, show, change and delete topics."),
    "trace": _here("traces", "trace", "Who sent a message and what each group made of it."),
    "transaction": _here("transactions", "app", "Transactions: list the undecided, resume the given up."),
    "user": _here("users", "app", "Users: list, create, delete, password, copy."),
}


def _show_version(context: click.Context, _: click.Parameter, is_asked: Any) -> None:
    if is_asked:
        click.echo(f"bolide {__version__}")
        context.exit()


def _noting() -> AbstractContextManager[None]:
    from bolide.cli.output import noting_what_is_missing  # the version and the list of commands do without

    return noting_what_is_missing()


app = LazyCommands(
    "The RocketMQ you can pip install: name server, broker, client and Spark pipeline.",
    PLACES,
    around=_noting,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
        )
    ],
)


def only_listed() -> None:
    """`main.py` runs the servers."""
    raise AssertionError("main.py runs the servers")


def main(arguments: list[str]) -> None:
    app(arguments, prog_name="bolide")
