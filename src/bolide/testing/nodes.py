"""One server of a cluster under test: in this process or in one of its own, to be stopped, killed and started again.

A node keeps its directory and its port through all its lives, so clients find it where it was. In this process a kill
is the nearest thing to one: every connection breaks at once, nobody is told goodbye, the store keeps its abort file and
recovers in full at the next start. A process is killed with SIGKILL, which spares nothing.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import IO, Protocol

from bolide.clock import Clock
from bolide.errors import BolideError
from bolide.remoting import ports
from bolide.remoting.reach import REACH, Reach
from bolide.remoting.server import Server
from bolide.testing.cuttable import SIGNAL, Cuts, applied_reach, write_reach

HOST = "127.0.0.1"
START_LIMIT_S = 60.0  # of a machine with much else to do
STOP_LIMIT_S = 30.0
_POLL_INTERVAL_S = 0.005
_SHOWN_LOG_SIZE = 2000
_PORTS_TRIED_MAX = 100

Settings = dict[str, str]
Serve = Callable[[Settings, Clock], AbstractAsyncContextManager[Server]]


class NotStarted(BolideError):
    """A node that did not come up; the sentence has its last words."""


class NotFrozen(BolideError):
    """A node that cannot be held, for it has no process of its own."""


class Life(Protocol):
    """One run of a node, from its start to its end; `begin` returns the port it listens on."""

    @property
    def is_running(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    async def begin(self) -> int: ...

    def cut(self, cuts: Cuts) -> None: ...

    def is_cut(self, cuts: Cuts) -> bool: ...

    async def stop(self) -> None: ...

    async def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class AsyncNode:
    """A name server, a controller or a broker of the cluster."""

    def __init__(self, name: str, directory: Path, settings: Settings, live: Callable[[Settings], Life]) -> None:
        self.name = name
        self.directory = directory
        self.settings = settings
        self.port = 0
        self.is_frozen = False
        self._cuts = Cuts()
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
    def is_reachable(self) -> bool:
        """Does it answer? One that is frozen or cut off does not."""
        return self.is_running and not self.is_frozen and not self._cuts.is_cut_off

    @property
    def ports(self) -> frozenset[int]:
        """Every port it may listen on."""
        return frozenset(self.port + distance for distance in (0, *ports.BROKER_NEIGHBOURS))

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
            life.cut(self._cuts)
            try:
                self.port = await life.begin()
            except BolideError:
                # Somebody may have been quicker; a port that is ours already is not given up.
                if self.port or _is_free_for_node(port) or attempt == _PORTS_TRIED_MAX - 1:
                    raise
            else:
                self._life = life
                return

    async def stop(self) -> None:
        """End it as SIGTERM does: what was begun is answered, everything is saved."""
        life, self._life, self.is_frozen = self._life, None, False
        if life is not None:
            await life.stop()

    async def kill(self) -> None:
        """End it as `kill -9` does: nothing is answered and nothing more is saved."""
        life, self._life, self.is_frozen = self._life, None, False
        if life is not None:
            await life.kill()

    async def restart(self) -> None:
        """Stop it if it runs, then start it."""
        await self.stop()
        await self.start()

    async def cut(self, cuts: Cuts) -> None:
        """Say what it does not reach, in this life and in later ones; returns when that holds."""
        self._cuts = cuts
        if self._life is None:
            return
        self._life.cut(cuts)
        while self.is_running and not self.is_frozen and not self._life.is_cut(cuts):  # noqa: ASYNC110 (as below)
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def freeze(self) -> None:
        """Hold its process (SIGSTOP): its connections stay, and it answers nothing until `thaw`."""
        if self._life is None:
            raise NotStarted(f"{self.name} is not running")
        self._life.freeze()
        self.is_frozen = True

    async def thaw(self) -> None:
        """Let it run on where it was held."""
        if self._life is not None and self.is_frozen:
            self._life.thaw()
        self.is_frozen = False


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
        self._reach = Reach()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def pid(self) -> int:
        return os.getpid()

    async def begin(self) -> int:
        life = self._run()
        try:
            self._task = self._group.create_task(life, name=f"cluster.{self._name}")
        except RuntimeError:  # the cluster has fallen, and takes nobody in any more
            life.close()
            raise
        return (await self._started).port

    async def _run(self) -> None:
        """A start that fails is the caller's to hear; a fall later takes the whole cluster with it."""
        REACH.set(self._reach)
        try:
            async with self._serve(self._settings, self._clock) as server:
                self._started.set_result(server)
                await self._leaving.wait()
        except Exception as problem:
            if self._started.done():
                raise
            self._started.set_exception(alone(problem))

    def cut(self, cuts: Cuts) -> None:
        self._reach.set(*cuts)

    def is_cut(self, cuts: Cuts) -> bool:
        return True  # at once

    async def stop(self) -> None:
        self._leaving.set()
        await self._ended()

    async def kill(self) -> None:
        for session in self._started.result().sessions:
            session.abort("killed")
        if self._task is not None:
            self._task.cancel()
        await self._ended()

    def freeze(self) -> None:
        raise NotFrozen(f"{self._name} lives in this process, which cannot be frozen; use cluster(processes=True)")

    def thaw(self) -> None:
        """Nothing is frozen here."""

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
        self._reach_path = directory / "reach.json"
        self._log_path = directory / f"{name}.log"
        self._directory = directory
        file = directory / f"{name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        self._command = [
            *_dies_with_us(),
            sys.executable,
            *("-m", "bolide.testing.cuttable", str(self._reach_path)),
            *(program, command, "-c", str(file), "--ready-file", str(self._ready_path)),
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
        address = ready.get("broker") or ready.get("controller") or ready["namesrv"]
        return int(address.rpartition(":")[2])

    def _last_words(self) -> str:
        return self._log_path.read_bytes()[-_SHOWN_LOG_SIZE:].decode("utf-8", "replace").strip()

    async def stop(self) -> None:
        self._signal(signal.SIGTERM)
        self.thaw()  # one that is frozen would not hear it
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

    def cut(self, cuts: Cuts) -> None:
        write_reach(self._reach_path, cuts)
        self._signal(SIGNAL)

    def is_cut(self, cuts: Cuts) -> bool:
        return applied_reach(self._reach_path) == cuts

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def _ended(self) -> None:
        while self.is_running:  # noqa: ASYNC110 (another process sets no event of ours)
            await asyncio.sleep(_POLL_INTERVAL_S)


def _is_free_for_node(port: int) -> bool:
    return all(ports.is_free(port + distance) for distance in (0, *ports.BROKER_NEIGHBOURS))


def free_port() -> int:
    """A port for a node: neither it nor those that a broker takes beside it belong to anybody."""
    return ports.free_port(*ports.BROKER_NEIGHBOURS)


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
