"""A filter in its process: started when it is needed, asked a batch at a time, killed when it takes too long.

A process that was killed or died is not missed: the next batch starts another. The one who asked hears why there is no
verdict, and never gets messages nobody decided about.
"""

import asyncio
import logging
import math
import os
import sys
from typing import NamedTuple

from bolide.errors import BolideError
from bolide.filtersrv.worker import DONE, FRAME_SIZE_MAX

START_LIMIT_S = 20.0
# The worker sees the same packages as we do and nothing else of our environment.
_PATHS = ":".join(os.path.abspath(path) for path in sys.path)
_BOOT = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(':'); from bolide.filtersrv.worker import main; main(sys.argv[1:])"
)
log = logging.getLogger(__name__)


class FilterFailed(BolideError):
    """A filter gave no verdict; the sentence says why."""


class FilterSource(NamedTuple):
    """What was uploaded for a group and a topic."""

    group: str
    topic: str
    class_name: str
    crc: int
    source: bytes


class FilterLimits(NamedTuple):
    """What one filter may take."""

    time_s: float
    memory_mb: int


class FilterProcess:
    """Runs one filter."""

    def __init__(self, source: FilterSource, limits: FilterLimits) -> None:
        self.source = source
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.is_closed = False

    async def check(self) -> None:
        """Compile the source; raises FilterFailed if it is no filter."""
        async with self._turn:
            await self._start()

    async def decide(self, records: bytes) -> bytes:
        """A byte for each record, 1 if it passes; raises FilterFailed."""
        async with self._turn:
            if self._process is None:
                await self._start()
            return await self._ask(records, self._limits.time_s)

    def close(self) -> None:
        """End the process; a filter that was replaced is not started again."""
        self.is_closed = True
        self._kill()

    def rest(self) -> None:
        """End the process until it is needed again, unless it is at work."""
        if not self._turn.locked():
            self._kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def _start(self) -> None:
        if self.is_closed:
            raise FilterFailed("the filter was replaced by a newer one; ask again")
        self._kill()
        source, limits = self.source, self._limits
        words = (source.group, source.topic, source.class_name, str(limits.memory_mb), str(math.ceil(limits.time_s)))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _BOOT, _PATHS, *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
        )
        try:
            await self._ask(source.source, START_LIMIT_S)
        except FilterFailed:
            self._kill()
            raise
        log.info("filter started group=%s topic=%s process=%s", source.group, source.topic, self.process_id)

    async def _ask(self, content: bytes, limit_s: float) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        try:
            async with asyncio.timeout(limit_s):
                process.stdin.write(len(content).to_bytes(4, "big") + content)
                await process.stdin.drain()
                size = int.from_bytes(await process.stdout.readexactly(4), "big")
                if size > FRAME_SIZE_MAX:
                    raise FilterFailed(f"an answer of {size} bytes is none")
                answer = await process.stdout.readexactly(size)
        except TimeoutError:
            raise FilterFailed(f"the filter took longer than {limit_s:g} s and was ended") from None
        except (OSError, asyncio.IncompleteReadError):
            raise FilterFailed("the filter's process ended in the middle: too much memory, or its own doing") from None
        finally:
            if not answer:
                self._kill()  # what it says later would be taken for an answer to the next
        if not answer.startswith(DONE):
            raise FilterFailed(answer[1:].decode("utf-8", "replace"))
        return answer[1:]

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            process.kill()
