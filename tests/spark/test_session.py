"""The session that `bolide.spark.session` gives, and the shell on top of it."""

import logging
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from bolide.cli import spark as cli_spark
from bolide.cli.app import app
from bolide.spark.session import begun


@pytest.mark.feature("D01")
def test_a_session_is_tuned_and_knows_the_formats(spark, tmp_path):
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    (tmp_path / "commitlog").mkdir()
    assert spark.read.format("bolide-store").load(str(tmp_path)).count() == 0


def test_a_job_leaves_a_session_that_was_there(spark):
    with begun("a job") as given:
        assert given.range(3).count() == 3
    assert spark.range(3).count() == 3


def test_the_shell_runs_a_command_and_a_script(spark, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("import sys\nprint(spark.range(int(sys.argv[1])).count() * 2)\n")
    ran = CliRunner().invoke(app, ["spark-shell", "-c", "print(spark.range(5).count() + 1)"])
    assert (ran.exit_code, ran.stdout.strip()) == (0, "6"), ran.output
    ran = CliRunner().invoke(app, ["spark-shell", str(script), "7"])
    assert (ran.exit_code, ran.stdout.strip()) == (0, "14"), ran.output


def test_what_is_wrong_is_one_sentence_even_from_inside_of_spark(spark, tmp_path):
    ran = CliRunner().invoke(app, ["lake", "stats", "--store", str(tmp_path / "nowhere")])
    assert ran.exit_code == 2
    assert "nowhere': is not a directory of this machine" in ran.stderr
    assert "Traceback" not in ran.output


def test_ctrl_c_while_java_starts_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def starting(app: str, master: str | None, **settings: object) -> Iterator[None]:
        started.append(subprocess.Popen(["sleep", "60"]))
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(cli_spark, "begun", starting)
    with subprocess.Popen(["sleep", "60"]) as other:
        with pytest.raises(KeyboardInterrupt), cli_spark.interruptible("a job", None, {}):
            pass
        assert started[0].wait(30) == -signal.SIGKILL
        assert other.poll() is None, "what was there before is somebody else's"
        other.kill()


def test_py4j_tells_nothing_of_a_question_that_ctrl_c_cut_short(caplog: pytest.LogCaptureFixture) -> None:
    def tell(problem: BaseException) -> None:
        try:
            try:
                raise problem
            finally:
                raise BrokenPipeError
        except BrokenPipeError:
            for name in ("", "py4j.clientserver", "py4j.java_gateway"):
                logging.getLogger(name).exception("while sending a command")

    with cli_spark._quiet_interrupts():
        tell(KeyboardInterrupt())
        assert caplog.records == []
        tell(ValueError())
        assert len(caplog.records) == 3
    tell(KeyboardInterrupt())
    assert len(caplog.records) == 6
