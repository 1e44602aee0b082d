"""The brokers that are measured, ours and the Java one, and what can be read of them from outside.

Both run with RocketMQ's defaults: asynchronous flush, segments of 1 GiB, on a real disk. Java has a heap of 2 GiB and
the collector that its start script asks for; ours is `bolide up`, name server and broker in one process. Topics are
made and counted with raw requests, so that no client stands between.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from interop.cluster import SOURCE as PACKAGE
from interop.cluster import java_broker, java_name_server
from interop.process import await_that, free_port, running
from interop.wire import Address, broker_addresses, call

HERE = Path(__file__).parent
LOAD_SOURCE = HERE / "broker_load.c"
JAVA_RELEASE = "5.5.0"
JAVA_HEAP = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:InitiatingHeapOccupancyPercent=30")
SEGMENT_SIZE = 1 << 30
SEND_WAIT_MS = 5000  # of both: a busy machine must not turn a measurement into refusals
START_TIMEOUT_S = 60.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
UPDATE_TOPIC, UPDATE_TOPICS, RUNTIME, GET_MAX_OFFSET = 17, 18, 28, 30
QUEUES = 4


def read_load_options(question: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """How long and how often each broker is loaded, and whether Apache's is too."""
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-java", action="store_true")
    return parser.parse_args(argv)


class Process(Protocol):
    """A program, as far as its measures go."""

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Measured:
    """A broker that takes messages."""

    kind: str
    program: "Process"
    broker: Address
    namesrv: str

    def cpu_s(self) -> float:
        """User and system time of the broker's process, all threads."""
        fields = Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def memory_mb(self) -> dict[str, float]:
        """Memory of its own, and mapped pages of files, which the system takes back when it needs them."""
        lines = Path(f"/proc/{self.program.pid}/status").read_text().splitlines()
        sizes = {line.partition(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Rss")}
        return {"own": round(sizes["RssAnon"], 1), "mapped": round(sizes["RssFile"] + sizes["RssShmem"], 1)}

    def make_topic(self, topic: str, queue_count: int = QUEUES) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queue_count),
            "writeQueueNums": str(queue_count),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        answer = call(self.broker, UPDATE_TOPIC, fields)
        assert answer.code == 0, answer
        host, _, port = self.namesrv.partition(":")
        await_that(f"{topic} has a route", lambda: broker_addresses((host, int(port)), topic), START_TIMEOUT_S)

    def make_topics(self, prefix: str, count: int) -> None:
        """Many at once, prefix-00000 and so on."""
        topics = ",".join(
            f'{{"topicName":"{prefix}-{number:05}","readQueueNums":{QUEUES},"writeQueueNums":{QUEUES},"perm":6,'
            '"topicFilterType":"SINGLE_TAG","topicSysFlag":0,"order":false}'
            for number in range(count)
        )
        answer = call(self.broker, UPDATE_TOPICS, body=f'{{"topicConfigList":[{topics}]}}'.encode())
        assert answer.code == 0, answer

    def message_count(self, topic: str, queue_count: int = QUEUES) -> int:
        """How many messages of a topic were stored since it was made."""
        answers = [
            call(self.broker, GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id), "committed": "true"})
            for queue_id in range(queue_count)
        ]
        return sum(int(answer.fields["offset"]) for answer in answers)

    def handed_out_count(self) -> int:
        """How many messages were given to consumers since the start."""
        table = call(self.broker, RUNTIME).body.decode()
        _, _, rest = table.partition('"msgGetTotalTodayNow":"')
        return int(rest.partition('"')[0])


@contextmanager
def bolide_up(
    directory: Path,
    settings: Mapping[str, object] | None = None,
    *,
    package: Path = PACKAGE,
    python: Sequence[str] = (sys.executable,),
    start_timeout_s: float = START_TIMEOUT_S,
) -> Iterator[Measured]:
    """`bolide up` with its data in `directory`; `package` may be another tree's, with its own `python`."""
    port, namesrv_port = free_port(-2, 1), free_port()
    ready_file = directory / f"ready-{port}"
    options = ["--data", str(directory / f"data-{port}"), "--port", str(port), "--namesrv-port", str(namesrv_port)]
    options += ["--ready-file", str(ready_file), "--log-level", "warning"]
    for key, value in {"waitTimeMillsInSendQueue": SEND_WAIT_MS, **(settings or {})}.items():
        options += ["--set", f"{key}={value}"]
    command = [*python, "-c", "from bolide.cli.main import main; main()", "up", *options]
    with running("bolide-up", command, directory, {"PYTHONPATH": str(package)}) as program:

        def is_up() -> bool:
            if not program.is_running:
                raise SystemExit(f"bolide up ended at its start:\n{program.output()}")
            return ready_file.exists()

        await_that("bolide up is ready", is_up, start_timeout_s)
        yield Measured("bolide", program, ("127.0.0.1", port), f"127.0.0.1:{namesrv_port}")


@contextmanager
def java_up(directory: Path, settings: Mapping[str, object] | None = None) -> Iterator[Measured]:
    """Apache's name server and broker."""
    chosen: dict[str, object] = {
        "mappedFileSizeCommitLog": SEGMENT_SIZE,
        "mapedFileSizeCommitLog": SEGMENT_SIZE,
        "enablePropertyFilter": False,
        "waitTimeMillsInSendQueue": SEND_WAIT_MS,
        **(settings or {}),
    }
    with (
        java_name_server(directory, JAVA_RELEASE) as namesrv,
        java_broker(directory, JAVA_RELEASE, namesrv.endpoint, chosen, jvm=JAVA_HEAP) as broker,
    ):
        if "authenticationEnabled" not in chosen:  # else it is asked for by nobody it knows, and comes by itself
            broker.await_route(namesrv)
        yield Measured("java", broker.program, broker.address, namesrv.endpoint)


def file_system(directory: Path) -> str:
    """What kind of disk a directory is on."""
    found = subprocess.run(["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True, check=True)
    return found.stdout.strip()
