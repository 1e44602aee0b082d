"""Processes on the hosts of a network: started, frozen, killed by their number, and surely ended."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
POLL_INTERVAL_S = 0.02
STOP_LIMIT_S = 20.0


class Place(Protocol):
    """Where a process runs, and what others reach it by."""

    name: str
    address: str

    def enter(self) -> list[str]: ...

    def run(self, work: Callable[[], T]) -> T: ...


@dataclass(slots=True)
class Here:
    """This machine's loopback: every host has the same address, so no two can be parted."""

    name: str
    address: str = "127.0.0.1"

    def enter(self) -> list[str]:
        return []

    def run(self, work: Callable[[], T]) -> T:
        return work()


class NotInTime(AssertionError):
    """Something that was waited for did not come."""


def await_that(claim: str, probe: Callable[[], T | None], limit_s: float) -> T:
    """Ask until the answer is neither None nor false."""
    deadline_s = time.monotonic() + limit_s
    while not (answer := probe()):
        if time.monotonic() > deadline_s:
            raise NotInTime(f"not within {limit_s:g} s: {claim} (last answer: {answer!r})")
        time.sleep(POLL_INTERVAL_S)
    return answer


@dataclass(slots=True)
class Node:
    """A process that can be started again where it was."""

    name: str
    place: Place
    directory: Path
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_frozen: bool = False
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.out"

    def start(self) -> None:
        if self.is_running:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        environment = {**os.environ, "HOME": str(self.directory), **self.environment}
        with self.log.open("ab") as log:
            # nsenter first: a change of namespaces would clear the signal that setpriv asks for.
            self._process = subprocess.Popen(
                [*self.place.enter(), *guard, *self.command],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self.is_frozen = False

    def stop(self) -> None:
        """As SIGTERM does; a process that takes no notice is killed, and that is a failure."""
        self.thaw()
        self._signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise NotInTime(f"{self.name} did not end within {STOP_LIMIT_S:g} s of SIGTERM") from None

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.killpg(self.pid, number)

    def last_words(self, size: int = 3000) -> str:
        return self.log.read_bytes()[-size:].decode("utf-8", "replace") if self.log.exists() else ""


def python_command(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def python_environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}


@contextmanager
def ended(nodes: Callable[[], Sequence[Node]]) -> Iterator[None]:
    """Whatever happens inside, no process is left of those that there are in the end."""
    try:
        yield
    finally:
        for node in nodes():
            node.kill()
