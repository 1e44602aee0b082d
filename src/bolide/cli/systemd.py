"""What a server tells systemd (`Type=notify`): that it answers, that it stops, and, for a watchdog, that it lives.

The protocol is a datagram of `NAME=value` lines to the socket that $NOTIFY_SOCKET names. Without it nothing is sent.
The variables are taken out of the environment: processes that a server starts are not who systemd asked.
"""

import contextlib
import os
import socket
from collections.abc import Iterator

_address = os.environ.pop("NOTIFY_SOCKET", "")
_watchdog_pid = os.environ.pop("WATCHDOG_PID", "")
_watchdog_us = os.environ.pop("WATCHDOG_USEC", "")
READY, STOPPING, _ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def tell(*lines: str) -> None:
    """Send it, if anybody wants to know; one who does not take it keeps no server from its work."""
    if not _address:
        return
    place = f"\0{_address[1:]}" if _address.startswith("@") else _address
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.sendto("\n".join(lines).encode(), place)


@contextlib.contextmanager
def beating() -> Iterator[None]:
    """Tell the watchdog from this loop, twice in its time, that the loop turns."""
    if not _watchdog_us.isdecimal() or _watchdog_pid not in ("", str(os.getpid())):
        yield
        return
    import asyncio

    loop, interval_s = asyncio.get_running_loop(), int(_watchdog_us) / 2e6
    next_beat: asyncio.TimerHandle

    def beat() -> None:
        nonlocal next_beat
        tell(_ALIVE)
        next_beat = loop.call_later(interval_s, beat)

    beat()
    try:
        yield
    finally:
        next_beat.cancel()
