"""The same job on this machine's cores and on a cluster: a master and a worker of the pip package, on loopback."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

import bolide
from bolide.spark.java import java_home
from bolide.testing import cluster
from interop.process import Program, running

HOST = "127.0.0.1"
TIMEOUT_S = 240.0
ROOT = Path(__file__).parents[1]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def environment() -> dict[str, str]:
    # A session that another test has begun leaves its SPARK_HOME behind, whose servers say less than we wait for.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {
        **inherited,
        "JAVA_HOME": str(java_home(os.environ)),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
    }


def server(stack: ExitStack, directory: Path, name: str, role: str, *arguments: str) -> Program:
    flags = ("--host", HOST, "--webui-port", "0")
    command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{role}", *flags, *arguments]
    return stack.enter_context(running(name, command, directory / name, environment()))


@pytest.mark.feature("D01")
def test_one_job_gives_the_same_result_on_local_cores_and_on_a_standalone_cluster(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rocket = stack.enter_context(cluster(processes=True))
        rocket.create_topic("ClusterOrders", 4)
        with bolide.Producer("cluster-pg", rocket.namesrv) as producer:
            for number in range(200):
                producer.send("ClusterOrders", b"%d" % number, tags="ABC"[number % 3])
        master = server(stack, tmp_path, "master", "master.Master", "--port", "0")
        address = master.await_output(r"Starting Spark master at (spark://[\w.]+:\d+)", TIMEOUT_S)[1]
        size = ("-c", "2", "-m", "1g", "-d", str(tmp_path / "work"))
        worker = server(stack, tmp_path, "worker", "worker.Worker", *size, address)
        worker.await_output(re.escape("Successfully registered with master"), TIMEOUT_S)
        results = []
        for number, where in enumerate(("local[2]", address)):
            result = tmp_path / f"result-{number}"
            command = [sys.executable, "-m", "interop.spark_job", where, rocket.namesrv, "ClusterOrders", str(result)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment(), cwd=ROOT
            )
            assert done.returncode == 0, done.stderr[-3000:]
            results.append(json.loads(result.read_text()))
        assert results == [{"A": 67, "B": 67, "C": 66}] * 2
