"""Nothing lost, nothing twice: the JVM, the Python workers and the broker killed in the middle of two streams."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow.parquet as pq
import pytest

import bolide
from bolide.testing import Cluster, cluster

POLL_INTERVAL_S = 0.05
LIMIT_S = 300.0
SOURCE, TARGET = "KilledFrom", "KilledTo"
QUERIES = ("files", "topic")


def eventually(is_so: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < until_s, f"not after {LIMIT_S:g} s: {what}"
        time.sleep(POLL_INTERVAL_S)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_busy_worker(command: str) -> bool:
    """A Python process of Spark's, but for those that only look up and plan, once and before anything is read."""
    is_worker = "pyspark" in command and "java" not in command
    return is_worker and not any(name in command for name in ("lookup_data", "create_data", "plan_data"))


def kill_one(driver: subprocess.Popen, wanted: Callable[[str], bool], dice: random.Random) -> None:
    """Kill -9 one of the driver's processes."""
    chosen: list[int] = []

    def has_one() -> bool:
        chosen[:] = [pid for pid in descendants(driver.pid) if wanted(command_of(pid))]
        return bool(chosen)

    eventually(has_one, "a process to kill")
    os.kill(dice.choice(chosen), signal.SIGKILL)


@contextmanager
def driving(rocket: Cluster, directory: Path) -> Iterator[subprocess.Popen]:
    """The two queries, until the block ends, which kills all that is left of them."""
    given = [rocket.namesrv, rocket.brokers[0].name, SOURCE, TARGET, str(directory)]
    command = [sys.executable, "-m", "tests.spark.killed_queries", *given]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (directory / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows_done(directory: Path, name: str) -> int:
    """How many rows a query has behind it, by its own checkpoint: the end of the last batch that it noted as done."""
    checkpoint = directory / f"checkpoint-{name}"
    batches = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]
    if not batches:
        return 0
    offsets = json.loads((checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[-1])
    return sum(offset for queues in offsets["topics"][SOURCE].values() for offset in queues.values())


def wait_for_both(directory: Path, count: int) -> None:
    """Wait until either query has so many rows behind it."""
    for name in QUERIES:
        eventually(lambda name=name: rows_done(directory, name) >= count, f"query {name} is at row {count}")  # type: ignore[misc]


def survive(directory: Path, kinds: list[str], seed: int, *, a_step: int) -> None:
    """Send, and kill in between; in the end every row must be in both places, once."""
    dice = random.Random(seed)
    with cluster(processes=True) as rocket:
        rocket.create_topic(SOURCE, 3)
        rocket.create_topic(TARGET, 2)
        sent = 0

        def send() -> None:
            nonlocal sent
            with bolide.Producer("killed-pg", rocket.namesrv) as producer:
                for number in range(sent, sent + a_step):
                    producer.send(SOURCE, b"%d" % number)
            sent += a_step

        left = list(kinds)
        is_done = False
        while not is_done:
            with driving(rocket, directory) as driver:
                while left:
                    behind = min(rows_done(directory, name) for name in QUERIES)
                    send()
                    wait_for_both(directory, behind + 1)  # and the rest of what was sent is under way
                    kind = left.pop(0)
                    if kind == "broker":
                        rocket.brokers[0].kill()
                        rocket.brokers[0].start()
                    elif kind == "worker":
                        kill_one(driver, is_busy_worker, dice)
                    else:
                        kill_one(driver, lambda command: "java" in command.partition(" ")[0], dice)
                        break
                else:
                    wait_for_both(directory, sent)
                    is_done = True
        tables = [pq.ParquetFile(path).read(columns=["body"]) for path in committed_files(directory / "rows")]
        found = [body for table in tables for body in table["body"].to_pylist()]
        wanted = Counter(b"%d" % number for number in range(sent))
        assert Counter(found) == wanted
        assert Counter(bodies_of(rocket.namesrv)) == wanted


def committed_files(rows: Path) -> set[Path]:
    """The files that Spark's own log of the sink names; a batch that was killed leaves others behind."""
    logs = [path for path in (rows / "_spark_metadata").iterdir() if path.name.split(".")[0].isdecimal()]
    lines = [line for path in logs for line in path.read_text().splitlines() if line.startswith("{")]
    return {Path(url2pathname(urlsplit(json.loads(line)["path"]).path)) for line in lines}


def bodies_of(namesrv: str) -> list[bytes]:
    """What the target topic holds, read without Spark."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from bolide.spark.options import source_options
    from bolide.spark.source.reader import BatchReader

    schema = StructType([StructField("body", BinaryType())])
    reader = BatchReader(source_options({"nameServer": namesrv, "subscribe": TARGET}), schema)
    return [body for task in reader.partitions() for batch in reader.read(task) for body in batch.column(0).to_pylist()]


@pytest.mark.feature("D03", "D04")
def test_streams_to_files_and_to_a_topic_survive_kills_with_every_row_once(tmp_path) -> None:
    survive(tmp_path, ["worker", "broker", "jvm"], 1, a_step=150)


@pytest.mark.soak
def test_streams_survive_twenty_kills(tmp_path) -> None:
    dice = random.Random(os.getpid())
    kinds = [dice.choice(["broker", "worker", "jvm", "worker", "broker"]) for _ in range(20)]
    survive(tmp_path, kinds, dice.randrange(1 << 30), a_step=250)
