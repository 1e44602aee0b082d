"""How a method of the service is served: its request read, asked for what it needs, answered, or refused.

A wait shows in the type, as in `remoting/owner.py`: what is at hand is returned, an awaitable becomes a task of the
connection, and with None somebody answers later through the call. This is the one place where an error that nobody
meant becomes a status.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from bolide.errors import BolideError
from bolide.proxy import messages as m
from bolide.proxy.back import Back
from bolide.proxy.calls import Call, GrpcStatus
from bolide.proxy.port import Method
from bolide.proxy.statuses import Denied, denial_of, status
from bolide.remoting.sparse import Sparse

SERVICE = "apache.rocketmq.v2.MessagingService"
Needs = tuple[str | None, str | None]  # a topic, a group
Gate = Callable[[Call, Any], Awaitable[None] | None]  # raises Denied, at once or later
log = logging.getLogger(__name__)
log.addFilter(Sparse())


def _nothing(request: Any) -> Needs:
    return None, None


class Handler(NamedTuple):
    """What makes a method: the kind of its request and of its answer, and who serves it."""

    request: Any
    answer: Any
    serve: Callable[[Call, Any], Any]
    needs: Callable[[Any], Needs] = _nothing
    refuse: Callable[[Call, m.Status], None] | None = None
    read: Callable[[bytes], Any] | None = None  # sooner than protobuf, where nobody else looks at the request


class Methods:
    """Methods by path; `gate` raises Denied for what a client may not do."""

    def __init__(self, back: Back, gate: Gate | None = None) -> None:
        self._back = back
        self._gate = gate

    def table(self, handlers: dict[str, Handler]) -> dict[str, Method]:
        return {f"/{SERVICE}/{name}": Method(self._served_by(handler)) for name, handler in handlers.items()}

    def _served_by(self, handler: Handler) -> Callable[[Call, bytes], None]:
        read = handler.read if handler.read is not None and self._gate is None else handler.request.FromString

        def serve(call: Call, content: bytes) -> None:
            try:
                request = read(content)
            except DecodeError as problem:
                call.end(GrpcStatus.INTERNAL, f"the request cannot be read: {problem}")
                return
            try:
                waiting = self._gate(call, request) if self._gate is not None else None
                waiting = waiting or self._back.prepare(*handler.needs(request))
                answer = handler.serve(call, request) if waiting is None else _after(waiting, handler, call, request)
            except Exception as problem:
                _refuse(handler, call, problem)
                return
            if answer is None:
                return
            if isinstance(answer, handler.answer):
                call.reply(answer)
            else:
                call.carrier.run_task(_wait_for(handler, call, answer), f"grpc{call.path}")

        return serve


async def _after(waiting: Awaitable[None], handler: Handler, call: Call, request: Any) -> Any:
    await waiting
    answer = handler.serve(call, request)
    return answer if answer is None or isinstance(answer, handler.answer) else await answer


async def _wait_for(handler: Handler, call: Call, waiting: Awaitable[Any]) -> None:
    try:
        answer = await waiting
    except Exception as problem:
        _refuse(handler, call, problem)
        return
    if answer is not None:
        call.reply(answer)


def _refuse(handler: Handler, call: Call, problem: Exception) -> None:
    found = status_of(problem, call)
    if handler.refuse is not None:
        handler.refuse(call, found)
    else:
        call.reply(handler.answer(status=found))


def status_of(problem: Exception, call: Call) -> m.Status:
    """What a client is told; what was not meant as a refusal is logged with its traceback."""
    if isinstance(problem, Denied):
        log.debug("call refused path=%s peer=%s: %s", call.path, call.carrier.peer, problem)
        return status(problem.code, problem.text)
    if isinstance(problem, BolideError):
        denial = denial_of(problem)
        assert denial is not None, "an error is no success"
        return status(denial.code, denial.text)
    log.error("call failed path=%s peer=%s", call.path, call.carrier.peer, exc_info=problem)
    return status(m.Code.INTERNAL_SERVER_ERROR, f"{type(problem).__name__}: {problem}")
