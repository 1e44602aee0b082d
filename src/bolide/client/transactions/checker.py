"""The user's function that says how a transaction ended, asked when the broker asks.

An ordinary function runs in a thread of its own, an async one in the loop; this many at a time, and this many waiting.
What it raises, what takes too long and what is no `Outcome` count as not known: the broker asks again, and the log says
why. Questions beyond the limit are dropped for the same reason.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from bolide.errors import ClientError
from bolide.model.message import StoredMessage
from bolide.protocol import sysflags

CHECK_LIMIT_S = 60.0
WAITING_MAX = 2_000
log = logging.getLogger(__name__)


class Outcome(Enum):
    """How a transaction ended, by RocketMQ's numbers."""

    COMMIT = sysflags.COMMITTED
    ROLLBACK = sysflags.ROLLED_BACK
    UNKNOWN = 0


Check = Callable[[StoredMessage], Outcome] | Callable[[StoredMessage], Awaitable[Outcome]]


class Checker:
    """Calls the function. `close` when no more questions come."""

    def __init__(self, function: Check, concurrency: int = 1) -> None:
        if concurrency < 1:
            raise ClientError(f"check_concurrency must be at least 1, not {concurrency}")
        self._function = function
        self._places = asyncio.Semaphore(concurrency)
        self._threads = None
        if not inspect.iscoroutinefunction(function):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="bolide.checker")
        self.waiting_count = 0

    @property
    def is_full(self) -> bool:
        return self.waiting_count >= WAITING_MAX

    async def outcome(self, message: StoredMessage) -> tuple[Outcome, str | None]:
        """What the function says, and a remark for the broker where it failed."""
        self.waiting_count += 1
        try:
            async with self._places, asyncio.timeout(CHECK_LIMIT_S):
                said = await self._ask(message)
        except TimeoutError:
            said = f"the checker took more than {CHECK_LIMIT_S:g} s"
            log.error("transaction not decided id=%s: %s", message.message_id, said)
        except Exception as problem:
            said = f"the checker failed: {type(problem).__name__}: {problem}"
            log.exception("transaction not decided id=%s: the checker failed", message.message_id)
        finally:
            self.waiting_count -= 1
        if isinstance(said, Outcome):
            return said, None
        if not isinstance(said, str):
            said = f"the checker returned {said!r} and no Outcome"
            log.error("transaction not decided id=%s: %s", message.message_id, said)
        return Outcome.UNKNOWN, said

    async def _ask(self, message: StoredMessage) -> object:
        if self._threads is not None:
            said = await asyncio.get_running_loop().run_in_executor(self._threads, self._function, message)
            return await said if inspect.isawaitable(said) else said
        return await self._function(message)  # type: ignore[misc]

    def close(self) -> None:
        """Ask no more; a function that runs is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
