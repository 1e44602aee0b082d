"""Streams of events to browsers (SSE): so many at once, each with an end, and gone when the browser goes."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import PlainTextResponse, Response, StreamingResponse

STREAMS_MAX = 20
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """How many run."""

    def __init__(self) -> None:
        self.count = 0

    def respond(self, events: AsyncIterator[str], limit_s: float) -> Response:
        """A stream, or a refusal where there are too many."""
        if self.count >= STREAMS_MAX:
            return PlainTextResponse(f"{STREAMS_MAX} streams run already; close a page that shows one\n", 503)
        self.count += 1
        return StreamingResponse(self._counted(events, limit_s), media_type="text/event-stream", headers=_HEADERS)

    async def _counted(self, events: AsyncIterator[str], limit_s: float) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(limit_s):
                async for event in events:
                    yield event.encode()
        except TimeoutError:
            yield named("done", "ended").encode()
        finally:
            self.count -= 1


def data(text: str) -> str:
    """One event that a page swaps in; a line of it is a line of the event."""
    lines = text.replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines) + "\n"


def named(name: str, text: str) -> str:
    """One event with a name, that a script hears."""
    return f"event: {name}\ndata: {text}\n\n"
