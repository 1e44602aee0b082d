"""What goes wrong with one thing of many: it is counted, said, and passed over, and the rest goes on.

Background work reads what lies on disks, and a disk may lie. One record, unit or table entry that cannot be understood
costs what is in it: `passing_over` stands around the work on one of them, whatever it raises. Around the whole of a
task stands `lasting`: should something come up that no single thing is to blame for, the task begins again after a
pause, for a broker that closes its ports costs everybody more than a task that is late.

Refusals pass through both `passing_over` and what stands around it: they say that the store takes nothing now, and
anyone who works on a thing tries it again later. The first few mishaps of a task are told one by one, then every time
their number has doubled, so that no number of bad records fills a disk with words.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bolide.errors import BolideError, Refusal

_TOLD_SINGLY_MAX = 8
_PAUSE_FIRST_S = 1.0
_PAUSE_MAX_S = 60.0
_REMARK_SIZE_MAX = 300
T = TypeVar("T")
log = logging.getLogger(__name__)


class Mishaps:
    """How many there were, by the task that met them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def note(self, task: str, what: str, problem: BaseException) -> None:
        """Count one, and say so if it is among the first, or their number has doubled."""
        count = self.counts[task] = self.counts.get(task, 0) + 1
        if count > _TOLD_SINGLY_MAX and count & (count - 1):
            return
        # What we raise on purpose explains itself; anything else needs the place it came from.
        trace = None if isinstance(problem, (BolideError, ValueError, OSError)) else problem
        text = f"{type(problem).__name__}: {problem}"[:_REMARK_SIZE_MAX]
        log.error("passed over in %s, number %d: %s problem=%r", task, count, what, text, exc_info=trace)

    @contextmanager
    def passing_over(self, task: str, what: Callable[[], str]) -> Iterator[None]:
        """Around the work on one thing: a failure is noted and ends it. `what` names the thing when it must."""
        try:
            yield
        except Refusal:
            raise
        except Exception as problem:
            self.note(task, what(), problem)

    def tell_all(self, task: str, hearers: Iterable[Callable[[T], object]], news: T) -> None:
        """Have each hear the news, whatever that does to another of them. Every message passes here, so it is plain."""
        for hear in hearers:
            try:
                hear(news)
            except Exception as problem:
                self.note(task, str(hear), problem)

    async def lasting(self, task: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that should never end; where it fails, again after a pause, until it ends by itself."""
        loop, pause_s = asyncio.get_running_loop(), _PAUSE_FIRST_S
        while True:
            began_s = loop.time()
            try:
                return await work()
            except Exception as problem:
                self.note(task, f"the task begins again in {pause_s:.0f} s", problem)
            await asyncio.sleep(pause_s)
            lasted = loop.time() - began_s > 2 * _PAUSE_MAX_S
            pause_s = _PAUSE_FIRST_S if lasted else min(2 * pause_s, _PAUSE_MAX_S)
