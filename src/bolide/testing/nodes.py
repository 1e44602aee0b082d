"""One server of a cluster under test: in this process or in one of its own, to be stopped, killed and started again.

A node keeps its directory and its port through all its lives, so clients find it where it was. In this process a kill
is the nearest thing to one: every connection breaks at once, nobody is told goodbye, the store keeps its abort file and
recovers in full at the next start. A process is killed with SIGKILL, which spares nothing.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import IO, Protocol

from bolide.clock import Clock
from bolide.errors import BolideError
from bolide.remoting.server import Server

HOST = "127.0.0.1"
START_LIMIT_S = 30.0
STOP_LIMIT_S = 30.0
_POLL_INTERVAL_S = 0.005
_SHOWN_LOG_SIZE = 2000
_PORT_MIN, _PORT_MAX = 20_000, 32_000
_PORTS_TRIED_MAX = 100
_VIP_DISTANCE = 2

Settings = dict[str, str]
Serve = Callable[[Settings, Clock], AbstractAsyncContextManager[Server]]


class NotStarted(BolideError):
    """A node that did not come up; the sentence has its last words."""


class Life(Protocol):
    """One run of a node, from its start to its end; `begin` returns the port it listens on."""

    @property
    def is_running(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    async def begin(self) -> int: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...


class AsyncNode:
    """A name server or a broker of the cluster."""

    def __init__(self, name: str, directory: Path, settings: Settings, live: Callable[[Settings], Life]) -> None:
        self.name = name
        self.directory = directory
        self.settings = settings
        self.port = 0
        self._live = live
        self._life: Life | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {self.address}{'' if self.is_running else ' down'}>"

    @property
    def address(self) -> str:
        """host:port; the same in every life."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._life is not None and self._life.is_running

    @property
    def pid(self) -> int:
        """Whose process it is: this one's, or its own."""
        if self._life is None:
            raise NotStarted(f"{self.name} is not running")
        return self._life.pid

    async def start(self) -> None:
        """Bring it up, on the port and with the directory it had before."""
        if self.is_running:
            return
        for attempt in range(_PORTS_TRIED_MAX):
            port = self.port or free_port()
            life = self._live({**self.settings, "listenPort": str(port)})
            try:
                self.port = await life.begin()
            except BolideError:
                # Somebody may have been quicker; a port that is ours already is not given up.
                if self.port or _is_free(port) or attempt == _PORTS_TRIED_MAX - 1:
                    raise
            else:
                self._life = life
                return

    async def stop(self) -> None:
        """End it as SIGTERM does: what was begun is answered, everything is saved."""
        life, self._life = self._life, None
        if life is not None:
            await life.stop()

    async def kill(self) -> None:
        """End it as `kill -9` does: nothing is answered and nothing more is saved."""
        life, self._life = self._life, None
        if life is not None:
            await life.kill()

    async def restart(self) -> None:
        """Stop it if it runs, then start it."""
        await self.stop()
        await self.start()


class InsideLife:
    """A server as a task of this process."""

    def __init__(self, name: str, serve: Serve, settings: Settings, clock: Clock, group: asyncio.TaskGroup) -> None:
        self._name = name
        self._serve = serve
        self._settings = settings
        self._clock = clock
        self._group = group
        self._started: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def pid(self) -> int:
        return os.getpid()

    async def begin(self) -> int:
        self._task = self._group.create_task(self._run(), name=f"cluster.{self._name}")
        return (await self._started).port

    async def _run(self) -> None:
        """A start that fails is the caller's to hear; a fall later takes the whole cluster with it."""
        try:
            async with self._serve(self._settings, self._clock) as server:
                self._started.set_result(server)
                await self._leaving.wait()
        except Exception as problem:
            if self._started.done():
                raise
            self._started.set_exception(alone(problem))

    async def stop(self) -> None:
        self._leaving.set()
        await self._ended()

    async def kill(self) -> None:
        for session in self._started.result().sessions:
            session.abort("killed")
        if self._task is not None:
            self._task.cancel()
        await self._ended()

    async def _ended(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])


def alone(problem: Exception) -> Exception:
    """What a task group wrapped, where it is one thing."""
    while isinstance(problem, ExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    return problem


class ProcessLife:
    """A server as a process of its own, started as a user would start it, or by a program that adds to that."""

    def __init__(self, name: str, command: str, settings: Settings, directory: Path, program: str) -> None:
        self._name = name
        self._ready_path = directory / "ready.json"
        self._log_path = directory / f"{name}.log"
        self._directory = directory
        file = directory / f"{name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        self._command = [
            *_dies_with_us(),
            sys.executable,
            *("-m", program, command, "-c", str(file), "--ready-file", str(self._ready_path)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "a process has begun"
        return self._process.pid

    async def begin(self) -> int:
        self._ready_path.unlink(missing_ok=True)
        with self._log_path.open("ab") as log:
            self._process = _spawn(self._command, self._directory, log)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not self._ready_path.exists():
                    if not self.is_running:
                        raise NotStarted(f"{self._name} ended with {self._process.returncode}: {self._last_words()}")
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except TimeoutError:
            raise NotStarted(f"{self._name} was not ready after {START_LIMIT_S:g} s: {self._last_words()}") from None
        finally:
            if not self._ready_path.exists():
                await self.kill()
        ready = json.loads(self._ready_path.read_text("utf-8"))
        address = ready.get("broker") or ready["namesrv"]
        return int(address.rpartition(":")[2])

    def _last_words(self) -> str:
        return self._log_path.read_bytes()[-_SHOWN_LOG_SIZE:].decode("utf-8", "replace").strip()

    async def stop(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._ended()
        except TimeoutError:
            raise TimeoutError(
                f"{self._name} did not stop within {STOP_LIMIT_S:g} s of SIGTERM; it was killed"
            ) from None
        finally:
            await self.kill()

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self._ended()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def _ended(self) -> None:
        while self.is_running:  # noqa: ASYNC110 (another process sets no event of ours)
            await asyncio.sleep(_POLL_INTERVAL_S)


def free_port() -> int:
    """A port nobody has, and neither the VIP port below it.

    It lies below the range from which connections take theirs: otherwise a client that keeps knocking at a node that is
    down might get its port, and even reach itself.
    """
    for _ in range(_PORTS_TRIED_MAX):
        port = random.randrange(_PORT_MIN, _PORT_MAX)
        if _is_free(port) and _is_free(port - _VIP_DISTANCE):
            return port
    raise NotStarted(f"no free port found between {_PORT_MIN} and {_PORT_MAX}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _spawn(command: list[str], directory: Path, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    environment: Mapping[str, str] = {
        **os.environ,
        "HOME": str(directory),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env=dict(environment)
    )


def _dies_with_us() -> list[str]:
    """A prefix by which the kernel ends the process with the thread that started it, where the system has the tool."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv is not None else []
