"""Which request code is answered by whom.

A code nobody handles is answered with 3, never with silence: a missing answer costs a Java client its timeout and then
the whole connection. One-way requests are handled and, by the session, not answered.
"""

from collections.abc import Awaitable, Callable, Mapping

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.remoting.owner import Reply, Request

Handler = Callable[[Request], Reply | Awaitable[Reply]]


class Handlers:
    """A table of handlers by request code."""

    def __init__(
        self,
        *tables: Mapping[int, Handler],
        gate: Callable[[Request], None] | None = None,
        door: Callable[[Request], Awaitable[Reply] | None] | None = None,
    ) -> None:
        """`gate` raises Refusal for a request that somebody may not make; so does `door`, or it refuses later.

        The door comes before everything: nobody learns from a refusal what is behind it.
        """
        self._gate = gate
        self._door = door
        self._handlers: dict[int, Handler] = {}
        for table in tables:
            assert not self._handlers.keys() & table.keys(), "two handlers for one code"
            self._handlers.update(table)

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer one request; raises Refusal."""
        command = request.command
        if self._door is not None and (refused := self._door(request)) is not None:
            return refused
        handler = self._handlers.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if self._gate is not None:
            self._gate(request)
        try:
            # JSON can spell half a character (a lone surrogate): names with it could be kept but never written.
            "".join(command.fields.values()).encode("utf-8")
        except UnicodeEncodeError:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "a field of the header is not valid Unicode") from None
        return handler(request)


def bounded_body(request: Request, size_max: int) -> bytes:
    """The body of a request that is read at once, refused if reading it could hold up everybody."""
    body = request.command.body
    if len(body) > size_max:
        text = f"a body of {len(body)} bytes, a request {request.command.code} has at most {size_max}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, text)
    return body
