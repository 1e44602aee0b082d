"""The manners of a process under test do what they say: otherwise a campaign of them would prove nothing."""

import subprocess
import sys
from pathlib import Path

from tests.replication.nodes import python_environment

TRIAL = """
import time
from pathlib import Path
from bolide.clock import SystemClock
from bolide.errors import StoreError
from bolide.files import write_whole
from bolide.store.disk import Disk
from tests.replication.program import FULL, SKEW, install

def problem(work):
    try:
        work()
    except (OSError, StoreError) as problem:
        return type(problem).__name__
    return "done"

install()
here = Path.cwd()
for step in (lambda: None, lambda: ((here / SKEW).write_text("3600000"), (here / FULL).touch()), (here / FULL).unlink):
    step()
    skew_s = SystemClock().now_ms() / 1000 - time.time()
    print(round(skew_s / 60), problem(lambda: Disk().create(here / f"file-{time.time_ns()}", 1 << 20)),
          problem(lambda: write_whole(here / "table.json", "{}")))
"""


def test_a_full_disk_and_a_wrong_clock_come_and_go_while_the_process_runs(tmp_path: Path) -> None:
    words = [sys.executable, "-c", TRIAL]
    done = subprocess.run(words, cwd=tmp_path, env=python_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 done done", "60 OSError StoreError", "60 done done"]
