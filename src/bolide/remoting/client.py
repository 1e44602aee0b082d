"""Requests to addresses: one connection for each, made when it is first needed.

There is no reconnect loop. A connection that ended is made again by the next request that needs it; after failures that
request fails at once until a growing pause is over, so a dead address costs its callers microseconds instead of a
connect timeout each. The pause is shortened by chance, so that a thousand clients do not come back in one moment.

    async with Client(ConnectConfig(), SystemClock()) as client:
        answer = await client.request("127.0.0.1:9876", Command(105, fields={"topic": "T"}), timeout_s=3)
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

from bolide.clock import Clock
from bolide.errors import ClientError, ConnectError, Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.remoting.address import reason_of, split_address
from bolide.remoting.config import ConnectConfig
from bolide.remoting.idle import IdleSweep
from bolide.remoting.isolated_tasks import IsolatedTasks
from bolide.remoting.loop_turn import LoopTurn, answer_each
from bolide.remoting.opening import Opening
from bolide.remoting.owner import Answered, Owner, Read
from bolide.remoting.reach import reach_of
from bolide.remoting.session import Reply, Request, Session
from bolide.remoting.shared import Shared
from bolide.remoting.tls import ConnectingTls

log = logging.getLogger(__name__)

_GOODBYE_LIMIT_S = 0.5
Handler = Callable[[Request], Reply | Awaitable[Reply]]


class Hook(Protocol):
    """Sees every request before it leaves and every answer that came: a signature is added here."""

    def before(self, address: str, command: Command) -> None: ...

    def after(self, address: str, command: Command, answer: Command) -> None: ...


def backoff_s(failure_count: int, config: ConnectConfig, chance: float) -> float:
    """How long an address rests after this many failures in a row; `chance` of 0 to 1 takes off up to a half."""
    doubled_ms = config.backoff_first_ms * 2.0 ** min(failure_count - 1, 32)
    return min(doubled_ms, config.backoff_max_ms) / 1000 * (1 - chance / 2)


class _Line:
    """What is known of one address."""

    def __init__(self) -> None:
        self.session: Session | None = None
        # While connecting: resolves to the session, or to why there is none.
        self.opening: asyncio.Future[Session | str] | None = None
        self.task: asyncio.Task[None] | None = None
        self.failure_count = 0
        self.failure = ""
        self.rests_until_s = 0.0

    @property
    def is_unused(self) -> bool:
        return self.session is None and self.opening is None

    def settle(self, outcome: Session | str) -> None:
        """Tell who waits for the connection what became of it."""
        opening, self.opening = self.opening, None
        if opening is not None:
            opening.set_result(outcome)


class Client:
    """Asks any number of addresses, and answers what they ask on the same connections."""

    def __init__(
        self,
        config: ConnectConfig,
        clock: Clock,
        *,
        hooks: Sequence[Hook] = (),
        handlers: Mapping[int, Handler] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._hooks = list(hooks)
        self._turn = LoopTurn(_Handlers({} if handlers is None else handlers))
        self._chance = chance or random.Random()
        self._tls = ConnectingTls(config)
        self._lines: dict[str, _Line] = {}
        self._forgetting_due_s = 0.0
        self._shared = Shared()
        self._tasks = IsolatedTasks()
        self._stack = AsyncExitStack()
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._tasks)
        self._sweep = IdleSweep(self.sessions, self._config.idle_max_s, self._clock)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        self._sweep.stop()
        for address in list(self._lines):
            self.close(address, "the client was closed")
        await self._stack.__aexit__(kind, problem, trace)

    @property
    def is_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self._config.is_tls

    def sessions(self) -> Iterable[Session]:
        """The connections that exist."""
        return [line.session for line in self._lines.values() if line.session is not None]

    def session_at_hand(self, address: str) -> Session | None:
        """The connection to an address if there is one and it takes bytes."""
        session = self._session(address)
        return session if session is not None and session.is_writable else None

    async def session(self, address: str, timeout_s: float) -> Session:
        """The connection to an address, made if there is none."""
        return self._session(address) or await self._connected(address, timeout_s)

    def hasten(self, address: str) -> None:
        """Somebody waits for this address: its rest is over."""
        line = self._lines.get(address)
        if line is not None:
            line.rests_until_s = 0.0

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        """Ask and wait for the answer; the time to connect counts too. Sets the command's opaque."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        session = self._session(address) or await self._connected(address, timeout_s)
        for hook in self._hooks:
            hook.before(address, command)
        answer = await session.request(command, deadline_s - self._clock.monotonic_s())
        for hook in self._hooks:
            hook.after(address, command, answer)
        return answer

    def submit(
        self, address: str, command: Command, timeout_s: float, done: Callable[[Command | ClientError], None]
    ) -> bool:
        """Ask on the connection that is at hand, without a task; false if there is none, or it has no room."""
        session = self.session_at_hand(address)
        if session is None or not session.pending.has_room:
            return False
        for hook in self._hooks:
            hook.before(address, command)

        def answered(answer: Command | ClientError) -> None:
            if isinstance(answer, Command):
                for hook in self._hooks:
                    hook.after(address, command, answer)
            done(answer)

        session.submit(command, timeout_s, answered)
        return True

    async def send_oneway(self, address: str, command: Command, timeout_s: float = 3.0) -> None:
        """Send without an answer; returns when the connection has taken it, which says nothing of the peer."""
        try:
            async with asyncio.timeout(timeout_s):
                session = self._session(address) or await self._connected(address, timeout_s)
                await session.writable()
        except TimeoutError:
            raise ConnectError(f"{address} took no bytes for {timeout_s:g} s") from None
        command.flag |= ONEWAY_FLAG
        for hook in self._hooks:
            hook.before(address, command)
        session.send(command)

    def close(self, address: str, why: str = "closed by its owner") -> None:
        """End the connection to an address; the next request makes a new one."""
        line = self._lines.get(address)
        if line is None:
            return
        if line.session is not None:
            line.session.close(why)
        if line.opening is not None and line.task is not None:
            line.task.cancel()
            line.settle(why)  # a task that is cancelled before its first step could not

    def _session(self, address: str) -> Session | None:
        line = self._lines.get(address)
        return line.session if line is not None and line.session is not None and line.session.is_open else None

    async def _connected(self, address: str, timeout_s: float) -> Session:
        """The connection that is being made, by us or by somebody before us."""
        if not self._is_open:
            raise ConnectError(f"{address}: the client is closed")
        target = split_address(address)
        line = self._lines.get(address) or self._new_line(address)
        if line.opening is None:
            rest_s = line.rests_until_s - self._clock.monotonic_s()
            if rest_s > 0:
                raise ConnectError(f"{address}: {line.failure}; next attempt in {rest_s:.1f} s")
            line.opening = asyncio.get_running_loop().create_future()
            line.task = self._tasks.start(self._keep(address, target, line), name=f"connection.{address}")
        try:
            async with asyncio.timeout(timeout_s):
                outcome = await asyncio.shield(line.opening)
        except TimeoutError:
            raise ConnectError(f"{address}: no connection within {timeout_s:g} s") from None
        if isinstance(outcome, str):
            raise ConnectError(f"{address}: {outcome}")
        return outcome

    def _new_line(self, address: str) -> _Line:
        """Only here do lines become more, so here those that failed and were not asked for again are forgotten."""
        now_s, kept_s = self._clock.monotonic_s(), self._config.backoff_max_ms / 1000
        if now_s >= self._forgetting_due_s:
            self._forgetting_due_s = now_s + kept_s  # not at each new one: it looks at all of them
            for other, line in list(self._lines.items()):
                if line.is_unused and line.rests_until_s + kept_s <= now_s:
                    del self._lines[other]
        line = self._lines[address] = _Line()
        return line

    async def _keep(self, address: str, target: tuple[str, int], line: _Line) -> None:
        """Make the connection and be there until it ends."""
        opening, line.failure = line.opening, "closed"
        session = Session(self._turn, self._config, self._clock, Opening(self._config.is_tls), self._shared)
        try:
            await session.run(lambda: self._attach(session, target, line), self._tasks)
            # Accepting and hanging up without a word is a failure too: a port without its server behind it.
            self._note_end(line, "hung up without a word" if session.has_left and not session.read_count else "")
        except OSError as problem:
            self._note_end(line, reason_of(problem) or f"no connection within {self._config.connect_timeout_ms} ms")
        finally:
            if line.session is session:
                line.session = None
            if line.opening is opening:  # otherwise it was settled, and may be another's by now
                line.settle(line.failure)
            if not line.failure_count and line.is_unused and self._lines.get(address) is line:
                del self._lines[address]

    async def _attach(self, session: Session, target: tuple[str, int], line: _Line) -> None:
        loop = asyncio.get_running_loop()
        # Java's servers do not answer the goodbye of TLS, for which asyncio would wait half a minute.
        context = self._tls.context()
        limit_s = None if context is None else _GOODBYE_LIMIT_S
        async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
            reach = reach_of(target[1])
            transport, _ = await loop.create_connection(
                lambda: session, *target, ssl=context, ssl_shutdown_timeout=limit_s
            )
        if reach is not None:
            reach.note(transport, target[1])
        line.session = session
        line.settle(session)

    def _note_end(self, line: _Line, failure: str) -> None:
        if not failure:
            line.failure_count = 0
            return
        line.failure = failure
        line.failure_count += 1
        line.rests_until_s = self._clock.monotonic_s() + backoff_s(
            line.failure_count, self._config, self._chance.random()
        )


class _Handlers(Owner):
    """The owner of a connecting side: a handler for each code a peer may ask."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = handlers

    def handle_turn(self, reads: Sequence[Read]) -> list[Answered]:
        return answer_each(reads, _settle)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        code = request.command.code
        handler = self._handlers.get(code)
        if handler is None:
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
        return handler(request)

    def closed(self, session: Session, why: str) -> None:
        pass


def _settle(read: Read) -> Answered:
    """Answers to requests that their sender keeps go to it; the session sees to the others."""
    bulk = read.session.pending.bulk
    return b"", bulk.take(read.stream, read.bounds) if bulk else read.bounds
