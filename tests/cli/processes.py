"""`bolide` as a process: started, asked and waited for, as a user does it."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.command import Command
from tests.e2e.up import ask

LIMIT_S = 60  # of a machine with much else to do
POLL_INTERVAL_S = 0.01
COMMAND = [sys.executable, "-m", "bolide.cli.main"]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}


def wait_for(condition: object, limit_s: float = LIMIT_S) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(POLL_INTERVAL_S)


def bolide(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=home,
        env=environment(home),
    )


def client_environment(namesrv: str) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}


def run(namesrv: str, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        input=given,
        timeout=LIMIT_S,
        check=False,
        env=client_environment(namesrv),
    )


def told(namesrv: str, *words: str, given: str | None = None) -> list[Any]:
    """What a command answers as JSON: one value, or one for each line."""
    done = run(namesrv, *words, "--output", "json", given=given)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def own_address() -> str | None:
    """An address of this machine that is not loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket only looks up the way
        except OSError:
            return None
        host: str = probe.getsockname()[0]
    return None if host.startswith("127.") else host


def until_routed(namesrv: str, topic: str) -> None:
    """Wait until a name server knows a topic that a message made, which is a moment after the message was taken."""
    wait_for(lambda: ask(namesrv, Command(105, fields={"topic": topic})).code == 0)


def until_held(pid: int) -> None:
    """Wait until SIGSTOP holds every thread of a process: one inside of a call to the system ends that first."""
    threads = Path(f"/proc/{pid}/task")
    wait_for(lambda: all(_state(thread) in "TtZX" for thread in threads.iterdir()))


def _state(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def route(namesrv: str, topic: str) -> list[str]:
    """The addresses of all brokers that have a topic."""
    answer = ask(namesrv, Command(105, fields={"topic": topic}))
    assert answer.code == 0, answer.remark
    return [
        address for broker in TopicRoute.decode(answer.body).broker_datas for address in broker.broker_addrs.values()
    ]
