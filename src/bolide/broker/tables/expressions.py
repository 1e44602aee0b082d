"""SQL92 expressions that requests bring, each compiled once and in turns.

A thousand characters take some 4 ms to compile, and everybody on the loop waits meanwhile. So a text that nobody has
seen is compiled in a thread and in its turns (`remoting/slow_work.py`), unless it is short, and its request is served
again when that is done (`serving`). Who sends new ones without end has his share of the turns and takes nothing from
others.

The compiled take a hundred times the length of their text, so only some are remembered. Anyone who waits with one, a
pull that is parked or a filter that a group has, keeps it alive, and as long as it lives it is known.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from weakref import WeakValueDictionary

from bolide.errors import Refusal
from bolide.filter.sql import EXPRESSION_LENGTH_MAX, SQL92, Predicate, SqlError, compile_sql
from bolide.protocol.codes import ResponseCode
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.remoting.session import Session
from bolide.remoting.slow_work import alone, place_of

REMEMBERED_COUNT_MAX = 256
REMEMBERED_LENGTH_MAX = 48 * 1024  # five megabytes as compiled
AT_ONCE_LENGTH_MAX = 128  # half a millisecond


class Uncompiled(Refusal):
    """An expression has to be compiled first. Where nobody does so, its sender is told to ask again."""

    def __init__(self, text: str) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, "the SQL92 expression is being compiled; try again")
        self.text = text


class Expressions:
    """What was compiled lately, or is in use."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, Predicate | SqlError] = OrderedDict()
        self._recent_length = 0
        self._alive: WeakValueDictionary[str, Predicate] = WeakValueDictionary()
        self._underway: dict[str, asyncio.Event] = {}

    def is_slow(self, text: str) -> bool:
        """Whether it has to be compiled, and that takes its time."""
        return AT_ONCE_LENGTH_MAX < len(text) <= EXPRESSION_LENGTH_MAX and self._known(text) is None

    def compiled(self, expression: str | None, expression_type: str | None) -> Predicate:
        """The predicate of an expression that a request brought; raises SqlError, or Uncompiled."""
        text = expression or ""
        if expression_type == SQL92 and self.is_slow(text):
            raise Uncompiled(text)
        return self.compiled_at_once(text, expression_type)

    def compiled_at_once(self, text: str, expression_type: str | None) -> Predicate:
        """The same, however long it takes; raises SqlError."""
        if expression_type != SQL92:
            raise SqlError(f"messages are filtered by TAG or {SQL92}, not by {expression_type}")
        found = self._known(text)
        if found is None:
            found = _compiled(text)
        self._remember(text, found)
        if isinstance(found, SqlError):
            raise found
        return found

    def serving(self, handler: Handler) -> Handler:
        """The handler, begun again when the expression that its request brought has been compiled."""

        def serve(request: Request) -> Reply | Awaitable[Reply]:
            try:
                return handler(request)
            except Uncompiled as unknown:
                return self._serve_later(handler, request, unknown.text)

        return serve

    async def compile_in_turns(self, text: str, session: Session) -> Predicate | SqlError:
        """Make it known, as long as the result is held; raises Refusal if its sender has too many of the kind."""
        while (found := self._known(text)) is None:
            if text in self._underway:
                await self._underway[text].wait()
                continue
            done = self._underway[text] = asyncio.Event()
            try:
                with place_of(session, len(text)) as place, alone(session):
                    found = await place.in_thread(partial(_compiled, text, place.breather()))
                    self._remember(text, found)
            finally:
                del self._underway[text]
                done.set()
        return found

    async def _serve_later(self, handler: Handler, request: Request, text: str) -> Reply:
        held = await self.compile_in_turns(text, request.session)
        answered = handler(request)
        reply = await answered if isawaitable(answered) else answered
        del held  # by now anyone who needs it has it
        return reply

    def _known(self, text: str) -> Predicate | SqlError | None:
        return self._recent.get(text) or self._alive.get(text)

    def _remember(self, text: str, found: Predicate | SqlError) -> None:
        if text in self._recent:
            self._recent.move_to_end(text)
        if text in self._recent or len(text) > EXPRESSION_LENGTH_MAX:
            return
        if isinstance(found, Predicate):
            self._alive[text] = found
        self._recent[text] = found
        self._recent_length += len(text)
        while len(self._recent) > REMEMBERED_COUNT_MAX or self._recent_length > REMEMBERED_LENGTH_MAX:
            self._recent_length -= len(self._recent.popitem(last=False)[0])


def _compiled(text: str, breathe: Callable[[], None] | None = None) -> Predicate | SqlError:
    try:
        return compile_sql(text, breathe)
    except SqlError as problem:
        return SqlError(*problem.args)  # without the frames in which it was found
