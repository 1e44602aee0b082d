"""The same jobs on a Spark that lives elsewhere: behind a Spark Connect address."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.given import draft, opened, small

LIMIT_S = 90


@pytest.mark.feature("D01", "D07")
def test_an_export_runs_behind_a_spark_connect_address(connect, tmp_path):
    root = tmp_path / "store"
    with opened(small(root)) as store:
        for i in range(200):
            store.append([draft(b"%d" % i, "Orders", i % 3)])
    command = [sys.executable, "-m", "bolide.cli.main", "lake", "export", "--store", str(root), "-o", "json"]
    command += ["--to", str(tmp_path / "lake"), "--master", connect]
    environment = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": ""}  # only the server has a JVM
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert sum(row["messages"] for row in json.loads(done.stdout)) == 200
    assert len(list(Path(tmp_path / "lake").glob("topic=Orders/*/*.parquet"))) == 1
