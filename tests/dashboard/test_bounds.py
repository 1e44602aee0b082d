"""So many searches and streams at once, each search with its limits; and a browser that leaves ends its work."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette

from bolide import Producer, aio
from bolide.admin.searching import SearchLimits, SearchResult, Wanted, search
from bolide.admin.walking import TOOLS_GROUP
from bolide.clock import SystemClock
from bolide.dashboard.app import SEARCHES_MAX, build_app
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.pages import messages
from bolide.dashboard.streams import STREAMS_MAX
from bolide.testing.blocking import Cluster
from tests.dashboard.site import LIMIT_S, POLL_INTERVAL_S


class Visitor:
    """One request that a test lets go on or breaks off; `status` is None until the answer begins."""

    def __init__(self, app: Starlette, url: str) -> None:
        self._left = asyncio.Event()
        self._is_asked = False
        self.status: int | None = None
        parts = urlsplit(url)
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},  # as uvicorn says
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [(b"host", b"127.0.0.1:8082"), (b"hx-request", b"true")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8082),
        }
        self.task = asyncio.ensure_future(app(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait([self.task], timeout=LIMIT_S)
        assert self.task.done()


@asynccontextmanager
async def opened(namesrv: str) -> AsyncIterator[Starlette]:
    app = build_app(DashboardConfig(namesrv=namesrv), SystemClock())
    async with app.router.lifespan_context(app):
        yield app


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 (several things are looked at)
            await asyncio.sleep(POLL_INTERVAL_S)


def test_so_many_streams_run_and_one_that_ends_makes_room(rocket: Cluster) -> None:
    rocket.create_topic("Streamed", 1)

    async def scene() -> None:
        async with opened(rocket.namesrv) as app:
            path, streams = "/topics/Streamed/tail/events", app.state.dashboard.streams
            running = [Visitor(app, path) for _ in range(STREAMS_MAX)]
            await until(lambda: all(each.status == 200 for each in running))
            refused = Visitor(app, path)
            await until(lambda: refused.status == 503)
            await running.pop().leave()
            await until(lambda: streams.count == STREAMS_MAX - 1)
            running.append(Visitor(app, path))
            await until(lambda: running[-1].status == 200)
            for each in running:
                await each.leave()
            await until(lambda: streams.count == 0)
            gone = Visitor(app, path)
            await gone.leave()  # before the first byte
            await until(lambda: streams.count == 0)

    asyncio.run(scene())


def test_so_many_searches_run_the_next_one_waits_and_a_browser_that_leaves_ends_its_own(
    rocket: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocket.create_topic("Sought", 1)
    seen = SimpleNamespace(running=0, most=0, cancelled=0)

    async def endless(*_: object) -> SearchResult:
        seen.running += 1
        seen.most = max(seen.most, seen.running)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.cancelled += 1
            raise
        finally:
            seen.running -= 1
        raise AssertionError("nobody sets it")

    monkeypatch.setattr(messages, "search", endless)

    async def scene() -> None:
        async with opened(rocket.namesrv) as app:
            visitors = [Visitor(app, "/messages?topic=Sought") for _ in range(SEARCHES_MAX + 2)]
            await until(lambda: seen.running == SEARCHES_MAX)
            first = visitors.pop(0)
            await first.leave()
            await until(lambda: seen.cancelled == 1)
            await until(lambda: seen.running == SEARCHES_MAX)
            for each in visitors:
                await each.leave()
            await until(lambda: seen.running == 0)
            assert seen.most == SEARCHES_MAX

    asyncio.run(scene())


LIMITS = [
    (SearchLimits(record_count=20), "records"),
    (SearchLimits(size=2_000), "size"),
    (SearchLimits(time_s=-1.0), "time"),
    (SearchLimits(), ""),
]


@pytest.mark.parametrize(("limits", "stopped_by"), LIMITS)
def test_a_search_ends_at_each_of_its_limits_and_goes_on_from_there(
    rocket: Cluster, limits: SearchLimits, stopped_by: str
) -> None:
    topic = f"Limited{stopped_by}"
    rocket.create_topic(topic, 1)
    with Producer("limited", rocket.namesrv) as producer:
        for _ in range(100):
            producer.send(topic, bytes(100))

    async def scene() -> list[SearchResult]:
        wanted = Wanted(topic=topic, holds=lambda _: False)
        clock = SystemClock()
        async with aio.Admin(rocket.namesrv) as admin, admin.puller(TOOLS_GROUP) as consumer:
            first = await search(consumer, wanted, 50, limits, clock)
            return [first, await search(consumer, wanted, 50, SearchLimits(), clock, first.cursor)]

    first, rest = asyncio.run(scene())
    assert first.stopped_by == stopped_by
    assert (first.read_count < 100) == bool(stopped_by)
    assert (first.read_count + rest.read_count, rest.stopped_by) == (100, "")
    assert ("more may be there" in messages._did(first, 0, 1)) == bool(stopped_by)


def test_the_limits_are_ten_seconds_200_000_messages_and_256_mib() -> None:
    assert SearchLimits() == SearchLimits(time_s=10.0, record_count=200_000, size=256 << 20)
    assert (SEARCHES_MAX, STREAMS_MAX) == (4, 20)
