"""A `bolide up` as a user starts it: a process, its ready file, and everything it said."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolide.model.queue import QueueOffset
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command, read_commands
from bolide.protocol.headers.consume import PullMessageRequest
from bolide.protocol.headers.send import SendMessageRequest
from bolide.protocol.records import decode_records

LIMIT_S = 60
WITH_SUBSCRIPTION = 4
POLL_INTERVAL_S = 0.005
FREE_PORTS = ("--namesrv-port", "0", "--port", "0", "--grpc-port", "off")
# A store of small files: the disk of a test machine is not reserved by the gigabyte.
ANY_DISK = ("--set", "diskSpaceWarningLevelRatio=100")  # a test is not about how full the machine's disk is
SMALL = ("--set", "mappedFileSizeCommitLog=16777216", *ANY_DISK)


@dataclass
class Up:
    """A running server process; `namesrv` and `broker` are the addresses of its ready file."""

    process: "subprocess.Popen[str]"
    ready_path: Path
    started_s: float
    ready_s: float = 0.0
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def namesrv(self) -> str:
        return str(self.ready["namesrv"])

    @property
    def broker(self) -> str:
        return str(self.ready["broker"])

    def wait_until_ready(self) -> "Up":
        deadline_s = time.monotonic() + LIMIT_S
        while self.ready.get("pid") != self.process.pid:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline_s, "it was not ready in time"
            time.sleep(POLL_INTERVAL_S)
            with contextlib.suppress(FileNotFoundError):
                self.ready = json.loads(self.ready_path.read_text())
        self.ready_s = time.monotonic() - self.started_s
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, stdout, stderr

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def queued_s(self) -> float:
        """How long its main thread has waited for a processor, where the kernel counts that."""
        counted = Path(f"/proc/{self.process.pid}/schedstat")
        return int(counted.read_text().split()[1]) / 1e9 if counted.exists() else 0.0

    def status(self, key: str) -> int:
        """A size of /proc/PID/status, in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return int(value.split()[0]) * 1024
        raise AssertionError(f"{key} is not in the status")


def begin(home: Path, command: str, *arguments: str, environment: dict[str, str] | None = None) -> Up:
    """Start `bolide COMMAND` in `home`, which is its working directory too."""
    ready_path = home / "ready.json"
    started_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "bolide.cli.main", command, "--ready-file", str(ready_path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={
            **{key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"},
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join(sys.path),
            **(environment or {}),
        },
    )
    return Up(process, ready_path, started_s)


@contextlib.contextmanager
def running(home: Path, command: str, *arguments: str, environment: dict[str, str] | None = None) -> Iterator[Up]:
    """A server that answers; it is killed when the block is left and it still runs."""
    up = begin(home, command, *arguments, environment=environment)
    try:
        yield up.wait_until_ready()
    finally:
        up.kill()


def ask(address: str, command: Command) -> Command:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        return ask_on(connection, command)


def ask_on(connection: socket.socket, command: Command) -> Command:
    connection.sendall(command.encode())
    stream = b""
    while len(stream) < 4 or len(stream) < 4 + int.from_bytes(stream[:4], "big"):
        received = connection.recv(1 << 16)
        assert received, "the connection was closed"
        stream += received
    return read_commands(stream, [4, len(stream)])[0]


def send(address: str, topic: str, body: bytes, queue_id: int = 0, queue_count: int = 4) -> Command:
    """One message, in RocketMQ's long form; the topic is made if it is not there."""
    header = SendMessageRequest(
        producer_group="pg",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_count=queue_count,
        queue_id=queue_id,
        sys_flag=0,
        born_ms=1_700_000_000_000,
        flag=0,
    )
    return ask(address, Command(RequestCode.SEND_MESSAGE, fields=header.encode(), body=body))


def bodies(address: str, topic: str, queue_id: int = 0) -> list[bytes]:
    """Everything in a queue, pulled in as many requests as that takes."""
    found: list[bytes] = []
    while True:
        header = PullMessageRequest(
            consumer_group="cg",
            topic=topic,
            queue_id=queue_id,
            queue_offset=QueueOffset(len(found)),
            message_count_max=32,
            sys_flag=WITH_SUBSCRIPTION,
            commit_offset=QueueOffset(0),
            suspend_timeout_ms=0,
            subscription="*",
            subscription_version=0,
        )
        answer = ask(address, Command(RequestCode.PULL_MESSAGE, fields=header.encode()))
        if answer.code != ResponseCode.SUCCESS:
            return found
        found += [record.body for record in decode_records(answer.body)]
