"""The door above remoting: who serves the requests that arrive, and what passes between the two.

A wait shows in the type: a reply at hand is returned as it is and costs no task; an awaitable becomes a task of the
session. `take` stands before `serve` so that a whole read can be answered by one call into the kernel.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bolide.protocol.command import Command

if TYPE_CHECKING:
    from bolide.remoting.session import Session

Reply = Command | None  # None: stay silent, or answer later with `Session.answer`


@dataclass(slots=True)
class Request:
    """What a peer asks; `arrived_s` is the steady clock's."""

    command: Command
    session: "Session"
    arrived_s: float


class Owner(Protocol):
    """Who serves the requests of a session."""

    def take(self, session: "Session", stream: memoryview, bounds: list[int]) -> tuple[bytes, list[int]]:
        """Answer at once what can be: all whole frames of one read → one buffer of replies, the bounds that are left.

        `stream` is valid during the call only. Without a hot path: `return b"", bounds`.
        """
        ...

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer one request; a `Refusal` becomes an answer with its code, any other error SYSTEM_ERROR."""
        ...

    def closed(self, session: "Session", why: str) -> None:
        """The session is gone, and nothing of it runs any more; called once."""
        ...
