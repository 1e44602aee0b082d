"""Taskiq's own worker on Bolide."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from taskiq import BrokerMessage

from bolide.errors import ClientError
from bolide.taskiq import BolideBroker
from bolide.testing import cluster
from tests.cli.processes import LIMIT_S
from tests.client.scenes import on_uvloop
from tests.remoting.loops import eventually
from tests.tidy.source import ROOT


@contextmanager
def worker(namesrv: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "TASKS_DIRECTORY": str(directory)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "taskiq", "worker", "tests.taskiq.tasks:broker", "--workers", "1"]
    with (directory / "worker.log").open("a") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)


@on_uvloop
async def test_workers_run_tasks_at_once_or_later_and_what_a_killed_one_held_is_run_again(tmp_path: Path) -> None:
    from tests.taskiq.tasks import hold, note

    async with cluster() as rocket:
        await rocket.create_topic("taskiq")
        sender = BolideBroker(rocket.namesrv)
        await sender.startup()
        with worker(rocket.namesrv, tmp_path) as first:
            await note.kicker().with_broker(sender).kiq(1)
            await note.kicker().with_broker(sender).with_labels(delay=1).kiq(2)
            await hold.kicker().with_broker(sender).kiq("one")
            await eventually(lambda: {"done-1", "done-2", "one.began"} <= set(os.listdir(tmp_path)), LIMIT_S)
            os.killpg(first.pid, signal.SIGKILL)
            first.wait(LIMIT_S)
        with worker(rocket.namesrv, tmp_path):
            began = tmp_path / "one.began"
            await eventually(lambda: len(began.read_text().split()) == 2, LIMIT_S)
        await sender.shutdown()


@on_uvloop
async def test_a_priority_is_refused() -> None:
    message = BrokerMessage(task_id="1", task_name="t", message=b"{}", labels={"priority": 3})
    with pytest.raises(ClientError, match="a topic has no priorities"):
        await BolideBroker("127.0.0.1:9").kick(message)
