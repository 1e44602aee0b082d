"""Time you hold: asyncio in virtual seconds that jump when everybody is idle.

`run(coroutine)` works like `asyncio.run`, but a sleep of two minutes takes no time: as soon as no callback is ready, no
socket has bytes and no thread is at work, the loop's clock moves to the next timer. A timeout, a retry and a heartbeat
then happen in their right order and at their exact second, and a test of a 120 s limit takes milliseconds.

    from bolide.testing import VirtualClock, run

    async def scenario():
        clock = VirtualClock()
        await asyncio.sleep(120)
        assert clock.monotonic_s() == 120

    run(scenario())

Real sockets work as long as both ends live in the loop; bytes inside the operating system get a moment to arrive before
time jumps. That moment is the price: a jump past an open socket takes some real milliseconds. Work given to threads is
waited for. What another process does is not seen, and time may jump over it. A loop that waits for nothing that could
still happen says so (`NothingLeft`) instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")

# Real time for bytes on their way through the loopback interface, and for threads to come back.
_GRACE_S = 0.005
_HANG_S = 5.0


class NothingLeft(RuntimeError):
    """The coroutine waits, and there is no timer, no thread and no byte left that could wake it."""


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for sockets in real time and for timers in virtual time."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._loop.thread_count:
            return super().select(_GRACE_S)
        if timeout is None:
            ready = super().select(_HANG_S)
            if not ready:
                raise NothingLeft(f"nothing left to happen; waiting: {', '.join(self._loop.waiting_names())}")
            return ready
        # One file is the loop's own wake-up pipe; without others nothing can be on its way.
        if len(self.get_map()) > 1:
            ready = super().select(_GRACE_S)
        if not ready:
            self._loop.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time stands still while it works and jumps while it would sleep; it starts at 0."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.thread_count = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move the clock; the timers that are due by then run in the next turn."""
        assert seconds >= 0, "time does not run backwards"
        self._now_s += seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args
    ) -> "asyncio.Future[T]":
        future = super().run_in_executor(executor, func, *args)
        self.thread_count += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self.thread_count -= 1

    def waiting_names(self) -> list[str]:
        return sorted(task.get_name() for task in asyncio.all_tasks(self))


class VirtualClock:
    """A `bolide.clock.Clock` on the running loop; the wall can be set, as an operator would."""

    def __init__(self, now_ms: int = 1_700_000_000_000, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self.set_wall(now_ms)

    def now_ms(self) -> int:
        return self._wall_ms + round((self._loop.time() - self._set_at_s) * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, forward or back; the steady one does not notice."""
        self._wall_ms = now_ms
        self._set_at_s = self._loop.time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
