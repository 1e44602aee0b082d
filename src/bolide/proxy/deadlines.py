"""The time that calls of a connection have: until their client waits no more, and until a request is whole."""

import asyncio
from collections.abc import Callable, Iterable

from bolide.clock import Clock
from bolide.proxy.calls import Call, GrpcStatus

_WHOLE_LIMIT_S = 60.0


class Deadlines:
    """Ends calls whose time is over. `refuse` is told which, and why."""

    __slots__ = ("_clock", "_loop", "_refuse")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, refuse: Callable[[Call, int, str], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._refuse = refuse

    def watch(self, calls: Iterable[Call], began_s: float) -> None:
        """A call that was not answered in its own turn has a limit."""
        for call in calls:
            if not call.is_open or call.timer is not None:
                continue
            limit_s = call.deadline_s
            if not call.is_whole and call.receiver is None:
                whole_s = began_s + _WHOLE_LIMIT_S
                limit_s = whole_s if limit_s is None else min(limit_s, whole_s)
            if limit_s is not None:
                call.timer = self._loop.call_later(max(0.0, limit_s - self._clock.monotonic_s()), self._too_late, call)

    def _too_late(self, call: Call) -> None:
        call.timer = None
        now_s = self._clock.monotonic_s()
        if call.is_whole and (call.deadline_s is None or now_s < call.deadline_s):
            self.watch([call], now_s)
        elif not call.late():
            self._refuse(call, GrpcStatus.DEADLINE_EXCEEDED, "the time of the call is over")
