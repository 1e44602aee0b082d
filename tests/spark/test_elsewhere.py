"""The same jobs on a Spark that lives elsewhere: behind a Spark Connect address."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bolide.spark.java import java_home, spark_home
from tests.store.given import draft, opened, small
from tests.tidy.source import ROOT

LIMIT_S = 90
POLL_INTERVAL_S = 0.1


def environment():
    home = spark_home({**os.environ, "SPARK_HOME": ""})
    assert home is not None
    paths = {"JAVA_HOME": str(java_home(os.environ)), "SPARK_HOME": str(home), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return {**os.environ, **paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture
def connect(tmp_path):
    """A Spark Connect server on loopback; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    surroundings = environment()
    command = [f"{surroundings['SPARK_HOME']}/bin/spark-submit", "--master", "local[2]"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.driver.memory=1g",
        "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}",
    ):
        command += ["--conf", setting]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with open(tmp_path / "connect.log", "wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=surroundings, cwd=tmp_path)
    try:
        wait_for(port, server)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(LIMIT_S)


def wait_for(port, server):
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(POLL_INTERVAL_S)
    raise AssertionError("the Spark Connect server did not come up")


@pytest.mark.feature("D01", "D07")
def test_an_export_runs_behind_a_spark_connect_address(connect, tmp_path):
    root = tmp_path / "store"
    with opened(small(root)) as store:
        for i in range(200):
            store.append([draft(b"%d" % i, "Orders", i % 3)])
    command = [sys.executable, "-m", "bolide.cli.main", "lake", "export", "--store", str(root), "-o", "json"]
    command += ["--to", str(tmp_path / "lake"), "--master", connect]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment(), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert sum(row["messages"] for row in json.loads(done.stdout)) == 200
    assert len(list(Path(tmp_path / "lake").glob("topic=Orders/*/*.parquet"))) == 1
