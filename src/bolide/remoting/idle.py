"""One timer that looks after the silence of many connections.

A timer for each connection would be moved at every read. Here a read only notes its time; the one timer asks everybody
when they will have been silent for too long, and comes back at the earliest of these times, at most once a second. It
asks some in each turn of the loop, for thousands may have fallen silent together.
"""

import asyncio
import fcntl
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Protocol

from bolide.clock import Clock

_INTERVAL_MIN_S = 1.0
_ASKED_A_TURN_MAX = 64
_ENDED_STATES = (7, 8)  # TCP_CLOSE and TCP_CLOSE_WAIT
_SIOCOUTQNSD = 0x894B  # Linux: how much of a socket's send queue was never sent


def untaken_size(transport: asyncio.BaseTransport | None) -> int:
    """Bytes that the operating system took and could not send, because the peer's has no room for them."""
    end = transport.get_extra_info("socket") if transport is not None else None
    if end is None or end.fileno() < 0:
        return 0
    return int(struct.unpack("i", fcntl.ioctl(end.fileno(), _SIOCOUTQNSD, bytes(4)))[0])


def has_hung_up(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the peer has ended the connection, be there bytes of his that were not read."""
    end = transport.get_extra_info("socket") if transport is not None else None
    if end is None or end.fileno() < 0:
        return True
    return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _ENDED_STATES)


class Silent(Protocol):
    """What may fall silent."""

    def expire(self, now_s: float, idle_max_s: float) -> float:
        """Close after too long a silence; returns when to look again."""
        ...


class IdleSweep:
    """Ends connections on which nothing was read and nothing written for `idle_max_s`."""

    def __init__(self, connections: Callable[[], Iterable[Silent]], idle_max_s: float, clock: Clock) -> None:
        self._connections = connections
        self._idle_max_s = idle_max_s
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._left: list[Silent] = []  # to be asked
        self._next_s = 0.0
        self._timer: asyncio.Handle = self._loop.call_later(idle_max_s, self._sweep)

    def stop(self) -> None:
        self._timer.cancel()

    def _sweep(self) -> None:
        self._left = list(self._connections())
        self._next_s = self._clock.monotonic_s() + self._idle_max_s
        self._ask_some()

    def _ask_some(self) -> None:
        now_s = self._clock.monotonic_s()
        some, self._left = self._left[:_ASKED_A_TURN_MAX], self._left[_ASKED_A_TURN_MAX:]
        for connection in some:
            self._next_s = min(self._next_s, connection.expire(now_s, self._idle_max_s))
        if self._left:
            self._timer = self._loop.call_soon(self._ask_some)
        else:
            self._timer = self._loop.call_later(max(self._next_s - now_s, _INTERVAL_MIN_S), self._sweep)
