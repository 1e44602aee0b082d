"""The page about the lake is true: its programs run, its commands and links are there."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bolide.cli.app import app
from tests.store.given import draft, opened, small
from tests.tidy.source import ROOT

PAGE = (ROOT / "docs" / "lake.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_page_runs(spark, tmp_path, program, capfd):
    with opened(small(tmp_path / "store")) as store:
        for i in range(20):
            store.append([draft(b"%d" % i, "Orders", TAGS="red")])
    # The session was begun elsewhere, and its JVM stays there.
    for name in ("store", "lake"):
        program = program.replace(f'"{name}"', repr(str(tmp_path / name)))
    exec(compile(program, "lake.md", "exec"), {})
    assert "red" in (out := capfd.readouterr().out) or "20 messages" in out


def test_every_command_and_option_of_the_page_is_there():
    helps = {}
    for line in re.findall(r"^bolide (lake \w+|spark-shell)(.*?)(?:#.*)?$", PAGE, re.MULTILINE):
        words = line[0].split()
        if line[0] not in helps:
            helps[line[0]] = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"(?<=\s)--[\w-]+", line[1]):
            assert option in helps[line[0]], line
    assert len(helps) == 6


def test_every_link_of_the_page_leads_somewhere():
    for target in re.findall(r"\]\(([\w./]+)\)", PAGE):
        assert Path(ROOT / "docs" / target).exists()
