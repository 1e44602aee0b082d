"""The README is true: its program runs, its commands exist, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from bolide.cli.app import app
from bolide.cli.main import SERVERS
from bolide.testing import cluster
from tests.cli.processes import LIMIT_S, environment
from tests.tidy.source import ROOT

README = (ROOT / "README.md").read_text("utf-8")
# The second one is for Spark: tests/spark/test_examples.py runs it.
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_program_sends_and_gets_what_it_sent(tmp_path: Path) -> None:
    program = PROGRAMS[0]
    with cluster() as rocket:
        done = subprocess.run(
            [sys.executable, "-c", program.replace("127.0.0.1:9876", rocket.namesrv)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=environment(tmp_path),
        )
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [(line[0], line[-1]) for line in lines[:3]] == [("sent", str(number)) for number in range(3)]
    assert done.stdout.splitlines()[3:] == [f"got order {number} ['o-{number}']" for number in range(3)]


def test_the_program_is_about_twenty_lines() -> None:
    program = PROGRAMS[0]
    assert len([line for line in program.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("target", re.findall(r"(?:^|`)make ([\w-]+)", README, re.MULTILINE))
def test_every_make_target_it_names_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_every_page_it_links_exists() -> None:
    pages = [page for page in re.findall(r"\]\(([^)]+)\)", README) if not page.startswith("http")]
    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_it_is_short_and_leads_to_the_list_of_all_pages() -> None:
    assert len(README.splitlines()) <= 80
    assert "](docs/index.md)" in README


@pytest.mark.parametrize("line", re.findall(r"^bolide (.*)", README, re.MULTILINE))
def test_every_command_and_option_it_types_is_there(line: str) -> None:
    for typed in line.partition("  #")[0].split(" && "):
        words = shlex.split(typed.removeprefix("bolide ").rstrip(" &"))
        if words[0] not in SERVERS:
            path = [word for word in words[:2] if re.fullmatch(r"[a-z-]+", word)]
            command: Any = app
            while path and isinstance(command, click.Group):
                command = command.get_command(click.Context(command), path.pop(0))
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if re.match(r"--?[a-z]", word)} - known == set()


def test_the_sample_of_a_remark_in_the_pages_is_one_the_name_server_gives() -> None:
    """Word for word, but for names and times: the sentence is built by the same function."""
    from bolide.namesrv.absence import Departures, explain
    from bolide.namesrv.entries import Cause
    from bolide.namesrv.routes import RouteTables
    from tests.namesrv.brokers import RW, announce

    tables, departures = RouteTables(), Departures()
    tables.register(announce(topics={"Orders": RW, "TBW102": RW}, address="10.0.0.5:10911", connection="c"), 0)
    (departure,) = tables.disconnect("c", 0)
    assert departure.cause is Cause.DISCONNECTED
    departures.remember(departure)
    said = explain("Orders", tables, departures, "127.0.0.1:9876", 12_000)
    assert said in (ROOT / "docs" / "namesrv.md").read_text("utf-8").replace("\n", " ")
