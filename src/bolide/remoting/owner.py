"""The door above remoting: who serves the requests that arrive, and what passes between the two.

A wait shows in the type: a reply at hand is returned as it is and costs no task; an awaitable becomes a task of the
session. `handle_turn` stands before `serve` so that the reads of many connections, and all requests of each, can be
answered by one call into the kernel. What it leaves is served one by one.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.sparse import Sparse

if TYPE_CHECKING:
    from bolide.remoting.session import Session

log = logging.getLogger(__name__)
log.addFilter(Sparse())

Reply = Command | None  # None: stay silent, or answer later with `Session.answer`
Answered = tuple[bytes, list[int]]  # of one read: a buffer of replies, and the bounds of the frames that are left


class Read(NamedTuple):
    """All whole frames that one read of a connection brought; the stream is valid during the turn only."""

    session: "Session"
    stream: memoryview
    bounds: list[int]  # of frames in the stream: start, end, start, end


@dataclass(slots=True)
class Request:
    """What a peer asks; `arrived_s` is the steady clock's."""

    command: Command
    session: "Session"
    arrived_s: float
    is_held: bool = False  # it waited for something to come
    is_failed: bool = False  # by a mistake of ours
    recheck: "Callable[[Request], None] | None" = None  # asked before a late answer; raises Refusal


class Owner(Protocol):
    """Who serves the requests of a session."""

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        """Answer at once what can be of the reads of one turn of the loop; for each read what is answered and left.

        What it raises costs every connection of that turn, for half of it may have been carried out.
        """
        return [(b"", bounds) for _, _, bounds in reads]

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer one request; a `Refusal` becomes an answer with its code, any other error SYSTEM_ERROR."""
        ...

    def on_answer(self, request: Request, answer: Command) -> None:
        """A request that was served one by one has its answer; one that was one-way would have had this one."""
        return

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
    request.is_failed = True
    log.error("request failed code=%d peer=%s", command.code, peer, exc_info=problem)
    return command.answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(problem).__name__}: {problem}")
