"""A connection whose both ends are in this process: requests reach their owner without bytes, sockets and frames.

For who serves clients of another protocol beside a broker. To the owner it is a session like any other: it joins
groups, waits for messages, is asked questions, falls silent and ends. What is asked here is answered through a call of
`done`, often before `ask` returns; a request that waits leaves nothing but that.

What comes in numbers is posted instead: all that clients post in one turn of the loop is given to the owner as if it
had been read from sockets (`handle_turn`), for that way is twenty times as fast. A client that is alone does not wait
for the end of the turn (`Solitude`).
"""

import asyncio
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import ClientError
from bolide.kernel.layout import ReceiptRow
from bolide.protocol.command import FRAME_SIZE_MAX, Command, encode_commands, read_commands
from bolide.remoting.config import SessionConfig
from bolide.remoting.lines import spoken
from bolide.remoting.loop_turn import LoopTurn, Solitude
from bolide.remoting.opening import Opening
from bolide.remoting.owner import Owner, Read, Reply, Request
from bolide.remoting.pending import lost
from bolide.remoting.session import Session

Done = Callable[[Command | ClientError], None]
SentDone = Callable[[Command | ReceiptRow | ClientError], None]
Hear = Callable[[Command], Awaitable[Command] | None]
_SIZE_FIELD = 4
_config = SessionConfig()


class InsideTurn:
    """What all clients of one owner post in one turn of the loop."""

    def __init__(self, owner: Owner) -> None:
        self.loop_turn = LoopTurn(owner)
        self._sessions: list[InsideSession] = []
        self._solitude = Solitude()

    def add(self, session: "InsideSession") -> None:
        """It has begun to post."""
        if not self._sessions:
            if self._solitude.take():
                self.loop_turn.answer([session.take_posted()])
                return
            asyncio.get_running_loop().call_soon(self._end)
        self._sessions.append(session)

    def _end(self) -> None:
        sessions, self._sessions = self._sessions, []
        reads = [session.take_posted() for session in sessions]
        self._solitude.end_turn(sum(len(read.bounds) for read in reads) // 2)
        self.loop_turn.answer(reads)


class InsideSession(Session):
    """What one client asks the owner, and what the owner tells it (`hear`)."""

    __slots__ = ("_asked", "_hear", "_inside_turn", "_pieces", "_posted", "_stream")

    def __init__(self, turn: InsideTurn, clock: Clock, tasks: TaskGroup, peer: str, hear: Hear) -> None:
        """`peer` is where the client is, host:port; answers that take a task have it in `tasks`."""
        super().__init__(turn.loop_turn, _config, clock, Opening(is_tls=False, ends=(peer, "")))
        self._inside_turn = turn
        self._posted: list[Command] = []
        self._stream = memoryview(b"")  # of what was posted, while the owner works on it
        self.origin = peer.rpartition(":")[0]
        self._group = tasks
        self._hear = hear
        self._asked: dict[int, Callable[[Any], None]] = {}
        self._pieces = bytearray()

    @property
    def is_open(self) -> bool:
        return not self._is_lost

    @property
    def unsent_size(self) -> int:
        return 0

    def ask(self, command: Command, done: Done, serve: Callable[[Request], Reply] | None = None) -> Request:
        """Have a request served, by the owner or by `serve`; `done` hears the answer, or that there is none."""
        request = Request(command, self, self._clock.monotonic_s())
        if self._is_lost:
            done(lost(self.peer, self._why))
            return request
        self._number(command, done)
        if serve is None:
            spoken(self, self.serve, request)
        else:
            spoken(self, self.answer, request, partial(serve, request))
        return request

    def _number(self, command: Command, done: Callable[[Any], None]) -> None:
        command.opaque = self.pending.number()
        while command.opaque in self._asked:
            command.opaque = self.pending.number()
        self._asked[command.opaque] = done

    def post(self, command: Command, done: SentDone) -> None:
        """Have a request served at the end of this turn of the loop; a send may be answered by its receipt alone."""
        if self._is_lost:
            done(lost(self.peer, self._why))
            return
        self._number(command, done)
        self._posted.append(command)
        if len(self._posted) == 1:
            self.frame_began_s = self._clock.monotonic_s()
            self._inside_turn.add(self)

    def take_posted(self) -> Read:
        """What was posted, as if it had been read."""
        commands, self._posted = self._posted, []
        self._stream = memoryview(encode_commands(commands))
        bounds, _, problem = kernel.cut_frames(self._stream, len(self._stream), max(FRAME_SIZE_MAX, len(self._stream)))
        assert problem is None, "what we encoded can be read"
        return Read(self, self._stream, bounds)

    def read_answered(self, replies: bytes, left: list[int]) -> None:
        """The owner has done what it does at once with what was posted."""
        stream, self._stream = self._stream, memoryview(b"")
        if replies:
            bounds, _, _ = kernel.cut_frames(replies, len(replies), max(FRAME_SIZE_MAX, len(replies)))
            receipts, others = kernel.read_receipts(replies, bounds, self._asked)
            for receipt in receipts:
                self._asked.pop(receipt[0])(receipt)
            for command in read_commands(replies, others):
                self._settle(command)
        for command in read_commands(stream, left):
            if not self._is_lost:
                spoken(self, self.serve, Request(command, self, self._clock.monotonic_s()))

    def forget(self, request: Request) -> None:
        """Nobody wants the answer any more."""
        self._asked.pop(request.command.opaque, None)

    # What the owner calls

    def send(self, command: Command) -> None:
        if not self._is_lost:
            self._hear(command)

    async def request(self, command: Command, timeout_s: float) -> Command:
        answer = None if self._is_lost else self._hear(command)
        if answer is None:
            raise lost(self.peer, self._why or "it answers no such question")
        return await answer

    def finish(self, why: str) -> None:
        self.end(why)

    def close(self, why: str) -> None:
        self.end(why)

    def abort(self, why: str) -> None:
        self.end(why)

    def end(self, why: str) -> None:
        """The client is gone."""
        if self._is_lost:
            return
        self._is_lost, self._why = True, why
        asked, self._asked = list(self._asked.values()), {}
        for done in asked:
            done(lost(self.peer, why))
        self._owner.closed(self, why)
        self._be_gone()

    # What a session does with an answer

    def _answer(self, request: Request, reply: Reply) -> None:
        if reply is not None:
            self._settle(reply)

    def _settle(self, answer: Command) -> None:
        done = self._asked.pop(answer.opaque, None)
        if done is not None:
            done(answer)

    def _push(self, frames: bytes | memoryview) -> None:
        """Some owners write an answer as bytes: read it again."""
        self._pieces += frames
        while len(self._pieces) >= _SIZE_FIELD:
            end = _SIZE_FIELD + int.from_bytes(self._pieces[:_SIZE_FIELD], "big")
            if len(self._pieces) < end:
                return
            frame = bytes(self._pieces[:end])
            del self._pieces[:end]
            self._settle(read_commands(frame, [_SIZE_FIELD, end])[0])
