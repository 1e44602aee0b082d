"""What a node reaches, and whether anybody reaches it: a test can cut a node off from one other or from all.

In service nothing is ever out of reach: a task without a `REACH` looks once for each connection, and goes on. A node
that is cut off loses all connections, in both directions, and none begins. One that refuses some ports does not dial
those. Between two nodes it is enough that neither dials the other.
"""

import asyncio
import socket
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

End = socket.socket | asyncio.WriteTransport


class Reach:
    """Of one node, through all its lives."""

    def __init__(self) -> None:
        self._is_cut_off = False
        self._refused: frozenset[int] = frozenset()
        self._accepted: list[socket.socket] = []
        self._dialled: list[tuple[End, int]] = []

    def set(self, is_cut_off: bool, refused: frozenset[int]) -> None:
        """Say what holds from now on; connections that it forbids break."""
        self._is_cut_off = is_cut_off
        self._refused = refused
        for end, port in self._dialled:
            if not self.has(port):
                _break(end)
        for accepted in self._accepted if is_cut_off else ():
            _break(accepted)

    def has(self, port: int) -> bool:
        """May this node dial that port?"""
        return not self._is_cut_off and port not in self._refused

    def admit(self, end: socket.socket) -> bool:
        """Somebody came; False, and a closed connection, where nobody may."""
        if self._is_cut_off:
            end.close()
            return False
        self._accepted = [each for each in self._accepted if not _is_over(each)]
        self._accepted.append(end)
        return True

    def note(self, end: End, port: int) -> None:
        """A connection to that port is there; it breaks where the port went out of reach meanwhile."""
        self._dialled = [each for each in self._dialled if not _is_over(each[0])]
        self._dialled.append((end, port))
        if not self.has(port):
            _break(end)


REACH: ContextVar[Reach | None] = ContextVar("REACH", default=None)


def reach_of(port: int) -> Reach | None:
    """Ask before a connection to that port; raises ConnectionRefusedError where the port is out of reach."""
    reach = REACH.get()
    if reach is not None and not reach.has(port):
        raise ConnectionRefusedError(f"cut off from port {port}")
    return reach


def accept_from(listener: socket.socket) -> tuple[socket.socket, Any]:
    """The next connection of a listener that may come in; raises OSError as the listener does."""
    reach = REACH.get()
    while True:
        end, peer = listener.accept()
        if reach is None or reach.admit(end):
            return end, peer


def _is_over(end: End) -> bool:
    return end.fileno() < 0 if isinstance(end, socket.socket) else end.is_closing()


def _break(end: End) -> None:
    if isinstance(end, socket.socket):
        with suppress(OSError):  # it may be closed, or its peer gone
            end.shutdown(socket.SHUT_RDWR)
    else:
        end.abort()
