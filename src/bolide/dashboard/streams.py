"""Streams of events to browsers (SSE): so many at once, each with an end, and gone when the browser goes."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

STREAMS_MAX = 20
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """How many run."""

    def __init__(self) -> None:
        self.count = 0

    def respond(self, events: AsyncIterator[str], limit_s: float) -> Response:
        """A stream, or a refusal where there are too many."""
        return _Stream(self, _until(events, limit_s))


class _Stream(StreamingResponse):
    """One of them: it is counted while it is served, and not from its making, for a browser may leave in between."""

    def __init__(self, streams: Streams, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_HEADERS)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams.count >= STREAMS_MAX:
            refusal = PlainTextResponse(f"{STREAMS_MAX} streams run already; close a page that shows one\n", 503)
            await refusal(scope, receive, send)
            return
        self._streams.count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.count -= 1


async def _until(events: AsyncIterator[str], limit_s: float) -> AsyncIterator[bytes]:
    try:
        async with asyncio.timeout(limit_s):
            async for event in events:
                yield event.encode()
    except TimeoutError:
        yield named("done", "ended").encode()


def data(text: str) -> str:
    """One event that a page swaps in; a line of it is a line of the event."""
    lines = text.replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines) + "\n"


def named(name: str, text: str) -> str:
    """One event with a name, that a script hears."""
    return f"event: {name}\ndata: {text}\n\n"
