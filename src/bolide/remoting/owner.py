"""The door above remoting: who serves the requests that arrive, and what passes between the two.

A wait shows in the type: a reply at hand is returned as it is and costs no task; an awaitable becomes a task of the
session. `take` stands before `serve` so that a whole read can be answered by one call into the kernel, and the reads of
many connections, when an owner keeps what it is given to the end of the turn.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.sparse import Sparse

if TYPE_CHECKING:
    from bolide.remoting.session import Session

log = logging.getLogger(__name__)
log.addFilter(Sparse())

Reply = Command | None  # None: stay silent, or answer later with `Session.answer`
# Replies and the bounds of what is left; or the read is kept, and this ends the keeping at once.
Taken = tuple[bytes, list[int]] | Callable[[], None]


@dataclass(slots=True)
class Request:
    """What a peer asks; `arrived_s` is the steady clock's."""

    command: Command
    session: "Session"
    arrived_s: float


class Owner(Protocol):
    """Who serves the requests of a session."""

    def take(self, session: "Session", stream: memoryview, bounds: list[int]) -> Taken:
        """Answer at once what can be: all whole frames of one read → one buffer of replies, the bounds that are left.

        `stream` is valid during the call only. Without a hot path: `return b"", bounds`. Who wants more reads first
        returns a function instead and calls `session.taken` before the loop waits again; `stream` stays until then.
        """
        ...

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer one request; a `Refusal` becomes an answer with its code, any other error SYSTEM_ERROR."""
        ...

    def closed(self, session: "Session", why: str) -> None:
        """The session is gone, and nothing of it runs any more; called once."""
        ...


def failure(request: Request, problem: BaseException) -> Command:
    """The answer that tells of an error; what was not meant as a refusal is logged with its traceback."""
    command, peer = request.command, request.session.peer
    if isinstance(problem, Refusal):
        log.debug("request refused code=%d peer=%s: %s", command.code, peer, problem)
        return command.answer(problem.code, remark=problem.remark)
    if isinstance(problem, RecursionError):  # only what a peer sends has no depth that we gave it
        log.warning("request refused code=%d peer=%s: it is nested too deeply", command.code, peer)
        return command.answer(ResponseCode.SYSTEM_ERROR, remark="what the request holds is nested too deeply")
    log.error("request failed code=%d peer=%s", command.code, peer, exc_info=problem)
    return command.answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(problem).__name__}: {problem}")
