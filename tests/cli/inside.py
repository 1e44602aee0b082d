"""Commands run inside the test's own process: what they print and how they end, without the start of a process each."""

import json
from typing import Any

from click.testing import CliRunner

from bolide.cli.app import app


def run(namesrv: str, *words: str, given: str | None = None) -> Any:
    """One command of `bolide`; `output` and `stderr` of what it returns are what people see."""
    return CliRunner().invoke(app, words, input=given, env={"NAMESRV_ADDR": namesrv, "COLUMNS": "200"})


def told(namesrv: str, *words: str, given: str | None = None) -> list[Any]:
    """What a command answers as JSON: one value, or one for each line."""
    done = run(namesrv, *words, "--output", "json", given=given)
    assert done.exit_code == 0, (done.output, done.exception)
    return [json.loads(line) for line in done.stdout.splitlines()]
