"""Memory that a burst leaves behind, given back to the system.

The C library keeps what was freed for anyone who asks next: tens of megabytes after some large bodies have come and
gone, in each of its arenas. When connections have left and more is resident than there once was, by a good deal, a
thread tells it to let go; the loop goes on meanwhile. There are two looks, for what the last to leave had may be freed
later.

Python's own allocator gives back arenas of a megabyte, whole or not at all. After a crowd has left, one small object in
each keeps them, so nothing that is made meanwhile may stay: no buffer that the crowd used, no thread, and none of the
objects that Python itself keeps for the next one of their kind, which a full collection frees. That also frees what is
held in cycles: servers have the collector go through everything a tenth as often as by default (`cli/start.py`).

A timer that was set among the crowd may keep an arena for some seconds more. So if an attempt did not help, there is
another. What is really held stays, and letting go of nothing costs time as well: each is twice as late as the one
before, and after some only those come that somebody's leaving asks for. But what did not help while a crowd was here
says nothing of the time when it has gone: then the next attempt is at once.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path

LOOK_AFTER_S = 1.0  # what a connection held is mostly freed by then, and many that leave together are looked at once
LAST_LOOK_AFTER_S = 2.0  # after the first
REST_MAX_S = 600.0
_REST_BY_ITSELF_MAX_S = 8.0
_REST_S = 0.5
_GROWTH_FREE = 2 << 20  # with the share a sixth of a small server
_GROWTH_SHARE = 10
_HELP_SHARE = 20
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
log = logging.getLogger(__name__)


def own_size() -> int:
    """Resident memory without that of mapped files; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/statm").read_bytes().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_SIZE
    return 0


@functools.cache
def found_trim() -> Callable[[int], int] | None:
    """glibc's way to give memory back. A server asks for it at its start: what is loaded after a crowd would stay."""
    import ctypes  # clients and commands hardly come here

    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def let_go() -> None:
    """Return free memory to the system; blocks for milliseconds. Without glibc it does less."""
    gc.collect()
    if (trim := found_trim()) is not None:
        trim(0)


class Slack:
    """Looks after connections have left; one for a process, for its memory is one."""

    def __init__(self, spare: list[memoryview]) -> None:
        """`spare` are buffers that are kept to be read into; those who stay soon have some again."""
        self.let_go_count = 0
        self._spare = spare
        self._least_size = own_size()
        self._timer: asyncio.TimerHandle | None = None
        self._have_more_left = False
        self._rests_until_s = 0.0
        self._rest_s = _REST_S
        self._here_count = 0
        self._crowd_count = 0  # who was here when the last attempt did not help

    def came(self) -> None:
        """Somebody is here."""
        self._here_count += 1

    def left(self) -> None:
        """Somebody has gone, and perhaps what he made us hold."""
        self._here_count -= 1
        self._have_more_left = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look, False)

    def stop(self) -> None:
        self._rest_s = REST_MAX_S  # of an attempt under way nothing follows
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, is_last: bool) -> None:
        loop = asyncio.get_running_loop()
        is_last = is_last and not self._have_more_left
        self._have_more_left = False
        self._timer = None if is_last else loop.call_later(LAST_LOOK_AFTER_S, self._look, True)
        self._spare.clear()
        size, least_size = own_size(), self._least_size
        self._least_size = min(size, least_size)
        has_grown = size > least_size + least_size // _GROWTH_SHARE + _GROWTH_FREE
        if self._here_count < self._crowd_count // 2:
            self._rests_until_s, self._rest_s, self._crowd_count = 0.0, _REST_S, 0
        if has_grown and loop.time() >= self._rests_until_s:
            self._let_go(size)
        elif has_grown and is_last:
            self._timer = loop.call_at(self._rests_until_s, self._look, True)

    def _let_go(self, size: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        thread = ThreadPoolExecutor(1, "slack")
        letting_go = asyncio.get_running_loop().run_in_executor(thread, let_go)
        letting_go.add_done_callback(lambda _: self._note(size))
        thread.shutdown(wait=False)

    def _note(self, before_size: int) -> None:
        self.let_go_count += 1
        freed_size = before_size - own_size()
        log.debug("memory given back to the system: %d of %d bytes", freed_size, before_size)
        has_helped = freed_size > before_size // _HELP_SHARE
        self._rest_s = _REST_S if has_helped else min(2 * self._rest_s, REST_MAX_S)
        self._rests_until_s = asyncio.get_running_loop().time() + (0.0 if has_helped else self._rest_s)
        self._crowd_count = 0 if has_helped else self._here_count
        if not has_helped and self._timer is None and self._rest_s <= _REST_BY_ITSELF_MAX_S:
            self._timer = asyncio.get_running_loop().call_at(self._rests_until_s, self._look, True)
