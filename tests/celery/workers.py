"""Celery's own workers as processes, and an application that sends to them."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tests.tidy.source import ROOT

LIMIT_S = 60


def shop_at(namesrv: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The application, as one that sends imports it."""
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    monkeypatch.setenv("SHOP_DIRECTORY", str(directory))
    sys.modules.pop("tests.celery.shop", None)
    return importlib.import_module("tests.celery.shop")


class Worker:
    """One `celery worker`, in a session of its own so that it can be killed with all its children."""

    def __init__(self, namesrv: str, directory: Path, pool: str = "prefork", *options: str) -> None:
        environment = {**os.environ, "NAMESRV_ADDR": namesrv, "SHOP_DIRECTORY": str(directory)}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        command = ["-A", "tests.celery.shop", "worker", "-P", pool, "-c", "2", "-n", f"{pool}-{id(self)}@%h", *options]
        self.log = directory / f"worker-{id(self)}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "celery", *command, "-l", "INFO"],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Worker and pool at once, as the end of a machine is."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(LIMIT_S)


@contextmanager
def worker(namesrv: str, directory: Path, pool: str = "prefork", *options: str) -> Iterator[Worker]:
    running = Worker(namesrv, directory, pool, *options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()
