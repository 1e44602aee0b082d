"""A group for tasks of strangers: a connection is a guest, and what it breaks ends nobody else."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from bolide.remoting.sparse import Sparse

log = logging.getLogger(__name__)
log.addFilter(Sparse())


class IsolatedTasks:
    """A group of tasks that cannot harm each other: what one breaks is logged, what the body raises leaves as it is."""

    def __init__(self) -> None:
        self.group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self.group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.group.__aexit__(kind, problem, trace)
        except BaseExceptionGroup:
            if problem is None:
                raise

    def start(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = self.call(lambda: coroutine, name=name)
        task.add_done_callback(lambda _: coroutine.close())  # cancelled before its first step, it was never begun
        return task

    def call(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> asyncio.Task[None]:
        """The same for work that is called in its own task: cancelled before that, there is nothing to close."""
        return self.group.create_task(self._shelter(work, name), name=name)

    async def _shelter(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        try:
            await work()
        except Exception:
            log.exception("%s failed", name)
