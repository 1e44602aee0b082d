"""One Spark session for all tests of the room: starting one costs more than most tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bolide.remoting.ports import free_port
from bolide.testing import Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For a session that lives a minute: the first compiler is enough, and the second one would never be done; collecting
# garbage needs no threads of its own.
TEST_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session on two cores, whose Python workers find the same Bolide as the test."""
    import bolide.spark

    warehouse = tmp_path_factory.mktemp("warehouse")
    home = Path(bolide.__file__).parents[1]
    # Workers inherit the environment of the JVM, and the JVM ours.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(home), *filter(None, sys.path)])
    settings = TEST_SETTINGS | {
        "spark.sql.warehouse.dir": warehouse.as_uri(),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(free_port()),
    }
    session = bolide.spark.session("tests", "local[2]", **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect(spark: "SparkSession") -> str:
    """The address at which the same Spark serves those who live elsewhere."""
    return f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"


@pytest.fixture(scope="session")
def rocket() -> Iterator[Cluster]:
    """A name server and a broker, as a process each: tests share them and use topics of their own."""
    with cluster(processes=True, settings={"enablePropertyFilter": "true"}) as running:
        yield running
