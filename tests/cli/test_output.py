"""What all commands share: tables, times and spans, and answers to questions about what is not there."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from bolide.cli import times
from bolide.cli.app import app
from bolide.files import local_path
from bolide.testing import cluster
from tests.cli.inside import run, told

ROW = {
    "topic": "a-topic-with-a-name-of-some-length-and-then-more-of-it",
    "queue": 3,
    "end": 1234567,
    "when": "2026-11-16 09:19:05.000+00:00",
}
SHOWS = f"from bolide.cli.output import Output, show; show([{ROW!r}] * 2, Output.TABLE, empty='')"


@pytest.mark.parametrize("time_ms", [1 << 62, -(1 << 62), 253_402_300_800_000])
def test_a_time_that_is_none_is_shown_as_the_number_it_is(time_ms: int) -> None:
    assert times.moment(time_ms) == (str(time_ms) if time_ms > 0 else "")


def on_a_terminal(program: str) -> list[str]:
    """What a program shows where it is read by a person."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb"}  # which has 80 columns, and no colours
    subprocess.run([sys.executable, "-c", program], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as read, suppress(OSError):  # the end of a terminal; its lines come one by one
        while chunk := read.read(65536):
            shown += chunk
    return shown.decode().splitlines()


def test_a_narrow_terminal_folds_texts_and_cuts_nothing() -> None:
    lines = on_a_terminal(SHOWS)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == list(ROW)
    assert "".join(line[: lines[0].index("queue")].strip() for line in lines[1:]) == str(ROW["topic"]) * 2
    assert "…" not in "".join(lines)


def test_into_a_pipe_every_row_is_one_line() -> None:
    environment = {**os.environ, "COLUMNS": "50"}
    done = subprocess.run([sys.executable, "-c", SHOWS], capture_output=True, text=True, env=environment, check=True)
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [" ".join(map(str, ROW.values())).split()] * 2


def test_where_a_table_does_not_fit_each_row_is_a_block_whose_long_texts_are_cut() -> None:
    shows = (
        "from bolide.cli.output import *; "
        "row = {'id': '0' * 32, 'topic': 'T' * 30, 'reason': 'r' * 300, 'body': '\\x1b'};"
        "show([row, row], Output.TABLE, empty='', long=('reason', 'body'))"
    )
    lines = on_a_terminal(shows)
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line] == ["id", "topic", "reason", "body"] * 2
    assert lines[2].endswith("…")
    assert lines[3].endswith("\\x1b")


@pytest.mark.parametrize("words", [["-h"], ["topic", "-h"], ["lake", "export", "-h"]])
def test_the_short_option_for_help_works_everywhere(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert "Usage:" in done.stdout


@pytest.mark.parametrize("room", ["", "bench", "topic", "group", "dlq", "transaction", "store", "lake"])
def test_the_summary_of_every_command_fits_into_its_line(room: str) -> None:
    shown = CliRunner().invoke(app, [*room.split(), "--help"], env={"COLUMNS": "80"}).stdout
    assert [line for line in shown.partition("Commands:")[2].splitlines() if line.endswith("...")] == []


@pytest.mark.parametrize(
    ("text", "ms"), [("90", 90_000), ("1.5", 1500), ("500ms", 500), ("30m", 1_800_000), ("1d", 86_400_000)]
)
def test_a_span_is_read_in_every_unit(text: str, ms: int) -> None:
    assert times.span_ms("--delay", text) == ms
    assert times.span_ms("--delay", times.span(ms)) == ms


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 w", "1e3"])
def test_what_is_no_span_is_refused_with_examples(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        times.span_ms("--delay", text)
    assert "write 500ms, 10s" in capsys.readouterr().err


def test_questions_about_what_is_not_there_are_answered_with_what_helps(tmp_path: Path) -> None:
    with cluster() as rocket:
        assert "trace=True" in run(rocket.namesrv, "trace", "NOSUCHID").stderr
        assert told(rocket.namesrv, "trace", "NOSUCHID") == [[]]
        assert "nothing that could be copied" in run(rocket.namesrv, "group", "clone", "nobody", "copy").stderr
        reset = ("group", "reset", "nobody", "--topic", "T", "--to", "earliest", "--dry-run")
        assert "`bolide group set nobody` makes it" in run(rocket.namesrv, *reset).stderr
        assert "does not exist" in run(rocket.namesrv, "group", "delete", "nobody", "--yes").stderr
        assert run(rocket.namesrv, "topic", "create", "None", "--queues", "0").exit_code == 2
    nothing = CliRunner().invoke(app, ["store", "inspect", str(tmp_path)])
    assert nothing.exit_code == 2
    assert "is no store" in nothing.stderr


@pytest.mark.parametrize("words", [["export", "T", "--to"], ["stats", "--lake"], ["rebuild", ".", "--to"]])
def test_a_lake_in_a_store_that_is_not_written_to_is_refused_before_anything_starts(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["lake", *words, "s3a://bucket/lake"])
    assert done.exit_code == 2
    assert "s3a: is not written to or read from here" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_the_path_it_names() -> None:
    assert local_path("file:///srv/lake") == local_path("file:/srv/lake") == Path("/srv/lake")
    assert local_path("lake") == Path("lake")
    assert local_path(Path("/srv/a:b")) == Path("/srv/a:b")


def test_a_topic_that_is_not_there_is_told_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.cli.lake.interruptible", lambda *_: pytest.fail("Spark was started"))
    with cluster() as rocket:
        done = CliRunner().invoke(app, ["lake", "export", "NoSuch", "--namesrv", rocket.namesrv])
    assert done.exit_code == 4
    assert "topic NoSuch does not exist" in done.stderr
