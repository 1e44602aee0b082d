"""Several servers of this machine as one unit: started in order, watched, restarted when they die, stopped together.

Each is a process of its own with the `bolide` command, so that one that dies takes nobody along. It tells that it
answers by its ready file. If the supervisor itself is killed, the system ends its children (PR_SET_PDEATHSIG), and no
port stays taken. Their log lines go to one file each, or to one log for all of them (`Child.relay`).
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from bolide.errors import BolideError
from bolide.remoting.isolated_tasks import IsolatedTasks

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
PAUSE_FIRST_S = 0.2
PAUSE_MAX_S = 10.0
_STEADY_S = 30.0  # a life longer than that makes the next death a first one
_POLL_INTERVAL_S = 0.01
_SHOWN_LOG_SIZE = 1500
_READ_SIZE = 64 << 10
_PR_SET_PDEATHSIG = 1
log = logging.getLogger(__name__)


class ChildFailed(BolideError):
    """A server that did not come up; the sentence has its last words."""


@dataclass(slots=True)
class Child:
    """One server: the words after `bolide`, and where its ready file and its log lines go.

    With `relay` whole lines go there and no file is written.
    """

    name: str
    arguments: Sequence[str]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    relay: Callable[[bytes], None] | None = None
    pid: int = 0
    start_count: int = 0
    ready: dict[str, Any] = field(default_factory=dict)
    _process: asyncio.subprocess.Process | None = None
    _lines: "_Lines | None" = None

    @property
    def ready_path(self) -> Path:
        return self.directory / f"{self.name}.ready.json"

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, and wait until it answers; raises ChildFailed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ready_path.unlink(missing_ok=True)
        with self._output() as lines:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bolide.cli.main", *self.arguments, "--ready-file", str(self.ready_path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=lines,
                stderr=lines,
                env={**os.environ, **self.environment},
                start_new_session=True,  # Ctrl-C is for the supervisor, which stops them in their order
                preexec_fn=_end_with_parent,
            )
        self.pid = self._process.pid
        self.start_count += 1
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not self.ready_path.exists():
                    if not self.is_running:
                        raise ChildFailed(f"{self.name} ended with {self._process.returncode}: {self._last_words()}")
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except TimeoutError:
            await self.stop()
            raise ChildFailed(f"{self.name} did not answer in {START_LIMIT_S:.0f} s: {self._last_words()}") from None
        self.ready = json.loads(self.ready_path.read_text("utf-8"))

    def _output(self) -> BinaryIO:
        """Where the process writes to."""
        if self.relay is None:
            return open(self.log_path, "ab")
        self._lines = _Lines(self.relay)
        return self._lines.writing_end()

    async def ended(self) -> int:
        """Wait until it is gone; returns its exit code, negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """End it as SIGTERM does; one that does not listen is killed."""
        await self._end()
        if self._lines is not None:
            self._lines.last_words()  # the loop may not turn again

    async def _end(self) -> None:
        if not self.is_running or self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            log.error("%s did not stop in %.0f s and is killed", self.name, STOP_LIMIT_S)
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _last_words(self) -> str:
        said = self._lines.last_words() if self._lines is not None else self.log_path.read_bytes()[-_SHOWN_LOG_SIZE:]
        text = said.decode("utf-8", "replace").strip()
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        if errors:
            return errors[-1].removeprefix("error: ")
        return (text or "it said nothing") + ("" if self.relay is not None else f"\n(all of it: {self.log_path})")


class _Lines:
    """What one process writes, line by line, to a log that has others' lines too; the last of it is remembered."""

    def __init__(self, relay: Callable[[bytes], None]) -> None:
        self._relay = relay
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._begun = b""
        self._last = b""
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    def writing_end(self) -> BinaryIO:
        return os.fdopen(self._writing, "wb", buffering=0)

    def last_words(self) -> bytes:
        """All that was written so far is in it, whether the loop came to read it or not."""
        while self._reading >= 0 and self._read():
            pass
        return self._last

    def _read(self) -> bool:
        """Take what is there; says whether there may be more."""
        try:
            some = os.read(self._reading, _READ_SIZE)
        except BlockingIOError:
            return False
        self._last = (self._last + some)[-_SHOWN_LOG_SIZE:]
        *lines, self._begun = (self._begun + some).split(b"\n")
        if self._begun and (not some or len(self._begun) > _READ_SIZE):
            lines, self._begun = [*lines, self._begun], b""
        if lines:
            self._relay(b"\n".join(lines) + b"\n")
        if not some:
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1
        return bool(some)


class Supervisor:
    """Keeps children alive while its `async with` block runs."""

    def __init__(self, tell: Callable[[str], Awaitable[None] | None] = log.info) -> None:
        """`tell` hears one sentence whenever a child died or is there again."""
        self._groups: list[tuple[Child, ...]] = []
        self._tell = tell
        self._watches: list[asyncio.Task[None]] = []
        self._tasks = IsolatedTasks()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch.cancel()
        # Those that were started last first: brokers take leave of their name server while it is there.
        for children in reversed(self._groups):
            await asyncio.gather(*(child.stop() for child in children))
        await self._tasks.__aexit__(kind, problem, trace)

    async def start(self, *children: Child) -> None:
        """Start them side by side, and keep them; raises ChildFailed. They are stopped side by side, too."""
        self._groups.append(children)
        outcomes = await asyncio.gather(*(child.start() for child in children), return_exceptions=True)
        for problem in filter(None, outcomes):
            raise problem
        self._watches += [self._tasks.start(self._watch(child), name=f"supervisor.{child.name}") for child in children]

    async def _watch(self, child: Child) -> None:
        pause_s = PAUSE_FIRST_S
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            code = await child.ended()
            if loop.time() - began_s > _STEADY_S:
                pause_s = PAUSE_FIRST_S
            await self._say(f"{child.name} (pid {child.pid}) {_told(code)}; starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s, began_s = min(pause_s * 2, PAUSE_MAX_S), loop.time()
            try:
                await child.start()
            except ChildFailed as problem:
                await self._say(str(problem))
            else:
                await self._say(f"{child.name} is there again (pid {child.pid})")

    async def _say(self, sentence: str) -> None:
        said = self._tell(sentence)
        if said is not None:
            await said


def _told(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _end_with_parent() -> None:
    """Runs in the child, before it becomes `bolide`: whatever ends the supervisor ends it too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
