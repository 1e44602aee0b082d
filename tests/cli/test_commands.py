"""A function becomes a command: its types and notes say how it is typed."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner

from bolide.cli import up
from bolide.cli.app import PLACES, app
from bolide.cli.commands import Argument, Commands, LazyCommands, Option, Place, listed
from bolide.cli.main import SERVERS


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


heard: list[dict[str, Any]] = []
house = Commands("What a house has.")


@house.add()
def paint(
    rooms: Annotated[list[str], Argument(help="which rooms")],
    colour: Annotated[Colour, Option(help="in which colour")] = Colour.RED,
    coats: Annotated[int, Option("-c", "--coats", help="how often", min=1, max=3)] = 1,
    price: Annotated[float | None, Option(help="what it may cost")] = None,
    plan: Annotated[Path | None, Option("--plan", help="a drawing", exists=True)] = None,
    names: Annotated[list[str] | None, Option("--name", help="who paints; may be repeated")] = None,
    is_dry: Annotated[bool, Option("--dry-run", help="only look")] = False,
    heated: Annotated[bool | None, Option(help="whether the heating is on")] = None,
) -> None:
    """Paint rooms.

    One after the other.
    """
    heard.append(dict(locals()))


def run(*words: str) -> Any:
    heard.clear()
    return CliRunner().invoke(house, words)


def test_every_kind_of_parameter_arrives_as_its_type(tmp_path: Path) -> None:
    words = "paint kitchen hall --colour blue -c 2 --price 9.5 --name Ann --name Bo --dry-run --no-heated --plan"
    assert run(*words.split(), str(tmp_path)).exit_code == 0
    assert heard == [
        {
            "rooms": ["kitchen", "hall"],
            "colour": Colour.BLUE,
            "coats": 2,
            "price": 9.5,
            "plan": tmp_path,
            "names": ["Ann", "Bo"],
            "is_dry": True,
            "heated": False,
        }
    ]


def test_what_is_not_said_is_the_default() -> None:
    assert run("paint", "hall").exit_code == 0
    assert heard == [
        {
            "rooms": ["hall"],
            "colour": Colour.RED,
            "coats": 1,
            "price": None,
            "plan": None,
            "names": None,
            "is_dry": False,
            "heated": None,
        }
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("paint", "ROOMS"),
        ("paint hall --coats 4", "1<=x<=3"),
        ("paint hall --colour green", "'red', 'blue'"),
        ("paint hall --plan /no/such/file", "does not exist"),
        ("pint hall", "Did you mean 'paint'?"),
        ("paint hall --colou blue", "--colour"),
    ],
)
def test_what_cannot_be_is_refused_with_what_may_be(words: str, told: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 2
    assert told in done.output
    assert heard == []


def commands(
    command: click.Command | None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command at the end of its words; servers have a parser of their own."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (*path, name) != ("admin",):
                yield from commands(command.get_command(click.Context(command), name), (*path, name))
    elif command is not None:
        yield path, command


def test_a_word_that_is_missing_is_named_by_every_command_that_needs_it() -> None:
    needing = [path for path, command in commands(app) if any(each.required for each in command.params)]
    assert len(needing) > 30
    for path in needing:
        done = CliRunner().invoke(app, path, input="")
        assert (done.exit_code, "Missing argument" in done.output) == (2, True), (path, done.output)


@pytest.mark.parametrize(
    ("words", "told"),
    [("--prot 1", "did you mean --port?"), ("--dta=x", "did you mean --data?"), ("--zzz", "arguments: --zzz")],
)
def test_a_servers_option_that_was_misspelt_is_told_the_one_that_was_meant(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        up.main(words.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_page_of_help_has_every_word_with_its_meaning() -> None:
    shown = run("paint", "-h").output
    for part in ("One after the other.", "which rooms", "in which colour", "[default: 1", "--dry-run", "--no-heated"):
        assert part in shown


@house.add()
def wait() -> None:
    """Wait until Ctrl-C."""
    raise KeyboardInterrupt


def test_ctrl_c_ends_a_command_without_a_word() -> None:
    done = run("wait")
    assert (done.exit_code, done.output) == (130, "")


def test_what_is_listed_is_not_loaded() -> None:
    far = LazyCommands("Far away.", {"there": Place("What is far.", "bolide.no.such.module")})
    assert "What is far." in CliRunner().invoke(far, ["-h"]).output


@pytest.mark.parametrize("name", sorted(PLACES.keys() - SERVERS.keys()))
def test_the_list_of_commands_says_of_each_what_its_own_page_says(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert (command.help or "").partition("\n")[0] == PLACES[name].summary


def test_words_are_completed_in_their_order() -> None:
    assert listed(["topic", "send", "tail"], "t") == ["tail", "topic"]
