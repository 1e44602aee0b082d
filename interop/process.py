"""A program in a process group of its own: started, watched, and surely ended.

Whatever happens to the scenario, no process outlives it: leaving the `with` block kills the whole group, and should the
test run itself be killed, the kernel kills the program (`setpriv --pdeathsig`; it looks at the thread that started the
program, so start them from the main one). All output goes to one file, which is what a failed wait shows.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

POLL_INTERVAL_S = 0.05
STOP_TIMEOUT_S = 30.0
# Below the range from which outgoing connections take their ports, so that a free port stays free until it is used.
PORT_MIN, PORT_MAX = 20_000, 32_000


class NotInTime(AssertionError):
    """Something that a scenario waits for did not come before its deadline."""


def await_that(claim: str, probe: Callable[[], T | None], timeout_s: float) -> T:
    """Ask until the answer is neither None nor false; past the deadline the claim fails with the last answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {timeout_s:g} s: {claim} (last answer: {answer!r})")
        time.sleep(POLL_INTERVAL_S)


def await_moment(at_s: float) -> None:
    """Wait until the clock of this machine, which its servers and clients read too, is past a moment."""
    await_that("time passes", lambda: time.time() > at_s, max(0.0, at_s - time.time()) + 5)


class Program:
    """A running program. Signals go to its whole group."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def lines(self) -> list[str]:
        """The whole lines printed so far; one that is still being written waits for its end."""
        return self.output().rpartition("\n")[0].splitlines()

    def await_output(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait until the output matches; a program that ended without it fails at once, with its last words."""

        def probe() -> re.Match[str] | None:
            is_running = self.is_running  # asked first: what a program says last is read after its end
            match = re.search(pattern, self.output())
            if match is None and not is_running:
                raise NotInTime(f"{self.name} ended with {self._process.returncode}:\n{self.output()[-4000:]}")
            return match

        return await_that(f"{self.name} prints {pattern!r}; its log is {self.log}", probe, timeout_s)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask it to end (SIGTERM) and wait."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        # The group may be gone already; its leader's pid stays ours until it is waited for.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


@contextmanager
def running(
    name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Run a program with its output in `directory`; the group is killed when the block is left."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{name}.out"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_die_with_parent(), *command],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    program = Program(name, process, log)
    try:
        yield program
    finally:
        program.kill()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()


def _die_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def free_port(*neighbours: int) -> int:
    """A port that nobody has on loopback, its neighbours (relative numbers) neither."""
    while True:
        port = random.randrange(PORT_MIN, PORT_MAX)
        if all(_is_free(port + neighbour) for neighbour in (0, *neighbours)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
