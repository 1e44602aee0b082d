"""What is loaded when a command starts: its own part and nothing of the others. Time depends on machines, this not."""

import subprocess
import sys
from collections.abc import Callable
from typing import Annotated

import click
import pytest

from bolide import kernel
from bolide.cli.app import PLACES
from bolide.cli.commands import Commands, Option
from bolide.cli.main import SERVERS

HEAVY = {"typer", "rich", "pydantic", "pygments", "pyspark", "pandas", "pyarrow", "numpy", "grpc", "cryptography"}
SERVING = {"bolide.broker", "bolide.namesrv", "bolide.controller", "bolide.ha", "bolide.proxy", "bolide.filtersrv"}
NEEDED = {
    "lake": {"bolide.spark"},  # sentences about a missing Spark
    "spark-shell": {"bolide.spark"},
}
# With a word behind it, what runs a server asks those that run.
WORDS = {"broker": "list", "controller": "status", "namesrv": "status"}


# What only some commands do: read messages, send, explain rights, show traces, filter.
OTHERS = {
    "bolide.access.policies",
    "bolide.admin.traces",
    "bolide.client.consuming.pulling",
    "bolide.client.pulling",
    "bolide.client.sending.producer",
    "bolide.client.signing",
    "bolide.filter.sql",
    "bolide.protocol.headers.pop",
    "bolide.protocol.headers.registration",
    "bolide.protocol.headers.table",
}
OWN_MAX = 128  # modules of ours; each costs about a millisecond
# A page of help loads nothing that asks a cluster, that of a server nothing that serves: all of them.
QUIET = [*sorted(PLACES), *(f"{name} {word}" for name, word in WORDS.items())]
# What only members of groups need, and servers.
NOT_ASKING = {
    "bolide.admin.backtracking",
    "bolide.client.callbacks",
    "bolide.client.consuming",
    "bolide.client.sending",
    "bolide.client.tracing",
    "bolide.remoting.listen_config",
    "bolide.remoting.slow_work",
    "argparse",
    "ctypes",
    "tempfile",
}
# Parts of the plain kernel that are not needed where there is the compiled one.
OF_PLAIN_KERNEL = {
    f"bolide.kernel.plain_{part}"
    for part in ("columns", "faults", "filter", "hpack", "left", "rows")
    if kernel.NAME == "compiled"
}


def loaded(program: str) -> set[str]:
    """The modules of a process that ran a program, whatever its exit code."""
    ending = "import sys; sys.stderr.write('\\n'.join(sorted(sys.modules)))"
    code = f"import atexit\natexit.register(lambda: exec({ending!r}))\n{program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "bolide" in done.stderr, done
    return set(done.stderr.split())


def typed(*words: str) -> str:
    return f"import sys\nsys.argv = ['bolide', *{words!r}]\nfrom bolide.cli.main import main\nmain()"


def within(names: set[str], found: set[str]) -> set[str]:
    return {name for name in found if any(name == each or name.startswith(f"{each}.") for each in names)}


@pytest.mark.parametrize("name", sorted(PLACES.keys() - SERVERS.keys()))
def test_a_command_loads_nothing_of_the_others(name: str) -> None:
    unwanted = HEAVY | SERVING | {"bolide.spark", "bolide.store", "bolide.testing"} - NEEDED.get(name, set())
    assert within(unwanted, loaded(typed(name, "--help"))) == set()


@pytest.mark.parametrize(
    "line",
    [
        "topic list",
        "topic show T",
        "topic route T",
        "group list",
        "group progress g",
        "cluster",
        "clients",
        "broker list",
        "namesrv status",
        "dlq list",
        "admin topicList",
    ],
)
def test_a_question_to_a_cluster_loads_only_what_asks(line: str) -> None:
    found = loaded(typed(*line.split(), "-n", "127.0.0.1:1"))
    assert "bolide.admin.admin" in found, "it did ask"
    assert within(OTHERS | NOT_ASKING | OF_PLAIN_KERNEL, found) == set()
    assert len(within({"bolide"}, found)) <= OWN_MAX


def test_a_command_does_not_pay_for_its_neighbours() -> None:
    """Options are made from signatures, which took half a millisecond a command."""
    app = Commands("Things: make, drop.")
    made: list[str] = []

    def noting(name: str) -> Callable[[], list[click.Option]]:
        def brought() -> list[click.Option]:
            made.append(name)
            return []

        return brought

    @app.add()
    def make(to: Annotated[str, Option(brings=noting("make"))] = "") -> None:
        """Make it."""

    @app.add("drop")
    def drop_(to: Annotated[str, Option(brings=noting("drop"))] = "") -> None:
        """Drop it."""

    context = click.Context(app)
    assert app.list_commands(context) == ["drop", "make"]
    assert made == []
    command = app.get_command(context, "drop")
    assert command is not None
    assert app.get_command(context, "drop") is command
    assert made == ["drop"]
    assert app.list_commands(context) == ["drop", "make"]


@pytest.mark.parametrize("line", QUIET)
def test_a_page_of_help_asks_nobody(line: str) -> None:
    found = loaded(typed(*line.split(), "--help"))
    assert within({"asyncio", "msgspec", "uvloop", "bolide.client", "bolide.protocol", *SERVING}, found) == set()


def test_a_send_loads_nothing_that_consumes() -> None:
    found = loaded(typed("send", "T", "x", "-n", "127.0.0.1:1"))
    assert "bolide.client.sending.producer" in found, "it did try"
    wanted = {"bolide.client.consuming.rules", "bolide.client.consuming.start_from"}  # parts of options
    assert within({"bolide.client.consuming", "bolide.admin", "bolide.filter"}, found) - wanted == {
        "bolide.client.consuming"
    }
    assert len(within({"bolide"}, found)) <= OWN_MAX + 18


@pytest.mark.parametrize("words", [("--version",), ("--help",)])
def test_the_version_and_the_list_of_commands_load_next_to_nothing(words: tuple[str, ...]) -> None:
    found = loaded(typed(*words))
    assert within({*HEAVY, *SERVING, "asyncio", "msgspec", "bolide.client", "bolide.protocol"}, found) == set()


def test_the_client_loads_nothing_of_commands_and_servers() -> None:
    found = loaded("import bolide; bolide.Producer; bolide.Consumer")
    assert (
        within({*HEAVY, *SERVING, "click", "bolide.cli", "bolide.admin", "bolide.store", "bolide.spark"}, found)
        == set()
    )
