"""Many calls at once, but not all at once: a cluster that is asked about thousands of things has other work too."""

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from bolide.errors import BolideError

AT_ONCE_MAX = 16
CALL_LIMIT_S = 5.0
T = TypeVar("T")
K = TypeVar("K")


def _closed(asking: Coroutine[Any, Any, object], _: object) -> None:
    asking.close()


async def gathered(
    asked: Mapping[K, Coroutine[Any, Any, T]], limit_s: float = CALL_LIMIT_S
) -> dict[K, T | BolideError | TimeoutError]:
    """Many calls, some at once and each with a limit; one that fails gives its error, and the others go on."""
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(asking: Coroutine[Any, Any, T]) -> T | BolideError | TimeoutError:
        try:
            async with gate, asyncio.timeout(limit_s):
                return await asking
        except (BolideError, TimeoutError) as problem:
            return problem

    async with asyncio.TaskGroup() as group:
        tasks = {key: group.create_task(one(asking), name="dashboard.call") for key, asking in asked.items()}
        for key, asking in asked.items():
            # Cancelled before its first step, a call was never begun.
            tasks[key].add_done_callback(partial(_closed, asking))
    return {key: task.result() for key, task in tasks.items()}
