"""A tuned Spark session in one call.

The settings are what was measured to pay for Bolide's sources and sinks, and a user's own session works too; each can
be overruled by name. What only a driver can be started with (memory, stack, sockets) is left out for a session that
lives elsewhere, behind a Spark Connect address.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bolide.errors import ConfigError
from bolide.spark.java import java_home, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
CONNECT = "sc://"
# What a query may be told at any time, hence on any session.
QUERY_SETTINGS = {
    # Off in Spark for want of users; our sources prune topics, queues and times with it.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Times are moments: a Parquet file reads the same in every office.
    "spark.sql.session.timeZone": "UTC",
}
DRIVER_SETTINGS = {
    # A micro-batch of one partition is 50 ms shorter than over loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The other manager forks for permissions at each file: 70 ms a trigger. One query per checkpoint, as always.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Stopping a query inside foreachBatch overflowed the standard stack.
    "spark.driver.extraJavaOptions": "-Xss8m",
    "spark.ui.showConsoleProgress": "false",
}
# On this machine alone: nothing listens beyond it, and a shuffle of little data is not cut into 200.
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
}


def session(app: str = "bolide", master: str | None = None, **settings: object) -> "SparkSession":
    """A session on this machine, on a master (`spark://…`, `yarn`, `k8s://…`), or at a Spark Connect address (`sc://…`).

    `settings` are Spark's by their own names (`**{"spark.driver.memory": "4g"}`) and win over ours. Where a session is
    there already it is given, with these settings where they can still be changed.
    """
    demand_spark()
    from pyspark.sql import SparkSession

    where = master or LOCAL
    wanted = settings_for(where) | {name: _text(value) for name, value in settings.items()}
    _prepare(os.environ, where)
    builder = SparkSession.builder.appName(app)
    builder = builder.remote(where) if where.startswith(CONNECT) else builder.master(where)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def begun(app: str, master: str | None = None, **settings: object) -> Iterator["SparkSession"]:
    """A session for one job, stopped afterwards; one that is there already is used as it is, and stays."""
    demand_spark()
    from pyspark.sql import SparkSession

    host = SparkSession.getActiveSession()
    if host is not None:
        yield host
        return
    spark = session(app, master, **settings)
    try:
        yield spark
    finally:
        spark.stop()


def settings_for(master: str) -> dict[str, str]:
    """Our settings for a session there."""
    if master.startswith(CONNECT):
        return dict(QUERY_SETTINGS)
    if is_local(master):
        return QUERY_SETTINGS | DRIVER_SETTINGS | LOCAL_SETTINGS
    return QUERY_SETTINGS | DRIVER_SETTINGS


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def demand_spark() -> None:
    """ConfigError with the command that helps, where the extra is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise ConfigError("spark", " and ".join(missing), "not installed; run: pip install 'bolide[spark]'")


def _prepare(environment: "os._Environ[str]", master: str) -> None:
    """What Spark reads from the environment when its JVM starts; what the user set stays."""
    # Workers run `python3` from PATH otherwise, which need not be the one that has pyarrow and Bolide.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith(CONNECT):
        return
    environment["JAVA_HOME"] = str(java_home(environment))
    if is_local(master):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        home = spark_home(environment)
        if home is not None:
            environment["SPARK_HOME"] = str(home)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
